//! What is judged: a metric, beside whom, and what has to hold.

use crate::stats::Interval;

/// What becomes of the rounds in one line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fold {
    /// Their median; ratios are of paired rounds.
    Median,
    /// Their sum.
    Sum,
    /// The greatest.
    Max,
}

/// Lines of the table: one metric of the subjects beside some contenders.
#[derive(Clone, Debug)]
pub struct Judge {
    /// Key of the metric.
    pub metric: &'static str,
    /// Names of the contenders it is compared with. Empty: a line about the subject alone.
    pub against: &'static [&'static str],
    /// What has to hold.
    pub limit: Limit,
    /// What becomes of the rounds.
    pub fold: Fold,
}

impl Judge {
    /// A line for each peer.
    pub fn against(metric: &'static str, against: &'static [&'static str], limit: Limit) -> Self {
        Self {
            metric,
            against,
            limit,
            fold: Fold::Median,
        }
    }

    /// A line about the subject alone.
    pub fn alone(metric: &'static str, fold: Fold, limit: Limit) -> Self {
        Self {
            metric,
            against: &[],
            limit,
            fold,
        }
    }
}

/// What a line has to hold.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// For information.
    None,
    /// The ratio ours / peer.
    RatioAtLeast {
        /// Its median is at least this,
        median: f64,
        /// and its interval above this.
        low_above: f64,
    },
    /// The ratio ours / peer.
    RatioAtMost {
        /// Its median is at most this,
        median: f64,
        /// and its interval below this.
        high_below: f64,
    },
    /// Our median is below this.
    ValueBelow(f64),
    /// Our value is 0.
    Zero,
}

impl Limit {
    /// Whether it holds; `None` if nothing has to.
    pub fn met(self, ours: f64, ratio: Option<Interval>) -> Option<bool> {
        match self {
            Self::None => None,
            Self::RatioAtLeast { median, low_above } => {
                Some(ratio.is_some_and(|r| r.median >= median && r.low > low_above))
            }
            Self::RatioAtMost { median, high_below } => {
                Some(ratio.is_some_and(|r| r.median <= median && r.high < high_below))
            }
            Self::ValueBelow(limit) => Some(ours < limit),
            Self::Zero => Some(ours == 0.0),
        }
    }
}
