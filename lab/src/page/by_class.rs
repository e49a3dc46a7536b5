//! Charts with several classes of clients: a line for each over time, or all of them over a value that each has.

use super::chart::{self, Axes, Series, escape};
use super::{curve, keys, of_rounds};
use crate::experiment::{Classes, Figure};
use crate::metrics;
use crate::outcome::Outcome;
use ackpace_lab_base::stats;

/// Draws the figure; `fixed` are the axis values of its points.
pub fn picture(
    outcome: &Outcome,
    figure: &Figure,
    classes: &Classes,
    title: &str,
    fixed: &[(&str, f64)],
) -> String {
    match figure.curve {
        true => over_time(outcome, figure, classes, title, fixed),
        false => over_classes(outcome, figure, classes, title, fixed),
    }
}

/// A chart for each contender that has any values, with a line for each class.
fn over_time(
    outcome: &Outcome,
    figure: &Figure,
    classes: &Classes,
    title: &str,
    fixed: &[(&str, f64)],
) -> String {
    let mut charts = String::new();
    for who in &outcome.contenders {
        let line = |(style, (class, _)): (usize, &(&str, f64))| Series {
            name: (*class).to_owned(),
            style,
            dash: 0,
            points: curve::points(outcome, &key(figure, class), &who.name, fixed),
        };
        let series: Vec<Series> = classes.values.iter().enumerate().map(line).collect();
        if series.iter().all(|one| one.points.is_empty()) {
            continue;
        }
        let svg = curve::chart(&series, &metrics::label(figure.metric), figure.logarithmic);
        charts += &captioned(&format!("{title}, {}", who.name), &series, &svg);
    }
    charts
}

/// A line for each contender over the values of the classes; with a peer, each is the ratio to it.
fn over_classes(
    outcome: &Outcome,
    figure: &Figure,
    classes: &Classes,
    title: &str,
    fixed: &[(&str, f64)],
) -> String {
    let mut series = Vec::new();
    for (style, who) in outcome.contenders.iter().enumerate() {
        if figure.ratio_to == Some(who.name.as_str()) {
            continue;
        }
        let mut points = Vec::new();
        for (class, value) in &classes.values {
            let values = |who: &str| of_rounds(outcome, who, &key(figure, class), fixed);
            let ours = values(&who.name);
            let interval = match figure.ratio_to {
                None => stats::interval(&ours),
                Some(peer) => stats::paired_ratio(&ours, &values(peer)),
            };
            points.extend(interval.map(|interval| (*value, interval)));
        }
        series.push(Series {
            name: who.name.clone(),
            style,
            dash: 0,
            points,
        });
    }
    let label = metrics::label(figure.metric);
    let y = match figure.ratio_to {
        None => label,
        Some(peer) => format!("{label} over {peer}'s"),
    };
    let values: Vec<f64> = classes.values.iter().map(|(_, value)| *value).collect();
    let axes = Axes {
        x: classes.label,
        y: &y,
        x_logarithmic: true,
        y_logarithmic: figure.logarithmic,
        values: &values,
    };
    captioned(title, &series, &chart::lines(&series, &axes))
}

fn key(figure: &Figure, class: &str) -> String {
    format!("{}@{class}", figure.metric)
}

fn captioned(title: &str, series: &[Series], svg: &str) -> String {
    let (title, keys) = (escape(title), keys(series));
    format!("<figure>\n<figcaption>{title}</figcaption>\n{keys}{svg}\n</figure>\n")
}
