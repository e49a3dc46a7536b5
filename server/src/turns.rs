//! The lengths of a worker's turns: a histogram that costs one addition a turn.

use std::fmt;

use crate::count::Count;

/// Buckets of a quarter power of two, from 1 us up.
const BUCKETS: usize = 4 * 32;

/// The lengths of turns, each from the end of the wait for events to the end of all orders. One thread writes, any may
/// read.
#[derive(Debug)]
pub struct Turns {
    counts: Box<[Count; BUCKETS]>,
    sum_us: Count,
    max_us: Count,
    over_1ms: Count,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            counts: Box::new(std::array::from_fn(|_| Count::default())),
            sum_us: Count::default(),
            max_us: Count::default(),
            over_1ms: Count::default(),
        }
    }
}

impl Turns {
    /// Counts a turn. Only for the one writer.
    pub fn add(&self, us: u64) {
        self.counts[bucket(us)].add(1);
        self.sum_us.add(us);
        if us > 1000 {
            self.over_1ms.add(1);
        }
        if us > self.max_us.get() {
            self.max_us.set(us);
        }
    }

    pub fn merge(&self, other: &Turns) {
        for (mine, theirs) in self.counts.iter().zip(other.counts.iter()) {
            mine.add(theirs.get());
        }
        self.sum_us.add(other.sum_us.get());
        self.over_1ms.add(other.over_1ms.get());
        self.max_us.set(self.max_us.get().max(other.max_us.get()));
    }

    /// The upper end of the bucket below which `share` (0..=1) of all turns lie; 0 without turns.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count.get();
            if seen >= wanted && count.get() > 0 {
                return upper_us(bucket).min(self.max_us.get());
            }
        }
        self.max_us.get()
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().map(Count::get).sum()
    }

    /// The length of all turns together.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.get()
    }

    /// Turns shorter than 2^`power` us, at least 2.
    pub fn below(&self, power: u32) -> u64 {
        let below = self.counts.iter().take(4 * power as usize);
        below.map(Count::get).sum()
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50_us, p99_us, p999_us] = [0.5, 0.99, 0.999].map(|share| self.quantile_us(share));
        let (max_us, over_1ms) = (self.max_us.get(), self.over_1ms.get());
        let count = self.count();
        write!(
            f,
            r#"{{"count":{count},"max_us":{max_us},"p50_us":{p50_us},"p99_us":{p99_us},"p999_us":{p999_us},"over_1ms":{over_1ms}}}"#
        )
    }
}

fn bucket(us: u64) -> usize {
    let us = us.max(1);
    let power = us.ilog2();
    let quarter = if power >= 2 {
        (us >> (power - 2)) & 3
    } else {
        0
    };
    ((power as usize) * 4 + quarter as usize).min(BUCKETS - 1)
}

fn upper_us(bucket: usize) -> u64 {
    let (power, quarter) = ((bucket / 4) as u32, (bucket % 4) as u64);
    if power >= 2 {
        ((4 + quarter + 1) << (power - 2)) - 1
    } else {
        (2 << power) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_falls_into_a_bucket_that_reaches_it() {
        for us in (0..5000).chain([1 << 20, (1 << 31) + 7]) {
            let at = bucket(us);
            assert!(
                upper_us(at) >= us,
                "{us} us in a bucket that ends at {}",
                upper_us(at)
            );
            assert!(
                us < 2 || upper_us(at) <= us + us / 4 + 1,
                "{us} us: the bucket is too wide"
            );
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_and_the_maximum_come_from_what_was_counted() {
        let turns = Turns::default();
        (0..990).for_each(|_| turns.add(10));
        (0..10).for_each(|_| turns.add(1500));
        let all = Turns::default();
        all.merge(&turns);
        assert_eq!(
            all.to_string(),
            r#"{"count":1000,"max_us":1500,"p50_us":11,"p99_us":11,"p999_us":1500,"over_1ms":10}"#
        );
        assert_eq!((all.count(), all.sum_us()), (1000, 24_900));
        assert_eq!((all.below(3), all.below(4), all.below(11)), (0, 990, 1000));
        assert_eq!(Turns::default().quantile_us(0.5), 0);
    }
}
