//! `ackpace-lab swarm`: the swarm as a process that prints a line of JSON each second and reads commands as lines.

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::Sender;

use ackpace_lab_base::error::{Doing, LabError, Result};

use crate::command::SwarmCommand;
use crate::fleet::Fleet;
use crate::workload::Workload;

/// Options of `ackpace-lab swarm`.
#[derive(clap::Args)]
pub struct Args {
    /// Workload of the clients, as JSON
    workload: PathBuf,
    /// Address of the server
    #[arg(long, value_name = "IP:PORT")]
    target: SocketAddr,
    /// Core of the clients
    #[arg(long)]
    core: usize,
}

/// Runs a workload until it is told to stop or its input ends. Exit code 1 if a class failed.
///
/// # Errors
/// An invalid workload, a missing prerequisite of the machine, or a failure to write the results.
pub fn run(args: &Args) -> Result<ExitCode> {
    let what = || args.workload.display().to_string();
    let text = std::fs::read_to_string(&args.workload).doing(what)?;
    let workload: Workload = serde_json::from_str(&text)
        .map_err(|error| LabError::Setup(format!("{}: {error}", what())))?;
    let fleet = Fleet::start(&workload, args.target, Some(args.core))?;
    listen(fleet.speaker());
    let mut failure = None;
    let summary = fleet.run(|line| {
        let text = serde_json::to_string(line).expect("lines have string keys only");
        let mut output = std::io::stdout();
        let written = writeln!(output, "{text}").and_then(|()| output.flush());
        failure = failure.take().or(written.err());
    })?;
    match failure {
        Some(error) => Err(error).doing(|| "writing the results".into()),
        None => Ok(ExitCode::from(u8::from(summary.failed))),
    }
}

/// Reads commands from the standard input. Its end stops the run, since nobody waits for the rest.
fn listen(speaker: Sender<SwarmCommand>) {
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines();
        for line in lines.map_while(std::io::Result::ok) {
            match serde_json::from_str(&line) {
                Ok(command) => {
                    if speaker.send(command).is_err() {
                        return; // the run is over
                    }
                }
                Err(why) => eprintln!("ackpace-lab: command {line}: {why}"),
            }
        }
        let _ = speaker.send(SwarmCommand::Stop);
    });
}
