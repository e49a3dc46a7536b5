//! Accepting connections while there is room, and a bounded number from each address. Where there is no room for
//! another one, an idle connection is closed.
//!
//! This file decides. The shell, which makes the system calls, listens and accepts as it is ordered ([`Out`]).

use alloc::sync::Arc;

use super::messages::Out;
use super::turns::QueueEnd;
use super::{Conn, Settings, Worker};
use crate::addresses::{Address, AddressCounts, CountedIn};
use crate::conn::ConnId;
use crate::limits::{
    ACCEPT_RETRY_US, ACCEPTS_PER_TURN_MAX, IDLE_LOOK_US, IDLE_LOOKS_MAX, IDLE_SPARED_US,
};
use crate::units::Instant;
use crate::why::Why;

/// What was found out when a connection was accepted. It goes to [`Door::leave`] once, when the connection is gone.
#[derive(Clone, Copy)]
pub(super) struct Admitted {
    /// Its client; `None`: one without an address.
    pub address: Option<Address>,
    /// The entry that counts its address; `None`: no entry does.
    counted: Option<CountedIn>,
    /// Its address has too many connections: the answer to its request is a refusal.
    pub refused: bool,
}

/// Whether new connections may come in.
pub(super) struct Door {
    /// Connections at once, from all addresses.
    connections_max: u32,
    /// Connections at once from one address; 0: no bound.
    per_address_max: u32,
    /// Counts connections by address, for all workers; `None`: nothing bounds them.
    by_address: Option<Arc<AddressCounts>>,
    /// The last order to the shell was to listen.
    listening: bool,
    /// A connection waits in the backlog. [`Out::Accept`] clears this; the shell says it again while more wait, since
    /// epoll reports listeners by level.
    incoming: bool,
    /// Accepting failed for lack of descriptors or memory: try again at this time.
    again_at: Option<Instant>,
    /// The time of the next look for an idle connection, if there is no room then.
    looks_at: Instant,
    /// The slot at which that look begins.
    looks_from: u32,
    /// Another worker has a place free, so connections are accepted for it although this one is full.
    places_elsewhere: bool,
    /// When to accept no more connections.
    closes_at: Option<Instant>,
    /// No more connections are accepted.
    closed: bool,
}

impl Door {
    pub fn new(settings: &Settings) -> Door {
        Door {
            connections_max: settings.connections_max,
            per_address_max: settings.connections_per_address,
            by_address: None,
            listening: true,
            incoming: false,
            again_at: None,
            looks_at: Instant::default(),
            looks_from: 0,
            places_elsewhere: false,
            closes_at: None,
            closed: false,
        }
    }

    /// From now on addresses are counted in this table, which several workers share. Call it before the first
    /// connection comes.
    pub fn count_in(&mut self, counts: Arc<AddressCounts>) {
        self.by_address = Some(counts).filter(|_| self.per_address_max != 0);
    }

    pub fn connections_max(&self) -> u32 {
        self.connections_max
    }

    /// A connection waits in the backlog.
    pub fn incoming(&mut self) {
        self.incoming = true;
    }

    /// Accepting failed for lack of descriptors or memory.
    pub fn failed(&mut self, now: Instant) {
        self.again_at = Some(now.plus_us(ACCEPT_RETRY_US));
    }

    /// Whether another worker has a place free.
    pub fn places_elsewhere(&mut self, places_elsewhere: bool) {
        self.places_elsewhere = places_elsewhere;
    }

    /// Accept no more connections from this time on.
    pub fn close_at(&mut self, at: Instant) {
        self.closes_at = Some(at);
    }

    /// A connection came, by accept(2) or from a worker that gave it away ([`super::export`]). It is counted for its
    /// address, also if it is refused.
    pub fn admit(&mut self, address: Option<Address>) -> Admitted {
        let counts = self.by_address.as_ref();
        let entered = counts.and_then(|counts| counts.enter(address?));
        Admitted {
            address,
            counted: entered.map(|(counted, _)| counted),
            refused: entered.is_some_and(|(_, count)| count > self.per_address_max),
        }
    }

    /// A connection is gone, and no longer counted.
    pub fn leave(&mut self, admitted: Admitted) {
        if let (Some(counts), Some(counted)) = (&self.by_address, admitted.counted) {
            counts.leave(counted);
        }
        self.again_at = None; // a descriptor is free again
    }

    /// Whether no connection is counted.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let counts = self.by_address.as_ref();
        counts.is_none_or(|counts| counts.counted() == 0)
    }

    /// Connections that this worker may still take while `open` are open.
    pub fn room(&self, open: u32) -> u32 {
        self.connections_max.saturating_sub(open)
    }

    /// Whether the shell should listen.
    pub fn willing(&self, open: u32) -> bool {
        !self.is_full(open) && !self.closed && self.again_at.is_none()
    }

    /// Whether neither this worker nor another one has a place free.
    fn is_full(&self, open: u32) -> bool {
        self.room(open) == 0 && !self.places_elsewhere
    }

    /// Whether [`Door::step`] has an order to give. That the time of a new attempt has come is not seen here; the
    /// worker's deadline includes it.
    pub fn is_due(&self, open: u32) -> bool {
        let willing = self.willing(open);
        willing != self.listening || willing && self.incoming
    }

    /// When to try again, if accepting failed, or to end it.
    pub fn again_at(&self) -> Option<Instant> {
        [self.again_at, self.closes_at].into_iter().flatten().min()
    }

    /// When to look for an idle connection to close. `None`: there is room, or nobody to close. There is no room while
    /// all places of all workers are taken, and after accepting failed for lack of descriptors or memory.
    pub fn looks_at(&self, open: u32) -> Option<Instant> {
        let is_short = self.is_full(open) || self.again_at.is_some();
        (is_short && open > 0 && !self.closed).then_some(self.looks_at)
    }

    /// The next order: begin or stop to listen, or accept. `None`: there is none.
    pub fn step(&mut self, open: u32, now: Instant) -> Option<Out> {
        self.again_at = self.again_at.filter(|at| *at > now);
        self.closed |= self.closes_at.take_if(|at| *at <= now).is_some();
        let willing = self.willing(open);
        if willing != self.listening {
            self.listening = willing;
            return Some(Out::Listen(willing));
        }
        if willing && self.incoming {
            self.incoming = false;
            let most = match self.room(open) {
                0 => ACCEPTS_PER_TURN_MAX, // all for others
                room => room.min(ACCEPTS_PER_TURN_MAX),
            };
            return Some(Out::Accept(most));
        }
        None
    }
}

impl Worker {
    /// A connection was accepted: it gets its first turn.
    pub(super) fn accepted(&mut self, id: ConnId, address: Option<Address>, now: Instant) {
        let admitted = self.door.admit(address);
        self.table
            .insert(Conn::new(id, &self.settings, admitted, now));
        self.wake(id.index, QueueEnd::Back);
    }

    /// Closes an idle connection if there is no room for another one, since one without a request is worth less than
    /// one that may bring it. Each look covers some slots only, and finds the one of these that has been idle for
    /// longest. `true`: there is an order for the shell.
    pub(super) fn make_room(&mut self, now: Instant) -> bool {
        let looks_at = self.door.looks_at(self.table.open());
        if looks_at.is_none_or(|at| at > now) {
            return false;
        }
        let Some(id) = self.look_for_idle(now) else {
            self.door.looks_at = now.plus_us(IDLE_LOOK_US);
            return !self.outs.is_empty();
        };
        let abort = false;
        self.close(id, abort, Why::Idle, now);
        true
    }

    /// The connection that has been idle for longest, of the next [`IDLE_LOOKS_MAX`] slots. One whose client may not
    /// have acknowledged all that was sent is left out. The shell measures it, and a later look may find it.
    fn look_for_idle(&mut self, now: Instant) -> Option<ConnId> {
        let places = self.table.places();
        let looks = places.min(IDLE_LOOKS_MAX);
        let from = self.door.looks_from;
        self.door.looks_from = (from + looks) % places.max(1);
        let mut longest: Option<(u64, ConnId)> = None;
        for nth in 0..looks {
            let Some(conn) = self.table.at((from + nth) % places) else {
                continue;
            };
            let idle_us = conn.idle_us(now);
            if idle_us < IDLE_SPARED_US {
                continue;
            }
            if !conn.arrivals.is_settled() {
                self.outs.push_back(Out::Sample(conn.id));
            } else if longest.is_none_or(|(longest_us, _)| idle_us > longest_us) {
                longest = Some((idle_us, conn.id));
            }
        }
        longest.map(|(_, id)| id)
    }

    /// Bounds the connections of an address over all workers that share this table. Call it before the first connection
    /// comes; without it, nothing bounds them.
    pub fn count_addresses_in(&mut self, counts: Arc<AddressCounts>) {
        self.door.count_in(counts);
    }

    /// Whether it may still accept connections, now or when there is room.
    pub fn accepts(&self) -> bool {
        !self.door.closed
    }

    /// Number of connections that this worker may still take.
    pub fn room(&self) -> u32 {
        self.door.room(self.table.open())
    }
}
