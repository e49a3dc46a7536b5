//! Connections that go to other nodes of the cluster and come from them: what a worker leaves for the thread that moves them
//! (`server/src/moving.rs`), and what it is told.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use ackpace_core::handoff::FROZEN_MAX;
use ackpace_core::units::Instant;
use ackpace_wire::cluster::FlowId;
use crossbeam_queue::{ArrayQueue, SegQueue};

use super::Worker;
use super::events::EventSource;
use super::flow::Flow;
use super::handover::Handed;
use super::moves::Going;

/// Connections that wait to be moved. More: they stay where they are.
const ASKS_MAX: usize = 1024;

/// How often a connection of a node that is being emptied is tried.
const EMPTIES_EACH_US: u64 = 50_000;
/// Connections that are on their way at a time while this node is being emptied. Nobody fills the socket of one that waits for its
/// turn. Twice as many as are frozen at a time, so that the next ones are prepared meanwhile.
const EMPTYING_MAX: usize = 2 * FROZEN_MAX as usize;

/// What a worker wants of the thread that moves connections.
pub enum Ask {
    /// Move this connection to a node. It comes back if it can't.
    Move { handed: Box<Handed>, to: usize },
    /// Give this connection back to its home. It comes back if it can't.
    Return(Box<Handed>),
    /// The client of a connection that came from another node is gone.
    Gone(Flow),
}

/// What a worker is told of a connection that came from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Drop it without a word to the client: it is elsewhere.
    Drop(FlowId),
    /// Its home is dead, and this node is its home from now on.
    IsHome(FlowId, u32),
}

/// Between the workers and the thread that moves connections.
pub struct Nodes {
    asks: ArrayQueue<Ask>,
    /// Connections that it has.
    away: AtomicUsize,
    /// A queue for each worker; each connection is told of twice at most.
    told: Box<[SegQueue<Told>]>,
}

impl Nodes {
    pub fn new(workers: usize) -> Nodes {
        Nodes {
            asks: ArrayQueue::new(ASKS_MAX),
            away: AtomicUsize::new(0),
            told: (0..workers).map(|_| SegQueue::new()).collect(),
        }
    }

    /// Leaves a question. Errors: the question, if too many wait.
    pub fn ask(&self, ask: Ask) -> Result<(), Ask> {
        let has_connection = !matches!(ask, Ask::Gone(_));
        self.away.fetch_add(has_connection.into(), Relaxed);
        let left = self.asks.push(ask);
        if left.is_err() {
            self.away.fetch_sub(has_connection.into(), Relaxed);
        }
        left
    }

    /// The thread made a connection of what came from another node.
    pub fn took(&self) {
        self.away.fetch_add(1, Relaxed);
    }

    /// A connection is with a worker again, or gone.
    pub fn settled(&self) {
        self.away.fetch_sub(1, Relaxed);
    }

    /// Connections that are on their way.
    pub fn under_way(&self) -> usize {
        self.away.load(Relaxed)
    }

    /// The next question, for the thread that moves connections.
    pub fn next_ask(&self) -> Option<Ask> {
        self.asks.pop()
    }

    pub fn tell(&self, worker: usize, told: Told) {
        if let Some(queue) = self.told.get(worker) {
            queue.push(told);
        }
    }

    /// What a worker is told next.
    pub fn next_told(&self, worker: usize) -> Option<Told> {
        self.told.get(worker)?.pop()
    }
}

impl Worker {
    /// A connection was given away that goes to another node: the thread that moves connections has it from now on. If too many wait
    /// there, it stays.
    pub(super) fn leave_for_node(&mut self, handed: Box<Handed>, going: Going, now: Instant) {
        let ask = match going {
            Going::Node(to) => Ask::Move { handed, to },
            Going::Home | Going::Worker(_) => Ask::Return(handed),
        };
        match self.shared.nodes.ask(ask) {
            Ok(()) => {
                self.shared.handovers[self.index].closed();
                if let Some(cluster) = &self.shared.cluster {
                    cluster.wake();
                }
            }
            Err(Ask::Move { handed, .. } | Ask::Return(handed)) => {
                let Handed { mut conn, exported } = *handed;
                conn.stays = true;
                self.adopt(conn, exported, now);
            }
            Err(Ask::Gone(_)) => {}
        }
    }

    /// While this node is being emptied, each turn gives one response under way to another node; one whose moment does not suit has
    /// another turn later.
    pub(super) fn empty(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        let Some(cluster) = shared.cluster.as_ref().filter(|it| it.is_draining()) else {
            return;
        };
        if self.giving.going.is_some() || shared.nodes.under_way() >= EMPTYING_MAX {
            return;
        }
        let next = self
            .conns
            .some(|conn| conn.body.source.is_some() && !conn.is_of_node && conn.empties_at <= now);
        let Some(conn) = next.and_then(|id| self.conns.get(id)) else {
            return;
        };
        let id = conn.id;
        conn.empties_at = now.plus_us(EMPTIES_EACH_US);
        let is_guest = conn.flow.as_ref().is_some_and(|flow| flow.home.is_some());
        let to = cluster.choose(id.index.into(), now.us);
        let to = to.filter(|to| *to != cluster.me());
        let to = to.filter(|to| cluster.may_move(*to, || conn.transport.server_addr()));
        match to {
            _ if is_guest => self.give(id, Going::Home, now),
            Some(to) => self.give(id, Going::Node(to), now),
            None => {}
        }
        self.waker.wake(); // there may be more
    }

    /// The client of a guest is gone.
    pub(super) fn tell_gone(&self, flow: Flow) {
        // If too many wait, its home hears it when the lease ends.
        let _ = self.shared.nodes.ask(Ask::Gone(flow));
        if let Some(cluster) = &self.shared.cluster {
            cluster.wake();
        }
    }

    /// What the thread that moves connections says.
    pub(super) fn hear_nodes(&mut self, now: Instant) {
        if self.shared.cluster.is_none() {
            return;
        }
        while let Some(told) = self.shared.nodes.next_told(self.index) {
            match told {
                Told::Drop(id) => {
                    if let Some(conn) = self.conns.of_flow(id) {
                        if let Some(conn) = self.conns.get(conn) {
                            conn.flow = None; // who tells knows
                            // The kernel must not send on: the entry that mutes it will be gone before it gives up.
                            conn.transport.abort();
                        }
                        self.tcp_event(conn, &EventSource::SocketError, now);
                    }
                }
                Told::IsHome(id, epoch) => {
                    let conn = self.conns.of_flow(id).and_then(|conn| self.conns.get(conn));
                    if let Some(flow) = conn.and_then(|conn| conn.flow.as_mut()) {
                        (flow.home, flow.epoch) = (None, epoch);
                    }
                }
            }
        }
    }
}
