//! `ackpace-lab bench`: peers are brought, the world is entered, cases run, the report is written.

use crate::cases::{Bench, Pace, cached, listing, stall};
use crate::error::{LabError, Result};
use crate::peers::{self, Contender, Identity};
use crate::report::{self, Row};
use crate::world::{self, World};
use crate::{clock, corpus, facts, lock};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// From this share of a server's time on, strangers are worth a word.
const DISTURBANCE_MAX: f64 = 0.002;

/// A case, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Goodput and CPU of a cached file
    Cached,
    /// Latency of a small file beside downloads from a slow disk
    Stall,
    /// Latency and turn lengths beside listings of a big directory
    Listing,
}

/// Options of `ackpace-lab bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rounds of every case [default: 11 cached, 5 others]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Three short rounds of every case: a look, no proof
    #[arg(long)]
    quick: bool,
    /// The ackpace binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Where to write the report [default: results/bench-DATE.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only this case; repeatable
    #[arg(long, value_name = "CASE")]
    only: Vec<Case>,
    /// Who takes part, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ackpace,nginx,nginx-aio,lighttpd"
    )]
    contenders: Vec<Contender>,
    /// Folder of the served files, about 1.2 GB, on a disk [default: lab/ in the target folder]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Exit with 1 if a target is missed
    #[arg(long)]
    strict: bool,
}

impl Args {
    fn wants(&self, case: Case) -> bool {
        self.only.is_empty() || self.only.contains(&case)
    }

    fn pace(&self) -> Pace {
        let mut pace = Pace {
            rounds_cached: 11,
            rounds_latency: 5,
            warm_up_s: 0.5,
            window_cached_s: 2.5,
            window_latency_s: 6.0,
        };
        if self.quick {
            pace = Pace {
                rounds_cached: 3,
                rounds_latency: 3,
                warm_up_s: 0.3,
                window_cached_s: 1.0,
                window_latency_s: 2.0,
            };
        }
        if let Some(rounds) = self.rounds {
            pace.rounds_cached = rounds.into();
            pace.rounds_latency = rounds.into();
        }
        pace
    }
}

/// Everything of a run.
#[derive(serde::Serialize)]
struct Report<'a> {
    /// Start of the run, UTC.
    date: String,
    /// The machine.
    machine: facts::Machine,
    /// Cores.
    cores: World,
    /// Contenders with version and configuration.
    contenders: Vec<Identity>,
    /// How long and how often.
    pace: Pace,
    /// Share of the time that strangers took from the servers, at least, in the worst of the cases.
    disturbance: f64,
    /// The table.
    rows: &'a [Row],
    /// Rounds of the case.
    cached: Option<&'a [cached::Round]>,
    /// Rounds of the case.
    stall: Option<&'a stall::Stall>,
    /// Rounds of the case.
    listing: Option<&'a [listing::Round]>,
}

/// Runs the cases that were asked for; exit code 0 unless `--strict` and a target is missed.
pub fn run(args: &Args) -> Result<ExitCode> {
    let program = std::env::current_exe();
    let program = program.map_err(|_| LabError::Setup("where am I? /proc is missing".into()))?;
    let beside = program.parent().unwrap_or(Path::new("."));
    let ackpace = args
        .server
        .clone()
        .unwrap_or_else(|| beside.join("ackpace"));
    if args.contenders.contains(&Contender::Ackpace) && !ackpace.exists() {
        let what = format!(
            "{} is missing: type cargo build --release -p ackpace, or give --server PATH",
            ackpace.display()
        );
        return Err(LabError::Setup(what));
    }
    peers::provide(&args.contenders)?;
    let scratch = match &args.scratch {
        Some(scratch) => scratch.clone(),
        None => beside.parent().unwrap_or(beside).join("lab"),
    };
    let scratch = prepare_scratch(&scratch)?;
    let _lock = lock::acquire(&scratch.join("lock"))?;
    let date = clock::now_utc();
    let machine = facts::machine(); // before the world: it counts the cores we may use
    let world = world::enter()?; // from here on in a child with its own network, mounts and pids
    let bench = Bench {
        world,
        corpus: corpus::prepare(&scratch)?,
        ackpace,
        scratch,
        contenders: args.contenders.clone(),
        pace: args.pace(),
    };
    measure(args, &bench, date, machine)
}

fn measure(args: &Args, bench: &Bench, date: String, machine: facts::Machine) -> Result<ExitCode> {
    let identity = |who: &Contender| who.identity(&bench.ackpace);
    let contenders = bench
        .contenders
        .iter()
        .map(identity)
        .collect::<Result<Vec<_>>>()?;
    let cached = args
        .wants(Case::Cached)
        .then(|| cached::run(bench))
        .transpose()?;
    let stall = args
        .wants(Case::Stall)
        .then(|| stall::run(bench))
        .transpose()?;
    let listing = args
        .wants(Case::Listing)
        .then(|| listing::run(bench))
        .transpose()?;
    let (mut rows, mut disturbance) = (Vec::new(), 0f64);
    let mut add = |of_case: Vec<Row>, disturbed: Option<f64>| {
        rows.extend(of_case);
        disturbance = disturbance.max(disturbed.unwrap_or(0.0));
    };
    if let Some(rounds) = &cached {
        add(cached::rows(rounds), cached::disturbance(rounds));
    }
    if let Some(stall) = &stall {
        add(stall::rows(stall), stall::disturbance(stall));
    }
    if let Some(rounds) = &listing {
        add(listing::rows(rounds), listing::disturbance(rounds));
    }
    let name = format!("results/bench-{}.json", date.replace(':', ""));
    let path = args.json.clone().unwrap_or_else(|| name.into());
    let report = Report {
        date,
        machine,
        cores: bench.world,
        contenders,
        pace: bench.pace,
        disturbance,
        rows: &rows,
        cached: cached.as_deref(),
        stall: stall.as_ref(),
        listing: listing.as_deref(),
    };
    report::write(&path, &report)?;
    Ok(conclude(args, &report, &path))
}

/// Prints the table and what to think of it.
fn conclude(args: &Args, report: &Report, path: &Path) -> ExitCode {
    print!("{}", report::table(report.rows));
    let judged = report.rows.iter().filter(|row| row.met.is_some()).count();
    let missed = report
        .rows
        .iter()
        .filter(|row| row.met == Some(false))
        .count();
    let (met, path) = (judged - missed, path.display());
    println!("{met} of {judged} targets met; every round: {path}");
    if report.disturbance > DISTURBANCE_MAX {
        let percent = report.disturbance * 100.0;
        println!(
            "others (programs, or the hypervisor) had the servers' core for {percent:.1} % of the time: latencies and \
             turns over a millisecond may be theirs"
        );
    }
    ExitCode::from(u8::from(args.strict && missed > 0))
}

fn prepare_scratch(scratch: &Path) -> Result<PathBuf> {
    use crate::error::Doing;
    let what = || scratch.display().to_string();
    std::fs::create_dir_all(scratch).doing(what)?;
    scratch.canonicalize().doing(what)
}
