//! A chart over the seconds of the window, from the per-second values of the rounds.

use super::chart::{self, Axes, Series, escape, swatch};
use crate::experiment::Figure;
use crate::metrics;
use crate::outcome::Outcome;
use crate::rounds::Round;
use ackpace_lab_base::stats;

/// Draws the chart; `fixed` are the axis values of its points.
pub fn picture(outcome: &Outcome, figure: &Figure, title: &str, fixed: &[(&str, f64)]) -> String {
    let series: Vec<Series> = outcome
        .contenders
        .iter()
        .enumerate()
        .map(|(style, who)| Series {
            name: who.name.clone(),
            style,
            dash: 0,
            points: points(outcome, figure.metric, &who.name, fixed),
        })
        .collect();
    let svg = chart(&series, &metrics::label(figure.metric), figure.logarithmic);
    let names = series
        .iter()
        .map(|one| format!("<span>{}{}</span>", swatch(one.style, 0), escape(&one.name)));
    let keys = match outcome.axes.is_empty() {
        false => String::new(), // the page's own legend suffices
        true => format!("<p class=legend>{}</p>", names.collect::<String>()),
    };
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n{keys}{svg}\n</figure>\n",
        escape(title)
    )
}

/// Lines over the seconds of the window.
pub fn chart(series: &[Series], label: &str, logarithmic: bool) -> String {
    let seconds = series.iter().map(|one| one.points.len()).max().unwrap_or(0);
    let values: Vec<f64> = (1..=seconds.max(1)).map(|second| second as f64).collect();
    chart::lines(
        series,
        &Axes {
            x: "seconds of the window",
            y: label,
            x_logarithmic: false,
            y_logarithmic: logarithmic,
            values: &values,
        },
    )
}

/// Each second with the interval over its rounds.
pub fn points(
    outcome: &Outcome,
    key: &str,
    who: &str,
    fixed: &[(&str, f64)],
) -> Vec<(f64, stats::Interval)> {
    let is_one = |round: &&Round| {
        let there = fixed
            .iter()
            .all(|(axis, value)| round.point.get(axis) == *value);
        round.contender == who && there
    };
    let curves: Vec<Vec<f64>> = outcome
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
