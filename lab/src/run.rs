//! `ackpace-lab run`: enters the namespaces, and runs the experiments one after the other. Each
//! one leaves a JSON file, a page and a table.

use crate::experiment::Experiment;
use crate::needs;
use crate::outcome::{self, Outcome, PlannedPoint};
use crate::peers::{self, Contender};
use crate::rounds::{self, Plan};
use crate::sweep::{Axis, Point, expand};
use crate::testbed::Lab;
use crate::{clock, environment, experiments, facts, leftovers, lock, page, report};
use ackpace_lab_base::error::{Doing, LabError, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The report mentions other processes if they took more than this share of a server's time.
const DISTURBANCE_MAX: f64 = 0.002;

/// Limit of open files, for the clients and for each server.
const DESCRIPTORS: u64 = 200_000;

/// Options of `ackpace-lab run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Experiments, or a set of them: see `ackpace-lab list`
    #[arg(required = true, value_name = "EXPERIMENT")]
    names: Vec<String>,
    /// Rounds of each contender at each point [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Few short rounds and fewer points: for a quick look, not as proof
    #[arg(long)]
    quick: bool,
    /// Only points with this value on an axis, as "mix=2" (kinds by number, from 0); of several on one axis, any
    #[arg(long, value_name = "AXIS=VALUE", value_parser = at)]
    at: Vec<(String, f64)>,
    /// Contenders, separated by commas; "ackpace --option value" is ackpace with options, "ackpace@PATH" another build
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    contenders: Vec<String>,
    /// Where to write NAME-DATE.json and NAME-DATE.html
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// The ackpace binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Folder of the served files, on a disk [default: lab/ in the target folder]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Exit with 1 if a target is missed or a contender fails
    #[arg(long)]
    strict: bool,
}

/// An experiment and its contenders.
struct Entry {
    experiment: Experiment,
    contenders: Vec<Contender>,
}

/// Runs the requested experiments. Exit code 0, except with `--strict` if a target is missed or a contender
/// fails.
///
/// # Errors
/// Unknown names, a requirement that the machine does not meet, or a place that can't be built.
pub fn run(args: &Args) -> Result<ExitCode> {
    let entries = entries(&args.names, &joined(&args.contenders))?;
    entries
        .iter()
        .try_for_each(|entry| check_at(entry, &args.at))?;
    let (ackpace, scratch) = paths(args, &entries)?;
    let all: Vec<Contender> = entries
        .iter()
        .flat_map(|entry| entry.contenders.clone())
        .collect();
    peers::check(&all)?;
    let _lock = lock::acquire(&lock::place())?;
    let machine = facts::machine(); // before `enter`, which pins us: it counts the usable cores
    let lab = Lab {
        cores: environment::enter(leftovers::remove)?, // from here on a child with its own network, mounts and pids
        scratch,
        ackpace,
    };
    raise_descriptors();
    let mut bad = false;
    for entry in &entries {
        let outcome = one(args, &lab, entry, &machine)?;
        let missed = outcome.rows.iter().any(|row| row.met == Some(false));
        bad |= missed || !outcome.rounds.failures.is_empty();
    }
    Ok(ExitCode::from(u8::from(args.strict && bad)))
}

fn one(args: &Args, lab: &Lab, entry: &Entry, machine: &facts::Machine) -> Result<Outcome> {
    let Entry {
        experiment,
        contenders,
    } = entry;
    let date = clock::now_utc();
    // `--at` may name a value that a quick look would skip.
    let mut points = expand(&experiment.sweep, args.quick && args.at.is_empty());
    points.retain(|point| is_at(point, &args.at));
    let plan = Plan {
        experiment,
        contenders,
        points: &points,
        pace: experiment.pace.taken(args.rounds, args.quick),
    };
    let identities = contenders.iter().map(|who| who.identity(&lab.ackpace));
    let identities = identities.collect::<Result<Vec<_>>>()?;
    let rounds = rounds::run(lab, &plan)?;
    let planned = |point: &Point| {
        let scenario = (experiment.scenario)(point);
        PlannedPoint {
            point: point.clone(),
            place: scenario.place,
            workload: scenario.workload,
        }
    };
    let outcome = Outcome {
        experiment: experiment.name,
        title: experiment.title,
        asks: experiment.asks,
        source: experiment.source,
        machine: machine.clone(),
        cores: lab.cores,
        contenders: identities,
        pace: plan.pace,
        quick: args.quick,
        axes: experiment.sweep.clone(),
        points: points.iter().map(planned).collect(),
        disturbance: report::disturbance(&rounds.rounds),
        rows: report::rows(experiment, contenders, &points, &rounds),
        rounds,
        date,
    };
    let name = format!("{}-{}", experiment.name, outcome.date.replace(':', ""));
    let path = |ending: &str| args.out.join(format!("{name}.{ending}"));
    outcome::write(&path("json"), &outcome.json()?)?;
    outcome::write(&path("html"), &page::render(&outcome, experiment))?;
    conclude(&outcome, &path("json"), &path("html"));
    Ok(outcome)
}

/// Prints the table and its caveats.
fn conclude(outcome: &Outcome, json: &Path, html: &Path) {
    println!("{}: {}", outcome.experiment, outcome.title);
    if !outcome.rows.is_empty() {
        print!("{}", report::table(&outcome.rows));
    }
    for failure in &outcome.rounds.failures {
        let at = if failure.point.is_empty() { "" } else { " at " };
        println!(
            "FAILED {}{at}{}: {}",
            failure.contender, failure.point, failure.what
        );
        for line in failure.log_tail.lines() {
            println!("    | {line}");
        }
    }
    let judged = outcome.rows.iter().filter(|row| row.met.is_some()).count();
    let missed = outcome
        .rows
        .iter()
        .filter(|row| row.met == Some(false))
        .count();
    if judged > 0 {
        println!("{} of {judged} targets met", judged - missed);
    }
    if let Some(share) = outcome.disturbance.filter(|share| *share > DISTURBANCE_MAX) {
        println!(
            "others (programs, or the hypervisor) had the servers' core for {:.1} % of the time: latencies and turns \
             over a millisecond may be theirs",
            share * 100.0
        );
    }
    println!(
        "every round: {}; the page: {}\n",
        json.display(),
        html.display()
    );
}

/// The experiments with these names, with sets expanded, and their contenders.
fn entries(names: &[String], contenders: &[String]) -> Result<Vec<Entry>> {
    let mut all = experiments::all();
    let mut entries = Vec::new();
    for name in names {
        let members = match name.as_str() {
            "bench" => experiments::BENCH.to_vec(),
            name => vec![name],
        };
        for member in members {
            let Some(at) = all.iter().position(|experiment| experiment.name == member) else {
                if entries
                    .iter()
                    .any(|entry: &Entry| entry.experiment.name == member)
                {
                    continue; // listed twice
                }
                return Err(unknown(member, &all, &entries));
            };
            let experiment = all.remove(at);
            let contenders = taking_part(&experiment, contenders)?;
            entries.push(Entry {
                experiment,
                contenders,
            });
        }
    }
    let lacking = entries.iter().find_map(|entry| {
        let lacks = needs::lacks(&entry.experiment);
        (!lacks.is_empty()).then(|| (entry.experiment.name, lacks.join(", and ")))
    });
    match lacking {
        None => Ok(entries),
        Some((name, lacks)) => Err(LabError::Setup(format!("{name} needs {lacks}"))),
    }
}

/// The contenders among the parts between commas. A part such as "cancel=off" belongs to the `--compare` before it.
fn joined(parts: &[String]) -> Vec<String> {
    let mut contenders: Vec<String> = Vec::new();
    for part in parts {
        let first = part.split_whitespace().next().unwrap_or_default();
        let is_word = first.contains('=') && !first.starts_with("ackpace@");
        match contenders.last_mut().filter(|_| is_word) {
            Some(contender) => {
                contender.push(',');
                contender.push_str(part);
            }
            None => contenders.push(part.clone()),
        }
    }
    contenders
}

/// "AXIS=VALUE".
fn at(text: &str) -> std::result::Result<(String, f64), String> {
    let parts = text.split_once('=');
    let value = parts.and_then(|(axis, value)| Some((axis.to_owned(), value.parse().ok()?)));
    value.ok_or_else(|| "wanted: the name of an axis, \"=\" and a number".to_owned())
}

/// True if, on each axis that `at` names, the point has one of the requested values.
fn is_at(point: &Point, at: &[(String, f64)]) -> bool {
    let has = |axis: &str| {
        let mut values = at.iter().filter(|(other, _)| other == axis);
        values.any(|(_, value)| point.get(axis) == *value)
    };
    at.iter().all(|(axis, _)| has(axis))
}

/// Checks that the experiment has such points.
fn check_at(entry: &Entry, at: &[(String, f64)]) -> Result<()> {
    let axes = &entry.experiment.sweep;
    for (name, value) in at {
        let axis = axes.iter().find(|axis| axis.name == *name);
        if axis.is_some_and(|axis| axis.values.contains(value)) {
            continue;
        }
        let show = |axis: &Axis| {
            let values: Vec<String> = axis.values.iter().map(f64::to_string).collect();
            format!("{}={}", axis.name, values.join("|"))
        };
        let there: Vec<String> = axes.iter().map(show).collect();
        return Err(LabError::Setup(format!(
            "--at {name}={value}: {} has no such point; there are {}",
            entry.experiment.name,
            there.join(", ")
        )));
    }
    Ok(())
}

fn unknown(name: &str, left: &[Experiment], taken: &[Entry]) -> LabError {
    let taken = taken.iter().map(|entry| entry.experiment.name);
    let mut names: Vec<&str> = left
        .iter()
        .map(|experiment| experiment.name)
        .chain(taken)
        .collect();
    names.push("bench");
    LabError::Setup(format!(
        "no experiment \"{name}\"; there are {}",
        names.join(", ")
    ))
}

/// The contenders of the experiment, or the requested ones: by the experiment's names, or any preset.
fn taking_part(experiment: &Experiment, asked: &[String]) -> Result<Vec<Contender>> {
    if asked.is_empty() {
        return Ok(experiment.contenders.clone());
    }
    let find = |text: &String| {
        let own = experiment.contenders.iter().find(|who| who.name == *text);
        match own {
            Some(own) => Ok(own.clone()),
            None => Contender::parse(text).map_err(LabError::Setup),
        }
    };
    asked.iter().map(find).collect()
}

/// The ackpace binary, if it takes part, and the scratch folder.
fn paths(args: &Args, entries: &[Entry]) -> Result<(PathBuf, PathBuf)> {
    let program = std::env::current_exe();
    let program = program.map_err(|_| LabError::Setup("where am I? /proc is missing".into()))?;
    let beside = program.parent().unwrap_or(Path::new("."));
    let ackpace = args
        .server
        .clone()
        .unwrap_or_else(|| beside.join("ackpace"));
    let mut contenders = entries.iter().flat_map(|entry| &entry.contenders);
    if contenders.any(|who| who.kind.is_ours()) && !ackpace.exists() {
        return Err(LabError::Setup(format!(
            "{} is missing: type cargo build --release -p ackpace, or give --server PATH",
            ackpace.display()
        )));
    }
    let scratch = match &args.scratch {
        Some(scratch) => scratch.clone(),
        None => beside.parent().unwrap_or(beside).join("lab"),
    };
    let what = || scratch.display().to_string();
    std::fs::create_dir_all(&scratch).doing(what)?;
    let scratch = scratch.canonicalize().doing(what)?;
    Ok((ackpace, scratch))
}

/// Raises the limit of open files. Both ends of ten thousand connections are here, and servers inherit the
/// limit. Root may raise it beyond the given maximum. Whatever needs more reports that itself.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let both = |limit| Rlimit {
        current: limit,
        maximum: limit,
    };
    if setrlimit(Resource::Nofile, both(Some(DESCRIPTORS))).is_err() {
        let _ = setrlimit(Resource::Nofile, both(getrlimit(Resource::Nofile).maximum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_unknown_experiment_is_told_what_there_is() {
        let error = entries(&owned(&["cachde"]), &[]).err().unwrap().to_string();
        assert!(error.contains("no experiment \"cachde\""), "{error}");
        assert!(
            error.contains("cached") && error.contains("bench"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_contender_is_told_who_there_is() {
        let asked = owned(&["nginx", "ngnix"]);
        let error = entries(&owned(&["cached"]), &asked)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("no contender \"ngnix\""), "{error}");
    }

    #[test]
    fn words_of_a_comparison_stay_with_their_contender() {
        let parts = "nginx,ackpace --compare send=eager,order=arrival --workers 2,ackpace@/a=b --quiet,ngnix";
        let parts: Vec<&str> = parts.split(',').collect();
        let expected = [
            "nginx",
            "ackpace --compare send=eager,order=arrival --workers 2",
            "ackpace@/a=b --quiet",
            "ngnix",
        ];
        assert_eq!(joined(&owned(&parts)), expected);
        assert_eq!(joined(&owned(&["a=b"])), ["a=b"]);
    }

    #[test]
    fn a_point_that_is_not_there_is_told_what_there_is() {
        assert_eq!(at("mix=2").unwrap(), ("mix".into(), 2.0));
        assert!(at("mix").is_err() && at("mix=fast").is_err());
        let mut all = experiments::all().into_iter();
        let entry = Entry {
            experiment: all.find(|experiment| experiment.name == "cached").unwrap(),
            contenders: Vec::new(),
        };
        let checked = |name: &str, value| check_at(&entry, &[(name.into(), value)]);
        assert!(checked("connections", 20.0).is_ok());
        for (name, value) in [("connections", 21.0), ("mix", 0.0)] {
            let error = checked(name, value).unwrap_err().to_string();
            assert!(error.contains("connections=1|20|200"), "{error}");
        }
    }
}
