//! The declaration of an experiment: a question to the contenders.
//!
//! A declaration names the place (`Place`), the contenders, the clients' workload (`Workload`), the axes of the
//! sweep, the lines of the table and the figures. `rounds.rs` carries it out.

use crate::judge::{self, Judge};
use crate::peers::{Contender, Kind};
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::Class;

/// A question to the contenders.
pub struct Experiment {
    /// Name on the command line and of the files with results.
    pub name: &'static str,
    /// One line for lists and for the title of the page.
    pub title: &'static str,
    /// The question, for a reader of the page who does not know the lab.
    pub asks: &'static str,
    /// Source of the question: a paper and its figure, or empty.
    pub source: &'static str,
    /// The contenders, unless the command line names others.
    pub contenders: Vec<Contender>,
    /// The contender that table rows are about; empty: all that are ackpace.
    pub subject: &'static str,
    /// The axes of the sweep; empty: a single point. Figures have the first on their x axis, and a panel for each
    /// value of the second.
    pub sweep: Vec<Axis>,
    /// Length and number of the rounds.
    pub pace: Pace,
    /// The place and the workload of a point.
    pub scenario: fn(&Point) -> Scenario,
    /// The lines of the table, in the language of [`judge::parse`].
    pub judged: &'static str,
    /// The figures of the page, beside one for each metric of the table.
    pub figures: Vec<Figure>,
}

impl Experiment {
    /// True if rows are about this contender, in comparison with the others.
    pub fn is_subject(&self, who: &Contender) -> bool {
        match self.subject {
            "" => who.kind == Kind::Ackpace,
            name => who.name == name,
        }
    }

    /// The lines of the table.
    ///
    /// # Panics
    /// A line is none, which a test of all experiments rules out.
    pub fn judges(&self) -> Vec<Judge> {
        let all = judge::parse(self.judged);
        all.unwrap_or_else(|line| panic!("{}: no rule: {line}", self.name))
    }
}

/// Length and number of the rounds.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Pace {
    /// Rounds of each contender at each point.
    pub rounds: usize,
    /// Rounds with `--quick`.
    pub rounds_quick: usize,
    /// Time under load before each window.
    pub warm_up_s: f64,
    /// Length of the measured window.
    pub window_s: f64,
    /// Length of the window with `--quick`.
    pub window_quick_s: f64,
}

impl Pace {
    /// `rounds` and `windows_s` are those of a full run and those of a quick look.
    pub fn of(rounds: [usize; 2], warm_up_s: f64, windows_s: [f64; 2]) -> Self {
        Self {
            rounds: rounds[0],
            rounds_quick: rounds[1],
            warm_up_s,
            window_s: windows_s[0],
            window_quick_s: windows_s[1],
        }
    }

    /// The pace of a run: with the requested number of rounds, or with fewer and shorter ones for a quick look.
    pub fn taken(mut self, rounds: Option<u16>, quick: bool) -> Self {
        if quick {
            self.rounds = self.rounds_quick;
            self.window_s = self.window_quick_s;
        }
        self.rounds = rounds.map_or(self.rounds, usize::from);
        self
    }
}

/// Place and workload at one point of an experiment.
pub struct Scenario {
    /// The place where it happens.
    pub place: Place,
    /// What the clients do.
    pub workload: Workload,
}

impl Scenario {
    /// Clients of the swarm.
    pub fn swarm(place: Place, classes: Vec<Class>) -> Self {
        Self {
            place,
            workload: Workload::Swarm(Swarm::new(classes)),
        }
    }

    /// The same with more asked of the swarm.
    pub fn with(mut self, ask: impl FnOnce(&mut Swarm)) -> Self {
        if let Workload::Swarm(swarm) = &mut self.workload {
            ask(swarm);
        }
        self
    }
}

/// A figure of a metric.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Key of the metric.
    pub metric: &'static str,
    /// What it is drawn over.
    pub over: Over,
}

/// The x axis of a figure, and its lines.
#[derive(Clone, Debug)]
pub enum Over {
    /// The first axis of the sweep, with a line for each contender. Without an axis: a dot for each.
    Axis,
    /// The seconds of the window, with a line for each contender; for workloads that keep curves.
    Seconds,
    /// For each contender a figure over the seconds of the window, with a line for each of these classes.
    SecondsByClass(&'static [&'static str]),
    /// Classes of clients, each with its value on an axis with this label: the ratio of each contender to the last one.
    Classes(&'static [(&'static str, f64)], &'static str, &'static str),
}

/// Figures of these metrics over the seconds of the window.
pub fn curves(metrics: &[&'static str]) -> Vec<Figure> {
    let curve = |metric: &&'static str| Figure {
        metric,
        over: Over::Seconds,
    };
    metrics.iter().map(curve).collect()
}
