//! The page of a run: one HTML file with SVG charts and no script.

mod by_class;
mod chart;
mod curve;
mod scale;
mod tables;
#[cfg(test)]
mod tests;

use crate::experiment::Figure;
use crate::metrics;
use crate::outcome::Outcome;
use crate::sweep::{Axis, Point};
use ackpace_lab_base::stats;
use chart::{Axes, Series, escape, swatch};

const STYLE: &str = include_str!("style.css");

/// Renders the page.
pub fn render(outcome: &Outcome, figures: &[Figure]) -> String {
    let title = escape(outcome.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width\">\n\
         <title>{title} · ackpace lab</title>\n<style>\n{STYLE}</style>\n<main>\n"
    );
    page += &head(outcome);
    page += &tables::failures(&outcome.rounds.failures);
    page += &legend(outcome);
    page += "<section class=figures>\n";
    for figure in figures {
        page += &pictures(outcome, figure);
    }
    page += "</section>\n";
    page += &tables::ratios(&outcome.rows);
    page += &tables::same_work(outcome);
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
    if outcome.axes.is_empty() {
        return String::new(); // the charts show the names
    }
    let entries: Vec<String> = outcome
        .contenders
        .iter()
        .enumerate()
        .map(|(style, who)| format!("<span>{}{}</span>", swatch(style, 0), escape(&who.name)))
        .collect();
    format!(
        "<p class=legend>{}<span class=muted>median and 95 % interval of the rounds</span></p>\n",
        entries.join("")
    )
}

/// A figure: one chart, or one for each value of an axis.
fn pictures(outcome: &Outcome, figure: &Figure) -> String {
    let axis = |name: Option<&str>| outcome.axes.iter().find(|axis| Some(axis.name) == name);
    let chart = |title: &str, fixed: &[(&str, f64)]| {
        picture(&Chart {
            outcome,
            figure,
            title,
            fixed,
        })
    };
    let Some(panels) = axis(figure.panels) else {
        return chart(figure.title, &[]);
    };
    let of_panel = |value: f64| {
        let title = format!(
            "{}, {}",
            figure.title,
            match panels.names.is_empty() {
                true => format!("{} = {}", panels.label, scale::label(value)),
                false => panels.show(value),
            }
        );
        chart(&title, &[(panels.name, value)])
    };
    let values = taken(outcome, panels);
    values.into_iter().map(of_panel).collect()
}

/// A chart that is to be drawn.
struct Chart<'a> {
    outcome: &'a Outcome,
    figure: &'a Figure,
    title: &'a str,
    /// Axis values of its points.
    fixed: &'a [(&'a str, f64)],
}

impl Chart<'_> {
    /// Whether it shows this point.
    fn has(&self, point: &Point) -> bool {
        let mut fixed = self.fixed.iter();
        fixed.all(|(axis, value)| point.get(axis) == *value)
    }

    /// The drawn chart with its title, and a legend if it has one of its own.
    fn html(&self, keys: &str, svg: &str) -> String {
        let title = escape(self.title);
        format!("<figure>\n<figcaption>{title}</figcaption>\n{keys}{svg}\n</figure>\n")
    }
}

fn picture(chart: &Chart) -> String {
    let (outcome, figure) = (chart.outcome, chart.figure);
    if let Some(classes) = &figure.classes {
        return by_class::picture(chart, classes);
    }
    if figure.curve {
        return curve::picture(chart);
    }
    let label = metrics::label(figure.metric);
    let over = outcome.axes.iter().find(|axis| axis.name == figure.over);
    let lines = outcome
        .axes
        .iter()
        .find(|axis| Some(axis.name) == figure.lines);
    let mut series = Vec::new();
    for (style, who) in outcome.contenders.iter().enumerate() {
        match lines {
            None => series.push(line(chart, &who.name, style)),
            Some(axis) => {
                for (dash, value) in taken(outcome, axis).into_iter().enumerate() {
                    let fixed = [chart.fixed, &[(axis.name, value)]].concat();
                    let alone = outcome.contenders.len() == 1;
                    let at_value = Chart {
                        fixed: &fixed,
                        ..*chart
                    };
                    let mut one = line(&at_value, &who.name, style);
                    one.name = format!("{}, {} = {}", who.name, axis.label, scale::label(value));
                    (one.style, one.dash) = if alone { (dash, 0) } else { (style, dash % 4) };
                    series.push(one);
                }
            }
        }
    }
    let svg = match over {
        None => chart::dots(
            &[(String::new(), series.clone())],
            &label,
            figure.logarithmic,
        ),
        Some(axis) if !axis.names.is_empty() => {
            chart::dots(&by_kind(&series, axis), &label, figure.logarithmic)
        }
        Some(axis) => chart::lines(
            &series,
            &Axes {
                x: axis.label,
                y: &label,
                x_logarithmic: axis.logarithmic,
                y_logarithmic: figure.logarithmic,
                values: &taken(outcome, axis),
            },
        ),
    };
    let keys = match lines {
        None => String::new(),
        Some(_) => keys(&series),
    };
    chart.html(&keys, &svg)
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
        .map(|one| {
            format!(
                "<span>{}{}</span>",
                swatch(one.style, one.dash),
                escape(&one.name)
            )
        })
        .collect();
    format!("<p class=legend>{}</p>", keys.join(""))
}

/// The line of one contender.
fn line(chart: &Chart, who: &str, style: usize) -> Series {
    let metric = chart.figure.metric;
    let mut points = Vec::new();
    for planned in &chart.outcome.points {
        let point = &planned.point;
        if !chart.has(point) {
            continue;
        }
        let values = values(chart.outcome, point, who, metric, metrics::scale(metric));
        if let Some(interval) = stats::interval(&values) {
            points.push((point.get(chart.figure.over), interval));
        }
    }
    Series::solid(who, style, points)
}

/// The values of a contender in all rounds at a point, times `scale`.
fn values(outcome: &Outcome, point: &Point, who: &str, metric: &str, scale: f64) -> Vec<f64> {
    let rounds = outcome.rounds.rounds.iter();
    rounds
        .filter(|round| round.contender == who && round.point == *point)
        .filter_map(|round| Some(round.values.get(metric)? * scale))
        .collect()
}

/// The values of a contender in all rounds at all points of the chart.
fn of_rounds(chart: &Chart, who: &str, metric: &str) -> Vec<f64> {
    let points = chart.outcome.points.iter().map(|planned| &planned.point);
    points
        .filter(|point| chart.has(point))
        .flat_map(|point| values(chart.outcome, point, who, metric, metrics::scale(metric)))
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
