//! When sockets are filled again whose share of the send memory has no room, by a timer (`sndbuf/depletion.rs`).
//!
//! Each share lasts for a time of its own. When the first is used up, whoever would be before the shortest of these times is
//! over is filled as well. So rounds are that far apart, however many sockets there are.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::conn::ConnId;
use crate::units::Instant;

/// When the share of one socket is used up as far as it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refilled {
    /// When it is to be filled again.
    pub at: Instant,
    /// Whose it is.
    pub conn: ConnId,
    /// How long a whole share lasts.
    pub lasts_us: u64,
}

/// Memory of a socket among them; the set may be half empty.
pub const REFILL_BYTES: u64 = 2 * size_of::<Refilled>() as u64;

/// The sockets that a timer fills, each at most once: one that is added again is to be removed before.
#[derive(Debug, Default)]
pub struct Refills {
    all: BTreeSet<Refilled>,
}

impl Refills {
    /// A share is used up then.
    pub fn add(&mut self, refilled: Refilled) {
        self.all.insert(refilled);
    }

    /// It is filled otherwise, or gone.
    pub fn remove(&mut self, refilled: Refilled) {
        self.all.remove(&refilled);
    }

    /// When a round is due.
    pub fn due_at(&self) -> Option<Instant> {
        self.all.first().map(|first| first.at)
    }

    /// If a round is due: who is filled in it.
    pub fn take_due(&mut self, now: Instant) -> Vec<ConnId> {
        let (mut due, mut until) = (Vec::new(), now);
        while let Some(first) = self.all.first().copied().filter(|first| first.at <= until) {
            self.all.pop_first();
            let lasts = now.plus_us(first.lasts_us);
            until = if due.is_empty() {
                lasts
            } else {
                until.min(lasts)
            };
            due.push(first.conn);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Sockets whose shares last for these times: rounds are the shortest of them apart, and nobody waits for longer than
        /// its own.
        #[test]
        fn rounds_are_the_shortest_time_apart_and_nobody_is_late(lasts in prop::collection::vec(10_000u64..400_000, 1..40)) {
            let mut refills = Refills::default();
            let refilled = |now: Instant, index: usize| Refilled {
                at: now.plus_us(lasts[index]),
                conn: ConnId { index: index as u32, generation: 0 },
                lasts_us: lasts[index],
            };
            let start = Instant { us: 0 };
            (0..lasts.len()).for_each(|index| refills.add(refilled(start, index)));
            let shortest_us = *lasts.iter().min().unwrap();
            let mut before = start;
            for _ in 0..50 {
                let now = refills.due_at().expect("somebody is due");
                prop_assert!(now.since_us(before) >= shortest_us);
                before = now;
                for conn in refills.take_due(now) {
                    refills.add(refilled(now, conn.index as usize));
                }
                prop_assert!(refills.due_at() > Some(now));
                prop_assert_eq!(refills.all.len(), lasts.len());
            }
        }
    }
}
