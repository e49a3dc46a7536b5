//! Live connections that go from one worker to another ([`ackpace_core::balance`]): what one worker takes apart, and how
//! another goes on with it. A new connection that a full worker accepts for another goes the same way.

use std::sync::Arc;

use ackpace_core::balance::{Moves, WorkerLoad, relief};
use ackpace_core::conn::{ConnId, StreamId};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::worker::{Exported, In, LocalFile};
use rustix::event::epoll;
use smallvec::SmallVec;

use super::Worker;
use super::conns::{Body, Conn};
use super::events::{INTEREST, data_of};
use super::handover::{HandOver, Handed};
use crate::limits::HANDED_MAX;
use crate::log::Topic;

/// How often a worker looks whether it should give a connection away, and gives one at most. Its rates are measured less
/// often than that; what it gives away counts at once.
const MOVE_EACH_US: u64 = 100_000;
/// How often where tests have each connection given away. Each turn is too often: the only connection that is left goes to and fro, and
/// takes its want back before the device has heard of it.
const MOVE_ALWAYS_EACH_US: u64 = 1_000;

/// What a worker gives away, and when it looks again.
#[derive(Default)]
pub(super) struct Giving {
    looks_at: Instant,
    /// The slot at which it begins.
    from: u32,
    /// Where the connection goes that the machine was told to give away.
    pub going: Option<Going>,
}

/// Where a connection goes.
#[derive(Clone, Copy)]
pub(super) enum Going {
    /// To another worker, which has a place for it.
    Worker(usize),
    /// To another node of the cluster.
    Node(usize),
    /// Back to the node that accepted it.
    Home,
}

impl Worker {
    /// Gives a connection away if this worker carries more than its share. Called after the orders of a turn, so that a
    /// connection that has just come has had its turn here.
    pub(super) fn balance(&mut self, now: Instant) {
        let handovers = &self.shared.handovers;
        if handovers.len() == 1
            || self.draining
            || self.giving.going.is_some()
            || now < self.giving.looks_at
        {
            return;
        }
        let places = u64::from(self.decider.connections_max());
        let (to, rate_max_bytes_per_s) = match self.shared.moves {
            Moves::Off => return,
            Moves::Always => {
                self.giving.looks_at = now.plus_us(MOVE_ALWAYS_EACH_US);
                ((self.index + 1) % handovers.len(), None)
            }
            Moves::ByLoad => {
                self.giving.looks_at = now.plus_us(MOVE_EACH_US);
                let loads: SmallVec<[WorkerLoad; 16]> =
                    handovers.iter().map(HandOver::load).collect();
                let Some(relief) = relief(self.index, &loads, places) else {
                    return;
                };
                (relief.to, Some(relief.rate_max_bytes_per_s))
            }
        };
        let (conn, next) = (self.decider).movable(self.giving.from, rate_max_bytes_per_s, now);
        self.giving.from = next;
        let held = conn.and_then(|conn| Some((conn, self.conns.get(conn)?.transport.held_bytes())));
        let Some((conn, unacked_bytes)) = held.filter(|_| handovers[to].claim_to_hand(places))
        else {
            return;
        };
        self.giving.going = Some(Going::Worker(to));
        self.decider.on(
            In::Export {
                conn,
                unacked_bytes,
            },
            now,
        );
    }

    /// The machine gave a connection away.
    pub(super) fn exported(
        &mut self,
        id: ConnId,
        exported: Box<Exported<LocalFile>>,
        now: Instant,
    ) {
        let Some(mut conn) = self.conns.remove(id) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &conn.transport);
        self.end_share(&conn);
        conn.transport.set_pace(None);
        (conn.bound, conn.job) = (None, None);
        conn.body = Body {
            source: conn.body.source.take(),
            here: conn.body.here.take(),
            used_sendfile: conn.body.used_sendfile,
            ..Body::default()
        };
        let exported = Some(exported);
        match self.giving.going.take() {
            Some(Going::Worker(to)) => {
                self.shared.handovers[self.index].closed();
                self.tally.moved.add(1);
                self.hand(Box::new(Handed { conn, exported }), to, now);
            }
            Some(going) => self.leave_for_node(Box::new(Handed { conn, exported }), going, now),
            // One that nobody asked for stays here, in the place that it had.
            None => self.adopt(conn, exported, now),
        }
    }

    pub(super) fn kept(&mut self) {
        if let Some(Going::Worker(to)) = self.giving.going.take() {
            self.shared.handovers[to].closed();
        }
    }

    /// Has the machine give a connection away to another node.
    pub(super) fn give(&mut self, conn: ConnId, going: Going, now: Instant) {
        let held = self.conns.get(conn).map(|conn| conn.transport.held_bytes());
        let (Some(unacked_bytes), None) = (held, self.giving.going) else {
            return;
        };
        self.giving.going = Some(going);
        self.decider.on(
            In::Export {
                conn,
                unacked_bytes,
            },
            now,
        );
    }

    /// Leaves a connection for the worker in which a place was taken for it, or goes on with it here if that one ends.
    pub(super) fn hand(&mut self, handed: Box<Handed>, to: usize, now: Instant) {
        let shared = Arc::clone(&self.shared);
        match shared.handovers[to].hand(handed) {
            Ok(()) => shared.channels[to].waker.wake(),
            Err(handed) => {
                shared.handovers[to].closed();
                shared.handovers[self.index].claim(u64::MAX);
                self.adopt(handed.conn, handed.exported, now);
            }
        }
    }

    /// Serves what others left for us, as much as there are places for; the others wait, as in a backlog.
    pub(super) fn take_handed(&mut self, now: Instant) {
        for _ in 0..HANDED_MAX {
            if self.room() == 0 {
                break;
            }
            let Some(handed) = self.shared.handovers[self.index].take() else {
                break;
            };
            self.adopt(handed.conn, handed.exported, now);
        }
        self.tell_places_elsewhere(now);
    }

    /// Serves a connection that counts as ours already: a new one, or one that another worker's machine exported.
    pub(super) fn adopt(
        &mut self,
        conn: Conn,
        exported: Option<Box<Exported<LocalFile>>>,
        now: Instant,
    ) {
        // Those of another node are not bounded by its address.
        let peer = conn.peer.filter(|_| !conn.is_of_node);
        let address = peer.map(|peer| peer.ip().into());
        let added = match self.room() {
            0 => None,
            _ => self.conns.add(conn),
        };
        let Some(id) = added else {
            let text = format_args!(
                "a client is turned away: no place is left in any worker. Raise {} if this lasts",
                self.shared.places_bound
            );
            self.shared.seldom.tell(Topic::NoPlace, None, text, now);
            return self.closed();
        };
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        if let Err(error) = epoll::add(&self.epoll, &conn.transport, data_of(id), INTEREST) {
            let text = format_args!(
                "epoll: {error}; a client is turned away. Raise sysctl fs.epoll.max_user_watches"
            );
            self.shared.seldom.tell(Topic::Epoll, None, text, now);
            self.conns.remove(id);
            return self.closed();
        }
        let Some(exported) = exported else {
            self.tally.accepted.add(1);
            return self.decider.on(In::Accepted { conn: id, address }, now);
        };
        let nth = exported.nth;
        let bytes = conn.front.record_bytes(nth);
        let adopted = In::Adopt {
            conn: id,
            address,
            exported,
        };
        self.decider.on(adopted, now);
        if let Some(bytes) = bytes {
            let stream = StreamId {
                worker: self.index as u16,
                conn: id,
                nth,
            };
            self.decider.on(In::Recorded { stream, bytes }, now);
        }
    }
}
