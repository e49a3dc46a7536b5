//! When to check which connection again: a timer wheel (Varghese and Lauck 1987) with ticks of one second.
//!
//! Every connection has one entry in it. A check that comes too early is cheap and finds a new time. So times beyond
//! the wheel's round go into its last slot, and an entry whose time moves later stays where it is.

use alloc::vec;
use alloc::vec::Vec;

use crate::limits::{SCAN_PERIOD_US, WHEEL_TICKS};
use crate::units::Instant;

const NOBODY: u32 = u32::MAX;
const _: () = assert!(WHEEL_TICKS == u128::BITS as usize);

/// Connections by the tick in which they are due. All operations take constant time.
pub struct Wheel {
    /// The first of each slot's list.
    slots: Vec<u32>,
    /// One bit for each slot that has a list: the worker asks for the next one before each sleep.
    taken: u128,
    links: Vec<Link>,
    /// All ticks before this one are done.
    tick: u64,
    /// The number of connections in the wheel.
    count: u32,
}

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    behind: u32,
    /// The tick in which it is due; 0: it is not in the wheel.
    tick: u64,
}

impl Default for Wheel {
    fn default() -> Wheel {
        Wheel {
            slots: vec![NOBODY; WHEEL_TICKS],
            taken: 0,
            links: Vec::new(),
            tick: 0,
            count: 0,
        }
    }
}

impl Wheel {
    /// Schedules a check of connection `index` at `at`, or earlier if that was asked for before. The check comes with
    /// the first tick at or after `at`, but not with the current one.
    pub fn by(&mut self, index: u32, at: Instant, now: Instant) {
        let place = index as usize;
        if place >= self.links.len() {
            let nowhere = Link {
                before: NOBODY,
                behind: NOBODY,
                tick: 0,
            };
            self.links.resize(place + 1, nowhere);
        }
        if self.count == 0 {
            self.tick = now.us / SCAN_PERIOD_US + 1;
        }
        let last = self.tick + WHEEL_TICKS as u64 - 1;
        let tick = at.us.div_ceil(SCAN_PERIOD_US);
        let tick = tick.max(now.us / SCAN_PERIOD_US + 1).clamp(self.tick, last);
        let due = self.links[place].tick;
        if due == 0 || tick < due {
            self.remove(index);
            self.insert(index, tick);
        }
    }

    /// Removes the connection.
    pub fn remove(&mut self, index: u32) {
        let Some(&Link {
            before,
            behind,
            tick,
        }) = self.links.get(index as usize).filter(|link| link.tick != 0)
        else {
            return;
        };
        match self.links.get_mut(before as usize) {
            Some(link) => link.behind = behind,
            None => {
                self.slots[slot(tick)] = behind;
                if behind == NOBODY {
                    self.taken &= !(1 << slot(tick));
                }
            }
        }
        if let Some(link) = self.links.get_mut(behind as usize) {
            link.before = before;
        }
        self.links[index as usize].tick = 0;
        self.count -= 1;
    }

    /// Takes a connection that is due out of the wheel.
    ///
    /// After a long time without a call (the machine slept), all rounds but the last are skipped at once: every
    /// connection in the wheel is due in that one.
    pub fn pop(&mut self, now: Instant) -> Option<u32> {
        let round = WHEEL_TICKS as u64;
        let late = (now.us / SCAN_PERIOD_US).saturating_sub(self.tick);
        self.tick += (late / round).saturating_sub(1) * round;
        while self.is_behind(now) {
            let first = self.slots[slot(self.tick)];
            if first != NOBODY {
                self.remove(first);
                return Some(first);
            }
            self.tick += 1;
        }
        None
    }

    /// Whether a connection may be due; [`Wheel::pop`] tells.
    pub fn is_behind(&self, now: Instant) -> bool {
        self.count > 0 && self.tick <= now.us / SCAN_PERIOD_US
    }

    /// When the next is due.
    pub fn next_at(&self) -> Option<Instant> {
        let ahead = self.taken.rotate_right(slot(self.tick) as u32);
        (ahead != 0).then(|| Instant {
            us: (self.tick + u64::from(ahead.trailing_zeros())) * SCAN_PERIOD_US,
        })
    }

    fn insert(&mut self, index: u32, tick: u64) {
        let behind = core::mem::replace(&mut self.slots[slot(tick)], index);
        self.taken |= 1 << slot(tick);
        if let Some(link) = self.links.get_mut(behind as usize) {
            link.before = index;
        }
        self.links[index as usize] = Link {
            before: NOBODY,
            behind,
            tick,
        };
        self.count += 1;
    }
}

fn slot(tick: u64) -> usize {
    (tick % WHEEL_TICKS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    const S: u64 = SCAN_PERIOD_US;
    const AT: fn(u64) -> Instant = |us| Instant { us };

    #[test]
    fn a_look_comes_with_the_first_tick_after_its_time_and_once() {
        let mut wheel = Wheel::default();
        wheel.by(3, AT(2 * S + 1), AT(5));
        assert_eq!(wheel.next_at(), Some(AT(3 * S)));
        assert_eq!(wheel.pop(AT(3 * S - 1)), None);
        assert_eq!(wheel.pop(AT(3 * S)), Some(3));
        assert_eq!((wheel.pop(AT(9 * S)), wheel.next_at()), (None, None));
    }

    #[test]
    fn the_earliest_want_counts() {
        let mut wheel = Wheel::default();
        wheel.by(0, AT(9 * S), AT(0));
        wheel.by(0, AT(4 * S), AT(0));
        wheel.by(0, AT(7 * S), AT(0));
        assert_eq!(wheel.next_at(), Some(AT(4 * S)));
        wheel.remove(0);
        assert_eq!(wheel.next_at(), None);
    }

    #[test]
    fn a_far_time_is_looked_at_before_it() {
        let mut wheel = Wheel::default();
        wheel.by(0, AT(u64::MAX), AT(0));
        let at = wheel.next_at().expect("it is in the wheel");
        assert_eq!(at, AT(WHEEL_TICKS as u64 * S));
        assert_eq!(wheel.pop(at), Some(0));
    }

    #[test]
    fn after_a_long_sleep_each_is_looked_at_a_few_times_and_not_for_each_round() {
        let mut wheel = Wheel::default();
        for index in 0..100 {
            wheel.by(index, AT(u64::from(index) * S), AT(0));
        }
        let now = AT(1_000_000 * S);
        let mut looks = [0; 100];
        while let Some(index) = wheel.pop(now) {
            looks[index as usize] += 1;
            assert!(looks[index as usize] <= 3, "again and again");
            wheel.by(index, now, now); // as for one that is still waited for
        }
        assert!(
            looks.iter().all(|looks| *looks >= 1),
            "somebody was overslept"
        );
        assert_eq!(wheel.next_at(), Some(AT(1_000_001 * S)));
    }

    proptest! {
        /// Compared with a map: whatever is due comes out, in time, and nothing else.
        #[test]
        fn it_does_what_a_map_does(acts in prop::collection::vec((0u32..20, 0u64..300, 0u64..20, any::<bool>()), 1..200)) {
            let (mut wheel, mut map, mut now) = (Wheel::default(), BTreeMap::new(), AT(0));
            for (index, ahead_s, wait_s, remove) in acts {
                if remove {
                    wheel.remove(index);
                    map.remove(&index);
                } else {
                    let at = now.plus_us(ahead_s * S + 17);
                    wheel.by(index, at, now);
                    let due = map.entry(index).or_insert(at);
                    *due = at.min(*due);
                }
                now = now.plus_us(wait_s * S + 3);
                while let Some(index) = wheel.pop(now) {
                    prop_assert!(map.remove(&index).is_some(), "{} was not in it", index);
                }
                for due in map.values() {
                    prop_assert!(due.us + S > now.us, "{:?} is late at {:?}", due, now);
                }
                prop_assert_eq!(wheel.count as usize, map.len());
                let first = (wheel.tick..).take(WHEEL_TICKS).find(|tick| wheel.slots[slot(*tick)] != NOBODY);
                prop_assert_eq!(wheel.next_at(), first.map(|tick| AT(tick * S)));
                prop_assert_eq!(wheel.next_at().is_some(), !map.is_empty());
            }
        }
    }
}
