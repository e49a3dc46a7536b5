//! What an experiment is: a question, declared. One file in `experiments/` holds one.
//!
//! A declaration says where things happen (`Place`), who takes part, what the clients do (`Workload`),
//! what is varied (axes), what is judged and what is drawn. How it is done is `rounds.rs`' business.

use crate::judge::Judge;
use crate::peers::{Contender, Kind};
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::Workload;

/// A question to the contenders.
pub struct Experiment {
    /// Name on the command line and of the files with results.
    pub name: &'static str,
    /// One line for lists and the page's title.
    pub title: &'static str,
    /// What it asks, for somebody who reads the page without knowing the lab.
    pub asks: &'static str,
    /// Where the question comes from: a paper and its figure, or nothing.
    pub source: &'static str,
    /// Who takes part unless the command line says otherwise.
    pub contenders: Vec<Contender>,
    /// Of the contenders, those that rows are about; empty: all that are ackpace.
    pub subjects: &'static [&'static str],
    /// What is varied; empty: one point.
    pub sweep: Vec<Axis>,
    /// How long and how often.
    pub pace: Pace,
    /// Place and workload of a point.
    pub scene: fn(&Point) -> Scene,
    /// Lines of the table.
    pub judged: Vec<Judge>,
    /// Pictures of the page.
    pub figures: Vec<Figure>,
}

impl Experiment {
    /// Whether rows are about this contender: then it is compared with the others.
    pub fn is_subject(&self, who: &Contender) -> bool {
        if self.subjects.is_empty() {
            who.kind == Kind::Ackpace
        } else {
            self.subjects.contains(&who.name.as_str())
        }
    }
}

/// How long and how often.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Pace {
    /// Rounds of each contender at each point.
    pub rounds: usize,
    /// Rounds of a quick look.
    pub rounds_quick: usize,
    /// Load before each window.
    pub warm_up_s: f64,
    /// What is measured.
    pub window_s: f64,
    /// The window of a quick look.
    pub window_quick_s: f64,
}

impl Pace {
    /// What a run takes of it: the asked rounds, or fewer and shorter ones for a quick look.
    pub fn taken(mut self, rounds: Option<u16>, quick: bool) -> Self {
        if quick {
            self.rounds = self.rounds_quick;
            self.window_s = self.window_quick_s;
        }
        self.rounds = rounds.map_or(self.rounds, usize::from);
        self
    }
}

/// One point of an experiment.
pub struct Scene {
    /// Where it happens.
    pub place: Place,
    /// What the clients do.
    pub workload: Workload,
}

/// A picture: a metric over an axis, a line for each contender. Without an axis: a dot for each.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Caption.
    pub title: &'static str,
    /// Key of the metric on the y axis.
    pub metric: &'static str,
    /// Name of the axis on the x axis; empty in an experiment without a sweep.
    pub over: &'static str,
    /// Name of the axis that has a line for each of its values, beside the contenders.
    pub lines: Option<&'static str>,
    /// Name of the axis that has a picture for each of its values.
    pub panels: Option<&'static str>,
    /// Whether the metric is drawn by its logarithm.
    pub logarithmic: bool,
    /// Whether it is drawn over the seconds of the window: for workloads that keep curves.
    pub curve: bool,
}

impl Figure {
    /// A line for each contender over an axis.
    pub fn over(over: &'static str, metric: &'static str, title: &'static str) -> Self {
        Self {
            title,
            metric,
            over,
            lines: None,
            panels: None,
            logarithmic: false,
            curve: false,
        }
    }

    /// A dot for each contender.
    pub fn plain(metric: &'static str, title: &'static str) -> Self {
        Self::over("", metric, title)
    }

    /// A line for each contender over the seconds of the window.
    pub fn curve(metric: &'static str, title: &'static str) -> Self {
        Self {
            curve: true,
            ..Self::plain(metric, title)
        }
    }

    /// The same with a picture for each value of another axis.
    pub fn panels(mut self, axis: &'static str) -> Self {
        self.panels = Some(axis);
        self
    }

    /// The same with the metric drawn by its logarithm.
    pub fn logarithmic(mut self) -> Self {
        self.logarithmic = true;
        self
    }

    /// The same with a line for each value of another axis.
    pub fn lines(mut self, axis: &'static str) -> Self {
        self.lines = Some(axis);
        self
    }
}
