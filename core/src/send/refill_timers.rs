//! Timers that start the next filling of sockets whose shares of the send memory are full. `sndbuf/depletion.rs` says when: as
//! soon as the client has acknowledged all but what must be in flight.
//!
//! Each share lasts for a time of its own. When the first timer fires, a round fills that socket and each other one that has
//! less than half (`JOIN_DIVISOR`) of its own time left. So rounds are at least half of the shortest time apart, however
//! many sockets there are, and sockets that are filled together stay together. One socket that does not last long fills no
//! others before their time: a system call for few bytes costs as much as one for many.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::conn::ConnId;
use crate::limits::REFILL_US_MAX;
use crate::units::Instant;

/// One part in so many of its time may be left to a socket that is filled along with others. 4: three times as many wake-ups in
/// the simulator. 1: all are filled as often as the one that lasts shortest.
const JOIN_DIVISOR: u64 = 2;

/// The timer of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefillTimer {
    /// When it fires: the socket is to be filled again.
    pub at: Instant,
    /// Whose socket it is.
    pub conn: ConnId,
    /// How long a whole share of the connection lasts, microseconds.
    pub whole_us: u64,
}

/// Memory of a socket among them; the set may be half empty.
pub const REFILL_TIMER_BYTES: u64 = 2 * size_of::<RefillTimer>() as u64;

/// The sockets that a timer fills, each at most once: one that is added again is to be removed before.
#[derive(Debug, Default)]
pub struct RefillTimers {
    all: BTreeSet<RefillTimer>,
}

impl RefillTimers {
    /// Adds a timer; the socket has none.
    pub fn add(&mut self, timer: RefillTimer) {
        self.all.insert(timer);
    }

    /// Removes a timer: its socket is filled for another reason, or is gone.
    pub fn remove(&mut self, timer: RefillTimer) {
        self.all.remove(&timer);
    }

    /// When the first timer fires.
    pub fn due_at(&self) -> Option<Instant> {
        self.all.first().map(|first| first.at)
    }

    /// If a timer is due: takes it and those that join its round, and returns whose sockets these are.
    pub fn take_due(&mut self, now: Instant) -> Vec<ConnId> {
        if self.due_at().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let until = now.plus_us(REFILL_US_MAX / JOIN_DIVISOR); // nobody lasts longer
        let near = self.all.iter().take_while(|timer| timer.at <= until);
        let joins = |timer: &&RefillTimer| timer.at.since_us(now) <= timer.whole_us / JOIN_DIVISOR;
        let taken: Vec<RefillTimer> = near.filter(joins).copied().collect();
        for timer in &taken {
            self.all.remove(timer);
        }
        taken.iter().map(|timer| timer.conn).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Sockets whose shares last for these times: rounds are half of the shortest of them apart, nobody waits for longer
        /// than its own, and nobody is filled before half of that.
        #[test]
        fn rounds_are_apart_and_nobody_is_late_or_much_too_early(lasts in prop::collection::vec(10_000u64..400_000, 1..40)) {
            let mut refills = RefillTimers::default();
            let timer = |now: Instant, index: usize| RefillTimer {
                at: now.plus_us(lasts[index]),
                conn: ConnId { index: index as u32, generation: 0 },
                whole_us: lasts[index],
            };
            let start = Instant { us: 0 };
            (0..lasts.len()).for_each(|index| refills.add(timer(start, index)));
            let shortest_us = *lasts.iter().min().unwrap();
            let (mut before, mut filled_at) = (start, vec![start; lasts.len()]);
            for _ in 0..50 {
                let now = refills.due_at().expect("somebody is due");
                prop_assert!(now.since_us(before) >= shortest_us / JOIN_DIVISOR);
                before = now;
                let taken = refills.take_due(now);
                prop_assert!(!taken.is_empty());
                for conn in taken {
                    let index = conn.index as usize;
                    let us = now.since_us(filled_at[index]);
                    prop_assert!((lasts[index] / JOIN_DIVISOR..=lasts[index]).contains(&us));
                    filled_at[index] = now;
                    refills.add(timer(now, conn.index as usize));
                }
                prop_assert!(refills.due_at() > Some(now));
                prop_assert_eq!(refills.all.len(), lasts.len());
            }
        }
    }

    #[test]
    fn sockets_that_last_equally_long_are_soon_filled_together() {
        let timer = |ms: u64, index: u32| RefillTimer {
            at: Instant { us: ms * 1_000 },
            conn: ConnId {
                index,
                generation: 0,
            },
            whole_us: 40_000,
        };
        let mut refills = RefillTimers::default();
        (0..10).for_each(|nth| refills.add(timer(40 + u64::from(nth), nth)));
        refills.add(timer(61, 10)); // half of the time and a millisecond later than the first
        assert_eq!(refills.take_due(Instant { us: 40_000 }).len(), 10);
        (0..10).for_each(|nth| refills.add(timer(80, nth)));
        assert_eq!(refills.take_due(Instant { us: 61_000 }).len(), 11);
        (0..11).for_each(|nth| refills.add(timer(101, nth)));
        assert_eq!(refills.take_due(Instant { us: 100_999 }).len(), 0);
        assert_eq!(refills.take_due(Instant { us: 101_000 }).len(), 11);
    }
}
