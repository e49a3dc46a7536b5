//! Accepting: as long as there is room, and within what one address may have.

use super::arrivals::Arrivals;
use super::messages::{Address, Out};
use super::pace::Pace;
use super::patience::Patience;
use super::{Conn, Phase, Worker};
use crate::congestion::Watch;
use crate::conn::ConnId;
use crate::limits::ACCEPTS_PER_TURN_MAX;
use crate::send::Margin;
use crate::units::Instant;
use crate::why::TopUp;

impl Worker {
    pub(super) fn accepted(&mut self, id: ConnId, address: Option<Address>, now: Instant) {
        let index = id.index as usize;
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        debug_assert!(
            self.conns[index].is_none(),
            "the shell hands out free places only"
        );
        let refused = address.is_some_and(|address| {
            let count = self.by_address.entry(address).or_insert(0);
            *count += 1;
            self.settings.connections_per_address != 0
                && *count > self.settings.connections_per_address
        });
        self.conns[index] = Some(Conn {
            id,
            address,
            refused,
            phase: Phase::Open,
            nth: 0,
            readable: true, // the request often comes with the connection
            writable: true,
            fin: false,
            ended: false,
            last: false,
            requested_at: now,
            body: false,
            gone: false,
            queued: false,
            in_a_row: 0,
            stream: None,
            patience: Patience::new(&self.settings, now),
            margin: Margin::new(now),
            watch: Watch::default(),
            watched_at: now,
            pace_asked: false,
            paced_until: None,
            top_up: TopUp::First,
            arrivals: Arrivals::default(),
            pace: Pace::new(now),
        });
        self.open += 1;
        self.wake(id.index, false);
    }

    /// Connections that may still be accepted.
    pub fn room(&self) -> u32 {
        self.settings.connections_max.saturating_sub(self.open)
    }

    pub(super) fn willing(&self) -> bool {
        self.room() > 0 && self.draining.is_none() && self.accept_again_at.is_none()
    }

    /// Accept, or stop listening while there is no room.
    pub(super) fn accept_step(&mut self, now: Instant) -> Option<Out> {
        if self.accept_again_at.is_some_and(|at| at <= now) {
            self.accept_again_at = None;
        }
        let (room, willing) = (self.room(), self.willing());
        if willing != self.listening {
            self.listening = willing;
            return Some(Out::Listen(willing));
        }
        if willing && self.incoming {
            self.incoming = false;
            return Some(Out::Accept(room.min(ACCEPTS_PER_TURN_MAX)));
        }
        None
    }
}
