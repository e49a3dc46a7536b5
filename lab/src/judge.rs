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
#[derive(Clone, Debug, PartialEq)]
pub struct Judge {
    /// Key of the metric.
    pub metric: &'static str,
    /// Names of the contenders to compare with. Empty: a line about the subject alone.
    pub against: Vec<&'static str>,
    /// One line for the best of them, instead of a line for each.
    pub best: bool,
    /// The limit to meet.
    pub limit: Option<Limit>,
    /// How the rounds become one figure.
    pub fold: Fold,
    /// The points of the sweep that get a line: on each of these axes one of these values.
    pub at: Vec<(&'static str, Vec<f64>)>,
    /// An axis and a value: the subject is compared with itself at that point.
    pub over_itself: Option<(&'static str, f64)>,
}

/// The limit of a line: of the ratio ours / peer where it compares, else of our figure as shown, in the unit of the metric's
/// label.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Limit {
    /// True for the least allowed, false for the most.
    pub least: bool,
    /// The limit, which is itself allowed.
    pub bound: f64,
    /// The ratio's interval stays on this side of this, too.
    pub all: Option<f64>,
}

/// Parses a table of rules, one a line: `METRIC [sum|max] [/ PEERS] [>= X|<= X [all Y]] [at AXIS=V|V AXIS=V]`. PEERS are names
/// with commas between them, one line each; `best of` and names, for the best of them as the limit asks; or `itself at
/// AXIS=V`.
///
/// # Errors
/// The line that is none.
pub fn parse(table: &'static str) -> Result<Vec<Judge>, &'static str> {
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| rule(line).ok_or(line)).collect()
}

fn rule(line: &'static str) -> Option<Judge> {
    let Some((before, after)) = line.split_once(" / ") else {
        return words_of(line, "");
    };
    if let Some(after) = after.strip_prefix("itself at ") {
        let (there, rest) = after.split_once(' ').unwrap_or((after, ""));
        let (axis, value) = there.split_once('=')?;
        return Some(Judge {
            over_itself: Some((axis, value.parse().ok()?)),
            ..words_of(before, rest)?
        });
    }
    let ends = [" >= ", " <= ", " at "].map(|word| after.find(word).unwrap_or(after.len()));
    let (names, rest) = after.split_at(ends.into_iter().min()?);
    let best = names.strip_prefix("best of ");
    Some(Judge {
        best: best.is_some(),
        against: best.unwrap_or(names).split(", ").collect(),
        ..words_of(before, rest)?
    })
}

/// What stands before and behind the peers: metric, fold, limit and points.
fn words_of(before: &'static str, rest: &'static str) -> Option<Judge> {
    let mut words = before.split_whitespace().chain(rest.split_whitespace());
    let mut judge = Judge {
        metric: words.next()?,
        against: Vec::new(),
        best: false,
        limit: None,
        fold: Fold::Median,
        at: Vec::new(),
        over_itself: None,
    };
    let next = |words: &mut dyn Iterator<Item = &'static str>| words.next()?.parse().ok();
    while let Some(word) = words.next() {
        match word {
            "sum" => judge.fold = Fold::Sum,
            "max" => judge.fold = Fold::Max,
            ">=" | "<=" => {
                judge.limit = Some(Limit {
                    least: word == ">=",
                    bound: next(&mut words)?,
                    all: None,
                });
            }
            "all" => judge.limit.as_mut()?.all = Some(next(&mut words)?),
            "at" => {
                for at in words.by_ref() {
                    let (axis, values) = at.split_once('=')?;
                    let values = values.split('|').map(|value| value.parse().ok());
                    judge.at.push((axis, values.collect::<Option<_>>()?));
                }
            }
            _ => return None,
        }
    }
    Some(judge)
}

/// The figures of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Our figure.
    pub ours: f64,
    /// Ratio ours / peer of the paired rounds, if there is a peer.
    pub ratio: Option<Interval>,
}

impl Judge {
    /// True if the point gets a line.
    pub fn is_at(&self, point: &Point) -> bool {
        let mut at = self.at.iter();
        at.all(|(axis, values)| values.contains(&point.get(axis)))
    }

    /// True if the limit is met; `None` without a limit.
    pub fn met(&self, found: Found) -> Option<bool> {
        let limit = self.limit?;
        let within = |value: f64, bound: f64| match limit.least {
            true => value >= bound,
            false => value <= bound,
        };
        let Some(ratio) = found.ratio else {
            return Some(within(found.ours, limit.bound));
        };
        let end = if limit.least { ratio.low } else { ratio.high };
        let all = limit.all.is_none_or(|all| within(end, all));
        Some(within(ratio.median, limit.bound) && all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_whole_or_not_at_all() {
        let one = |line| parse(line).map(|mut rules| rules.remove(0));
        let rule = one("a_b / nginx, nginx 2 KB >= .98 all .95 at mix=0|1 x=2").unwrap();
        assert_eq!(
            (rule.metric, &rule.against[..]),
            ("a_b", &["nginx", "nginx 2 KB"][..])
        );
        let limit = Limit {
            least: true,
            bound: 0.98,
            all: Some(0.95),
        };
        assert_eq!(rule.limit, Some(limit));
        assert!(rule.is_at(&Point::of(&[("mix", 1.0), ("x", 2.0)])));
        assert!(!rule.is_at(&Point::of(&[("mix", 1.0), ("x", 3.0)])));
        let rule = one("a sum <= 0").unwrap();
        assert!(rule.fold == Fold::Sum && rule.against.is_empty() && !rule.best);
        let rule = one("a / best of p, q").unwrap();
        assert!(rule.best && rule.against == ["p", "q"] && rule.limit.is_none());
        let rule = one("a / itself at apart=0 >= .97 at apart=1|2").unwrap();
        assert_eq!(
            (rule.over_itself, rule.at[0].1.len()),
            (Some(("apart", 0.0)), 2)
        );
        for wrong in ["a >=", "a much", "a >= 1 at mix", "a all 3", "a / p <= x"] {
            assert_eq!(parse(wrong), Err(wrong));
        }
    }

    #[test]
    fn a_limit_is_of_the_ratio_where_there_is_one_and_its_edge_belongs_to_it() {
        let ratio = |ours: f64| ackpace_lab_base::stats::paired_ratio(&[ours; 7], &[2.0; 7]);
        for (rule, holds, breaks) in [
            ("a <= 70", (70.0, None), (70.1, None)),
            ("a >= .98", (0.98, None), (0.97, None)),
            ("a <= 0", (0.0, None), (1.0, None)),
            ("a / p <= .5", (9.0, ratio(1.0)), (9.0, ratio(1.1))),
            ("a / p >= .5", (9.0, ratio(1.0)), (9.0, ratio(0.9))),
            ("a / p >= .4 all .5", (9.0, ratio(1.0)), (9.0, ratio(0.9))),
        ] {
            let judge = &parse(rule).unwrap()[0];
            let met = |(ours, ratio)| judge.met(Found { ours, ratio });
            assert_eq!(
                (met(holds), met(breaks)),
                (Some(true), Some(false)),
                "{rule}"
            );
        }
    }
}
