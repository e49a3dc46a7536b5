//! Processes of this program that the supervisor starts.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ackpace_host_base::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};

use super::messages::{Begin, Line, Told};
use super::options::{Allowed, Gateway};
use super::stack::{Built, Outcome};

/// A longer outcome is cut, and none then: it has two paths at most.
const OUTCOME_BYTES_MAX: u64 = 64 << 10;

/// A process, which poll(2) reports when it has ended.
struct Watched {
    child: Child,
    pidfd: OwnedFd,
}

impl Watched {
    fn start(command: &mut Command) -> io::Result<Watched> {
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Watched { child, pidfd })
    }

    /// How it has ended; `None`: it runs.
    fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(status.to_string())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
        }
    }
}

/// This program, also if its file was replaced meanwhile.
fn this() -> Command {
    let mut command = Command::new("/proc/self/exe");
    // Ctrl-C at a terminal is for the supervisor alone.
    command.arg0("ackpace-host").process_group(0);
    command
}

fn failed(what: &str, error: io::Error) -> Failure {
    Failure::runtime(format!("a process that {what}: {error}"))
}

/// The answerer.
pub struct Answerer {
    process: Watched,
    /// What it says.
    pub line: Line,
}

impl Answerer {
    /// Starts it, with /dev/fuse and the counters.
    ///
    /// # Errors
    /// There is no room for a process.
    pub fn start(
        begin: &Begin,
        fuse: BorrowedFd<'_>,
        counters: BorrowedFd<'_>,
    ) -> Result<Answerer, Failure> {
        let started = || {
            let (line, other) = Line::pair()?;
            let told = Told::Begin(Box::new(begin.clone()));
            line.say(&told, &[fuse, counters])?;
            let mut command = this();
            command
                .arg("gateway-answer")
                .arg(std::process::id().to_string());
            command.stdin(Stdio::from(other)).stdout(Stdio::null());
            let process = Watched::start(&mut command)?;
            Ok(Answerer { process, line })
        };
        started().map_err(|error| failed("answers", error))
    }

    /// For poll(2): it has ended.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.process.pidfd.as_fd()
    }

    /// How it has ended; `None`: it runs.
    pub fn ended(&mut self) -> Option<String> {
        self.process.ended()
    }

    /// Ends the line, and gives it so long to end the session.
    pub fn leave(self, limit: Duration) {
        let Answerer { process, line } = self;
        drop(line);
        let timeout = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&process.pidfd, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&timeout));
    }
}

/// A step of building or removing what lies on the FUSE file.
pub struct Step(Watched);

impl Step {
    /// Attaches, formats if that is wanted, and mounts.
    ///
    /// # Errors
    /// There is no room for a process.
    pub fn up(
        file: &Path,
        mount: Option<&Path>,
        block_bytes: u32,
        options: &Gateway,
    ) -> Result<Step, Failure> {
        let mut command = Step::command(file);
        command.arg("--block-bytes").arg(block_bytes.to_string());
        if let Some(mount) = mount {
            command.arg("--mount").arg(mount);
        }
        for allowed in &options.allow {
            command.arg("--allow").arg(match allowed {
                Allowed::Exec => "exec",
                Allowed::Suid => "suid",
                Allowed::Dev => "dev",
            });
        }
        let flags = [
            (options.read_only, "--read-only"),
            (options.format, "--format"),
        ];
        command.args(flags.iter().filter(|(on, _)| *on).map(|(_, word)| word));
        Step::start(command)
    }

    /// Removes it. `is_dead`: nobody answers any more.
    ///
    /// # Errors
    /// There is no room for a process.
    pub fn down(file: &Path, is_dead: bool) -> Result<Step, Failure> {
        let mut command = Step::command(file);
        command.arg("--down");
        command.args(is_dead.then_some("--dead"));
        Step::start(command)
    }

    fn command(file: &Path) -> Command {
        let mut command = this();
        command.arg("gateway-step").arg("--file").arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn start(mut command: Command) -> Result<Step, Failure> {
        let started = Watched::start(&mut command);
        started.map(Step).map_err(|error| failed("mounts", error))
    }

    /// For poll(2): it has ended.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.pidfd.as_fd()
    }

    /// What it has built; `None`: it is at it.
    pub fn ended(&mut self) -> Option<Result<Built, Failure>> {
        let status = self.0.child.try_wait().ok().flatten()?;
        let mut said = String::new();
        let out = self.0.child.stdout.as_mut();
        let _ = out.map(|out| out.take(OUTCOME_BYTES_MAX).read_to_string(&mut said));
        Some(match serde_json::from_str(&said) {
            Ok(Outcome::Built(built)) => Ok(built),
            Ok(Outcome::Failed { text, lasts: true }) => Err(Failure::operator(text)),
            Ok(Outcome::Failed { text, lasts: false }) => Err(Failure::runtime(text)),
            Err(_) => Err(Failure::runtime(format!(
                "the process that mounts ended early ({status})"
            ))),
        })
    }
}
