//! How much memory belongs to reading ahead now: what others do not use, less a reserve.
//!
//! One account holds the memory that was promised. Each user is charged at once for what it takes, and the rest is
//! *free*. Others (connections, caches) take from the free memory without asking anybody, and are refused when there is
//! none. Reading ahead takes what is free except for a reserve, which covers what others may want before reading ahead
//! has given some back. It gives back when half of the reserve is used, and takes more when the reserve is half as
//! large again. In between nothing changes, so that a connection that comes or goes moves nothing.

use crate::limits::{AHEAD_BYTES_MIN, AHEAD_RESERVE_BYTES_MAX, AHEAD_RESERVE_BYTES_MIN};

/// The rule for one amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The memory kept free for others.
    reserve_bytes: u64,
    /// Reading ahead never gets less than this, or more than `most_bytes`.
    least_bytes: u64,
    most_bytes: u64,
}

/// The distribution of the memory now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInUse {
    /// What all disks together have.
    pub all_bytes: u64,
    /// What this disk has of it.
    pub own_bytes: u64,
    /// The number of disks, at least one.
    pub disks: u64,
    /// The free memory; negative if more was taken than there is.
    pub free_bytes: i64,
}

impl Ahead {
    /// The rule for `memory_bytes` in all, of which reading ahead may have `most_bytes`.
    pub fn of(memory_bytes: u64, most_bytes: u64) -> Ahead {
        let sixteenth = memory_bytes / 16;
        Ahead {
            reserve_bytes: sixteenth.clamp(AHEAD_RESERVE_BYTES_MIN, AHEAD_RESERVE_BYTES_MAX),
            least_bytes: AHEAD_BYTES_MIN.min(most_bytes),
            most_bytes,
        }
    }

    /// Whether others have used so much of the reserve that reading ahead should give some back soon.
    pub fn is_short(&self, free_bytes: i64) -> bool {
        free_bytes < self.reserve_bytes as i64 / 2
    }

    /// What a disk should have from now on. Never more than what it has plus what is free.
    pub fn share_bytes(&self, now: &MemoryInUse) -> u64 {
        let all_bytes = self.all_bytes(now.all_bytes, now.free_bytes);
        let part_bytes = all_bytes / now.disks.max(1);
        let near = now.own_bytes.abs_diff(part_bytes) <= part_bytes / 8;
        if all_bytes == now.all_bytes && near {
            return now.own_bytes; // the disks need not be equal to the byte
        }
        let free_bytes = u64::try_from(now.free_bytes).unwrap_or(0);
        part_bytes.min(now.own_bytes.saturating_add(free_bytes))
    }

    fn all_bytes(&self, has_bytes: u64, free_bytes: i64) -> u64 {
        let usable_bytes = i128::from(has_bytes) + i128::from(free_bytes);
        let reserve_bytes = i128::from(self.reserve_bytes);
        let calm = (reserve_bytes / 2..=reserve_bytes / 2 * 3).contains(&i128::from(free_bytes));
        let wanted_bytes = match calm {
            true => i128::from(has_bytes),
            false => usable_bytes - reserve_bytes,
        };
        let wanted_bytes = u64::try_from(wanted_bytes.max(0)).unwrap_or(u64::MAX);
        wanted_bytes.clamp(self.least_bytes, self.most_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::MIB;

    const MEMORY: u64 = 128 * MIB;
    const RESERVE: i64 = 8 * MIB as i64;

    fn alone(own_bytes: u64, free_bytes: i64) -> MemoryInUse {
        MemoryInUse {
            all_bytes: own_bytes,
            own_bytes,
            disks: 1,
            free_bytes,
        }
    }

    #[test]
    fn what_others_do_not_use_is_taken_but_for_the_reserve() {
        let ahead = Ahead::of(MEMORY, u64::MAX);
        assert_eq!(ahead.share_bytes(&alone(0, 100 << 20)), 92 * MIB);
        assert_eq!(ahead.share_bytes(&alone(92 * MIB, RESERVE)), 92 * MIB);
        let used_up = alone(92 * MIB, 0);
        assert_eq!(ahead.share_bytes(&used_up), 84 * MIB);
        let owed = alone(92 * MIB, -RESERVE);
        assert_eq!(ahead.share_bytes(&owed), 76 * MIB);
    }

    #[test]
    fn a_connection_that_comes_or_goes_moves_nothing() {
        let ahead = Ahead::of(MEMORY, u64::MAX);
        for more in [-RESERVE / 2, -50_000, 0, 50_000, RESERVE / 2] {
            let now = alone(50 * MIB, RESERVE + more);
            assert_eq!(ahead.share_bytes(&now), 50 * MIB, "{more}");
            assert!(!ahead.is_short(now.free_bytes));
        }
        assert!(ahead.is_short(RESERVE / 2 - 1));
    }

    #[test]
    fn the_least_is_taken_out_of_the_reserve_and_never_given_back() {
        let ahead = Ahead::of(MEMORY, u64::MAX);
        assert_eq!(ahead.share_bytes(&alone(0, RESERVE)), AHEAD_BYTES_MIN);
        assert_eq!(ahead.share_bytes(&alone(0, 1 << 20)), MIB, "all there is");
        let owed = alone(AHEAD_BYTES_MIN, -RESERVE);
        assert_eq!(ahead.share_bytes(&owed), AHEAD_BYTES_MIN);
    }

    #[test]
    fn disks_have_equal_parts() {
        let ahead = Ahead::of(MEMORY, u64::MAX);
        let first = MemoryInUse {
            all_bytes: 80 * MIB,
            own_bytes: 80 * MIB,
            disks: 2,
            free_bytes: RESERVE,
        };
        assert_eq!(ahead.share_bytes(&first), 40 * MIB);
        let second = MemoryInUse {
            own_bytes: 0,
            all_bytes: 40 * MIB,
            free_bytes: RESERVE + (40 << 20),
            ..first
        };
        assert_eq!(ahead.share_bytes(&second), 40 * MIB);
    }

    proptest! {
        /// Others take and give at any time, and each disk adjusts itself by a snapshot that may be old: what was
        /// promised is never exceeded, since both sides are charged at once; when others rest, all disks come to rest
        /// with what is left.
        #[test]
        fn the_sum_is_the_memory_and_disks_come_to_rest(
            mib in 16u64..4_096,
            most_mib in 1u64..4_096,
            disks in 1usize..5,
            acts in prop::collection::vec((0usize..6, 0u64..64 << 20), 0..200),
        ) {
            let memory_bytes = mib * MIB;
            let ahead = Ahead::of(memory_bytes, most_mib * MIB);
            let (mut free, mut others) = (memory_bytes as i64, 0i64);
            let mut has = vec![0u64; disks];
            let adjust = |has: &mut Vec<u64>, free: &mut i64, nth: usize| {
                let now = MemoryInUse {
                    all_bytes: has.iter().sum(),
                    own_bytes: has[nth],
                    disks: disks as u64,
                    free_bytes: *free,
                };
                let share = ahead.share_bytes(&now);
                let changed = share != has[nth];
                *free += has[nth] as i64 - share as i64;
                has[nth] = share;
                changed
            };
            // Others leave reading ahead its minimum: the number of connections is bounded by that.
            let most = memory_bytes as i64 - AHEAD_BYTES_MIN as i64;
            for (who, bytes) in acts {
                let bytes = bytes as i64;
                match who {
                    0 if bytes <= free && others + bytes <= most => (free, others) = (free - bytes, others + bytes),
                    0 => {}
                    1 => {
                        let back = bytes.min(others);
                        (free, others) = (free + back, others - back);
                    }
                    _ => _ = adjust(&mut has, &mut free, who % disks),
                }
                let sum: u64 = has.iter().sum();
                prop_assert!(free >= 0 && free + others + sum as i64 == memory_bytes as i64);
            }
            for _ in 0..64 {
                (0..disks).for_each(|nth| _ = adjust(&mut has, &mut free, nth));
            }
            let moved = (0..disks).filter(|nth| adjust(&mut has, &mut free, *nth)).count();
            prop_assert_eq!(moved, 0, "{:?} {}", has, free);
            let sum: u64 = has.iter().sum();
            let least = AHEAD_BYTES_MIN.min(most_mib * MIB);
            prop_assert!(sum + disks as u64 + 1 >= least * 7 / 8, "{sum} of {least}");
            let reserve = (memory_bytes / 16).clamp(AHEAD_RESERVE_BYTES_MIN, AHEAD_RESERVE_BYTES_MAX) as i64;
            prop_assert!(free <= reserve * 2 || sum + disks as u64 >= most_mib * MIB * 7 / 8, "{free} left unused");
        }
    }
}
