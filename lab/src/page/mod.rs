//! The page of a run: one HTML file with SVG charts and no script.

mod chart;
mod scale;
mod tables;
#[cfg(test)]
mod tests;

use crate::experiment::{Experiment, Figure, Over};
use crate::metrics;
use crate::outcome::Outcome;
use crate::rounds::Round;
use crate::sweep::{Axis, Point};
use ackpace_lab_base::stats;
use chart::{Axes, Series, escape, swatch};

const STYLE: &str = include_str!("style.css");

/// Renders the page: a figure for each metric of the table, and those that the experiment names.
pub fn render(outcome: &Outcome, experiment: &Experiment) -> String {
    let title = escape(outcome.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width\">\n\
         <title>{title} · ackpace lab</title>\n<style>\n{STYLE}</style>\n<main>\n"
    );
    page += &head(outcome);
    page += &tables::failures(&outcome.rounds.failures);
    page += &legend(outcome);
    page += "<section class=figures>\n";
    let mut figures: Vec<Figure> = Vec::new();
    for judge in experiment.judges() {
        if !figures.iter().any(|figure| figure.metric == judge.metric) {
            let (metric, over) = (judge.metric, Over::Axis);
            figures.push(Figure { metric, over });
        }
    }
    for figure in figures.iter().chain(&experiment.figures) {
        page += &pictures(outcome, figure);
    }
    page += "</section>\n";
    page += &tables::ratios(&outcome.rows);
    page += &tables::medians(outcome);
    page += &tables::how(outcome);
    page + "</main>\n"
}

fn head(outcome: &Outcome) -> String {
    let source = match outcome.source {
        "" => String::new(),
        source => format!(" · {}", escape(source)),
    };
    let quick = if outcome.quick {
        "<p class=note>A quick look: few short rounds. Good for a glance, no proof.</p>\n"
    } else {
        ""
    };
    let date = outcome.date.get(..10).unwrap_or_default();
    format!(
        "<header>\n<p class=kicker>ackpace lab · {} · {date}{source}</p>\n<h1>{}</h1>\n<p class=asks>{}</p>\n{quick}</header>\n",
        escape(outcome.experiment),
        escape(outcome.title),
        escape(outcome.asks),
    )
}

fn legend(outcome: &Outcome) -> String {
    let entries: Vec<String> = outcome
        .contenders
        .iter()
        .enumerate()
        .map(|(style, who)| format!("<span>{}{}</span>", swatch(style), escape(&who.name)))
        .collect();
    format!(
        "<p class=legend>{}<span class=muted>median and 95 % interval of the rounds</span></p>\n",
        entries.join("")
    )
}

/// A figure: one chart, or one for each value of the second axis.
fn pictures(outcome: &Outcome, figure: &Figure) -> String {
    let title = metrics::label(figure.metric);
    let Some(panels) = outcome.axes.get(1) else {
        return picture(&Chart {
            outcome,
            figure,
            title,
            panel: None,
        });
    };
    let of_panel = |value: f64| {
        let panel = match panels.names.is_empty() {
            true => format!("{} = {}", panels.label, scale::label(value)),
            false => panels.show(value),
        };
        picture(&Chart {
            outcome,
            figure,
            title: format!("{title}, {panel}"),
            panel: Some((panels.name, value)),
        })
    };
    let values = taken(outcome, panels);
    values.into_iter().map(of_panel).collect()
}

/// A chart that is to be drawn.
struct Chart<'a> {
    outcome: &'a Outcome,
    figure: &'a Figure,
    title: String,
    /// The axis value of its points.
    panel: Option<(&'a str, f64)>,
}

impl Chart<'_> {
    /// The rounds of a contender that it shows.
    fn rounds(&self, who: &str) -> impl Iterator<Item = &Round> {
        let rounds = self.outcome.rounds.rounds.iter();
        let panel = self.panel;
        let shown =
            move |round: &&Round| panel.is_none_or(|(axis, value)| round.point.get(axis) == value);
        rounds
            .filter(shown)
            .filter(move |round| round.contender == who)
    }

    /// A line for each contender that has any values.
    fn lines(&self, points: impl Fn(&str) -> Vec<(f64, stats::Interval)>) -> Vec<Series> {
        let contenders = self.outcome.contenders.iter().enumerate();
        let lines =
            contenders.map(|(style, who)| Series::solid(&who.name, style, points(&who.name)));
        lines.collect()
    }

    /// The drawn chart with its title, and a legend if it has one of its own.
    fn html(&self, keys: &str, svg: &str) -> String {
        let title = escape(&self.title);
        format!("<figure>\n<figcaption>{title}</figcaption>\n{keys}{svg}\n</figure>\n")
    }
}

fn picture(chart: &Chart) -> String {
    match chart.figure.over {
        Over::Axis => over_axis(chart),
        Over::Seconds => {
            let series = chart.lines(|who| seconds(chart, chart.figure.metric, who));
            chart.html("", &over_seconds(chart, &series))
        }
        Over::SecondsByClass(classes) => {
            let of = |who: &crate::peers::Identity| {
                let line = |(style, class): (usize, &&str)| {
                    let key = format!("{}@{class}", chart.figure.metric);
                    Series::solid(class, style, seconds(chart, &key, &who.name))
                };
                let series: Vec<Series> = classes.iter().enumerate().map(line).collect();
                if series.iter().all(|one| one.points.is_empty()) {
                    return String::new();
                }
                let titled = Chart {
                    title: format!("{}, {}", chart.title, who.name),
                    ..*chart
                };
                titled.html(&keys(&series), &over_seconds(chart, &series))
            };
            chart.outcome.contenders.iter().map(of).collect()
        }
        Over::Classes(classes, x, peer) => over_classes(chart, classes, x, peer),
    }
}

fn over_axis(chart: &Chart) -> String {
    let metric = chart.figure.metric;
    let axis = chart.outcome.axes.first();
    let series = chart.lines(|who| {
        let mut points = Vec::new();
        for value in axis.map_or(vec![0.0], |axis| taken(chart.outcome, axis)) {
            let here = |round: &&Round| axis.is_none_or(|axis| round.point.get(axis.name) == value);
            let rounds = chart.rounds(who).filter(here);
            let values: Vec<f64> = rounds.filter_map(|round| shown(round, metric)).collect();
            points.extend(stats::interval(&values).map(|interval| (value, interval)));
        }
        points
    });
    let label = metrics::label(metric);
    let logarithmic = spans_decades(&series);
    let svg = match axis {
        None => chart::dots(&[(String::new(), series)], &label, logarithmic),
        Some(axis) if !axis.names.is_empty() => {
            chart::dots(&by_kind(&series, axis), &label, logarithmic)
        }
        Some(axis) => {
            let axes = Axes {
                x: axis.label,
                y: &label,
                x_logarithmic: axis.logarithmic,
                y_logarithmic: logarithmic,
                values: &taken(chart.outcome, axis),
            };
            chart::lines(&series, &axes)
        }
    };
    chart.html("", &svg)
}

/// Lines over the seconds of the window.
fn over_seconds(chart: &Chart, series: &[Series]) -> String {
    let seconds = series.iter().map(|one| one.points.len()).max().unwrap_or(0);
    let values: Vec<f64> = (1..=seconds.max(1)).map(|second| second as f64).collect();
    let axes = Axes {
        x: "seconds of the window",
        y: &metrics::label(chart.figure.metric),
        x_logarithmic: false,
        y_logarithmic: false,
        values: &values,
    };
    chart::lines(series, &axes)
}

/// Each second of a metric of a contender, with the interval over its rounds.
fn seconds(chart: &Chart, key: &str, who: &str) -> Vec<(f64, stats::Interval)> {
    let curve = |round: &Round| {
        let curve = round.detail["curves"][key].as_array()?;
        let values = curve.iter().filter_map(serde_json::Value::as_f64);
        Some(values.collect::<Vec<f64>>())
    };
    let curves: Vec<Vec<f64>> = chart.rounds(who).filter_map(curve).collect();
    let scale = metrics::scale(key);
    let seconds = curves.iter().map(Vec::len).max().unwrap_or(0);
    let at = |nth: usize| {
        let values = curves
            .iter()
            .filter_map(|curve| Some(curve.get(nth)? * scale));
        Some((
            (nth + 1) as f64,
            stats::interval(&values.collect::<Vec<_>>())?,
        ))
    };
    (0..seconds).filter_map(at).collect()
}

/// The ratio of each contender to a peer, over the values of the classes.
fn over_classes(chart: &Chart, classes: &[(&str, f64)], x: &str, peer: &str) -> String {
    let metric = chart.figure.metric;
    let values = |who: &str, class: &str| -> Vec<f64> {
        let key = format!("{metric}@{class}");
        chart
            .rounds(who)
            .filter_map(|round| shown(round, &key))
            .collect()
    };
    let mut series = chart.lines(|who| {
        let ratio = |(class, value): &(&str, f64)| {
            let ratio = stats::paired_ratio(&values(who, class), &values(peer, class))?;
            Some((*value, ratio))
        };
        classes.iter().filter_map(ratio).collect()
    });
    series.retain(|one| one.name != peer);
    let values: Vec<f64> = classes.iter().map(|(_, value)| *value).collect();
    let axes = Axes {
        x,
        y: &format!("{} over {peer}'s", metrics::label(metric)),
        x_logarithmic: true,
        y_logarithmic: false,
        values: &values,
    };
    chart.html("", &chart::lines(&series, &axes))
}

/// True if a linear scale would show the smaller half of the values as nothing.
fn spans_decades(series: &[Series]) -> bool {
    let points = series.iter().flat_map(|one| &one.points);
    let medians: Vec<f64> = points.map(|(_, value)| value.median).collect();
    let most = medians.iter().copied().fold(0.0, f64::max);
    medians.iter().all(|value| *value > 0.0) && medians.iter().any(|value| *value < most / 50.0)
}

/// A figure of a round as it is shown.
fn shown(round: &Round, metric: &str) -> Option<f64> {
    Some(round.values.get(metric)? * metrics::scale(metric))
}

/// Converts lines over an axis of kinds to one group of dots for each kind.
fn by_kind(series: &[Series], axis: &Axis) -> Vec<(String, Vec<Series>)> {
    let mut kinds: Vec<f64> = Vec::new();
    for (value, _) in series.iter().flat_map(|one| &one.points) {
        if !kinds.contains(value) {
            kinds.push(*value);
        }
    }
    kinds.sort_by(f64::total_cmp);
    let of_kind = |kind: f64| {
        let at_kind = |one: &Series| Series {
            points: one
                .points
                .iter()
                .filter(|(value, _)| *value == kind)
                .copied()
                .collect(),
            ..one.clone()
        };
        (axis.show(kind), series.iter().map(at_kind).collect())
    };
    kinds.into_iter().map(of_kind).collect()
}

/// A separate legend for a chart with more lines than contenders.
fn keys(series: &[Series]) -> String {
    let keys: Vec<String> = series
        .iter()
        .map(|one| format!("<span>{}{}</span>", swatch(one.style), escape(&one.name)))
        .collect();
    format!("<p class=legend>{}</p>", keys.join(""))
}

/// The values of a contender in all rounds at a point, times `scale`.
fn values(outcome: &Outcome, point: &Point, who: &str, metric: &str, scale: f64) -> Vec<f64> {
    let rounds = outcome.rounds.rounds.iter();
    rounds
        .filter(|round| round.contender == who && round.point == *point)
        .filter_map(|round| Some(round.values.get(metric)? * scale))
        .collect()
}

/// The values of an axis that this run covered.
fn taken(outcome: &Outcome, axis: &Axis) -> Vec<f64> {
    let mut values: Vec<f64> = Vec::new();
    for planned in &outcome.points {
        let value = planned.point.get(axis.name);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}
