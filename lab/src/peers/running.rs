//! A running server: started on its core, in its cgroup and network, watched, and ended with the round.

use super::{Contender, Kind, Site, portmapper};
use crate::cgroup::Group;
use crate::cpu;
use crate::environment::{self, Cores};
use crate::sockets::Sockets;
use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a server to listen after its start, and to end after SIGTERM.
const START_STOP_MAX: Duration = Duration::from_secs(10);
/// Lines of the log that an error shows.
const TAIL_LINES: usize = 8;

/// The environment in which a server is started.
pub struct StartEnvironment<'a> {
    /// The cores.
    pub cores: &'a Cores,
    /// The cgroup with its limits of memory and disk.
    pub group: Group,
    /// The sockets of its network, to see when it listens.
    pub sockets: &'a Sockets,
    /// Moves the command into the network in which the server listens.
    pub enter: &'a dyn Fn(&mut Command),
}

/// A running server; killed when dropped.
pub struct Running {
    /// Name of the contender.
    pub name: String,
    /// Its program.
    pub kind: Kind,
    /// The address at which it listens.
    pub address: SocketAddr,
    /// Its core.
    pub core: usize,
    /// Its cgroup.
    pub group: Group,
    child: Child,
    tuning: Option<Beside>,
    mounted: Option<Beside>,
    files: Option<Beside>,
}

impl Running {
    /// Starts a contender and waits until it listens.
    ///
    /// # Errors
    /// The server ended or does not listen in time; the error has the end of its log.
    pub fn start(
        contender: &Contender,
        site: &Site,
        environment: StartEnvironment,
    ) -> Result<Self> {
        let name = contender.name.clone();
        if contender.kind == Kind::Ganesha {
            portmapper::provide()?;
        }
        let mounted = site.target.map(|target| mount(target, site, &environment));
        let mounted = mounted.transpose()?;
        let is_brokered = contender.kind == Kind::Nfs && site.is_written;
        let files = is_brokered.then(|| broker(site, &environment));
        let files = files.transpose()?;
        let mut command = environment::on_core(
            contender.command(site)?,
            environment.cores.server_core,
            environment.group.procs(),
        );
        (environment.enter)(&mut command);
        let errors = site.scratch.join("server.log");
        let output = File::create(&errors).doing(|| errors.display().to_string())?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output);
        let child = command.spawn().doing(|| format!("{name}: start"))?;
        let mut running = Self {
            name,
            kind: contender.kind,
            address: site.address,
            core: environment.cores.server_core,
            group: environment.group,
            child,
            tuning: None,
            mounted,
            files,
        };
        let start = Instant::now();
        let port = site.address.port();
        let sockets = environment.sockets;
        while !(sockets.listening(port)? && sockets.listening(running.kind.mount_port(port))?) {
            if running.ended()? || start.elapsed() > START_STOP_MAX {
                return Err(LabError::contender(&running.name, "did not come up"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Some(options) = contender.tune {
            environment::host_places()?;
            let mut command = Beside::tune(options, site);
            command = environment::on_core(command, environment.cores.load_core, &[]);
            (environment.enter)(&mut command);
            let tuning = Beside::start("tune", command, site.scratch, " divides ")?;
            running.tuning = Some(tuning);
        }
        Ok(running)
    }

    /// The pid of its first process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The pids of its first process, and of those that keep its files mounted or change them for it, if there are any.
    pub fn roots(&self) -> Vec<i32> {
        let beside = self.mounted.iter().chain(&self.files).map(Beside::pid);
        std::iter::once(self.pid()).chain(beside).collect()
    }

    /// The pid of the process that keeps its files mounted, if there is one.
    pub fn mounted(&self) -> Option<i32> {
        self.mounted.as_ref().map(Beside::pid)
    }

    /// The pids of all its processes.
    pub fn pids(&self) -> Result<Vec<i32>> {
        cpu::tree(self.pid())
    }

    /// True if it ended by itself.
    pub fn ended(&mut self) -> Result<bool> {
        let status = self.child.try_wait();
        Ok(status.doing(|| format!("{}: wait", self.name))?.is_some())
    }

    /// Ends the server by SIGTERM.
    ///
    /// # Errors
    /// It had already ended, or does not end in time.
    pub fn stop(mut self) -> Result<()> {
        let who = self.name.clone();
        if let Some(tuning) = self.tuning.take() {
            tuning.stop()?;
        }
        if self.ended()? {
            return Err(LabError::contender(&who, "ended by itself"));
        }
        if let Some(pid) = Pid::from_raw(self.pid()) {
            kill_process(pid, Signal::TERM).doing(|| format!("{who}: SIGTERM"))?;
        }
        let start = Instant::now();
        while !self.ended()? {
            if start.elapsed() > START_STOP_MAX {
                return Err(LabError::contender(&who, "still there 10 s after SIGTERM"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let beside = [self.files.take(), self.mounted.take()];
        beside.into_iter().flatten().try_for_each(Beside::stop)
    }
}

/// Mounts the unit of a target on the server's core, but outside its cgroup: memory that the server waits for may have to be written
/// to the mount first.
fn mount(target: &str, site: &Site, environment: &StartEnvironment) -> Result<Beside> {
    std::fs::create_dir_all(site.root).doing(|| site.root.display().to_string())?;
    let command = Beside::gateway(target, site);
    let mut command = environment::on_core(command, environment.cores.server_core, &[]);
    (environment.enter)(&mut command);
    Beside::start("gateway", command, site.scratch, "gateway: ready")
}

/// Starts the broker that changes files for our server, on its core.
fn broker(site: &Site, environment: &StartEnvironment) -> Result<Beside> {
    let command = Beside::files(site);
    let mut command = environment::on_core(command, environment.cores.server_core, &[]);
    (environment.enter)(&mut command);
    Beside::start("files", command, site.scratch, "files: ready")
}

/// A service of `ackpace-host` beside a server; killed when dropped.
struct Beside {
    what: &'static str,
    child: Child,
    log: PathBuf,
}

impl Beside {
    /// A command of `ackpace-host`, which lies beside the server's binary.
    fn command(what: &str, site: &Site) -> Command {
        let mut command = Command::new(site.ackpace.with_file_name("ackpace-host"));
        command.arg(what);
        command
    }

    /// `ackpace-host tune` with these options, for the server's port.
    fn tune(options: &[&str], site: &Site) -> Command {
        let mut command = Self::command("tune", site);
        let port = site.address.port().to_string();
        command.args(options).args(["--port", &port]);
        command
    }

    /// `ackpace-host files`, for what the server's clients change, with root's rights.
    fn files(site: &Site) -> Command {
        let mut command = Self::command("files", site);
        command.arg("--root").arg(site.root);
        command.args(["--for", "root", "--allow-root", "--socket"]);
        command.arg(site.scratch.join("files.sock"));
        command
    }

    /// `ackpace-host gateway`, which mounts the unit of a target where the server serves.
    fn gateway(target: &str, site: &Site) -> Command {
        let mut command = Self::command("gateway", site);
        command.args(["--iscsi", target, "--mount"]).arg(site.root);
        if !site.is_written {
            command.arg("--read-only");
        }
        command.arg("--runtime").arg(site.scratch.join("gateway"));
        command.arg("--socket").arg(gateway_socket(site.scratch));
        command
    }

    /// Starts it and waits until its log has a line with `ready`.
    fn start(
        what: &'static str,
        mut command: Command,
        scratch: &Path,
        ready: &str,
    ) -> Result<Self> {
        let path = scratch.join(format!("{what}.log"));
        let output = File::create(&path).doing(|| path.display().to_string())?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output);
        let child = command.spawn().doing(|| {
            "ackpace-host beside the server's binary: cargo build --release -p ackpace-host --features bpf".to_owned()
        })?;
        let log_path = path;
        let mut beside = Self {
            what,
            child,
            log: log_path,
        };
        let start = Instant::now();
        while !log(&beside.log).contains(ready) {
            let ended = beside.child.try_wait();
            let ended = ended.doing(|| "ackpace-host: wait".into())?;
            if ended.is_some() || start.elapsed() > START_STOP_MAX {
                let what = format!("does not run: {}", log(&beside.log).trim());
                return Err(beside.fault(&what));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(beside)
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Ends it by SIGTERM; it undoes what it did.
    fn stop(mut self) -> Result<()> {
        if let Some(pid) = Pid::from_raw(self.pid()) {
            kill_process(pid, Signal::TERM).doing(|| "ackpace-host: SIGTERM".into())?;
        }
        let status = self.child.wait().doing(|| "ackpace-host: wait".into())?;
        match status.success() {
            true => Ok(()),
            false => Err(self.fault(log(&self.log).trim())),
        }
    }

    fn fault(&self, why: &str) -> LabError {
        LabError::contender(&format!("ackpace-host {}", self.what), why)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Usually it has already ended. Otherwise it may still undo what it did.
        if let Some(pid) = Pid::from_raw(self.pid()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < START_STOP_MAX {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where `ackpace-host gateway` tells a server of the unit.
pub fn gateway_socket(scratch: &Path) -> PathBuf {
    scratch.join("gateway.sock")
}

/// The end of the log of the last server started with this scratch directory.
pub fn log_tail(scratch: &Path) -> String {
    let text = log(&scratch.join("server.log"));
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

fn log(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

impl Drop for Running {
    fn drop(&mut self) {
        let pids = self.pids().unwrap_or_default();
        let _ = self.child.kill(); // usually it has already ended
        let _ = self.child.wait();
        for pid in pids.into_iter().skip(1).filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL); // workers of the killed master
        }
    }
}
