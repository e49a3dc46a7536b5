//! The declaration of an experiment: a question to the contenders. Each file in `experiments/` holds one.
//!
//! A declaration names the place (`Place`), the contenders, the clients' workload (`Workload`), the axes of the
//! sweep, the judged metrics and the figures. `rounds.rs` carries it out.

use crate::judge::Judge;
use crate::peers::{Contender, Kind};
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::Workload;

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
    /// The contenders that table rows are about; empty: all that are ackpace.
    pub subjects: &'static [&'static str],
    /// The axes of the sweep; empty: a single point.
    pub sweep: Vec<Axis>,
    /// Length and number of the rounds.
    pub pace: Pace,
    /// The place and the workload of a point.
    pub scenario: fn(&Point) -> Scenario,
    /// The lines of the table.
    pub judged: Vec<Judge>,
    /// The figures of the page.
    pub figures: Vec<Figure>,
}

impl Experiment {
    /// True if rows are about this contender, in comparison with the others.
    pub fn is_subject(&self, who: &Contender) -> bool {
        if self.subjects.is_empty() {
            who.kind == Kind::Ackpace
        } else {
            self.subjects.contains(&who.name.as_str())
        }
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

/// A figure: a metric over an axis, with a line for each contender. Without an axis: a dot for each.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Caption.
    pub title: &'static str,
    /// Key of the metric on the y axis.
    pub metric: &'static str,
    /// Name of the axis on the x axis; empty in an experiment without a sweep.
    pub over: &'static str,
    /// Name of the axis that adds a line for each of its values, beside the contenders.
    pub lines: Option<&'static str>,
    /// Name of the axis that has a panel for each of its values.
    pub panels: Option<&'static str>,
    /// True if the metric has a logarithmic scale.
    pub logarithmic: bool,
    /// True if it is drawn over the seconds of the window: for workloads that keep curves.
    pub curve: bool,
    /// The classes of clients that it shows, instead of all clients together.
    pub classes: Option<Classes>,
    /// The contender whose ratio is drawn, instead of the metric itself; for figures over classes.
    pub ratio_to: Option<&'static str>,
}

/// Classes of clients in one figure.
#[derive(Clone, Debug)]
pub struct Classes {
    /// Their names, each with its value on the x axis.
    pub values: Vec<(&'static str, f64)>,
    /// Label of that axis.
    pub label: &'static str,
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
            classes: None,
            ratio_to: None,
        }
    }

    /// A line for each contender over classes of clients, which stand for the values of a logarithmic axis.
    pub fn over_classes(
        values: &[(&'static str, f64)],
        label: &'static str,
        metric: &'static str,
        title: &'static str,
    ) -> Self {
        let values = values.to_vec();
        Self {
            classes: Some(Classes { values, label }),
            ..Self::plain(metric, title)
        }
    }

    /// For each contender a figure with a line for each class over the seconds of the window.
    pub fn curves(classes: &[&'static str], metric: &'static str, title: &'static str) -> Self {
        let values: Vec<(&str, f64)> = classes.iter().map(|name| (*name, 0.0)).collect();
        Self {
            curve: true,
            ..Self::over_classes(&values, "", metric, title)
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

    /// The same with a panel for each value of another axis.
    pub fn panels(mut self, axis: &'static str) -> Self {
        self.panels = Some(axis);
        self
    }

    /// The same as ratios to a contender.
    pub fn ratio_to(mut self, peer: &'static str) -> Self {
        self.ratio_to = Some(peer);
        self
    }

    /// The same with a logarithmic scale of the metric.
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
