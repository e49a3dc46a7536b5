//! Measures in a virtual machine what `ackpace-host receive` shows and does. `run.sh` boots the machine, `init.sh` is its
//! first process and starts `run` here, and `tell` makes tables of its log.
//!
//! | file | what |
//! |---|---|
//! | `plan.rs` | which cases are run |
//! | `case.rs` | one case: starts all programs and compares two snapshots of them |
//! | `programs.rs` | the programs of a case: a receiver, a sender, a loop |
//! | `proc.rs` | reads what /proc says of a process and its namespace |
//! | `tables.rs` | the log as tables |

mod case;
mod plan;
mod proc;
mod programs;
mod tables;

use std::path::PathBuf;
use std::process::ExitCode;

use ackpace_lab_base::error::Result;
use clap::{Parser, Subcommand};

/// Measures receivers on a busy machine, in a virtual one
#[derive(Debug, Parser)]
#[command(name = "ackpace-lab-guest", version)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// In the guest: run all cases, and tell each as a line
    Run {
        /// Only cases whose labels begin so, such as guard/full, separated by commas
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Pass over so many of them: those that were run before the guest broke down
        #[arg(long, default_value_t = 0)]
        from: usize,
        /// How often each case is run
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=21))]
        rounds: u32,
        /// How long each is watched
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=60))]
        seconds: u64,
    },
    /// Receive from one connection until it ends
    Receive(programs::Receive),
    /// Send to a receiver for some seconds
    Send(programs::Send),
    /// Use a core until killed
    Spin,
    /// Make tables of the log of a run
    Tell {
        /// The log
        log: PathBuf,
    },
}

fn main() -> ExitCode {
    match execute(Options::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ackpace-lab-guest: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn execute(command: Command) -> Result<()> {
    match command {
        Command::Run {
            only,
            from,
            rounds,
            seconds,
        } => plan::run(&only, from, rounds, seconds),
        Command::Receive(options) => programs::receive(&options),
        Command::Send(options) => programs::send(&options),
        Command::Spin => programs::spin(),
        Command::Tell { log } => tables::tell(&log),
    }
}
