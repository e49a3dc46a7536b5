//! The result of a run: all inputs, measurements and conclusions, as one JSON file.

use crate::environment::Cores;
use crate::experiment::Pace;
use crate::facts::Machine;
use crate::peers::Identity;
use crate::place::Place;
use crate::report::Row;
use crate::rounds::Rounds;
use crate::sweep::{Axis, Point};
use crate::workloads::Workload;
use ackpace_lab_base::error::{Doing, Result};
use std::path::Path;

/// The result of one experiment.
#[derive(Debug, serde::Serialize)]
pub struct Outcome {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Its title, one line.
    pub title: &'static str,
    /// The question.
    pub asks: &'static str,
    /// Paper and figure, or empty.
    pub source: &'static str,
    /// Start of the run, UTC.
    pub date: String,
    /// The machine.
    pub machine: Machine,
    /// The cores.
    pub cores: Cores,
    /// Contenders with version and configuration.
    pub contenders: Vec<Identity>,
    /// Length and number of the rounds.
    pub pace: Pace,
    /// True for a quick look.
    pub quick: bool,
    /// Axes of the sweep.
    pub axes: Vec<Axis>,
    /// Points with place and workload.
    pub points: Vec<PlannedPoint>,
    /// Least share of the servers' time that other processes took.
    pub disturbance: Option<f64>,
    /// The table.
    pub rows: Vec<Row>,
    /// Every round, and the contenders that failed.
    #[serde(flatten)]
    pub rounds: Rounds,
}

/// A point with its place and workload.
#[derive(Debug, serde::Serialize)]
pub struct PlannedPoint {
    /// The point of the sweep.
    pub point: Point,
    /// Its place.
    pub place: Place,
    /// The clients' workload.
    pub workload: Workload,
}

/// Writes text to a file; creates its folder.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let what = || path.display().to_string();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).doing(what)?;
    }
    std::fs::write(path, text).doing(what)
}

impl Outcome {
    /// The outcome as JSON, formatted for people, too.
    pub fn json(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from);
        Ok(text.doing(|| "the report as JSON".into())? + "\n")
    }
}
