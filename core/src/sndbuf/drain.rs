//! Short drains, in which the shortest round trips of paths show.
//!
//! The bandwidth-delay product rests on the shortest round trip that was seen. A connection that joins others behind a
//! full link has never seen it: their queue stands there all the time, and looks like a long path. All of them would
//! claim that queue, and their claims keep it up, however slow the link is. So all whom their shares hold up give most of
//! them up together, for a moment: the queue empties, and TCP sees the round trip without it. (bbr's PROBE_RTT is the
//! same remedy. One connection alone would not do it: the queue is that of all.)
//!
//! A drain costs throughput and wake-ups. So there is none while all see a queue: they know a shorter round trip.

use super::eatbt::{Need, floor_bytes, is_held_up, is_queued};
use super::{Demand, Policy};
use crate::limits::{DRAIN_EACH_ROUNDS, DRAIN_US};
use crate::units::Instant;

/// The part of a share that is kept in a drain.
const PART: u64 = 4;

/// What a division is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Shares that last.
    Steady,
    /// Small ones for a moment.
    Drain,
}

/// Whether a connection may learn by a drain: its share holds it up, and its round trips show no queue. So there is none, or
/// it has always stood in one. Who sees a queue knows a shorter round trip.
pub fn would_learn(demand: &Demand) -> bool {
    is_held_up(demand) && !is_queued(demand)
}

/// When it is time for a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drains {
    rounds: u64,
    ends_at: Option<Instant>,
}

impl Drains {
    /// A round of samples is over, and a division follows: one in [`DRAIN_EACH_ROUNDS`] begins a drain if somebody would
    /// learn by it.
    pub fn round(&mut self, learns: impl FnOnce() -> bool, now: Instant) {
        self.rounds += 1;
        let drains = self.rounds % DRAIN_EACH_ROUNDS == DRAIN_EACH_ROUNDS / 2 && learns();
        self.ends_at = drains.then(|| now.plus_us(DRAIN_US));
    }

    /// What a division is for now.
    pub fn phase(&self, now: Instant) -> Phase {
        match self.ends_at {
            Some(at) if now < at => Phase::Drain,
            _ => Phase::Steady,
        }
    }

    /// When a drain ends, which calls for a division.
    pub fn ends_at(&self) -> Option<Instant> {
        self.ends_at
    }

    /// Whether a drain is over for which no division has been computed since. Asked once.
    pub fn take_over(&mut self, now: Instant) -> bool {
        let over = self.ends_at.is_some_and(|at| at <= now);
        if over {
            self.ends_at = None;
        }
        over
    }
}

/// Lessens the shares of those whom their last ones held up, if there are two at least; nobody gets what they leave.
pub(super) fn lessen(policy: Policy, demands: &[Demand], shares: &mut [u64]) {
    let held_up = |demand: &&Demand| is_held_up(demand);
    if policy != Policy::ByNeed(Need::Law) || demands.iter().filter(held_up).count() < 2 {
        return;
    }
    for (share, demand) in shares.iter_mut().zip(demands) {
        if is_held_up(demand) {
            let kept_bytes = demand.credit.share_bytes / PART;
            *share = kept_bytes.max(floor_bytes(demand)).min(*share);
        }
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
        let held_up = super::super::tests::held_up(40_000);
        assert!(would_learn(&held_up));
        let mut queued = held_up;
        queued.path.rtt_us = 70_000;
        assert!(!would_learn(&queued), "it knows 50 ms");
        let free = Demand {
            credit: Default::default(),
            ..held_up
        };
        assert!(!would_learn(&free), "its share does not hold it up");
    }
}
