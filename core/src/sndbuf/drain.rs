//! Drains: moments in which connections have so little in flight that the queues on their paths empty, and the shortest
//! round trips of the paths show.
//!
//! A bandwidth-delay product is computed from the shortest round trip that was seen. A connection that joins others
//! behind a full link has never seen the path's own: the queue of the others is always there, and looks like a long
//! path. So all of them would claim memory for that queue, and what they claim keeps it up, however slow the link is.
//! A drain ends this. Each connection that is limited by its share gives up most of it, all of them at once and for a
//! moment. The queue empties, and TCP sees the round trip without it. (bbr's PROBE_RTT is the same remedy. One
//! connection alone would not do it: the queue is that of all.)
//!
//! A drain costs throughput and wake-ups. So there is one only if some connection may learn by it ([`would_learn`]).

use super::eatbt::{Need, floor_bytes, is_queued, is_share_limited};
use super::{Demand, Policy};
use crate::limits::{DRAIN_EACH_ROUNDS, DRAIN_US};
use crate::units::Instant;

/// In a drain one part in so many is kept of a share.
const KEPT_DIVISOR: u64 = 4;

/// What the shares are for that a division of the send memory gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// For sending, until the next division.
    Steady,
    /// For a drain: small ones, for a moment.
    Drain,
}

/// Whether a drain may show this connection a shorter round trip. Its share limits it, and its round trips are about as
/// long as its shortest one. So either its path has no queue, or it has had one ever since the connection began. A
/// connection whose round trips are longer than its shortest one has seen its path without that queue.
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
    /// A round of samples is over, and a division follows. One round in [`DRAIN_EACH_ROUNDS`] begins a drain if some
    /// connection would learn by it. Any earlier drain is over.
    pub fn round(&mut self, learns: impl FnOnce() -> bool, now: Instant) {
        self.rounds += 1;
        let drains = self.rounds % DRAIN_EACH_ROUNDS == DRAIN_EACH_ROUNDS / 2 && learns();
        self.ends_at = drains.then(|| now.plus_us(DRAIN_US));
    }

    /// What the shares of a division at this time are for.
    pub fn phase(&self, now: Instant) -> Phase {
        match self.ends_at {
            Some(at) if now < at => Phase::Drain,
            _ => Phase::Steady,
        }
    }

    /// When the drain ends: a division at that time gives the shares back.
    pub fn ends_at(&self) -> Option<Instant> {
        self.ends_at
    }

    /// Whether a drain is over, and no division has given the shares back yet. Takes note of it: the answer is `true`
    /// once, and the caller divides.
    pub fn take_over(&mut self, now: Instant) -> bool {
        let over = self.ends_at.is_some_and(|at| at <= now);
        if over {
            self.ends_at = None;
        }
        over
    }
}

/// What a connection keeps in a drain. `None`: all; only those that their last shares limited give up something.
pub(super) fn kept_bytes(policy: Policy, demand: &Demand) -> Option<u64> {
    let gives_up = policy == Policy::ByNeed(Need::Law) && is_share_limited(demand);
    let kept_bytes = demand.share_use.share_bytes / KEPT_DIVISOR;
    gives_up.then(|| kept_bytes.max(floor_bytes(demand)))
}

/// Lessens shares to what is kept of each, if at least two give up something. Nobody gets that, since the queue has to empty.
pub(super) fn lessen(kept: &[Option<u64>], shares: &mut [u64]) {
    if kept.iter().flatten().count() < 2 {
        return;
    }
    for (share, kept_bytes) in shares.iter_mut().zip(kept) {
        *share = kept_bytes.map_or(*share, |kept_bytes| kept_bytes.min(*share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_in_eight_begins_a_drain_that_ends_once() {
        let at = |ms: u64| Instant { us: ms * 1_000 };
        let mut drains = Drains::default();
        let mut seen = 0;
        for second in 1..=80 {
            let now = at(second * 1_000);
            drains.round(|| second < 50, now);
            if drains.phase(now) == Phase::Steady {
                assert_eq!(drains.ends_at(), None);
                continue;
            }
            seen += 1;
            assert_eq!(drains.ends_at(), Some(now.plus_us(DRAIN_US)));
            assert!(!drains.take_over(now.plus_us(DRAIN_US - 1)));
            assert_eq!(drains.phase(now.plus_us(DRAIN_US)), Phase::Steady);
            assert!(drains.take_over(now.plus_us(DRAIN_US)));
            assert!(!drains.take_over(now.plus_us(DRAIN_US)));
        }
        assert_eq!(seen, 6, "at 4, 12 ... 44 s");
    }

    #[test]
    fn who_sees_a_queue_learns_nothing_by_a_drain() {
        let share_limited = super::super::tests::share_limited(40_000);
        assert!(would_learn(&share_limited));
        let mut queued = share_limited;
        queued.path.rtt_us = 70_000;
        assert!(!would_learn(&queued), "it knows 50 ms");
        let free = Demand {
            share_use: Default::default(),
            ..share_limited
        };
        assert!(!would_learn(&free), "its share does not hold it up");
    }
}
