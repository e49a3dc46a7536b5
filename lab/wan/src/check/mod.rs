//! `ackpace-lab wan check`: measures the emulator with the kernel's own TCP and UDP, and compares it with its
//! specification. One row for each requirement; exit code 1 if one is missed.

mod links;
mod reno;
mod speed;
mod stamps;
mod tcp_info;
mod traffic;

use super::Counters;
use super::table::table;
use ackpace_lab_base::error::{Doing, LabError, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `ackpace-lab wan check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Only this part; repeatable
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Seconds for which reno is measured, at each of three round trips
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(5..=3600))]
    reno_seconds: u64,
    /// Write the rows as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Realised rates within 1 %
    Rate,
    /// Round trips within .3 ms
    Rtt,
    /// Losses within 3 sigma
    Loss,
    /// Reno's throughput within 10 % of the square-root law
    Reno,
    /// 10 Gbit/s through one path
    Speed,
    /// 1,000 paths at once
    Paths,
}

const PARTS: [Part; 6] = [
    Part::Rate,
    Part::Rtt,
    Part::Loss,
    Part::Reno,
    Part::Speed,
    Part::Paths,
];

/// One requirement and its result.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// The expected value, with its unit.
    pub expected: String,
    /// The measured value.
    pub got: String,
    /// The deviation, in the terms of the requirement.
    pub off: String,
    /// The allowed deviation.
    pub allowed: String,
    /// Whether it was met; `None` where nothing is required.
    pub kept: Option<bool>,
}

/// The rows of a part, with the information needed to judge them.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// The part's rows.
    pub rows: Vec<Row>,
    /// Conditions of the measurement, and the emulator's own lateness.
    pub notes: Vec<String>,
}

/// Measures all parts, one after the other, and prints a table for each. Exit code 1 if a requirement was
/// missed.
pub fn run(args: &CheckArgs) -> Result<ExitCode> {
    let mut all = Vec::new();
    for part in PARTS {
        if !args.only.is_empty() && !args.only.contains(&part) {
            continue;
        }
        let (title, outcome) = match part {
            Part::Rate => ("rate", links::rate()?),
            Part::Rtt => ("round trip", links::rtt()?),
            Part::Loss => ("loss", links::loss()?),
            Part::Reno => ("reno", reno::run(args.reno_seconds)?),
            Part::Speed => ("speed", speed::one_path()?),
            Part::Paths => ("many paths", speed::many_paths()?),
        };
        let head = [title, "expected", "got", "off by", "allowed", ""];
        println!(
            "{}",
            table(
                &head,
                &outcome.rows.iter().map(Row::cells).collect::<Vec<_>>()
            )
        );
        for note in &outcome.notes {
            println!("  {note}");
        }
        println!();
        all.push((title, outcome));
    }
    if let Some(path) = &args.json {
        let value: serde_json::Map<String, serde_json::Value> = all
            .iter()
            .map(|(title, outcome)| ((*title).to_owned(), serde_json::json!(outcome)))
            .collect();
        let text = serde_json::Value::Object(value).to_string();
        std::fs::write(path, text).doing(|| path.display().to_string())?;
    }
    let rows = all.iter().flat_map(|(_, outcome)| &outcome.rows);
    let missed = rows.filter(|row| row.kept == Some(false)).count();
    match missed {
        0 => println!("all kept"),
        _ => println!("{missed} missed"),
    }
    Ok(ExitCode::from(u8::from(missed > 0)))
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let kept = match self.kept {
            Some(true) => "ok",
            Some(false) => "MISS",
            None => "",
        };
        vec![
            self.what.clone(),
            self.expected.clone(),
            self.got.clone(),
            self.off.clone(),
            self.allowed.clone(),
            kept.to_owned(),
        ]
    }

    /// A requirement on a ratio: `got / expected` may differ from 1 by at most `allowed`.
    fn ratio(what: String, expected: f64, got: f64, unit: &str, allowed: f64) -> Row {
        let off = got / expected - 1.0;
        Row {
            what,
            expected: format!("{expected:.3} {unit}"),
            got: format!("{got:.3} {unit}"),
            off: format!("{:+.2} %", off * 100.0),
            allowed: format!("{:.0} %", allowed * 100.0),
            kept: Some(off.abs() <= allowed),
        }
    }
}

/// The emulator's own report of its lateness, for the notes.
fn punctuality(counters: &Counters) -> String {
    format!(
        "emulator: frames late by {:.0} us on average, {} at most; overruns {} + {}, refused {}",
        counters.lateness.mean_us(),
        counters.lateness.max_ns / 1000,
        counters.overruns[0],
        counters.overruns[1],
        counters.refused,
    )
}

fn address(text: &str) -> Result<std::net::IpAddr> {
    let parsed = text.parse();
    parsed.map_err(|_| LabError::Setup(format!("{text}: no address")))
}
