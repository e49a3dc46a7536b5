//! Judgements: which metric is compared with which contender, at which points, and which limit it must meet.

use crate::sweep::Point;
use ackpace_lab_base::stats::Interval;

/// How the rounds become one figure in the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fold {
    /// Their median; a ratio is the median of the ratios of paired rounds.
    Median,
    /// Their sum.
    Sum,
    /// Their maximum.
    Max,
}

/// Lines of the table: one metric of the subjects, compared with some contenders.
#[derive(Clone, Debug)]
pub struct Judge {
    /// Key of the metric.
    pub metric: &'static str,
    /// Names of the contenders to compare with. Empty: a line about the subject alone.
    pub against: &'static [&'static str],
    /// One line for the best of them, instead of a line for each.
    pub best: bool,
    /// The limit to meet.
    pub limit: Limit,
    /// How the rounds become one figure.
    pub fold: Fold,
    /// True at those points of the sweep that get a line.
    pub at: fn(&Point) -> bool,
    /// An axis and a value: the subject is compared with itself at that point.
    pub over_itself: Option<(&'static str, f64)>,
}

impl Judge {
    /// A line for each of these contenders.
    pub fn against(metric: &'static str, against: &'static [&'static str], limit: Limit) -> Self {
        Self {
            metric,
            against,
            best: false,
            limit,
            fold: Fold::Median,
            at: |_| true,
            over_itself: None,
        }
    }

    /// One line for the best of these contenders: the one with the smallest or the largest figure, as the limit
    /// asks.
    pub fn best_of(metric: &'static str, against: &'static [&'static str], limit: Limit) -> Self {
        Self {
            best: true,
            ..Self::against(metric, against, limit)
        }
    }

    /// A line about the subject alone.
    pub fn alone(metric: &'static str, fold: Fold, limit: Limit) -> Self {
        Self {
            fold,
            ..Self::against(metric, &[], limit)
        }
    }

    /// A line that compares the subject with itself at the point where an axis has this value.
    pub fn over_itself(metric: &'static str, axis: &'static str, value: f64, limit: Limit) -> Self {
        Self {
            over_itself: Some((axis, value)),
            ..Self::against(metric, &[], limit)
        }
    }

    /// The same, at the points for which `at` is true.
    pub fn at(mut self, at: fn(&Point) -> bool) -> Self {
        self.at = at;
        self
    }
}

/// The limit of a line. Values are as shown, in the unit of the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// No limit: for information.
    None,
    /// A lower limit for the ratio ours / peer.
    RatioAtLeast {
        /// Its median is at least this,
        median: f64,
        /// and its interval above this.
        low_above: f64,
    },
    /// An upper limit for the ratio ours / peer.
    RatioAtMost {
        /// Its median is at most this,
        median: f64,
        /// and its interval below this.
        high_below: f64,
    },
    /// The median ratio ours / peer is at least this.
    MedianRatioAtLeast(f64),
    /// The median ratio ours / peer is at most this.
    MedianRatioAtMost(f64),
    /// Our median exceeds the peer's by at most this.
    MoreByAtMost(f64),
    /// Our median is below this.
    ValueBelow(f64),
    /// Our median is at most this.
    ValueAtMost(f64),
    /// Our median is at least this.
    ValueAtLeast(f64),
    /// Our value is 0.
    Zero,
}

/// The figures of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Our figure.
    pub ours: f64,
    /// The peer's figure, if there is one.
    pub peer: Option<f64>,
    /// Ratio ours / peer of the paired rounds.
    pub ratio: Option<Interval>,
}

impl Limit {
    /// True if the limit is met; `None` without a limit. A comparison without a peer does not meet it.
    pub fn met(self, found: Found) -> Option<bool> {
        let ratio = |holds: fn(f64, f64) -> bool, limit| {
            Some(found.ratio.is_some_and(|r| holds(r.median, limit)))
        };
        let Found { ours, .. } = found;
        match self {
            Self::None => None,
            Self::RatioAtLeast { median, low_above } => Some(
                found
                    .ratio
                    .is_some_and(|r| r.median >= median && r.low > low_above),
            ),
            Self::RatioAtMost { median, high_below } => Some(
                found
                    .ratio
                    .is_some_and(|r| r.median <= median && r.high < high_below),
            ),
            Self::MedianRatioAtLeast(limit) => ratio(|median, limit| median >= limit, limit),
            Self::MedianRatioAtMost(limit) => ratio(|median, limit| median <= limit, limit),
            Self::MoreByAtMost(limit) => Some(found.peer.is_some_and(|peer| ours - peer <= limit)),
            Self::ValueBelow(limit) => Some(ours < limit),
            Self::ValueAtMost(limit) => Some(ours <= limit),
            Self::ValueAtLeast(limit) => Some(ours >= limit),
            Self::Zero => Some(ours == 0.0),
        }
    }

    /// True if the limit implies that less is better.
    pub fn wants_little(self) -> bool {
        !matches!(
            self,
            Self::RatioAtLeast { .. } | Self::MedianRatioAtLeast(_) | Self::ValueAtLeast(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ours: f64, peer: f64) -> Found {
        Found {
            ours,
            peer: Some(peer),
            ratio: ackpace_lab_base::stats::paired_ratio(&[ours; 7], &[peer; 7]),
        }
    }

    #[test]
    fn each_limit_has_a_side_that_holds_and_its_edge_belongs_to_it() {
        for (limit, holds, breaks) in [
            (Limit::MedianRatioAtMost(0.5), (1.0, 2.0), (1.1, 2.0)),
            (Limit::MedianRatioAtLeast(0.5), (1.0, 2.0), (0.9, 2.0)),
            (Limit::MoreByAtMost(5.0), (8.0, 3.0), (8.1, 3.0)),
            (Limit::ValueAtMost(70.0), (70.0, 1.0), (70.1, 1.0)),
            (Limit::ValueAtLeast(0.98), (0.98, 1.0), (0.97, 1.0)),
            (Limit::ValueBelow(0.2), (0.1, 1.0), (0.2, 1.0)),
            (Limit::Zero, (0.0, 1.0), (1.0, 1.0)),
        ] {
            let met = |(ours, peer)| limit.met(found(ours, peer));
            assert_eq!(
                (met(holds), met(breaks)),
                (Some(true), Some(false)),
                "{limit:?}"
            );
        }
        assert_eq!(Limit::None.met(found(1.0, 1.0)), None);
    }

    #[test]
    fn what_has_nothing_beside_it_does_not_hold() {
        let alone = Found {
            peer: None,
            ratio: None,
            ..found(1.0, 1.0)
        };
        for limit in [
            Limit::MedianRatioAtMost(2.0),
            Limit::MedianRatioAtLeast(0.5),
            Limit::MoreByAtMost(5.0),
        ] {
            assert_eq!(limit.met(alone), Some(false), "{limit:?}");
        }
    }
}
