//! A histogram of times in buckets no wider than 1/64 of their value: percentiles for any number of requests in
//! 16 KiB, each within 1.6 %.

/// Buckets for each power of two.
const PARTS: usize = 64;
const PARTS_BITS: u32 = PARTS.ilog2();
/// Times of 2^37 us (38 h) and more share the last bucket.
const BUCKETS: usize = (37 - PARTS_BITS as usize + 1) * PARTS;

/// A histogram of times.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            max_us: 0,
        }
    }
}

impl Histogram {
    /// Counts one time.
    pub fn add(&mut self, us: u64) {
        self.counts[bucket(us)] += 1;
        self.count += 1;
        self.max_us = self.max_us.max(us);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max_us = self.max_us.max(other.max_us);
    }

    /// Number of times counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time that a share `share` (0..=1) of all times does not exceed, by nearest rank, rounded up to the
    /// end of its bucket. `None` without times.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(upper_us(at).min(self.max_us))
    }
}

fn bucket(us: u64) -> usize {
    if us < PARTS as u64 {
        return us as usize;
    }
    let above = us.ilog2() - PARTS_BITS; // 0: 64..128, one bucket for each value
    let part = (us >> above) as usize; // 64..128
    (above as usize * PARTS + part).min(BUCKETS - 1)
}

fn upper_us(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let above = bucket / PARTS - 1;
    let part = (bucket - above * PARTS) as u64;
    ((part + 1) << above) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_reaches_its_times_and_is_narrow(us in 0u64..1 << 36) {
            let upper = upper_us(bucket(us));
            prop_assert!(upper >= us && upper - us <= us / 64, "{} in a bucket to {}", us, upper);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_times(times in proptest::collection::vec(0u64..1 << 30, 1..200), share in 0.0f64..=1.0) {
            let mut histogram = Histogram::default();
            times.iter().for_each(|us| histogram.add(*us));
            let mut times = times;
            times.sort_unstable();
            let exact = times[((times.len() as f64 * share).ceil() as usize).max(1) - 1];
            let got = histogram.quantile_us(share).unwrap();
            prop_assert!(got >= exact && got <= exact + exact / 64, "{} for {}", got, exact);
        }
    }
}
