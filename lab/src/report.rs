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
    pub limit: Option<Limit>,
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
    let (judges, mut rows) = (experiment.judges(), Vec::new());
    for point in points {
        for subject in contenders.iter().filter(|who| experiment.is_subject(who)) {
            for judge in judges.iter().filter(|judge| judge.is_at(point)) {
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
                    rows.extend(best(lines));
                } else {
                    rows.extend(lines);
                }
            }
        }
    }
    rows
}

/// The line with the best peer; its label says "(best)".
fn best(lines: impl Iterator<Item = Row>) -> Option<Row> {
    let lines: Vec<Row> = lines.collect();
    let least = lines.first()?.limit.is_some_and(|limit| limit.least);
    let sign = if least { -1.0 } else { 1.0 };
    let value = |row: &Row| {
        row.peer
            .as_ref()
            .map_or(f64::INFINITY, |peer| peer.1 * sign)
    };
    let mut row = lines
        .into_iter()
        .min_by(|a, b| value(a).total_cmp(&value(b)))?;
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
        let found = Found { ours, ratio };
        Row {
            case: self.case.clone(),
            metric: metrics::label(self.judge.metric),
            who: self.who.to_owned(),
            ours,
            peer,
            ratio,
            limit: self.judge.limit,
            met: self.judge.met(found),
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

/// The columns of the table.
pub const HEADS: [&str; 10] = [
    "case", "metric", "", "", "peer", "", "ratio", "95 %", "must", "",
];
/// Those with numbers, which are aligned to the right.
pub const NUMBERS: [usize; 3] = [3, 4, 6];

/// The cells of a line.
pub fn cells(row: &Row) -> [String; 10] {
    let peer = row.peer.clone();
    let (name, peer) = peer.map_or_else(Default::default, |(name, value)| (name, number(value)));
    let (ratio, range) = row.ratio.map_or_else(Default::default, |ratio| {
        let range = format!("{}..{}", number(ratio.low), number(ratio.high));
        (number(ratio.median), range)
    });
    let verdict = row.met.map_or("", |met| if met { "ok" } else { "MISS" });
    [
        row.case.clone(),
        row.metric.clone(),
        row.who.clone(),
        number(row.ours),
        peer,
        name,
        ratio,
        range,
        must(row),
        verdict.to_owned(),
    ]
}

/// The table for a terminal.
pub fn table(rows: &[Row]) -> String {
    let mut cells: Vec<_> = rows.iter().map(cells).collect();
    cells.insert(0, HEADS.map(str::to_owned));
    let width = |column: usize| {
        cells
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    let mut text = String::new();
    for line in &cells {
        let padded = line
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                let right = NUMBERS.contains(&column);
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
fn must(row: &Row) -> String {
    let Some(limit) = row.limit else {
        return String::new();
    };
    let sign = if limit.least { ">=" } else { "<=" };
    let ours = if row.peer.is_some() { "" } else { "ours " };
    let all = limit
        .all
        .map_or(String::new(), |all| format!(", all {sign} {all}"));
    format!("{ours}{sign} {}{all}", limit.bound)
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
    use crate::judge;
    use crate::metrics::Values;

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

    /// The lines of a table about "us".
    fn table_of(rule: &'static str, rounds: &[Round]) -> Vec<Row> {
        let judge = &judge::parse(rule).unwrap()[0];
        let (case, who) = ("c".into(), "us");
        let about = About { case, who, judge };
        let here = Point::default();
        if let Some((axis, value)) = judge.over_itself {
            let there = here.with(axis, value);
            return about.elsewhere(rounds, &here, &there).into_iter().collect();
        }
        if judge.against.is_empty() {
            return about.alone(rounds, &here).into_iter().collect();
        }
        let peers = judge.against.iter();
        let lines = peers.filter_map(|peer| about.beside(peer, rounds, &here));
        match judge.best {
            true => best(lines).into_iter().collect(),
            false => lines.collect(),
        }
    }

    #[test]
    fn a_ratio_is_of_the_rounds_that_both_have() {
        let of = [
            ("us", "jain", &[2.0, 4.0, 900.0][..]),
            ("p", "jain", &[1.0, 2.0]),
        ];
        let row = &table_of("jain / p", &rounds(&of))[0];
        assert_eq!((row.ours, row.ratio.unwrap().median), (3.0, 2.0));
        assert!(table_of("jain / q", &rounds(&of)).is_empty());
    }

    #[test]
    fn a_line_alone_folds_its_rounds_and_is_shown_in_its_unit() {
        let rounds = rounds(&[("us", "probe_max_us", &[0.0, 3000.0, 1000.0])]);
        for (rule, value) in [
            ("probe_max_us max <= 0", 3.0),
            ("probe_max_us sum", 4.0),
            ("probe_max_us", 1.0),
        ] {
            assert_eq!(
                table_of(rule, &rounds)[0].ours,
                value,
                "{rule}: milliseconds"
            );
        }
    }

    #[test]
    fn beside_the_best_is_one_line_whose_side_the_limit_tells() {
        let rounds = rounds(&[
            ("us", "jain", &[4.0; 7]),
            ("p", "jain", &[2.0; 7]),
            ("q", "jain", &[5.0; 7]),
        ]);
        for (rule, peer) in [
            ("jain / best of p, q <= 1", "p"),
            ("jain / best of p, q >= 1", "q"),
        ] {
            let rows = table_of(rule, &rounds);
            let peer = format!("{peer} (best)");
            assert_eq!((rows.len(), rows[0].met), (1, Some(false)));
            assert_eq!(rows[0].peer.as_ref().unwrap().0, peer);
        }
    }

    #[test]
    fn a_line_may_be_beside_the_subject_itself_at_another_point() {
        let mut all = rounds(&[("us", "jain", &[3.0; 7])]);
        for mut round in rounds(&[("us", "jain", &[2.0; 7])]) {
            round.point = Point::of(&[("disk", 1.0)]);
            all.push(round);
        }
        let row = &table_of("jain / itself at disk=1 >= 1.5", &all)[0];
        assert_eq!(
            (row.ours, row.peer.as_ref().unwrap().1, row.met),
            (3.0, 2.0, Some(true))
        );
        assert!(table_of("jain / itself at disk=2", &all).is_empty());
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
        let metric = "goodput_bytes_per_s";
        let of = [
            ("us", metric, &[16.5e9; 6][..]),
            ("p", metric, &[17.0e9; 6]),
        ];
        let rounds = rounds(&of);
        let mut rows = table_of("goodput_bytes_per_s / p >= .98 all .95", &rounds);
        rows.extend(table_of("goodput_bytes_per_s <= 0", &rounds));
        let want = "\
case  metric                    peer     ratio  95 %          must
c     goodput MB/s  us  16500  17000  p  0.971  0.971..0.971  >= 0.98, all >= 0.95  MISS
c     goodput MB/s  us  16500                                 ours <= 0             MISS
";
        assert_eq!(table(&rows), want);
    }
}
