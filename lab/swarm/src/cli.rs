//! `ackpace-lab swarm`: the swarm as a process that prints a line each second and reads commands as lines.

use clap::ValueHint;
use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::Sender;

use ackpace_lab_base::error::{Doing, Result};

use crate::command::SwarmCommand;
use crate::fleet::Fleet;
use crate::summary::Line;
use crate::workload::Workload;
use crate::{files, show};

/// Options of `ackpace-lab swarm`.
#[derive(clap::Args)]
pub struct Args {
    /// Workload of the clients: a TOML file, see docs/lab.md
    #[arg(value_name = "WORKLOAD", value_hint = ValueHint::FilePath)]
    workload: PathBuf,
    /// Address of the server
    #[arg(long, value_name = "IP:PORT", required_unless_present = "write_files")]
    target: Option<SocketAddr>,
    /// Write the files of the workload below this folder, for the server, and end
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "target")]
    write_files: Option<PathBuf>,
    /// Seconds to run after the warm-up, instead of the workload's `duration_s`
    #[arg(long, value_name = "SECONDS")]
    duration_s: Option<f64>,
    /// Seed of all random draws, instead of the workload's `seed`
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Cores with a thread each: 1 or 2,3. Without it: one unpinned thread
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Where to write a JSON object for each second, each command and the end; - is the standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Take commands from the standard input, a line each; its end stops the run
    #[arg(long)]
    commands: bool,
}

/// Runs a workload. Exit code 1 if a class failed.
///
/// # Errors
/// An invalid workload, a missing prerequisite of the machine, or a failure to write the results.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut workload = Workload::read(&args.workload)?;
    workload.seed = args.seed.unwrap_or(workload.seed);
    workload.duration_s = args.duration_s.or(workload.duration_s);
    if let Some(folder) = &args.write_files {
        println!(
            "{} bytes in {}",
            files::write(&workload, folder)?,
            folder.display()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let target = args.target.expect("clap asks for it");
    let signals = block_signals();
    let fleet = Fleet::start(&workload, target, &args.cores)?;
    stop_on_signal(signals, fleet.speaker());
    if args.commands {
        listen(fleet.speaker());
    }
    let mut output = Sink::new(args.json.as_deref())?;
    let summary = fleet.run(|line| output.line(line))?;
    match output.failure {
        Some(error) => Err(error).doing(|| "writing the results".into()),
        None => Ok(ExitCode::from(u8::from(summary.failed))),
    }
}

/// The destination of output lines: JSON to a file or the standard output. Text for people goes to the standard
/// output, unless the JSON does.
struct Sink {
    json: Option<Box<dyn Write>>,
    text: bool,
    failure: Option<std::io::Error>,
}

impl Sink {
    fn new(json: Option<&Path>) -> Result<Self> {
        let to_stdout = json == Some(Path::new("-"));
        let json: Option<Box<dyn Write>> = match json {
            _ if to_stdout => Some(Box::new(std::io::stdout())),
            Some(path) => {
                let file = File::create(path).doing(|| path.display().to_string())?;
                Some(Box::new(BufWriter::new(file)))
            }
            None => None,
        };
        Ok(Self {
            json,
            text: !to_stdout,
            failure: None,
        })
    }

    fn line(&mut self, line: &Line) {
        if let Some(json) = &mut self.json {
            let text = serde_json::to_string(line).expect("lines have string keys only");
            let written = writeln!(json, "{text}").and_then(|()| json.flush());
            self.failure = self.failure.take().or(written.err());
        }
        if self.text {
            // If the reader of a pipe has closed it, it needs no more.
            let _ = std::io::stdout().write_all(show::text(line).as_bytes());
        }
    }
}

/// Reads commands from the standard input. An invalid line is reported on the standard error.
fn listen(speaker: Sender<SwarmCommand>) {
    std::thread::spawn(move || {
        for line in std::io::stdin()
            .lock()
            .lines()
            .map_while(std::io::Result::ok)
        {
            match SwarmCommand::parse(&line) {
                Ok(command) => {
                    if speaker.send(command).is_err() {
                        return; // the run is over
                    }
                }
                Err(why) => eprintln!("ackpace-lab: command \"{}\": {why}", line.trim()),
            }
        }
        // The end of the input stops the run, since nobody waits for the rest.
        let _ = speaker.send(SwarmCommand::Stop);
    });
}

/// Must run before any thread is started: threads inherit the mask, so one thread can wait for the signals.
fn block_signals() -> libc::sigset_t {
    // SAFETY: a sigset_t is plain data that sigemptyset fills; all pointers are to live values.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    }
}

/// The first signal stops the run, which then prints its figures; a second one ends the process.
fn stop_on_signal(signals: libc::sigset_t, speaker: Sender<SwarmCommand>) {
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: both pointers are to live values.
        unsafe {
            libc::sigwait(&signals, &mut signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut());
        }
        let _ = speaker.send(SwarmCommand::Stop); // fails if the run is over anyway
        loop {
            std::thread::park(); // a second signal ends the process
        }
    });
}
