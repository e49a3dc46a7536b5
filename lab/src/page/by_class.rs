//! Charts with several classes of clients: a line for each over time, or all of them over a value that each has.

use super::chart::{self, Axes, Series};
use super::{Chart, curve, keys, of_rounds};
use crate::experiment::Classes;
use crate::metrics;
use ackpace_lab_base::stats;

/// Draws the chart.
pub fn picture(chart: &Chart, classes: &Classes) -> String {
    match chart.figure.curve {
        true => over_time(chart, classes),
        false => over_classes(chart, classes),
    }
}

/// A chart for each contender that has any values, with a line for each class.
fn over_time(chart: &Chart, classes: &Classes) -> String {
    let mut charts = String::new();
    for who in &chart.outcome.contenders {
        let line = |(style, (class, _)): (usize, &(&str, f64))| {
            let points = curve::points(chart, &key(chart, class), &who.name);
            Series::solid(class, style, points)
        };
        let series: Vec<Series> = classes.values.iter().enumerate().map(line).collect();
        if series.iter().all(|one| one.points.is_empty()) {
            continue;
        }
        let title = format!("{}, {}", chart.title, who.name);
        let titled = Chart {
            title: &title,
            ..*chart
        };
        charts += &titled.html(&keys(&series), &curve::svg(chart, &series));
    }
    charts
}

/// A line for each contender over the values of the classes; with a peer, each is the ratio to it.
fn over_classes(chart: &Chart, classes: &Classes) -> String {
    let figure = chart.figure;
    let mut series = Vec::new();
    for (style, who) in chart.outcome.contenders.iter().enumerate() {
        if figure.ratio_to == Some(who.name.as_str()) {
            continue;
        }
        let mut points = Vec::new();
        for (class, value) in &classes.values {
            let values = |who: &str| of_rounds(chart, who, &key(chart, class));
            let ours = values(&who.name);
            let interval = match figure.ratio_to {
                None => stats::interval(&ours),
                Some(peer) => stats::paired_ratio(&ours, &values(peer)),
            };
            points.extend(interval.map(|interval| (*value, interval)));
        }
        series.push(Series::solid(&who.name, style, points));
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
    chart.html(&keys(&series), &chart::lines(&series, &axes))
}

/// The metric of one class.
fn key(chart: &Chart, class: &str) -> String {
    format!("{}@{class}", chart.figure.metric)
}
