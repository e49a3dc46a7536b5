//! The nodes of a cluster: ours, each a server with a broker beside it; or a peer before single servers of ours.

use super::segment::{Segment, address, vip};
use crate::cgroup::Group;
use crate::environment;
use crate::peers::{Contender, Kind, Site};
use crate::testbed::Lab;
use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where nodes hear each other; the next port is for their HTTP.
const CLUSTER_PORT: u16 = 7800;
/// Where a single server behind a peer listens.
const SINGLE_PORT: u16 = 8080;
/// For a cluster to stand, and for a process to end.
const START_STOP_MAX: Duration = Duration::from_secs(10);
/// In which what came into a node's memory is told, and heard.
const REPORTED_AFTER: Duration = Duration::from_millis(2300);

/// What all nodes are started with.
pub struct Start<'a> {
    /// The constants of the run.
    pub lab: &'a Lab,
    /// The network.
    pub segment: &'a Segment,
    /// Who takes part.
    pub contender: &'a Contender,
    /// The files that each node serves; nodes beyond have the last.
    pub roots: &'a [PathBuf],
    /// How many nodes there are.
    pub nodes: usize,
    /// The group of each node, where its memory has a limit.
    pub groups: &'a [Group],
    /// Which nodes have the clients' core; the others have the server's.
    pub is_beside_clients: fn(usize) -> bool,
}

impl Start<'_> {
    /// Whether connections move.
    fn moves(&self) -> bool {
        let stays = |option: &String| option == "relay" || option == "off";
        self.contender.kind == Kind::Cluster && !self.contender.options.iter().any(stays)
    }
}

/// Running nodes; killed when dropped.
pub struct Nodes {
    /// Ours: which node has which name.
    names: Vec<String>,
    processes: Vec<Process>,
    scratch: PathBuf,
}

struct Process {
    child: Child,
    node: usize,
}

impl Nodes {
    /// Starts them and waits until all know of each other.
    ///
    /// # Errors
    /// One ends, or they don't stand in time.
    pub fn start(start: &Start) -> Result<Self> {
        environment::host_places()?;
        let mut nodes = Self {
            names: (0..start.nodes).map(name).collect(),
            processes: Vec::new(),
            scratch: start.lab.scratch.clone(),
        };
        for (nth, old) in
            (0..start.nodes).flat_map(|nth| ["admin", "broker", "log"].map(|it| (nth, it)))
        {
            let _ = std::fs::remove_file(nodes.file(old, nth)); // it need not be there
        }
        match start.contender.kind {
            Kind::Cluster => nodes.start_ours(start)?,
            _ => nodes.start_peer(start)?,
        }
        Ok(nodes)
    }

    fn start_ours(&mut self, start: &Start) -> Result<()> {
        let keys: Vec<String> = (0..start.nodes)
            .map(|nth| key(start.lab, &self.file("key", nth)))
            .collect::<Result<_>>()?;
        let moves = start.moves();
        for nth in 0..start.nodes {
            if moves {
                self.spawn(start, nth, self.broker(start, nth))?;
            }
        }
        let begun = Instant::now();
        while moves && !(0..start.nodes).all(|nth| self.file("broker", nth).exists()) {
            self.waits(start, begun, "the broker does not come up")?;
        }
        for nth in 0..start.nodes {
            self.spawn(start, nth, self.server(start, nth, &keys))?;
        }
        let stands = |nodes: &Self, nth| {
            let told = nodes.admin(nth, "cluster").unwrap_or_default();
            told.matches("\"standing\":\"up\"").count() == start.nodes
        };
        while !(0..start.nodes).all(|nth| stands(self, nth)) {
            self.waits(start, begun, "the nodes don't find each other")?;
        }
        Ok(())
    }

    fn start_peer(&mut self, start: &Start) -> Result<()> {
        for nth in 0..start.nodes {
            let listen = format!("{}:{SINGLE_PORT}", address(nth));
            let named = |option: &String| option.contains(&listen);
            if nth > 0 || start.contender.options.iter().any(named) {
                let mut command = ours(start, nth);
                command.args(["--listen", &listen, "--admin", "off"]);
                self.spawn(start, nth, command)?;
            }
        }
        let site = Site {
            root: &start.roots[0],
            scratch: &start.lab.scratch,
            ackpace: &start.lab.ackpace,
            address: vip(),
            connections: 2_000,
            memory_limit_bytes: None,
            origin: Some(SocketAddr::from((address(1), SINGLE_PORT))),
            target: None,
            is_written: false,
        };
        self.spawn(start, 0, start.contender.command(&site)?)?;
        let (begun, node) = (Instant::now(), start.segment.node(0));
        while node
            .run(|| TcpStream::connect(vip()).doing(|| "connect".into()))
            .is_err()
        {
            self.waits(start, begun, "does not come up")?;
        }
        std::thread::sleep(Duration::from_millis(200)); // the single servers
        Ok(())
    }

    /// A short wait for a start.
    fn waits(&mut self, start: &Start, begun: Instant, what: &str) -> Result<()> {
        let ended = self
            .processes
            .iter_mut()
            .any(|it| it.child.try_wait().is_ok_and(|it| it.is_some()));
        if ended || begun.elapsed() > START_STOP_MAX {
            return Err(LabError::contender(&start.contender.name, what));
        }
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }

    fn broker(&self, start: &Start, nth: usize) -> Command {
        let mut command = Command::new(start.lab.ackpace.with_file_name("ackpace-host"));
        command.args([
            "handoff",
            "--vip",
            &vip().ip().to_string(),
            "--port",
            "80",
            "--device",
            "eth0",
        ]);
        command.args(["--node", &name(nth), "--for", "0", "--socket"]);
        command.arg(self.file("broker", nth));
        for peer in (0..start.nodes).filter(|peer| *peer != nth) {
            command.args(["--peer", &format!("{}={}", name(peer), address(peer))]);
        }
        in_own_mounts(command)
    }

    fn server(&self, start: &Start, nth: usize, keys: &[String]) -> Command {
        let mut command = ours(start, nth);
        let own = format!("{}:{CLUSTER_PORT}", address(nth));
        command.args([
            "--listen",
            &vip().to_string(),
            "--node",
            &name(nth),
            "--cluster-listen",
            &own,
        ]);
        for (peer, key) in keys.iter().enumerate().filter(|(peer, _)| *peer != nth) {
            let peer = format!("{}={}:{CLUSTER_PORT},{key}", name(peer), address(peer));
            command.args(["--peer", &peer]);
        }
        command.arg("--cluster-key").arg(self.file("key", nth));
        command.arg("--admin").arg(self.file("admin", nth));
        command
            .arg("--hand-off-socket")
            .arg(self.file("broker", nth));
        command.args(&start.contender.options);
        command
    }

    /// Starts a process of a node on its core.
    fn spawn(&mut self, start: &Start, nth: usize, command: Command) -> Result<()> {
        let cores = start.lab.cores;
        let core = match (start.is_beside_clients)(nth) {
            false => cores.server_core,
            true => cores.load_core,
        };
        let procs = start.groups.get(nth).map_or(&[][..], Group::procs);
        let mut command = environment::on_core(command, core, procs);
        start.segment.node(nth).enter_before_exec(&mut command);
        let log = self.scratch.join("server.log");
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .doing(|| log.display().to_string())?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().doing(|| {
            format!(
                "{}: start; a cluster needs ackpace-host beside the server's binary: cargo build --release -p ackpace-host --features bpf",
                start.contender.name
            )
        })?;
        self.processes.push(Process { child, node: nth });
        Ok(())
    }

    /// A file of a node's own.
    pub fn file(&self, what: &str, nth: usize) -> PathBuf {
        self.scratch.join(format!("node-{}.{what}", name(nth)))
    }

    /// The processes of a node.
    pub fn pids(&self, node: usize) -> Vec<i32> {
        let of = self.processes.iter().filter(|it| it.node == node);
        of.map(|it| it.child.id() as i32).collect()
    }

    /// Asks a server what `ackpace` asks it.
    pub fn admin(&self, nth: usize, question: &str) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(self.file("admin", nth))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        writeln!(stream, "ackpace/1 {question}")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    }

    /// Has a node drained, or no longer.
    pub fn drain(&self, nth: usize, on: bool) -> Result<()> {
        let what = if on { "drain" } else { "undrain" };
        let told = self.admin(nth, &format!("{what} {}", self.names[nth]));
        told.map(drop)
            .doing(|| format!("{what} {}", self.names[nth]))
    }

    /// Has only this node take requests while `warm` runs, and waits until the others know what it has.
    pub fn only(&self, node: usize, warm: impl FnOnce() -> Result<()>) -> Result<()> {
        let others = || (0..self.names.len()).filter(|nth| *nth != node);
        others().try_for_each(|nth| self.drain(nth, true))?;
        std::thread::sleep(Duration::from_millis(300)); // all know
        warm()?;
        others().try_for_each(|nth| self.drain(nth, false))?;
        std::thread::sleep(REPORTED_AFTER);
        Ok(())
    }

    /// Responses that the first node sent itself or relayed, by its log. `None`: it has none, since no connection moves.
    pub fn sent_at_home(&self) -> Option<usize> {
        let text = std::fs::read(self.file("log", 0)).ok()?;
        Some(text.iter().filter(|byte| **byte == b'\n').count())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for process in &self.processes {
            if let Some(pid) = Pid::from_raw(process.child.id() as i32) {
                let _ = kill_process(pid, Signal::TERM); // it may have ended
            }
        }
        let begun = Instant::now();
        for process in &mut self.processes {
            while process.child.try_wait().is_ok_and(|it| it.is_none())
                && begun.elapsed() < START_STOP_MAX / 5
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

fn name(nth: usize) -> String {
    char::from(b'a' + nth as u8).to_string() // few nodes
}

/// A server of ours, without an address.
fn ours(start: &Start, nth: usize) -> Command {
    let build = start
        .contender
        .build
        .as_deref()
        .unwrap_or(&start.lab.ackpace);
    let mut command = Command::new(build);
    command
        .arg("serve")
        .arg(&start.roots[nth.min(start.roots.len() - 1)]);
    command.args([
        "--workers",
        "1",
        "--log-level",
        "warn",
        "--drain-timeout",
        "1s",
    ]);
    // A home that hands over has a log of what it does not hand over; otherwise it would be work that others don't have.
    match (nth, start.moves()) {
        (0, true) => {
            let log = start.lab.scratch.join(format!("node-{}.log", name(nth)));
            command
                .arg("--access-log")
                .arg(log)
                .args(["--access-log-format", "json"]);
        }
        _ => drop(command.args(["--access-log", "off"])),
    }
    command
}

/// Makes a node's key unless it is there; returns its public half.
fn key(lab: &Lab, file: &Path) -> Result<String> {
    let run = |option: &str| {
        let mut command = Command::new(&lab.ackpace);
        command.args(["cluster", "key", option]).arg(file);
        command.output().doing(|| "ackpace cluster key".into())
    };
    if !file.exists() {
        run("--out")?;
    }
    let told = run("--public")?;
    Ok(String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// A broker keeps its programs in a BPF file system; each node has one of its own.
fn in_own_mounts(mut command: Command) -> Command {
    use std::os::unix::process::CommandExt;
    let before = || {
        // SAFETY: no pointers, and literals.
        let done = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(
                    c"bpf".as_ptr(),
                    c"/sys/fs/bpf".as_ptr(),
                    c"bpf".as_ptr(),
                    0,
                    std::ptr::null(),
                ) == 0
        };
        match done {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes two system calls; it neither allocates nor locks.
    unsafe { command.pre_exec(before) };
    command
}
