//! Accepting connections: as long as there is room, and within the bound per address. Where there is none, the
//! connection that has been idle for longest makes room.

use alloc::sync::Arc;

use super::messages::Out;
use super::{Conn, Settings, Worker};
use crate::addresses::{Address, AddressCounts, CountedIn};
use crate::conn::ConnId;
use crate::limits::{
    ACCEPT_RETRY_US, ACCEPTS_PER_TURN_MAX, IDLE_LOOK_US, IDLE_LOOKS_MAX, IDLE_SPARED_US,
};
use crate::units::Instant;
use crate::why::Why;

/// What was found out when a connection was accepted.
#[derive(Clone, Copy)]
pub(super) struct Admitted {
    pub address: Option<Address>,
    /// Where its address is counted; `None`: nowhere.
    counted: Option<CountedIn>,
    /// Its address has too many connections: its request is answered with a refusal, and that is all.
    pub refused: bool,
}

/// The state of accepting.
pub(super) struct Door {
    connections_max: u32,
    per_address_max: u32,
    by_address: Option<Arc<AddressCounts>>,
    /// Whether the shell was last told to listen.
    listening: bool,
    /// A connection waits in the backlog.
    incoming: bool,
    /// Accepting failed: try again at this time.
    again_at: Option<Instant>,
    /// When to look for an idle connection next, if there is no room, and from which slot on.
    looks_at: Instant,
    looks_from: u32,
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
            closed: false,
        }
    }

    /// Counts in this table, which several workers share. Before the first connection comes.
    pub fn count_in(&mut self, counts: Arc<AddressCounts>) {
        self.by_address = Some(counts).filter(|_| self.per_address_max != 0);
    }

    pub fn connections_max(&self) -> u32 {
        self.connections_max
    }

    pub fn incoming(&mut self) {
        self.incoming = true;
    }

    pub fn failed(&mut self, now: Instant) {
        self.again_at = Some(now.plus_us(ACCEPT_RETRY_US));
    }

    /// Accept no more connections.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// A connection came, by accept(2) or from another machine.
    pub fn admit(&mut self, address: Option<Address>) -> Admitted {
        let counts = self.by_address.as_ref();
        let entered = counts.and_then(|counts| counts.enter(address?));
        Admitted {
            address,
            counted: entered.map(|(counted, _)| counted),
            refused: entered.is_some_and(|(_, count)| count > self.per_address_max),
        }
    }

    /// A connection is gone.
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

    /// Connections that may still be accepted while `open` are open.
    pub fn room(&self, open: u32) -> u32 {
        self.connections_max.saturating_sub(open)
    }

    /// Whether the shell should listen.
    pub fn willing(&self, open: u32) -> bool {
        self.room(open) > 0 && !self.closed && self.again_at.is_none()
    }

    /// Whether there is something to do.
    pub fn is_due(&self, open: u32) -> bool {
        let willing = self.willing(open);
        willing != self.listening || willing && self.incoming
    }

    /// When to try again, if accepting failed.
    pub fn again_at(&self) -> Option<Instant> {
        self.again_at
    }

    /// When to look for an idle connection that can make room: as many are open as may be, or the process lacks what
    /// one more needs.
    pub fn looks_at(&self, open: u32) -> Option<Instant> {
        let is_short = self.room(open) == 0 || self.again_at.is_some();
        (is_short && open > 0 && !self.closed).then_some(self.looks_at)
    }

    /// Accept, or stop listening while there is no room.
    pub fn step(&mut self, open: u32, now: Instant) -> Option<Out> {
        self.again_at = self.again_at.filter(|at| *at > now);
        let willing = self.willing(open);
        if willing != self.listening {
            self.listening = willing;
            return Some(Out::Listen(willing));
        }
        if willing && self.incoming {
            self.incoming = false;
            return Some(Out::Accept(self.room(open).min(ACCEPTS_PER_TURN_MAX)));
        }
        None
    }
}

impl Worker {
    pub(super) fn accepted(&mut self, id: ConnId, address: Option<Address>, now: Instant) {
        let admitted = self.door.admit(address);
        self.table
            .insert(Conn::new(id, &self.settings, admitted, now));
        self.wake(id.index, false);
    }

    /// Closes the connection that has been idle for longest if there is no room for another one. A connection without a
    /// request is worth less than one that may bring it. `true`: there is something to do for the shell.
    pub(super) fn make_room(&mut self, now: Instant) -> bool {
        let looks_at = self.door.looks_at(self.table.open());
        if looks_at.is_none_or(|at| at > now) {
            return false;
        }
        let Some(id) = self.longest_idle(now) else {
            self.door.looks_at = now.plus_us(IDLE_LOOK_US);
            return !self.outs.is_empty();
        };
        self.close(id, false, Why::Idle, now);
        true
    }

    /// The connection that has been idle for longest, of the next few slots. One whose socket may still hold bytes is
    /// measured first, and found at a later look.
    fn longest_idle(&mut self, now: Instant) -> Option<ConnId> {
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

    /// Bounds the connections of an address over all workers that count in the same table. Before the first connection
    /// comes; without this call, nothing bounds them.
    pub fn count_addresses_in(&mut self, counts: Arc<AddressCounts>) {
        self.door.count_in(counts);
    }

    /// Number of connections that may still be accepted.
    pub fn room(&self) -> u32 {
        self.door.room(self.table.open())
    }
}
