//! Medians, percentiles and the confidence interval of a median, without randomness.

/// A median with an interval that covers the true one with a probability of at least 95 %, if there are enough
/// samples.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Median of the samples.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the interval covers the true median: .95, or less with fewer than 6 samples (then it
    /// spans all of them).
    pub coverage: f64,
    /// Number of samples.
    pub samples: usize,
}

/// Target coverage.
const COVERAGE: f64 = 0.95;

/// Median; the mean of the middle two for an even number of samples. `None` without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let sorted = sorted(samples);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Median with a distribution-free 95 % interval: order statistics, interpolated after Hettmansperger and
/// Sheather (1986). It needs no random numbers and no assumption about the noise. `None` without samples.
pub fn interval(samples: &[f64]) -> Option<Interval> {
    let median = median(samples)?;
    let (sorted, n) = (sorted(samples), samples.len());
    // Ranks k and n+1-k cover with coverage_of(n, k): take the tightest pair that still covers.
    let widest = coverage_of(n, 1);
    let of_ranks = |k: usize| (sorted[k - 1], sorted[n - k]);
    let whole = Interval {
        median,
        low: sorted[0],
        high: sorted[n - 1],
        coverage: widest,
        samples: n,
    };
    if widest <= COVERAGE {
        return Some(whole);
    }
    let mut k = 1; // the loop ends below n / 2, where coverage is far under 95 %
    while 2 * (k + 1) <= n && coverage_of(n, k + 1) >= COVERAGE {
        k += 1;
    }
    let (outer, inner) = (coverage_of(n, k), coverage_of(n, k + 1));
    let i = (outer - COVERAGE) / (outer - inner);
    let weight = (n - k) as f64 * i / (k as f64 + (n as f64 - 2.0 * k as f64) * i);
    let ((low_outer, high_outer), (low_inner, high_inner)) = (of_ranks(k), of_ranks(k + 1));
    Some(Interval {
        median,
        low: (1.0 - weight) * low_outer + weight * low_inner,
        high: (1.0 - weight) * high_outer + weight * high_inner,
        coverage: COVERAGE,
        samples: n,
    })
}

/// Interval of the ratios `ours[i] / theirs[i]` of rounds measured side by side. Pairs with a missing half, or
/// whose `theirs[i]` is not above zero, are left out.
pub fn paired_ratio(ours: &[f64], theirs: &[f64]) -> Option<Interval> {
    let ratios: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .filter(|(_, theirs)| **theirs > 0.0)
        .map(|(ours, theirs)| ours / theirs)
        .collect();
    interval(&ratios)
}

/// Percentile by nearest rank of sorted samples; `None` without samples.
pub fn percentile(sorted: &[u64], percent: f64) -> Option<u64> {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// Probability that the true median lies between the k-th smallest and the k-th largest of n
/// samples: 1 - 2 P(Binomial(n, 1/2) < k).
fn coverage_of(n: usize, k: usize) -> f64 {
    let mut term = 0.5f64.powi(n as i32); // P(exactly 0 below)
    let mut tail = 0.0;
    for below in 0..k {
        tail += term;
        term *= (n - below) as f64 / (below + 1) as f64;
    }
    1.0 - 2.0 * tail
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_agrees_with_the_binomial_table() {
        // n = 11: ranks 2..10 cover .98828, ranks 3..9 cover .93457.
        assert!((coverage_of(11, 2) - 0.988_28).abs() < 1e-5);
        assert!((coverage_of(11, 3) - 0.934_57).abs() < 1e-5);
        assert!((coverage_of(5, 1) - 0.9375).abs() < 1e-12);
    }

    #[test]
    fn interval_of_eleven_lies_between_its_ranks() {
        let samples: Vec<f64> = (1..=11).map(f64::from).collect();
        let got = interval(&samples).unwrap();
        assert_eq!(got.median, 6.0);
        assert!((2.0..3.0).contains(&got.low), "{got:?}");
        assert!((9.0..10.0).contains(&got.high), "{got:?}");
        assert!(
            (got.low + got.high - 12.0).abs() < 1e-9,
            "symmetric: {got:?}"
        );
        // I = (.98828 - .95) / (.98828 - .93457) = .7127; weight = 9 I / (2 + 7 I) = .9178
        assert!((got.low - 2.9178).abs() < 1e-3, "{got:?}");
        assert_eq!(got.coverage, 0.95);
    }

    #[test]
    fn interval_of_few_samples_spans_all_and_says_so() {
        let got = interval(&[2.0, 1.0, 5.0, 4.0, 3.0]).unwrap();
        assert_eq!((got.median, got.low, got.high), (3.0, 1.0, 5.0));
        assert_eq!(got.coverage, 0.9375);
        assert_eq!(interval(&[7.0]).unwrap().coverage, 0.0);
        assert!(interval(&[]).is_none());
    }

    #[test]
    fn paired_ratio_cancels_noise_that_both_share() {
        let noise = [1.0, 0.7, 1.3, 0.9, 1.1, 0.8, 1.2];
        let theirs: Vec<f64> = noise.iter().map(|n| 10.0 * n).collect();
        let ours: Vec<f64> = noise.iter().map(|n| 9.0 * n).collect();
        let got = paired_ratio(&ours, &theirs).unwrap();
        for value in [got.median, got.low, got.high] {
            assert!((value - 0.9).abs() < 1e-12);
        }
        assert_eq!(paired_ratio(&[1.0], &[0.0]), None);
    }

    #[test]
    fn percentile_takes_the_nearest_rank() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&sorted, 50.0), Some(50));
        assert_eq!(percentile(&sorted, 99.0), Some(99));
        assert_eq!(percentile(&sorted, 100.0), Some(100));
        assert_eq!(percentile(&sorted, 0.0), Some(1));
        assert_eq!(percentile(&[5], 99.0), Some(5));
        assert_eq!(percentile(&[], 50.0), None);
    }
}
