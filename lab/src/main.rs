//! The lab: measures ackpace beside its peers, in one run, as ratios.
//!
//! `run.rs` drives `ackpace-lab run EXPERIMENT`. Each experiment is declared in `experiments/` with the types
//! of `experiment.rs`; `rounds.rs` orders its rounds. `testbed.rs` builds the place, `peers/` start the
//! contenders, and `workloads/` are the clients. `watch.rs` measures the cost, and `report.rs` and `page/` turn
//! rounds into ratios and figures. `docs/benchmarks.md` explains what is measured and why.
//!
//! The instruments are separate crates that know nothing of the lab: `ackpace-lab-disk`, `ackpace-lab-wan`,
//! `ackpace-lab-swarm`, and below them `ackpace-lab-base`.

mod believed;
mod cgroup;
mod clean;
mod clock;
mod corpus;
mod cpu;
mod environment;
mod experiment;
mod experiments;
mod facts;
mod judge;
mod leftovers;
mod list;
mod lock;
mod metrics;
mod multiply;
mod needs;
mod origin;
mod outcome;
mod page;
mod peers;
mod place;
mod plain_nfs;
mod probe;
mod progress;
mod report;
mod rounds;
mod run;
mod sampler;
mod scrape;
mod shares;
mod sockets;
mod sweep;
mod target;
mod testbed;
mod throttle;
mod watch;
mod workloads;

use ackpace_lab_base::error::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The lab of ackpace: measures the server beside its peers
#[derive(Parser)]
#[command(name = "ackpace-lab", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Run experiments: contenders in interleaved rounds, a table, a JSON file and a page
    Run(run::Args),
    /// List experiments and contenders, and what this machine lacks for them
    List,
    /// Remove what a killed run left
    Clean,
    /// An emulated disk in a process of its own; tests start it
    #[command(hide = true)]
    Disk(ackpace_lab_disk::Args),
    /// Clients that check every byte; runs start them
    #[command(hide = true)]
    Swarm(ackpace_lab_swarm::Args),
    /// Multiply matrices until the input ends; runs start it beside a server
    #[command(hide = true)]
    Multiply,
    /// A server of NFS that copies payload; runs start it as a contender
    #[command(hide = true)]
    PlainNfs(plain_nfs::Options),
}

fn main() -> ExitCode {
    match go(&Cli::parse().action) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ackpace-lab: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn go(action: &Action) -> Result<ExitCode> {
    match action {
        Action::Run(args) => return run::run(args),
        Action::Disk(args) => return ackpace_lab_disk::run(args),
        Action::Swarm(args) => return ackpace_lab_swarm::run(args),
        Action::Multiply => return multiply::run(),
        Action::PlainNfs(options) => return plain_nfs::run(options),
        Action::List => print!("{}", list::text()),
        Action::Clean => {
            let removed = clean::run()?;
            removed.iter().for_each(|what| println!("removed {what}"));
            println!("nothing of the lab is left");
        }
    }
    Ok(ExitCode::SUCCESS)
}
