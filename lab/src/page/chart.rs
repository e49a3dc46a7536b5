//! Charts as SVG: lines over an axis, or a dot for each contender, both with 95 % intervals.

use super::scale::{Scale, label};
use crate::report::number;
use ackpace_lab_base::stats::Interval;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;
/// Height of a contender's lane in a chart of dots.
const LANE: f64 = 28.0;
/// Height of a heading in a chart of dots.
const HEADING: f64 = 26.0;
/// Width of the column of names in a chart of dots, and the letters that fit into it; the tool tip has the whole name.
const NAMES: f64 = 170.0;
const LETTERS: usize = 24;
/// Width of the column of medians in a chart of dots.
const VALUES: f64 = 70.0;
/// Number of colours in the style sheet.
pub const STYLES: usize = 9;

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name for labels.
    pub name: String,
    /// Index of the colour and mark.
    pub style: usize,
    /// Points as (value on the axis, interval), in the order of the axis.
    pub points: Vec<(f64, Interval)>,
}

impl Series {
    /// A solid line.
    pub fn solid(name: &str, style: usize, points: Vec<(f64, Interval)>) -> Self {
        Self {
            name: name.to_owned(),
            style,
            points,
        }
    }
}

/// Labels and scales of the axes.
#[derive(Clone, Debug)]
pub struct Axes<'a> {
    /// Label below the chart.
    pub x: &'a str,
    /// Label beside it.
    pub y: &'a str,
    /// True if x has a logarithmic scale.
    pub x_logarithmic: bool,
    /// True if y has a logarithmic scale.
    pub y_logarithmic: bool,
    /// All values of x.
    pub values: &'a [f64],
}

/// Draws lines over an axis.
pub fn lines(series: &[Series], axes: &Axes) -> String {
    let x = Scale::sweep(axes.values, LEFT, WIDTH - RIGHT, axes.x_logarithmic);
    let y = Scale::measure(&ends(series), HEIGHT - BOTTOM, TOP, axes.y_logarithmic);
    let mut svg = open(HEIGHT, &format!("{} over {}", axes.y, axes.x));
    for tick in &y.ticks {
        let at = y.place(*tick);
        let right = WIDTH - RIGHT;
        svg += &format!("<line class=grid x1={LEFT} x2={right} y1={at:.1} y2={at:.1} />");
        let left = LEFT - 8.0;
        let text = label(*tick);
        svg += &format!(
            "<text class=tick text-anchor=end x={left} y={:.1}>{text}</text>",
            at + 4.0
        );
    }
    let floor = HEIGHT - BOTTOM;
    for tick in legible(&x) {
        let (at, text) = (x.place(tick), label(tick));
        let (end, below) = (floor + 5.0, floor + 19.0);
        svg += &format!("<line class=axis x1={at:.1} x2={at:.1} y1={floor} y2={end} />");
        svg += &format!("<text class=tick text-anchor=middle x={at:.1} y={below}>{text}</text>");
    }
    let right = WIDTH - RIGHT;
    svg += &format!("<line class=axis x1={LEFT} x2={right} y1={floor} y2={floor} />");
    let (middle, foot) = ((LEFT + right) / 2.0, HEIGHT - 6.0);
    svg += &format!(
        "<text class=name text-anchor=middle x={middle} y={foot}>{}</text>",
        escape(axes.x)
    );
    let (side, centre) = (14.0, (TOP + floor) / 2.0);
    svg += &format!(
        "<text class=name text-anchor=middle transform=\"translate({side} {centre}) rotate(-90)\">{}</text>",
        escape(axes.y)
    );
    for (nth, one) in series.iter().enumerate() {
        // Shifted sideways, so that no interval hides another.
        let beside = (nth as f64 - (series.len() as f64 - 1.0) / 2.0) * 4.0;
        svg += &line(one, &x, &y, beside, axes);
    }
    svg + "</svg>"
}

/// Draws a dot for each series, at its first point, in groups with a heading: names on the left, medians on the
/// right.
pub fn dots(groups: &[(String, Vec<Series>)], metric: &str, logarithmic: bool) -> String {
    let all: Vec<Series> = groups
        .iter()
        .flat_map(|(_, series)| series.clone())
        .collect();
    let lanes = LANE * all.len() as f64;
    let headings = groups
        .iter()
        .filter(|(heading, _)| !heading.is_empty())
        .count();
    let height = lanes + (HEADING * headings as f64) + BOTTOM + TOP;
    let left = NAMES;
    let x = Scale::measure(&ends(&all), left, WIDTH - VALUES, logarithmic);
    let mut svg = open(height, metric);
    let floor = height - BOTTOM;
    for tick in &x.ticks {
        let (at, text, below) = (x.place(*tick), label(*tick), floor + 19.0);
        svg += &format!("<line class=grid x1={at:.1} x2={at:.1} y1={TOP} y2={floor} />");
        svg += &format!("<text class=tick text-anchor=middle x={at:.1} y={below}>{text}</text>");
    }
    let (middle, foot) = ((left + WIDTH - VALUES) / 2.0, height - 6.0);
    let name = escape(metric);
    svg += &format!("<text class=name text-anchor=middle x={middle} y={foot}>{name}</text>");
    let mut at = TOP;
    for (heading, series) in groups {
        if !heading.is_empty() {
            let (y, text) = (at + HEADING - 4.0, escape(heading));
            svg += &format!("<text class=value x=4 y={y:.1}>{text}</text>");
            at += HEADING;
        }
        for one in series {
            svg += &dot(one, &x, at + LANE / 2.0, metric);
            at += LANE;
        }
    }
    svg + "</svg>"
}

/// One lane of a chart of dots.
fn dot(one: &Series, x: &Scale, at: f64, metric: &str) -> String {
    let (left, right, base) = (NAMES, NAMES - 10.0, at + 4.0);
    let name: String = one.name.chars().take(LETTERS).collect();
    let name = escape(&name);
    let mut svg = format!("<text class=who text-anchor=end x={right:.1} y={base:.1}>{name}</text>");
    let Some((_, value)) = one.points.first() else {
        return svg
            + &format!("<text class=tick x={left} y={base:.1}>failed or not measured</text>");
    };
    let (low, high) = (x.place(value.low), x.place(value.high));
    let title = says(&one.name, metric, value);
    svg += &format!("<g class=s{}><title>{title}</title>", one.style % STYLES);
    svg += &format!("<line class=whisker x1={low:.1} x2={high:.1} y1={at:.1} y2={at:.1} />");
    for end in [low, high] {
        let (above, below) = (at - 5.0, at + 5.0);
        svg +=
            &format!("<line class=whisker x1={end:.1} x2={end:.1} y1={above:.1} y2={below:.1} />");
    }
    svg += &mark(one.style, x.place(value.median), at);
    let (text, right) = (number(value.median), WIDTH - 4.0);
    svg + &format!("</g><text class=value text-anchor=end x={right:.1} y={base:.1}>{text}</text>")
}

/// The mark of a style, for legends.
pub fn swatch(style: usize) -> String {
    let mark = mark(style, 15.0, 7.0);
    format!(
        "<svg class=\"swatch s{}\" viewBox=\"0 0 30 14\" aria-hidden=true><line class=line x1=1 x2=29 y1=7 y2=7 />{mark}</svg>",
        style % STYLES
    )
}

/// Escapes text for HTML and SVG.
pub fn escape(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
    escaped.replace('>', "&gt;").replace('"', "&quot;")
}

fn line(series: &Series, x: &Scale, y: &Scale, beside: f64, axes: &Axes) -> String {
    let place = |value: f64| x.place(value) + beside;
    let path: Vec<String> = series
        .points
        .iter()
        .map(|(at, value)| format!("{:.1},{:.1}", place(*at), y.place(value.median)))
        .collect();
    let mut svg = format!(
        "<g class=s{}><polyline class=line points=\"{}\" />",
        series.style % STYLES,
        path.join(" ")
    );
    for (at, value) in &series.points {
        let (across, low, high) = (place(*at), y.place(value.low), y.place(value.high));
        let x_text = format!("{} = {}", axes.x, label(*at));
        svg += &format!(
            "<g><title>{}, {x_text}</title>",
            says(&series.name, axes.y, value)
        );
        svg += &format!(
            "<line class=whisker x1={across:.1} x2={across:.1} y1={low:.1} y2={high:.1} />"
        );
        for end in [low, high] {
            let (left, right) = (across - 3.0, across + 3.0);
            svg += &format!(
                "<line class=whisker x1={left:.1} x2={right:.1} y1={end:.1} y2={end:.1} />"
            );
        }
        svg += &mark(series.style, across, y.place(value.median));
        svg += "</g>";
    }
    svg + "</g>"
}

/// The ticks whose labels do not overlap.
fn legible(x: &Scale) -> Vec<f64> {
    let mut kept: Vec<f64> = Vec::new();
    for tick in &x.ticks {
        let room = |other: &f64| (x.place(*tick) - x.place(*other)).abs() >= 30.0;
        if kept.last().is_none_or(room) {
            kept.push(*tick);
        }
    }
    kept
}

/// Marks differ in shape, too, for readers who cannot tell the colours apart.
fn mark(style: usize, x: f64, y: f64) -> String {
    let polygon = |points: &[(f64, f64)]| {
        let points: Vec<String> = points
            .iter()
            .map(|(right, down)| format!("{:.1},{:.1}", x + right, y + down))
            .collect();
        format!("<polygon class=mark points=\"{}\" />", points.join(" "))
    };
    match style % 4 {
        0 => format!("<circle class=mark cx={x:.1} cy={y:.1} r=4.5 />"),
        1 => polygon(&[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)]),
        2 => polygon(&[(0.0, -5.5), (5.5, 0.0), (0.0, 5.5), (-5.5, 0.0)]),
        _ => polygon(&[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)]),
    }
}

fn open(height: f64, title: &str) -> String {
    let title = escape(title);
    format!("<svg class=chart viewBox=\"0 0 {WIDTH} {height}\" role=img aria-label=\"{title}\">")
}

/// Both ends of every interval.
fn ends(series: &[Series]) -> Vec<f64> {
    let points = series.iter().flat_map(|one| &one.points);
    points
        .flat_map(|(_, value)| [value.low, value.high])
        .collect()
}

fn says(name: &str, metric: &str, value: &Interval) -> String {
    escape(&format!(
        "{name}: {} {metric} ({}..{}, {} rounds)",
        number(value.median),
        number(value.low),
        number(value.high),
        value.samples
    ))
}
