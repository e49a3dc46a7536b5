//! Accepting connections: as long as there is room, and within the bound per address.

use alloc::sync::Arc;

use super::messages::Out;
use super::{Conn, Settings, Worker};
use crate::addresses::{Address, AddressCounts, CountedIn};
use crate::conn::ConnId;
use crate::limits::{ACCEPT_RETRY_US, ACCEPTS_PER_TURN_MAX};
use crate::units::Instant;

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
