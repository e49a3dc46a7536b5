//! Drains: moments in which connections have so little in flight that the queues on their paths empty, and the shortest
//! round trips of the paths show.
//!
//! A bandwidth-delay product is computed from the shortest round trip that was seen. A connection that joins others
//! behind a full link has never seen the path's own: the queue of the others is always there, and looks like a long
//! path. So all of them would claim memory for that queue, and what they claim keeps it up. A drain ends this: each
//! connection that is limited by its share gives up most of it, all of them at once and for a moment. (bbr's PROBE_RTT is
//! the same remedy. One connection alone would not do it: the queue is that of all.)
//!
//! A drain costs throughput and wake-ups, so there is one only if some connection may learn by it ([`would_learn`]).

use ackpace_core::units::Instant;

use super::eatbt::{floor_bytes, is_queued, is_share_limited};
use super::{Claim, Demand};

/// One round of samples in so many may begin a drain. More: a new connection claims for longer what a queue holds. Fewer:
/// drains cost more.
pub const DRAIN_EACH_ROUNDS: u64 = 8;
/// How long a drain lasts: a full queue of 100 ms empties, and there are some round trips without it. Longer: those whom
/// their shares hold up lose more.
pub const DRAIN_US: u64 = 300_000;
/// In a drain one part in so many is kept of a share.
const KEPT_DIVISOR: u64 = 4;

/// Whether a drain may show this connection a shorter round trip. Its share limits it, and its round trips are about as
/// long as its shortest one: either its path has no queue, or it has had one ever since the connection began.
pub fn would_learn(demand: &Demand) -> bool {
    is_share_limited(demand) && !is_queued(demand)
}

/// When drains begin and end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drains {
    /// Rounds of samples so far.
    rounds: u64,
    /// When the drain ends or ended; `None`: there is none, or its end was taken note of.
    ends_at: Option<Instant>,
}

impl Drains {
    /// A round of samples is over, and a division follows. It begins a drain if it is time for one and some connection would
    /// learn by it. Any earlier drain is over.
    pub fn round(&mut self, learns: bool, now: Instant) {
        self.rounds += 1;
        let drains = learns && self.rounds % DRAIN_EACH_ROUNDS == DRAIN_EACH_ROUNDS / 2;
        self.ends_at = drains.then(|| now.plus_us(DRAIN_US));
    }

    /// Whether the shares of a division at this time are those of a drain.
    pub fn is_on(&self, now: Instant) -> bool {
        self.ends_at.is_some_and(|at| now < at)
    }

    /// When the drain ends: a division at that time gives the shares back.
    pub fn ends_at(&self) -> Option<Instant> {
        self.ends_at
    }

    /// Whether a drain is over, and no division has given the shares back yet. The answer is `true` once, and the caller
    /// divides.
    pub fn take_over(&mut self, now: Instant) -> bool {
        let over = self.ends_at.is_some_and(|at| at <= now);
        if over {
            self.ends_at = None;
        }
        over
    }
}

/// What a connection keeps in a drain. `None`: all; only those that their last shares limited give up something.
pub(super) fn kept_bytes(demand: &Demand) -> Option<u64> {
    let kept_bytes = demand.share_use.share_bytes / KEPT_DIVISOR;
    is_share_limited(demand).then(|| kept_bytes.max(floor_bytes(demand)))
}

/// Lessens shares to what is kept of each, if at least two give up something. Nobody gets that, since the queue has to empty.
pub fn lessen(claims: &[Claim], shares: &mut [u64]) {
    let kept = || claims.iter().map(|claim| claim.kept_bytes);
    if kept().flatten().count() < 2 {
        return;
    }
    for (share, kept_bytes) in shares.iter_mut().zip(kept()) {
        *share = kept_bytes.map_or(*share, |kept_bytes| kept_bytes.min(*share));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::share_limited;
    use super::*;

    #[test]
    fn one_round_in_eight_begins_a_drain_that_ends_once() {
        let mut drains = Drains::default();
        let mut seen = 0;
        for second in 1..=80 {
            let now = Instant {
                us: second * 1_000_000,
            };
            drains.round(second < 50, now);
            if drains.is_on(now) {
                seen += 1;
                assert_eq!(drains.ends_at(), Some(now.plus_us(DRAIN_US)));
                assert!(!drains.take_over(now.plus_us(DRAIN_US - 1)));
                assert!(!drains.is_on(now.plus_us(DRAIN_US)));
                assert!(drains.take_over(now.plus_us(DRAIN_US)));
                assert!(!drains.take_over(now.plus_us(DRAIN_US)));
            }
            assert_eq!(drains.ends_at(), None);
        }
        assert_eq!(seen, 6, "at 4, 12 ... 44 s");
    }

    #[test]
    fn who_sees_a_queue_learns_nothing_by_a_drain() {
        let limited = share_limited(40_000);
        assert!(would_learn(&limited));
        let mut queued = limited;
        queued.path.rtt_us = 70_000;
        assert!(!would_learn(&queued), "it knows 50 ms");
        let free = Demand {
            share_use: Default::default(),
            ..limited
        };
        assert!(!would_learn(&free), "its share does not hold it up");
    }
}
