//! What a run leaves: everything that was asked, measured and concluded, as one JSON file.

use crate::experiment::Pace;
use crate::facts::Machine;
use crate::peers::Identity;
use crate::place::Place;
use crate::report::Row;
use crate::rounds::Rounds;
use crate::sweep::{Axis, Point};
use crate::workloads::Workload;
use crate::world::World;
use ackpace_lab_base::error::{Doing, Result};
use std::path::Path;

/// An experiment that was run.
#[derive(Debug, serde::Serialize)]
pub struct Outcome {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// One line.
    pub title: &'static str,
    /// What it asks.
    pub asks: &'static str,
    /// Paper and figure, or nothing.
    pub source: &'static str,
    /// Start of the run, UTC.
    pub date: String,
    /// The machine.
    pub machine: Machine,
    /// Cores.
    pub cores: World,
    /// Contenders with version and configuration.
    pub contenders: Vec<Identity>,
    /// How long and how often.
    pub pace: Pace,
    /// Whether it was a look only.
    pub quick: bool,
    /// Axes of the sweep.
    pub axes: Vec<Axis>,
    /// Points with place and workload.
    pub points: Vec<Scenery>,
    /// Share of the time that strangers took from the servers, at least.
    pub disturbance: Option<f64>,
    /// The table.
    pub rows: Vec<Row>,
    /// Every round, and who failed.
    #[serde(flatten)]
    pub rounds: Rounds,
}

/// A point and what was there.
#[derive(Debug, serde::Serialize)]
pub struct Scenery {
    /// Where in the sweep.
    pub point: Point,
    /// Where it happened.
    pub place: Place,
    /// What the clients did.
    pub workload: Workload,
}

/// Writes text to a file; makes its folder.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let what = || path.display().to_string();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).doing(what)?;
    }
    std::fs::write(path, text).doing(what)
}

impl Outcome {
    /// As JSON, to be read by people, too.
    pub fn json(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from);
        Ok(text.doing(|| "the report as JSON".into())? + "\n")
    }
}
