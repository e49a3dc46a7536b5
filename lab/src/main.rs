//! The lab: measures ackpace beside its peers, in one run, as ratios.
//!
//! `ackpace-lab bench` is its first bench: `bench.rs` orders the rounds, `cases/` says what is done
//! in each, `world.rs` builds the place where it happens (own namespaces, pinned cores), `peers/`
//! starts the contenders, `load.rs` and `probe.rs` are the clients, `stats.rs` and `report.rs` turn
//! rounds into ratios. What is measured and why: `docs/benchmarks.md`.

mod bench;
mod cases;
mod clock;
mod content;
mod corpus;
mod cpu;
mod disk;
mod error;
mod facts;
mod head;
mod load;
mod lock;
mod pages;
mod peers;
mod probe;
mod report;
mod stats;
mod swarm;
mod throttle;
mod verify;
mod world;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The lab of ackpace: measures the server beside its peers
#[derive(Parser)]
#[command(name = "ackpace-lab", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure ackpace beside nginx and lighttpd in interleaved rounds
    Bench(bench::Args),
    /// Emulated hard disks: up, down, list, tell, check
    Disk(disk::Args),
    /// Run thousands of clients against a server and check every byte that it sends
    Swarm(swarm::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Disk(args) => disk::run(&args),
        Command::Swarm(args) => swarm::run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ackpace-lab: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
