//! Short drains, in which the shortest round trips of paths show.
//!
//! The bandwidth-delay product rests on the shortest round trip that was seen. A connection that joins others behind a
//! full link has never seen it: their queue stands there all the time, and looks like a long path. All of them would
//! claim that queue, and their claims keep it up, however slow the link is. So all whom their shares hold up give most of
//! them up together, for a moment: the queue empties, and TCP sees the round trip without it. (bbr's PROBE_RTT is the
//! same remedy. One connection alone would not do it: the queue is that of all.)
//!
//! A drain costs throughput and wake-ups, so there is none where it would show nothing new: once all have been through one
//! that made no round trip shorter, the next one is a minute later, or follows when somebody joins ([`Lesson`]).

use super::eatbt::{Need, floor_bytes, is_held_up};
use super::{Demand, Policy};
use crate::limits::{DRAIN_ANYWAY_EACH, DRAIN_EACH_ROUNDS, DRAIN_US};
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

/// Whether it is time for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It is not.
    No,
    /// If somebody would learn by it.
    ToLearn,
    /// In any case.
    Anyway,
}

/// What one connection's last drain was to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lesson {
    /// The shortest round trip before it; 0: there was none.
    before_us: u64,
}

impl Lesson {
    /// Whether the connection would learn by another one: there was none yet, or the last one made its shortest round trip
    /// an eighth shorter, so there may be more.
    pub fn goes_on(&self, demand: &Demand) -> bool {
        is_held_up(demand)
            && (self.before_us == 0 || demand.rtt_min_us < self.before_us - self.before_us / 8)
    }

    /// A drain begins.
    pub fn begin(&mut self, demand: &Demand) {
        if is_held_up(demand) {
            self.before_us = demand.rtt_min_us;
        }
    }
}

/// When it is time for a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drains {
    rounds: u64,
    ends_at: Option<Instant>,
}

impl Drains {
    /// A round of looks is over, and a division follows. Whether a drain may begin with it: then [`Drains::begin`] is to be
    /// called if somebody would learn by it.
    pub fn round(&mut self) -> Due {
        self.rounds += 1;
        self.ends_at = None;
        let nth = (self.rounds + DRAIN_EACH_ROUNDS / 2) / DRAIN_EACH_ROUNDS;
        match (self.rounds + DRAIN_EACH_ROUNDS / 2) % DRAIN_EACH_ROUNDS {
            0 if nth % DRAIN_ANYWAY_EACH == 1 => Due::Anyway,
            0 => Due::ToLearn,
            _ => Due::No,
        }
    }

    /// A drain begins.
    pub fn begin(&mut self, now: Instant) {
        self.ends_at = Some(now.plus_us(DRAIN_US));
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
    use alloc::vec::Vec;

    #[test]
    fn one_round_in_eight_may_begin_a_drain_that_ends_once() {
        let at = |ms: u64| Instant { us: ms * 1_000 };
        let mut drains = Drains::default();
        let mut seen = Vec::new();
        for second in 1..=80 {
            let now = at(second * 1_000);
            let due = drains.round();
            assert_eq!(drains.phase(now), Phase::Steady);
            if due == Due::No {
                continue;
            }
            seen.push(due);
            drains.begin(now);
            assert_eq!(drains.phase(now), Phase::Drain);
            assert_eq!(drains.ends_at(), Some(now.plus_us(DRAIN_US)));
            assert!(!drains.take_over(now.plus_us(DRAIN_US - 1)));
            assert_eq!(drains.phase(now.plus_us(DRAIN_US)), Phase::Steady);
            assert!(drains.take_over(now.plus_us(DRAIN_US)));
            assert!(!drains.take_over(now.plus_us(DRAIN_US)));
        }
        assert_eq!(seen.len(), 10);
        let anyway = seen.iter().filter(|due| **due == Due::Anyway);
        assert_eq!(anyway.count(), 2, "the first, and one a minute later");
    }

    #[test]
    fn drains_go_on_while_they_show_something_new() {
        let held_up = |rtt_min_us| Demand {
            rtt_min_us,
            ..super::super::tests::held_up(40_000)
        };
        let mut lesson = Lesson::default();
        assert!(lesson.goes_on(&held_up(80_000)), "it has been in none");
        lesson.begin(&held_up(80_000));
        assert!(!lesson.goes_on(&held_up(79_000)), "it has shown nothing");
        assert!(lesson.goes_on(&held_up(40_000)), "it has: maybe not all");
        lesson.begin(&held_up(40_000));
        assert!(!lesson.goes_on(&held_up(40_000)));
    }
}
