//! Turns rounds into a table of ratios.

use crate::experiment::Experiment;
use crate::judge::{Fold, Found, Judge, Limit};
use crate::metrics;
use crate::peers::Contender;
use crate::rounds::{Round, Rounds};
use crate::sweep::Point;
use ackpace_lab_base::stats::{self, Interval};
use std::collections::HashMap;

/// One line of the table.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Experiment and point.
    pub case: String,
    /// Metric with its unit.
    pub metric: String,
    /// The contender that the line is about.
    pub who: String,
    /// Its figure over all rounds, usually the median.
    pub ours: f64,
    /// The peer and the median of its rounds.
    pub peer: Option<(String, f64)>,
    /// Ratio ours / peer of the paired rounds.
    pub ratio: Option<Interval>,
    /// The limit to meet.
    pub limit: Limit,
    /// True if it is met; `None` without a limit.
    pub met: Option<bool>,
}

/// All lines of an experiment, grouped by point. Contenders that did not take part or failed have none.
pub fn rows(
    experiment: &Experiment,
    contenders: &[Contender],
    points: &[Point],
    of: &Rounds,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for point in points {
        for subject in contenders.iter().filter(|who| experiment.is_subject(who)) {
            for judge in experiment.judged.iter().filter(|judge| (judge.at)(point)) {
                let case = match point.describe(&experiment.sweep) {
                    at if at.is_empty() => experiment.name.to_owned(),
                    at => format!("{}, {at}", experiment.name),
                };
                let about = About {
                    case,
                    who: &subject.name,
                    judge,
                };
                if let Some((axis, value)) = judge.over_itself {
                    rows.extend(about.elsewhere(&of.rounds, point, &point.with(axis, value)));
                } else if judge.against.is_empty() {
                    rows.extend(about.alone(&of.rounds, point));
                }
                let peers = judge.against.iter().filter(|peer| **peer != subject.name);
                let lines = peers.filter_map(|peer| about.beside(peer, &of.rounds, point));
                if judge.best {
                    rows.extend(best(lines, judge.limit));
                } else {
                    rows.extend(lines);
                }
            }
        }
    }
    rows
}

/// The line with the best peer; its label says "(best)".
fn best(lines: impl Iterator<Item = Row>, limit: Limit) -> Option<Row> {
    let sign = if limit.wants_little() { 1.0 } else { -1.0 };
    let value = |row: &Row| {
        row.peer
            .as_ref()
            .map_or(f64::INFINITY, |peer| peer.1 * sign)
    };
    let mut row = lines.min_by(|a, b| value(a).total_cmp(&value(b)))?;
    row.peer = row
        .peer
        .map(|(name, value)| (format!("{name} (best)"), value));
    Some(row)
}

struct About<'a> {
    case: String,
    who: &'a str,
    judge: &'a Judge,
}

impl About<'_> {
    fn alone(&self, rounds: &[Round], point: &Point) -> Option<Row> {
        let values = self.values(rounds, self.who, point);
        let values: Vec<f64> = values.into_values().collect();
        let ours = match self.judge.fold {
            Fold::Median => stats::median(&values)?,
            Fold::Sum if !values.is_empty() => values.iter().sum(),
            Fold::Sum => return None,
            Fold::Max => values.into_iter().max_by(f64::total_cmp)?,
        };
        Some(self.row(ours, None, None))
    }

    fn beside(&self, peer: &str, rounds: &[Round], point: &Point) -> Option<Row> {
        let theirs = self.values(rounds, peer, point);
        self.compared(peer, theirs, rounds, point)
    }

    /// The line that compares the subject with itself at another point.
    fn elsewhere(&self, rounds: &[Round], point: &Point, other: &Point) -> Option<Row> {
        let theirs = self.values(rounds, self.who, other);
        self.compared("itself there", theirs, rounds, point)
    }

    fn compared(
        &self,
        peer: &str,
        theirs: std::collections::BTreeMap<usize, f64>,
        rounds: &[Round],
        point: &Point,
    ) -> Option<Row> {
        let ours = self.values(rounds, self.who, point);
        // Only rounds that both completed were measured side by side.
        let pairs = ours
            .iter()
            .filter_map(|(round, value)| Some((*value, *theirs.get(round)?)));
        let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let (median, peer_median) = (stats::median(&ours)?, stats::median(&theirs)?);
        let ratio = stats::paired_ratio(&ours, &theirs);
        Some(self.row(median, Some((peer.to_owned(), peer_median)), ratio))
    }

    fn row(&self, ours: f64, peer: Option<(String, f64)>, ratio: Option<Interval>) -> Row {
        let found = Found {
            ours,
            peer: peer.as_ref().map(|peer| peer.1),
            ratio,
        };
        Row {
            case: self.case.clone(),
            metric: metrics::label(self.judge.metric),
            who: self.who.to_owned(),
            ours,
            peer,
            ratio,
            limit: self.judge.limit,
            met: self.judge.limit.met(found),
        }
    }

    /// Shown values of one contender at a point, by round.
    fn values(
        &self,
        rounds: &[Round],
        who: &str,
        point: &Point,
    ) -> std::collections::BTreeMap<usize, f64> {
        let scale = metrics::scale(self.judge.metric);
        rounds
            .iter()
            .filter(|round| round.contender == who && round.point == *point)
            .filter_map(|round| Some((round.round, round.values.get(self.judge.metric)? * scale)))
            .collect()
    }
}

/// The table for a terminal.
pub fn table(rows: &[Row]) -> String {
    let head = [
        "case", "metric", "", "", "peer", "", "ratio", "95 %", "must", "",
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
            row.who.clone(),
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
                let right = matches!(column, 3 | 4 | 6);
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

/// Formats a value with about three significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size < 0.000_05 => "0".into(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// The limit in words.
pub fn must(limit: Limit) -> String {
    match limit {
        Limit::None => String::new(),
        Limit::RatioAtLeast { median, low_above } => format!(">= {median}, all > {low_above}"),
        Limit::RatioAtMost { median, high_below } => format!("<= {median}, all < {high_below}"),
        Limit::MedianRatioAtLeast(limit) => format!(">= {limit}"),
        Limit::MedianRatioAtMost(limit) => format!("<= {limit}"),
        Limit::MoreByAtMost(limit) => format!("ours <= peer + {limit}"),
        Limit::ValueBelow(limit) => format!("ours < {limit}"),
        Limit::ValueAtMost(limit) => format!("ours <= {limit}"),
        Limit::ValueAtLeast(limit) => format!("ours >= {limit}"),
        Limit::Zero => "ours = 0".into(),
    }
}

/// Share of the time that other processes took from the servers' core. For each contender it takes the median
/// share of its windows in which it was ready and had to wait. The result is the smallest of these, since a
/// contender with many threads also waits for itself. `None` without rounds.
pub fn disturbance(rounds: &[Round]) -> Option<f64> {
    let mut by_contender: HashMap<&str, Vec<f64>> = HashMap::new();
    for round in rounds {
        if let Some(share) = round.values.get("server_waited_share") {
            let shares = by_contender.entry(&round.contender).or_default();
            shares.push(share);
        }
    }
    let medians = by_contender
        .values()
        .filter_map(|shares| stats::median(shares));
    medians.min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Values;

    const PARITY: Limit = Limit::RatioAtLeast {
        median: 0.98,
        low_above: 0.95,
    };

    /// Rounds in which a contender measured these values of a metric.
    fn rounds(of: &[(&str, &'static str, &[f64])]) -> Vec<Round> {
        let mut rounds = Vec::new();
        for (who, metric, values) in of {
            for (round, value) in values.iter().enumerate() {
                let mut values = Values::default();
                values.set(metric, *value);
                rounds.push(Round {
                    point: Point::default(),
                    round,
                    place: 0,
                    contender: (*who).to_owned(),
                    values,
                    detail: serde_json::Value::Null,
                });
            }
        }
        rounds
    }

    fn beside(judge: &Judge, ours: &[f64], theirs: &[f64]) -> Option<Row> {
        let rounds = rounds(&[("us", judge.metric, ours), ("p", judge.metric, theirs)]);
        let about = About {
            case: "c".into(),
            who: "us",
            judge,
        };
        about.beside("p", &rounds, &Point::default())
    }

    #[test]
    fn a_ratio_is_judged_by_median_and_interval() {
        let judge = Judge::against("jain", &["p"], PARITY);
        let met = |ours: &[f64]| beside(&judge, ours, &[1.0; 7]).unwrap().met;
        assert_eq!(met(&[0.99; 7]), Some(true));
        assert_eq!(met(&[0.97; 7]), Some(false), "median too low");
        let wide = [0.9, 0.92, 0.94, 1.0, 1.1, 1.1, 1.1];
        assert_eq!(met(&wide), Some(false), "interval reaches too far down");
        assert!(beside(&judge, &[], &[1.0]).is_none());
    }

    #[test]
    fn only_rounds_that_both_have_are_paired() {
        let judge = Judge::against("jain", &["p"], Limit::None);
        let row = beside(&judge, &[2.0, 4.0, 900.0], &[1.0, 2.0]).unwrap();
        assert_eq!((row.ours, row.ratio.unwrap().median), (3.0, 2.0));
    }

    #[test]
    fn costs_are_judged_from_above() {
        let limit = Limit::RatioAtMost {
            median: 1.03,
            high_below: 1.06,
        };
        let judge = Judge::against("jain", &["p"], limit);
        let met = |ours: f64| beside(&judge, &[ours; 7], &[1.0; 7]).unwrap().met;
        assert_eq!((met(1.03), met(1.04)), (Some(true), Some(false)));
    }

    #[test]
    fn a_line_alone_folds_its_rounds_and_is_shown_in_its_unit() {
        let values = [0.0, 3000.0, 1000.0];
        let rounds = rounds(&[("us", "turn_max_us", &values)]);
        let alone = |fold| {
            let judge = Judge::alone("turn_max_us", fold, Limit::Zero);
            let about = About {
                case: "c".into(),
                who: "us",
                judge: &judge,
            };
            about.alone(&rounds, &Point::default()).unwrap()
        };
        assert_eq!(alone(Fold::Max).ours, 3.0, "milliseconds");
        assert_eq!(alone(Fold::Sum).ours, 4.0);
        assert_eq!(alone(Fold::Median).ours, 1.0);
        assert_eq!(alone(Fold::Median).met, Some(false));
    }

    #[test]
    fn beside_the_best_is_one_line_whose_side_the_limit_tells() {
        let rounds = rounds(&[
            ("us", "jain", &[4.0; 7]),
            ("p", "jain", &[2.0; 7]),
            ("q", "jain", &[5.0; 7]),
        ]);
        let line = |limit| {
            let judge = Judge::best_of("jain", &["p", "q"], limit);
            let about = About {
                case: "c".into(),
                who: "us",
                judge: &judge,
            };
            let lines = ["p", "q"].map(|peer| about.beside(peer, &rounds, &Point::default()));
            let row = best(lines.into_iter().flatten(), limit).unwrap();
            (row.peer.unwrap().0, row.met)
        };
        let cost = line(Limit::MedianRatioAtMost(1.0));
        assert_eq!(cost, ("p (best)".into(), Some(false)));
        let gain = line(Limit::MedianRatioAtLeast(1.0));
        assert_eq!(gain, ("q (best)".into(), Some(false)));
    }

    #[test]
    fn a_line_may_be_beside_the_subject_itself_at_another_point() {
        let mut all = rounds(&[("us", "jain", &[3.0; 7])]);
        for mut round in rounds(&[("us", "jain", &[2.0; 7])]) {
            round.point = Point::of(&[("disk", 1.0)]);
            all.push(round);
        }
        let rounds = all;
        let limit = Limit::MedianRatioAtLeast(1.5);
        let judge = Judge::over_itself("jain", "disk", 1.0, limit);
        let about = About {
            case: "c".into(),
            who: "us",
            judge: &judge,
        };
        let here = Point::default();
        let row = about.elsewhere(&rounds, &here, &here.with("disk", 1.0));
        let row = row.unwrap();
        assert_eq!(
            (row.ours, row.peer.unwrap().1, row.met),
            (3.0, 2.0, Some(true))
        );
        assert!(
            about
                .elsewhere(&rounds, &here, &here.with("disk", 2.0))
                .is_none()
        );
    }

    #[test]
    fn the_least_disturbed_contender_tells_of_strangers() {
        let waited = "server_waited_share";
        let of = [
            ("single", waited, &[0.01, 0.3, 0.02][..]),
            ("pooled", waited, &[0.5, 0.6]),
        ];
        assert_eq!(disturbance(&rounds(&of)), Some(0.02));
        assert_eq!(disturbance(&[]), None);
    }

    #[test]
    fn the_table_lines_up() {
        let judge = Judge::against("goodput_bytes_per_s", &["p"], PARITY);
        let mut row = beside(&judge, &[16.5e9; 6], &[17.0e9; 6]).unwrap();
        row.case = "cached, connections = 1".into();
        let alone = Row {
            metric: "turns over 1 ms".into(),
            peer: None,
            ratio: None,
            ours: 3.0,
            limit: Limit::Zero,
            met: Some(false),
            ..row.clone()
        };
        let want = "\
case                     metric                       peer     ratio  95 %          must
cached, connections = 1  goodput MB/s     us  16500  17000  p  0.971  0.971..0.971  >= 0.98, all > 0.95  MISS
cached, connections = 1  turns over 1 ms  us   3.00                                 ours = 0             MISS
";
        assert_eq!(table(&[row, alone]), want);
    }
}
