//! A chart over the seconds of the window, from the per-second values of the rounds.

use super::chart::{self, Axes, Series};
use super::{Chart, keys};
use crate::metrics;
use crate::rounds::Round;
use ackpace_lab_base::stats;

/// Draws the chart, with a line for each contender.
pub fn picture(chart: &Chart) -> String {
    let contenders = chart.outcome.contenders.iter().enumerate();
    let series: Vec<Series> = contenders
        .map(|(style, who)| {
            let points = points(chart, chart.figure.metric, &who.name);
            Series::solid(&who.name, style, points)
        })
        .collect();
    let keys = match chart.outcome.axes.is_empty() {
        false => String::new(), // the page's own legend suffices
        true => keys(&series),
    };
    chart.html(&keys, &svg(chart, &series))
}

/// Lines over the seconds of the window.
pub fn svg(chart: &Chart, series: &[Series]) -> String {
    let seconds = series.iter().map(|one| one.points.len()).max().unwrap_or(0);
    let values: Vec<f64> = (1..=seconds.max(1)).map(|second| second as f64).collect();
    chart::lines(
        series,
        &Axes {
            x: "seconds of the window",
            y: &metrics::label(chart.figure.metric),
            x_logarithmic: false,
            y_logarithmic: chart.figure.logarithmic,
            values: &values,
        },
    )
}

/// Each second of a metric of a contender, with the interval over its rounds.
pub fn points(chart: &Chart, key: &str, who: &str) -> Vec<(f64, stats::Interval)> {
    let is_one = |round: &&Round| round.contender == who && chart.has(&round.point);
    let curves: Vec<Vec<f64>> = chart
        .outcome
        .rounds
        .rounds
        .iter()
        .filter(is_one)
        .filter_map(|round| {
            let curve = round.detail["curves"][key].as_array()?;
            Some(curve.iter().filter_map(serde_json::Value::as_f64).collect())
        })
        .collect();
    let scale = metrics::scale(key);
    let seconds = curves.iter().map(Vec::len).max().unwrap_or(0);
    let at = |nth: usize| {
        let values: Vec<f64> = curves
            .iter()
            .filter_map(|curve| Some(curve.get(nth)? * scale))
            .collect();
        Some(((nth + 1) as f64, stats::interval(&values)?))
    };
    (0..seconds).filter_map(at).collect()
}
