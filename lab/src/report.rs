//! Rounds turned into a table of ratios and a file with everything.

use crate::error::{Doing, Result};
use crate::peers::Contender;
use crate::stats::{self, Interval};
use std::collections::HashMap;
use std::path::Path;

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

/// One line of the table.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Case.
    pub case: String,
    /// Metric with its unit.
    pub metric: String,
    /// Median of our rounds.
    pub ours: f64,
    /// Peer and the median of its rounds.
    pub peer: Option<(String, f64)>,
    /// Ratio ours / peer of the paired rounds.
    pub ratio: Option<Interval>,
    /// Target.
    pub limit: Limit,
    /// Whether it is met; `None` without a target.
    pub met: Option<bool>,
}

impl Row {
    /// A line about paired rounds; `None` if one of the two did not take part.
    pub fn ratio(
        case: &str,
        metric: &str,
        peer: &str,
        ours: &[f64],
        theirs: &[f64],
        limit: Limit,
    ) -> Option<Self> {
        let (median, peer_median) = (stats::median(ours)?, stats::median(theirs)?);
        let ratio = stats::paired_ratio(ours, theirs);
        Some(Self {
            case: case.into(),
            metric: metric.into(),
            ours: median,
            peer: Some((peer.into(), peer_median)),
            ratio,
            limit,
            met: met(limit, median, ratio),
        })
    }

    /// A line about ourselves.
    pub fn value(case: &str, metric: &str, ours: f64, limit: Limit) -> Self {
        Self {
            case: case.into(),
            metric: metric.into(),
            ours,
            peer: None,
            ratio: None,
            limit,
            met: met(limit, ours, None),
        }
    }
}

fn met(limit: Limit, ours: f64, ratio: Option<Interval>) -> Option<bool> {
    match limit {
        Limit::None => None,
        Limit::RatioAtLeast { median, low_above } => {
            Some(ratio.is_some_and(|r| r.median >= median && r.low > low_above))
        }
        Limit::RatioAtMost { median, high_below } => {
            Some(ratio.is_some_and(|r| r.median <= median && r.high < high_below))
        }
        Limit::ValueBelow(limit) => Some(ours < limit),
        Limit::Zero => Some(ours == 0.0),
    }
}

/// The table for a terminal.
pub fn table(rows: &[Row]) -> String {
    let head = [
        "case", "metric", "ackpace", "peer", "", "ratio", "95 %", "must", "",
    ];
    let mut cells = vec![head.map(str::to_owned)];
    for row in rows {
        let (name, peer) = row
            .peer
            .clone()
            .map_or_else(Default::default, |(name, value)| (name, number(value)));
        let (ratio, range) = row.ratio.map_or_else(Default::default, |ratio| {
            (
                number(ratio.median),
                format!("{}..{}", number(ratio.low), number(ratio.high)),
            )
        });
        let verdict = row.met.map_or("", |met| if met { "ok" } else { "MISS" });
        cells.push([
            row.case.clone(),
            row.metric.clone(),
            number(row.ours),
            peer,
            name,
            ratio,
            range,
            must(row.limit),
            verdict.to_owned(),
        ]);
    }
    let width = |column: usize| {
        cells
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in &cells {
        let padded = line
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                let right = matches!(column, 2 | 3 | 5);
                if right {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Three digits that matter.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

fn must(limit: Limit) -> String {
    match limit {
        Limit::None => String::new(),
        Limit::RatioAtLeast { median, low_above } => format!(">= {median}, all > {low_above}"),
        Limit::RatioAtMost { median, high_below } => format!("<= {median}, all < {high_below}"),
        Limit::ValueBelow(limit) => format!("ours < {limit}"),
        Limit::Zero => "ours = 0".into(),
    }
}

/// How much of the time strangers took the servers' core: of each contender the median share of its
/// windows in which it was ready and had to wait, and of these the smallest, since a contender with
/// many threads also waits for itself. `None` of no rounds.
pub fn disturbance(waited: &[(Contender, f64)]) -> Option<f64> {
    let mut by_contender: HashMap<Contender, Vec<f64>> = HashMap::new();
    for (who, share) in waited {
        by_contender.entry(*who).or_default().push(*share);
    }
    let medians = by_contender
        .values()
        .filter_map(|shares| stats::median(shares));
    medians.min_by(f64::total_cmp)
}

/// Writes the whole report as JSON; makes the folder.
pub fn write(path: &Path, report: &impl serde::Serialize) -> Result<()> {
    let what = || path.display().to_string();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).doing(what)?;
    }
    let mut text = serde_json::to_string_pretty(report)
        .map_err(std::io::Error::from)
        .doing(what)?;
    text.push('\n');
    std::fs::write(path, text).doing(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARITY: Limit = Limit::RatioAtLeast {
        median: 0.98,
        low_above: 0.95,
    };

    #[test]
    fn a_ratio_is_judged_by_median_and_interval() {
        let row = |ours: &[f64]| Row::ratio("c", "m", "p", ours, &[1.0; 7], PARITY).unwrap();
        assert_eq!(row(&[0.99; 7]).met, Some(true));
        assert_eq!(row(&[0.97; 7]).met, Some(false), "median too low");
        let wide = [0.9, 0.92, 0.94, 1.0, 1.1, 1.1, 1.1];
        assert_eq!(row(&wide).met, Some(false), "interval reaches too far down");
        assert!(Row::ratio("c", "m", "p", &[], &[1.0], PARITY).is_none());
    }

    #[test]
    fn costs_and_values_are_judged_from_above() {
        let cost = Limit::RatioAtMost {
            median: 1.03,
            high_below: 1.06,
        };
        let met = |ours: f64| {
            Row::ratio("c", "m", "p", &[ours; 7], &[1.0; 7], cost)
                .unwrap()
                .met
        };
        assert_eq!((met(1.03), met(1.04)), (Some(true), Some(false)));
        assert_eq!(
            Row::value("c", "m", 0.2, Limit::ValueBelow(0.2)).met,
            Some(false)
        );
        assert_eq!(Row::value("c", "m", 0.0, Limit::Zero).met, Some(true));
        assert_eq!(Row::value("c", "m", 1.0, Limit::None).met, None);
    }

    #[test]
    fn the_least_disturbed_contender_tells_of_strangers() {
        let (single, pooled) = (Contender::Nginx, Contender::NginxAio);
        let waited = [
            (single, 0.01),
            (pooled, 0.5),
            (single, 0.3),
            (pooled, 0.6),
            (single, 0.02),
        ];
        assert_eq!(disturbance(&waited), Some(0.02));
        assert_eq!(disturbance(&[]), None);
    }

    #[test]
    fn the_table_lines_up() {
        let rows = [
            Row::ratio("cached", "goodput", "nginx", &[16.5; 6], &[17.0; 6], PARITY).unwrap(),
            Row::value("listing", "turns over 1 ms", 3.0, Limit::Zero),
        ];
        let want = "\
case     metric           ackpace  peer         ratio  95 %          must
cached   goodput             16.5  17.0  nginx  0.971  0.971..0.971  >= 0.98, all > 0.95  MISS
listing  turns over 1 ms     3.00                                    ours = 0             MISS
";
        let trimmed: Vec<&str> = want.lines().map(str::trim_end).collect();
        assert_eq!(table(&rows).lines().collect::<Vec<_>>(), trimmed);
    }
}
