//! The page's tables: ratios, medians, and method.

use super::chart::escape;
use super::values;
use crate::metrics;
use crate::outcome::Outcome;
use crate::report::{self, Row, number};
use crate::rounds::Failure;
use ackpace_lab_base::stats;

/// The failed contenders, each with the end of its log.
pub fn failures(failures: &[Failure]) -> String {
    let one = |failure: &Failure| {
        let at = if failure.point.is_empty() { "" } else { " at " };
        let log = match failure.log_tail.as_str() {
            "" => String::new(),
            log => format!("<pre>{}</pre>", escape(log)),
        };
        format!(
            "<div class=failed><p><strong>{} failed{at}{}</strong>: {}</p>{log}</div>\n",
            escape(&failure.contender),
            escape(&failure.point),
            escape(&failure.what)
        )
    };
    failures.iter().map(one).collect()
}

/// The same lines as the table in the terminal.
pub fn ratios(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let cells = |row: &Row| {
        let mut cells = report::cells(row).map(|cell| escape(&cell));
        cells[9] = match row.met {
            None => String::new(),
            Some(true) => "<span class=met>met</span>".into(),
            Some(false) => "<span class=missed>missed</span>".into(),
        };
        cells.to_vec()
    };
    let body: Vec<Vec<String>> = rows.iter().map(cells).collect();
    section(
        "Ratios",
        "Medians of the rounds; ratios are of rounds measured side by side.",
        &table(&report::HEADS, &body, &report::NUMBERS),
    )
}

/// Medians of all metrics.
pub fn medians(outcome: &Outcome) -> String {
    let rounds = &outcome.rounds.rounds;
    let mut keys: Vec<&str> = rounds
        .iter()
        .flat_map(|round| round.values.keys())
        .collect();
    // In the order of the list of metrics, totals before classes.
    let place =
        |key: &str| metrics::all().position(|metric| key.split('@').next() == Some(metric.key));
    keys.sort_by_key(|key| (place(key), *key));
    keys.dedup();
    let mut tables = String::new();
    for planned in &outcome.points {
        let point = &planned.point;
        let mut heads = vec!["metric".to_owned()];
        heads.extend(outcome.contenders.iter().map(|who| escape(&who.name)));
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let row = |key: &&str| {
            let means = metrics::find(key).map_or("", |metric| metric.means);
            let label = escape(&metrics::label(key));
            let cell = |who: &crate::peers::Identity| {
                let values = values(outcome, point, &who.name, key, metrics::scale(key));
                stats::median(&values).map_or(String::new(), number)
            };
            let mut cells = vec![format!("<abbr title=\"{}\">{label}</abbr>", escape(means))];
            cells.extend(outcome.contenders.iter().map(cell));
            cells
        };
        let body: Vec<Vec<String>> = keys.iter().map(row).collect();
        let right: Vec<usize> = (1..heads.len()).collect();
        let at = point.describe(&outcome.axes);
        tables += &format!("<h3>{}</h3>{}", escape(&at), table(&heads, &body, &right));
    }
    format!(
        "<section><details>\n<summary>Everything that was measured, as medians</summary>\n{tables}</details></section>\n"
    )
}

/// Machine, place, pace, versions and configurations.
pub fn how(outcome: &Outcome) -> String {
    let list: String = facts(outcome)
        .iter()
        .map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(value)))
        .collect();
    let contenders: String = outcome
        .contenders
        .iter()
        .map(|who| {
            format!(
                "<details><summary>{} <span class=muted>{}</span></summary><pre>{}</pre></details>\n",
                escape(&who.name),
                escape(&who.version),
                escape(&who.config)
            )
        })
        .collect();
    let place = outcome.points.first().map(|planned| {
        let text =
            serde_json::to_string_pretty(&(&planned.place, &planned.workload)).unwrap_or_default();
        format!(
            "<details><summary>Place and workload{}</summary><pre>{}</pre></details>\n",
            if outcome.points.len() > 1 {
                " (of the first point)"
            } else {
                ""
            },
            escape(&text)
        )
    });
    format!(
        "<section>\n<h2>How it was measured</h2>\n<dl>\n{list}</dl>\n{contenders}{}</section>\n",
        place.unwrap_or_default()
    )
}

/// Named facts about the machine and the rounds.
fn facts(outcome: &Outcome) -> [(&'static str, String); 7] {
    let machine = &outcome.machine;
    let pace = &outcome.pace;
    [
        (
            "machine",
            format!(
                "{}, {} cores, {:.0} GB",
                machine.cpu,
                machine.cores,
                machine.memory_bytes as f64 / 1e9
            ),
        ),
        (
            "system",
            format!("{}, {}", machine.kernel, machine.distribution),
        ),
        ("load at the start", machine.load_average.clone()),
        (
            "cores",
            format!(
                "server on {}, clients on {}",
                outcome.cores.server_core, outcome.cores.load_core
            ),
        ),
        (
            "congestion control",
            format!(
                "{}, set and checked on live connections",
                machine.congestion_control
            ),
        ),
        (
            "rounds",
            format!(
                "{} of {} s after {} s, interleaved, each with a fresh process",
                pace.rounds, pace.window_s, pace.warm_up_s
            ),
        ),
        (
            "disturbance",
            outcome.disturbance.map_or("unknown".into(), |share| {
                format!(
                    "others had the servers' core for {:.2} % of the time",
                    share * 100.0
                )
            }),
        ),
    ]
}

fn section(title: &str, about: &str, inside: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n<p class=muted>{about}</p>\n{inside}</section>\n")
}

/// Cells are HTML already; `right` lists the columns of numbers.
fn table(heads: &[&str], body: &[Vec<String>], right: &[usize]) -> String {
    let class = |column: usize| {
        if right.contains(&column) {
            " class=n"
        } else {
            ""
        }
    };
    let row = |tag: &str, cells: Vec<&str>| {
        let cells = cells.into_iter().enumerate();
        let cells: String = cells
            .map(|(column, cell)| format!("<{tag}{}>{cell}</{tag}>", class(column)))
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let lines: String = body
        .iter()
        .map(|cells| row("td", cells.iter().map(String::as_str).collect()))
        .collect();
    format!(
        "<div class=scroll><table>\n<thead>{}</thead>\n<tbody>\n{lines}</tbody></table></div>\n",
        row("th", heads.to_vec())
    )
}
