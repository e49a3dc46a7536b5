//! Where the bytes of a planned response come from, if this node is one of a cluster: from here, or from a node that has them in
//! memory ([`ackpace_core::place`]).

use std::sync::Arc;

use ackpace_core::conn::{Part, Plan, ResidencySource, StreamId, WantSeq};
use ackpace_core::disk::ReadError;
use ackpace_core::machine::Machine;
use ackpace_core::place::{How, Response};
use ackpace_core::units::Instant;
use ackpace_core::worker::{In, LocalFile};

use super::Worker;
use super::conns::Conn;
use crate::cluster::{By, Cluster, Placing, key_of};
use crate::front::planning::validators;
use crate::front::site::{Served, Site};
use crate::gateway::Object;
use crate::log::Topic;
use crate::source::Source;

/// By which node a response is sent.
pub(super) enum Placed {
    /// By this one, from its own files.
    Here,
    /// By this one, which has the bytes of another node's object, or gets them. The plan names that.
    Bytes(Arc<Object>),
    /// By another one, to which the connection goes if it can. Until then the plan names the other node's object.
    There(usize, Arc<Object>),
    /// By another one than this guest of a connection: back to the node that accepted it.
    Home,
}

/// Chooses by which node the body of a planned response is sent.
pub(super) fn placed(
    (cluster, site): (&Cluster, &Site),
    conn: &mut Conn,
    served: &Served,
    plan: &mut Plan,
    now: Instant,
) -> Placed {
    let bodies = plan.parts.iter().filter_map(|part| match part {
        Part::Body { span, .. } => Some(span.len_bytes),
        _ => None,
    });
    let len_bytes: u64 = bodies.sum();
    let (Some(peers), true) = (&site.peers, len_bytes > 0 && !conn.is_of_node) else {
        return Placed::Here;
    };
    let (key, validators) = (key_of(&served.path), validators(served, site));
    let file = (&*served.path, served.version.len_bytes);
    let is_hot_here = peers.is_hot(key, served.version.len_bytes);
    let mut placing = Placing {
        by: By::Kept,
        len_bytes,
        chosen: None,
        may_move: false,
    };
    if let Some(object) = peers.kept(file, &validators) {
        name_object(plan, &object);
        cluster.came(key);
        note(cluster, conn, placing);
        return Placed::Bytes(object);
    }
    (placing.by, placing.chosen) = (By::Here, cluster.choose_told(key, now.us));
    let node = match placing.chosen.map(|chosen| chosen.node) {
        Some(node) if node != cluster.me() => node,
        _ => {
            cluster.came(key);
            note(cluster, conn, placing);
            return Placed::Here;
        }
    };
    let stays = std::mem::take(&mut conn.stays);
    let flow = conn.flow.as_deref();
    let may_move =
        !stays && plan.keep_alive && cluster.may_move(node, || conn.transport.server_addr());
    let is_guest = flow.is_some_and(|flow| flow.home.is_some());
    let response = Response {
        len_bytes,
        may_move: may_move || is_guest && !stays,
        is_hot_here,
        moved_before: flow.is_some(),
    };
    let how = cluster.how(cluster.me(), node, response);
    if how == How::HandOver && is_guest {
        return Placed::Home;
    }
    let object = match how {
        How::Here => None,
        How::Relay | How::Fetch | How::HandOver => peers.object(node, file, validators),
    };
    placing.may_move = response.may_move;
    placing.by = by(object.is_some(), how);
    note(cluster, conn, placing);
    let Some(object) = object else {
        return Placed::Here;
    };
    name_object(plan, &object);
    match how {
        How::HandOver => Placed::There(node, object),
        _ => Placed::Bytes(object),
    }
}

/// How the response is placed; here, if what another node has can't be asked for.
fn by(can_be_asked: bool, how: How) -> By {
    match how {
        How::Relay if can_be_asked => By::Relayed,
        How::Fetch if can_be_asked => By::Fetched,
        How::HandOver if can_be_asked => By::HandedOver,
        How::Here | How::Relay | How::Fetch | How::HandOver => By::Here,
    }
}

impl Conn {
    /// Has the access log say by what this node has the bytes of its response.
    pub(super) fn tell_log(&mut self, nth: u16) {
        let by = match self.placing.as_ref().map(|placing| placing.by) {
            Some(By::HandedOver) => By::Relayed, // until it moves, and then another node tells
            by => by.unwrap_or_default(),
        };
        self.front.sent_by(nth, by);
    }
}

/// Keeps how the response was placed, for operators.
fn note(cluster: &Cluster, conn: &mut Conn, placing: Placing) {
    cluster.tally.placed(placing.by);
    conn.placing = Some(Box::new(placing));
}

fn name_object(plan: &mut Plan, object: &Object) {
    for part in &mut plan.parts {
        if let Part::Body {
            object: name,
            residency,
            ..
        } = part
        {
            (*name, *residency) = (object.id, ResidencySource::Ask); // the slab tells
        }
    }
}

impl Worker {
    /// A node does not bring what a stream wants from it: the rest is read from the own disk. `false`: nothing else has those bytes.
    pub(super) fn read_here(
        &mut self,
        (stream, seq): (StreamId, WantSeq),
        error: ReadError,
        now: Instant,
    ) -> bool {
        let conn = self.conns.get(stream.conn);
        let Some((conn, file)) =
            conn.and_then(|conn| conn.body.here.take().map(|file| (conn, file)))
        else {
            return false;
        };
        let (file, version) = file;
        let local = LocalFile {
            object: file.id,
            version,
            residency: file.residency,
        };
        let file = Source::File(file);
        let shown = self.shared.site.shown_source(&file);
        conn.body.source = Some(file);
        conn.front.sent_by(stream.nth, By::Here);
        let chosen = conn.placing.as_mut().and_then(|placing| {
            placing.by = By::Here;
            placing.chosen
        });
        let cluster = self.shared.cluster.as_deref();
        let node = chosen.zip(cluster);
        let node = node.map(|(chosen, cluster)| format!("node {}", cluster.name_of(chosen.node)));
        self.forget(stream);
        let text = format_args!(
            "{} does not send it from offset_bytes={} on: it is read from this node's disk",
            node.as_deref().unwrap_or("another node"), // of what was kept, none was chosen
            error.offset_bytes
        );
        let shared = Arc::clone(&self.shared);
        shared.seldom.tell(Topic::Node, Some(&shown), text, now);
        self.decider.on(
            In::FetchElsewhere {
                stream,
                seq,
                file: local,
            },
            now,
        );
        true
    }
}
