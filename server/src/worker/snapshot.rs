//! A worker's snapshots for an operator. They cost nothing while nobody asks.

use ackpace_core::conn::{ConnId, TcpSample};
use ackpace_core::units::Instant;
use ackpace_core::why::Decision;
use ackpace_core::worker::Snapshot;

use super::{Conn, Worker};
use crate::answers::{
    Answer, Ask, Connection, Placement, Question, Response, Target, Told, WorkerRow,
};
use crate::cluster::{By, Cluster, Placing};
use crate::count::Count;

impl Worker {
    /// Answers a question of an operator.
    pub(super) fn tell(&mut self, question: &Question, now: Instant) {
        let answer = match question.ask {
            Ask::Top(most) => self.top(most, now),
            Ask::Piece(from, most) => self.piece(from, most, now),
            Ask::Census => {
                self.tally.decided.stand(&self.decider.census(now));
                Answer::Nothing
            }
            Ask::Why(target) => self.why(target, now),
        };
        // The receiver may have timed out.
        let _ = question.reply.try_send(answer);
    }

    fn top(&mut self, most: usize, now: Instant) -> Answer {
        let mut snapshots: Vec<Snapshot> = self.decider.snapshots(0, now).collect();
        let sending = snapshots.len() as u64;
        let believed = snapshots
            .iter()
            .map(|snapshot| snapshot.believed_bytes_per_s);
        let believed_bytes_per_s = believed.fold(0, u64::saturating_add);
        snapshots.sort_unstable_by_key(|snapshot| std::cmp::Reverse(snapshot.rate_bytes_per_s));
        // Only the first are described by TCP: that is a system call or two each.
        let others = snapshots.split_off(most.min(snapshots.len()));
        let connections = snapshots
            .into_iter()
            .filter_map(|snapshot| self.connection(snapshot, now));
        let connections: Vec<Connection> = connections.collect();
        let rates = others.iter().map(|snapshot| snapshot.rate_bytes_per_s);
        let rates = rates.chain(connections.iter().map(|shown| shown.rate_bytes_per_s));
        let row = WorkerRow {
            worker: self.index as u16,
            connections: self.decider.connections().into(),
            sending,
            rate_bytes_per_s: rates.fold(0, u64::saturating_add),
            believed_bytes_per_s,
            target_us: self.decider.target_us(),
            sent_bytes: self.tally.sent_bytes.iter().map(Count::get).sum(),
            wakeups: self.tally.wakeups.get(),
        };
        Answer::Top(row, connections)
    }

    fn piece(&mut self, from: u32, most: usize, now: Instant) -> Answer {
        let snapshots: Vec<Snapshot> = self.decider.snapshots(from, now).take(most).collect();
        let full = snapshots.last().filter(|_| snapshots.len() == most);
        let next = full.map(|snapshot| snapshot.conn.index + 1);
        let connections = snapshots.into_iter().filter_map(|snapshot| {
            let place = snapshot.conn.index;
            Some((place, self.connection(snapshot, now)?))
        });
        Answer::Piece(connections.collect(), next)
    }

    fn why(&mut self, target: Target, now: Instant) -> Answer {
        let id = match target {
            Target::Name { worker, conn } => (usize::from(worker) == self.index).then_some(conn),
            Target::Peer(peer) => self.conns.of_peer(peer),
        };
        let Some(id) = id else {
            return Answer::Nothing;
        };
        let decisions = self.decisions_on(id, now);
        let snapshot = self.decider.snapshot_of(id, now);
        let connection = snapshot.and_then(|snapshot| self.connection(snapshot, now));
        match connection.is_none() && decisions.iter().all(|told| told.is_about_all) {
            true => Answer::Nothing,
            false => Answer::Why(connection.map(Box::new), decisions),
        }
    }

    /// The decisions about a connection, and those about all connections since its first one.
    fn decisions_on(&self, id: ConnId, now: Instant) -> Vec<Told> {
        let told = |decision: &Decision| Told {
            ago_us: now.since_us(decision.at),
            is_about_all: decision.conn.is_none(),
            text: decision.what.to_string(),
        };
        let decisions = self.decider.decisions();
        decisions
            .skip_while(|decision| decision.conn != Some(id))
            .filter(|decision| decision.conn.is_none_or(|conn| conn == id))
            .map(told)
            .collect()
    }

    /// The state of a connection in the machine and in the kernel.
    fn connection(&mut self, snapshot: Snapshot, now: Instant) -> Option<Connection> {
        let conn = self.conns.get(snapshot.conn)?;
        let sample = conn.transport.sample();
        let snapshot = snapshot.seen_with(&sample, now);
        let (path, flow) = (sample.path, sample.flow);
        let peer = conn
            .peer
            .map_or_else(|| "unix".to_owned(), |peer| peer.to_string());
        let object = conn
            .body
            .source
            .as_ref()
            .map(|source| self.shared.site.shown_source(source));
        let response = snapshot.response.map(|response| Response {
            wait: response.wait.name().to_owned(),
            wait_us: response.wait_us,
            top_up: response.top_up.name().to_owned(),
            sent_bytes: response.sent_bytes,
            left_bytes: response.left_bytes,
            took_us: response.took_us,
            waited_disk_us: response.waited_disk_us,
            waited_net_us: response.waited_net_us,
        });
        let ConnId { index, generation } = snapshot.conn;
        Some(Connection {
            id: format!("{}.{index}.{generation}", self.index),
            peer,
            phase: snapshot.phase.to_owned(),
            object,
            rate_bytes_per_s: snapshot.rate_bytes_per_s,
            believed_bytes_per_s: snapshot.believed_bytes_per_s,
            margin_us: snapshot.margin_us,
            fill_bytes: snapshot.fill_bytes,
            share_bytes: conn.bound.map(|bound| bound.share_bytes()),
            unsent_bytes: sample.unsent_bytes,
            in_flight_bytes: in_flight_bytes(&sample),
            rtt_us: flow.map(|_| sample.rtt_us),
            cwnd_bytes: flow.map(|_| path.cwnd_bytes),
            window_bytes: flow.map(|flow| flow.window_bytes),
            retransmitted_segments: flow.map(|_| path.resent_segments.into()),
            window_limited_us: flow.map(|flow| flow.window_limited_us),
            response,
            placement: (self.shared.cluster.as_deref())
                .and_then(|cluster| placement(conn, cluster)),
        })
    }
}

/// Where a connection and its response came from.
fn placement(conn: &Conn, cluster: &Cluster) -> Option<Placement> {
    let (names, me) = (cluster.nodes(), cluster.me());
    let (flow, placing) = (conn.flow.as_deref(), conn.placing.as_deref());
    let placing = placing.filter(|_| conn.body.source.is_some());
    let name = |node: usize| names.get(node).filter(|_| node != me).cloned();
    let is_elsewhere = |placing: &&Placing| placing.by != By::Here;
    let chosen = placing.filter(is_elsewhere).and_then(|it| it.chosen);
    (flow.is_some() || placing.is_some()).then(|| Placement {
        by: placing.map(|placing| placing.by.name().to_owned()),
        from: chosen.and_then(|chosen| name(chosen.node)),
        why: placing.map(|placing| placing.why(&names, me)),
        home: flow.and_then(|flow| flow.home).and_then(name),
        moves: conn.moves(),
    })
}

/// D0: bytes sent and not acknowledged; `None` for sockets that are not TCP.
fn in_flight_bytes(sample: &TcpSample) -> Option<u64> {
    Some(sample.unacked_bytes.saturating_sub(sample.unsent_bytes?))
}
