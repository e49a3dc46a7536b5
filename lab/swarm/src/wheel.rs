//! Timers of thousands of clients: a wheel with slots of a millisecond; adding and firing take constant time.
//!
//! A timer further away than one turn stays in its slot and is checked once a turn. Timers cannot be removed: a
//! client whose plans changed ignores a timer that it does not wait for.

/// Length of a slot.
pub const TICK_US: u64 = 1000;
/// Number of slots: a turn takes 2 s.
const SLOTS: usize = 2048;

/// A set of timers, each with the number of a client and a due time.
#[derive(Debug)]
pub struct Wheel {
    slots: Vec<Vec<Timer>>,
    /// Bitmap of the slots that hold a timer.
    filled: [u64; SLOTS / 64],
    /// The first tick that has not fired.
    tick: u64,
    fired: Vec<Timer>,
}

/// A timer of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Number of the client.
    pub who: u32,
    /// Due time.
    pub due_us: u64,
}

impl Wheel {
    /// An empty wheel that begins at `now_us`.
    pub fn new(now_us: u64) -> Self {
        Self {
            slots: vec![Vec::new(); SLOTS],
            filled: [0; SLOTS / 64],
            tick: now_us / TICK_US,
            fired: Vec::new(),
        }
    }

    /// Adds a timer. It fires at the end of its tick, never early; one in the past fires at the next call.
    pub fn add(&mut self, timer: Timer) {
        let slot = (timer.due_us.div_ceil(TICK_US).max(self.tick) % SLOTS as u64) as usize;
        self.slots[slot].push(timer);
        self.filled[slot / 64] |= 1 << (slot % 64);
    }

    /// Removes and returns all due timers, in the order of their ticks. Return the list by `keep`.
    pub fn fire(&mut self, now_us: u64) -> Vec<Timer> {
        let mut fired = std::mem::take(&mut self.fired);
        let now = now_us / TICK_US;
        // If more than a turn late, visiting every slot once is enough.
        let from = self.tick.max((now + 1).saturating_sub(SLOTS as u64));
        for tick in from..=now {
            let slot = (tick % SLOTS as u64) as usize;
            if self.filled[slot / 64] & (1 << (slot % 64)) == 0 {
                continue;
            }
            self.slots[slot].retain(|timer| {
                let due = timer.due_us <= now_us;
                if due {
                    fired.push(*timer);
                }
                !due
            });
            if self.slots[slot].is_empty() {
                self.filled[slot / 64] &= !(1 << (slot % 64));
            }
        }
        self.tick = self.tick.max(now + 1);
        fired
    }

    /// Keeps the memory of a list returned by `fire`.
    pub fn keep(&mut self, mut list: Vec<Timer>) {
        list.clear();
        self.fired = list;
    }

    /// The time of the next call of `fire`: that of the next slot with a timer, even if the timer is due in a
    /// later turn. `None` without timers.
    pub fn next_us(&self) -> Option<u64> {
        let start = (self.tick % SLOTS as u64) as usize;
        let words = SLOTS / 64;
        // The first word is checked twice: first from `start` on, and last for the bits before it.
        for nth in 0..=words {
            let word = (start / 64 + nth) % words;
            let mask = match nth {
                0 => u64::MAX << (start % 64),
                _ if nth == words => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let bits = self.filled[word] & mask;
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + SLOTS - start) % SLOTS;
                return Some((self.tick + ahead as u64) * TICK_US);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_timer_fires_once_in_time_and_never_early(
            begin_us in 0u64..10_000_000,
            timers in proptest::collection::vec(0u64..9_000_000, 1..60),
            steps in proptest::collection::vec(0u64..3_000_000, 1..20),
        ) {
            let mut wheel = Wheel::new(begin_us);
            for (who, due) in timers.iter().enumerate() {
                wheel.add(Timer { who: who as u32, due_us: begin_us + due });
            }
            let (mut now_us, mut fired) = (begin_us, vec![false; timers.len()]);
            for step in steps.into_iter().chain([10_000_000]) {
                now_us += step;
                let list = wheel.fire(now_us);
                for timer in &list {
                    prop_assert!(timer.due_us <= now_us, "early");
                    prop_assert!(!std::mem::replace(&mut fired[timer.who as usize], true), "twice");
                }
                wheel.keep(list);
                for (who, due) in timers.iter().enumerate() {
                    let late = now_us.saturating_sub(begin_us + due);
                    prop_assert!(fired[who] || late < TICK_US, "{} is {} us late", who, late);
                }
                if let Some(next_us) = wheel.next_us() {
                    prop_assert!(next_us + TICK_US > now_us && next_us <= now_us + SLOTS as u64 * TICK_US);
                }
            }
            prop_assert!(fired.iter().all(|fired| *fired));
            prop_assert_eq!(wheel.next_us(), None);
        }
    }
}
