//! `ackpace-lab list`: the experiments that can run here, and what prevents the others.

use crate::experiment::Experiment;
use crate::needs;
use crate::peers::{self, Contender};
use crate::{experiments, sweep};

/// The list as text.
pub fn text() -> String {
    let all = experiments::all();
    let width = all
        .iter()
        .map(|experiment| experiment.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::from("Experiments (ackpace-lab run NAME, or make lab RUN=NAME):\n");
    for experiment in &all {
        text += &format!(
            "  {:width$}  {}{}\n",
            experiment.name,
            experiment.title,
            source(experiment)
        );
        text += &format!("  {:width$}  {}\n", "", size(experiment));
        for lack in needs::lacks(experiment) {
            text += &format!("  {:width$}  lacks {lack}\n", "");
        }
        let packages = needs::packages(experiment);
        if !packages.is_empty() {
            text += &format!(
                "  {:width$}  lacks the packages {}\n",
                "",
                packages.join(", ")
            );
        }
    }
    text += &format!(
        "\nbench, which `make bench` runs: {}\n",
        experiments::BENCH.join(", ")
    );
    text += "\nContenders (--contenders, separated by commas; \"ackpace --option value\" is ours with options):\n";
    for (name, what) in Contender::presets() {
        let here = match peers::lacking(&Contender::preset(name)) {
            None => String::new(),
            Some(package) => format!(" (not here: package {package})"),
        };
        text += &format!("  {name:14}  {what}{here}\n");
    }
    text
}

fn source(experiment: &Experiment) -> String {
    match experiment.source {
        "" => String::new(),
        source => format!(" ({source})"),
    }
}

fn size(experiment: &Experiment) -> String {
    let points = sweep::expand(&experiment.sweep, false).len();
    let names: Vec<&str> = experiment
        .contenders
        .iter()
        .map(|who| who.name.as_str())
        .collect();
    let points = match points {
        1 => String::new(),
        points => format!(", {points} points"),
    };
    format!(
        "{}; {} rounds{points}",
        names.join(", "),
        experiment.pace.rounds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_and_contender_is_in_the_list() {
        let text = text();
        for experiment in experiments::all() {
            assert!(text.contains(experiment.name) && text.contains(experiment.title));
        }
        assert!(text.contains("nginx-directio") && text.contains("make bench"));
    }
}
