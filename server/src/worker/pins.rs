//! Pieces of the slab to which a connection's packets refer. They stay pinned until the client has acknowledged them, so that
//! the memory in flight is part of the slab (`store/slab.rs`).

use std::collections::VecDeque;

use ackpace_core::units::Instant;

use super::Worker;
use crate::store::slab::Pinned;
use crate::transport::Transport;

/// Segments that a connection pins before it looks whether some are acknowledged. Its socket seldom holds bytes of more.
const LOOK_AT: usize = 3;

/// How often pieces of connections that send no more are looked at. Longer: they take that much longer to be free.
pub(crate) const LOOK_EACH_US: u64 = 1_000_000;

/// The pieces, each with the number of bytes that the socket had been given when it was sent.
#[derive(Default)]
pub struct Pins {
    sent: VecDeque<(Pinned, u64)>,
    /// Bytes of pieces that the socket was given.
    given_bytes: u64,
}

impl Pins {
    pub fn has_some(&self) -> bool {
        !self.sent.is_empty()
    }

    /// The socket was given bytes of this piece.
    pub fn add(&mut self, piece: Pinned, len_bytes: u64, transport: &Transport) {
        self.given_bytes += len_bytes;
        match self.sent.back_mut() {
            Some((last, until)) if last.segment() == piece.segment() => *until = self.given_bytes,
            _ => self.sent.push_back((piece, self.given_bytes)),
        }
        if self.sent.len() >= LOOK_AT {
            self.release(transport);
        }
    }

    /// Gives up what is acknowledged. The socket may hold other bytes besides: then some are given up later. Returns whether
    /// some are left.
    pub fn release(&mut self, transport: &Transport) -> bool {
        if self.sent.is_empty() {
            return false;
        }
        let held_bytes = transport.held_bytes().unwrap_or(0);
        let acked_bytes = self.given_bytes.saturating_sub(held_bytes);
        while self
            .sent
            .front()
            .is_some_and(|(_, until)| *until <= acked_bytes)
        {
            self.sent.pop_front();
        }
        !self.sent.is_empty()
    }
}

impl Worker {
    /// Looks once a second whether clients have acknowledged pieces of the slab: those of an idle connection are seen by nobody
    /// else.
    pub(super) fn release_pins(&mut self, now: Instant) {
        if self.pins_due.is_some_and(|due| due <= now) {
            let left = self.conns.release_pins();
            self.pins_due = left.then(|| now.plus_us(LOOK_EACH_US));
        }
    }
}
