//! How a socket is held to its share, and woken when it may have more (docs/decisions/0026).
//!
//! We count what the socket holds, unsent and in flight (SIOCOUTQ), and offer no more than its share has left. SO_SNDBUF
//! is the share, too, so the kernel reports the socket writable (EPOLLOUT) when two thirds are left. No EPOLLOUT may be lost,
//! and none may come while there is no room, or the worker would spin. Both follow from one rule: whenever the kernel reports
//! the socket writable, [`Bound::room_bytes`] is above 0.
//!
//! The share limits its connection while all of it is in flight and nothing is unsent: that time is measured, too
//! ([`Bound::take_share_limited_us`]).

use ackpace_core::send::CAP_BYTES_MIN;
use ackpace_core::units::Instant;

use super::{ETHERNET_SEGMENT_BYTES, SEND_POOL_BYTES_MAX};

/// The kernel's least SO_SNDBUF (`SOCK_MIN_SNDBUF`, Linux 6.x). A smaller one counts as this.
pub const SEND_BUFFER_BYTES_MIN: u64 = 4_608;
/// What one of the kernel's buffers costs beside its payload at least; 64-bit Linux takes some 900 bytes.
pub const SEND_BUFFER_COST_BYTES: u64 = 512;

/// What a connection is told of the division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The most that its socket may hold, unsent and in flight.
    pub share_bytes: u64,
    /// Its segment.
    pub segment_bytes: u64,
    /// The division that this is from; 0: none yet.
    pub division: u64,
}

impl Grant {
    /// What a connection has that begins to send.
    pub fn start(share_bytes: u64) -> Grant {
        Grant {
            share_bytes,
            segment_bytes: ETHERNET_SEGMENT_BYTES,
            division: 0,
        }
    }
}

/// What a socket held and was held to, in one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// What it held, unsent and in flight.
    pub held_bytes: u64,
    /// Its share.
    pub share_bytes: u64,
    /// The division that this share is from; 0: none yet.
    pub division: u64,
}

/// The bound of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What it was granted: [`CAP_BYTES_MIN`] at least, and the largest pool at most.
    grant: Grant,
    /// Since when the share has limited the connection, if it does.
    share_limited_from: Option<Instant>,
    /// For how long it did before that, since the time was last taken.
    share_limited_us: u64,
}

impl Bound {
    /// A socket with this share.
    pub fn new(grant: Grant) -> Bound {
        let mut bound = Bound {
            grant,
            share_limited_from: None,
            share_limited_us: 0,
        };
        bound.change(grant);
        bound
    }

    /// The share changes. Whether it is smaller than before.
    pub fn change(&mut self, grant: Grant) -> bool {
        let before_bytes = self.grant.share_bytes;
        self.grant = Grant {
            share_bytes: grant.share_bytes.clamp(CAP_BYTES_MIN, SEND_POOL_BYTES_MAX),
            segment_bytes: grant.segment_bytes.max(1),
            ..grant
        };
        self.grant.share_bytes < before_bytes
    }

    /// The share; also SO_SNDBUF, as the kernel keeps it after it has doubled what it is given.
    pub fn share_bytes(&self) -> u64 {
        self.grant.share_bytes
    }

    /// With what the socket holds now.
    pub fn holding(&self, held_bytes: u64) -> Holding {
        Holding {
            held_bytes,
            share_bytes: self.grant.share_bytes,
            division: self.grant.division,
        }
    }

    /// How much the socket may be offered now, while it holds `held_bytes`.
    pub fn offer_bytes(&mut self, held_bytes: u64, now: Instant) -> u64 {
        self.limit_ends(now);
        self.room_bytes(held_bytes)
    }

    /// How much the socket may be offered while it holds `held_bytes`: whole segments, so that no small ones travel; if
    /// the share has not even room for one, all that EPOLLOUT may stand for.
    pub fn room_bytes(&self, held_bytes: u64) -> u64 {
        let segment_bytes = self.grant.segment_bytes;
        let left_bytes = self.grant.share_bytes.saturating_sub(held_bytes);
        match left_bytes {
            _ if held_bytes == 0 => left_bytes,
            left if left >= segment_bytes => left - left % segment_bytes,
            left if left >= self.epollout_room_bytes() => left,
            _ => 0,
        }
    }

    /// What the share has left at least when the kernel reports the socket writable. It does so while the socket's buffers, with
    /// what they cost, take no more than two thirds of SO_SNDBUF.
    fn epollout_room_bytes(&self) -> u64 {
        let level_bytes = match self.grant.share_bytes {
            bytes if bytes >= SEND_BUFFER_BYTES_MIN => bytes * 2 / 3,
            _ => SEND_BUFFER_BYTES_MIN * 2 / 3 - SEND_BUFFER_COST_BYTES,
        };
        (self.grant.share_bytes - level_bytes).max(1)
    }

    /// The socket takes no more, and holds `unsent_bytes` that are not in flight. If no whole segment waits for its client's
    /// window, the share limits the connection.
    pub fn stopped(&mut self, unsent_bytes: u64, now: Instant) {
        let is_limited = unsent_bytes < self.grant.segment_bytes;
        self.share_limited_from = is_limited.then_some(now);
    }

    fn limit_ends(&mut self, now: Instant) {
        if let Some(from) = self.share_limited_from.take() {
            self.share_limited_us = self.share_limited_us.saturating_add(now.since_us(from));
        }
    }

    /// For how long the share has limited the connection since this was last asked, in microseconds.
    pub fn take_share_limited_us(&mut self, now: Instant) -> u64 {
        if self.share_limited_from.is_some() {
            self.limit_ends(now);
            self.share_limited_from = Some(now);
        }
        core::mem::take(&mut self.share_limited_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(share_bytes: u64, segment_bytes: u64) -> Bound {
        Bound::new(Grant {
            share_bytes,
            segment_bytes,
            ..Grant::start(share_bytes)
        })
    }

    #[test]
    fn whole_segments_are_offered_and_never_more_than_the_share_has_left() {
        let bound = bound(10_000, 1_448);
        for (held, room) in [
            (0, 10_000),
            (1, 8_688),
            (8_000, 1_448),
            (8_553, 0),
            (10_000, 0),
            (u64::MAX, 0),
        ] {
            assert_eq!(bound.room_bytes(held), room, "{held}");
        }
    }

    #[test]
    fn a_share_beyond_any_machine_counts_as_the_largest_pool() {
        assert_eq!(bound(u64::MAX, 1).share_bytes(), SEND_POOL_BYTES_MAX);
    }

    #[test]
    fn only_what_the_share_alone_holds_up_counts() {
        let at = |us| Instant { us };
        let mut bound = bound(10_000, 1_448);
        bound.stopped(5_000, at(10));
        bound.limit_ends(at(20));
        assert_eq!(
            bound.take_share_limited_us(at(20)),
            0,
            "bytes wait for a window, not for the share"
        );
        bound.stopped(0, at(30));
        assert_eq!(bound.take_share_limited_us(at(50)), 20);
        bound.limit_ends(at(55));
        bound.limit_ends(at(80));
        assert_eq!(bound.take_share_limited_us(at(90)), 5);
    }
}
