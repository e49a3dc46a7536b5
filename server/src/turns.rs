//! The lengths of a worker's turns: a histogram that costs one addition a turn.

use crate::count::Count;

/// Buckets of powers of two: each holds the turns of 2^n us up to the next one, the first those of 0 us, too.
const BUCKETS: usize = 32;

/// The lengths of turns, each from the end of the wait for events to the end of all orders. One thread writes, any may
/// read.
#[derive(Debug, Default)]
pub struct Turns {
    counts: [Count; BUCKETS],
    sum_us: Count,
}

impl Turns {
    /// Counts a turn. Only for the one writer.
    pub fn add(&self, us: u64) {
        let bucket = us.max(1).ilog2() as usize;
        self.counts[bucket.min(BUCKETS - 1)].add(1);
        self.sum_us.add(us);
    }

    pub fn merge(&self, other: &Turns) {
        for (mine, theirs) in self.counts.iter().zip(other.counts.iter()) {
            mine.add(theirs.get());
        }
        self.sum_us.add(other.sum_us.get());
    }

    pub fn count(&self) -> u64 {
        self.below(BUCKETS)
    }

    /// The length of all turns together.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.get()
    }

    /// Turns shorter than 2^`power` us.
    pub fn below(&self, power: usize) -> u64 {
        self.counts.iter().take(power).map(Count::get).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_their_power_of_two() {
        let (turns, all) = (Turns::default(), Turns::default());
        (0..990).for_each(|_| turns.add(10));
        (0..10).for_each(|_| turns.add(1500));
        turns.add(0);
        turns.add(1 << 40);
        all.merge(&turns);
        assert_eq!((all.count(), all.sum_us()), (1002, 24_900 + (1 << 40)));
        assert_eq!(
            [1, 3, 4, 11].map(|power| all.below(power)),
            [1, 1, 991, 1001]
        );
    }
}
