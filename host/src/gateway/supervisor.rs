//! The supervisor: has /dev/fuse open for as long as the mount lives, and starts and ends everything else. It never waits for the file
//! system: one loop, which polls.

use std::fs::{self, File};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use ackpace_host_base::failure::Failure;
use ackpace_host_base::lock::{self, Lock};
use ackpace_host_base::{say, signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::child::{Answerer, Step};
use super::door::Door;
use super::memory::Counters;
use super::messages::{Begin, Said, Told, Unit};
use super::options::Gateway;
use super::stack::Built;
use super::{loops, mounts, notify, start};
use crate::handoff::door::refuse_if_heard;

/// How often the loop looks for a signal.
const LOOK: Duration = Duration::from_millis(100);
/// An answerer that lives less long has died early.
const LIVES: Duration = Duration::from_secs(1);
/// How soon the next one follows an early death, doubled each time.
const AGAIN: Duration = Duration::from_millis(100);
/// As often, at most. More before the unit was known: the start fails.
const EARLY_DEATHS_MAX: u32 = 5;
/// An answerer may take so long to end the session.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The target is waited for.
    Reaching {
        until: Instant,
    },
    /// A process attaches and mounts.
    Building,
    Ready,
    /// A process unmounts and detaches.
    Removing,
    Over,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Up,
    Down,
}

struct Supervisor<'a> {
    options: &'a Gateway,
    /// The FUSE file.
    file: PathBuf,
    mount: Option<PathBuf>,
    /// /dev/fuse; `None`: given up, so that everything above gets EIO.
    fuse: Option<OwnedFd>,
    /// The counters, and a descriptor that reads them.
    counters: (OwnedFd, OwnedFd),
    /// What the next answerer is told.
    begin: Begin,
    answerer: Option<Answerer>,
    born: Instant,
    early_deaths: u32,
    /// When the next one is started.
    birth: Option<Instant>,
    step: Option<(Doing, Step)>,
    phase: Phase,
    built: Built,
    door: Option<Door>,
    /// /proc/self/mountinfo, which poll(2) reports when it changes.
    mountinfo: File,
    /// There is no session, and why.
    trouble: Option<String>,
    /// Why it ends.
    failure: Option<Failure>,
}

/// See [`super::run`].
pub fn run(options: &Gateway) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::operator(
            "gateway: it mounts file systems: run it as root",
        ));
    }
    let [chap, target] = options.secrets()?;
    let (runtime, _locks) = own(options)?;
    let caught = signals::catch()?;
    loops::check()?;
    start::set_io_flusher();
    start::set_oom_score();
    let file = runtime.join("unit");
    start::clear(&file)?;
    let mount = options.mount_point()?;
    let counters = Counters::file()
        .map_err(|error| Failure::runtime(format!("memory for counters: {error}")))?;
    let fuse = start::mount_fuse(&file)?;
    let stopped = caught.hear()?;
    let mountinfo = File::open("/proc/self/mountinfo")
        .map_err(|error| Failure::runtime(format!("/proc/self/mountinfo: {error}")))?;
    let begin = Begin {
        url: options.url(),
        initiator: options.initiator(),
        chap,
        target,
        header_digest: options.header_digest,
        data_digest: options.data_digest,
        is_read_only: options.read_only,
        patience_s: options.patience,
        unit: None,
        kernel: None,
        is_successor: false,
    };
    let now = Instant::now();
    let mut supervisor = Supervisor {
        options,
        file,
        mount,
        fuse: Some(fuse),
        counters,
        begin,
        answerer: None,
        born: now,
        early_deaths: 0,
        birth: Some(now),
        step: None,
        phase: Phase::Reaching {
            until: now + Duration::from_secs(options.patience.into()),
        },
        built: Built::default(),
        door: None,
        mountinfo,
        trouble: None,
        failure: None,
    };
    supervisor.supervise(&stopped);
    supervisor.failure.map_or(Ok(()), Err)
}

/// The folder of its own files. The folder, the unit and the socket are its alone as long as the locks are held.
fn own(options: &Gateway) -> Result<(PathBuf, [Option<Lock>; 2]), Failure> {
    lock::own_folder(&options.runtime)?;
    let runtime = fs::canonicalize(&options.runtime)
        .map_err(|error| Failure::operator(format!("{}: {error}", options.runtime.display())))?;
    let another = "; for another disk give --runtime and --socket";
    let folder = Lock::take_or(&runtime.join("lock"), "has this --runtime", another)?;
    let unit = match &options.iscsi {
        Some(unit) => Some(Lock::take(
            &start::unit_lock(unit),
            "has this unit mounted",
        )?),
        None => None, // clap has refused that
    };
    if !options.no_mount {
        refuse_if_heard(&options.socket)?;
    }
    Ok((runtime, [Some(folder), unit]))
}

impl Supervisor<'_> {
    fn supervise(&mut self, stopped: &Receiver<()>) {
        while self.phase != Phase::Over {
            if stopped.try_recv() != Err(TryRecvError::Empty) {
                self.signal();
            }
            self.wait();
            self.hear();
            self.look_after_answerer();
            self.look_after_step();
            match self.phase {
                Phase::Reaching { until } if Instant::now() >= until => {
                    let why = self.trouble.take();
                    let why = why.unwrap_or_else(|| "it does not answer".to_owned());
                    let patience_s = self.options.patience;
                    self.stop(Some(Failure::runtime(format!(
                        "no session with {} within {patience_s} s: {why}",
                        self.options.url()
                    ))));
                }
                Phase::Ready => self.look_after_mount(),
                _ => {}
            }
            if let Some(door) = &mut self.door {
                let hello = hello(self.options, &self.mount, &self.begin.unit, &self.built);
                door.serve(&hello, self.counters.1.as_fd());
            }
        }
    }

    /// Waits for any of them, and not for long.
    fn wait(&self) {
        let mut fds = Vec::with_capacity(5);
        let mut add = |fd, flags| fds.push(PollFd::from_borrowed_fd(fd, flags));
        if let Some(answerer) = &self.answerer {
            add(answerer.fd(), PollFlags::IN);
            add(answerer.line.fd(), PollFlags::IN);
        }
        if let Some((_, step)) = &self.step {
            add(step.fd(), PollFlags::IN);
        }
        if let Some(door) = &self.door {
            add(door.fd(), PollFlags::IN);
        }
        let birth = self
            .birth
            .map_or(LOOK, |at| at.saturating_duration_since(Instant::now()));
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: birth.min(LOOK).subsec_nanos().into(),
        };
        let _ = poll(&mut fds, Some(&timeout));
    }

    fn signal(&mut self) {
        match self.phase {
            // A second time: at once.
            Phase::Removing => {
                say!("gateway: ends at once; what is not written yet is lost");
                self.give_up();
            }
            _ => self.stop(None),
        }
    }

    /// Everything above gets EIO.
    fn give_up(&mut self) {
        self.answerer = None;
        self.birth = None;
        self.fuse = None;
    }

    /// Begins to end.
    fn stop(&mut self, failure: Option<Failure>) {
        if matches!(self.phase, Phase::Removing | Phase::Over) {
            return;
        }
        self.failure = failure;
        if self.phase == Phase::Ready {
            notify::tell("STOPPING=1\n");
        }
        // Servers let go of the mount.
        self.door = None;
        if self.phase == Phase::Building {
            self.give_up(); // nothing was written yet that would be missed
        }
        self.phase = Phase::Removing;
        if self.step.is_none() {
            self.remove();
        }
    }

    fn remove(&mut self) {
        match Step::down(&self.file, self.fuse.is_none()) {
            Ok(step) => self.step = Some((Doing::Down, step)),
            Err(failure) => {
                self.failure.get_or_insert(failure);
                self.give_up();
                self.phase = Phase::Over;
            }
        }
    }

    fn hear(&mut self) {
        while let Some(answerer) = &self.answerer {
            // A line that has ended is that of a process that has.
            let Ok(Some((said, _))) = answerer.line.hear::<Said>() else {
                return;
            };
            match said {
                Said::Line(line) => say!("gateway: {line}"),
                Said::Kernel(kernel) => self.begin.kernel = Some(kernel),
                Said::Resolve { host, port } => self.resolve(host, port),
                Said::Ready(unit) => self.reached(unit),
                Said::Trouble(why) => {
                    say!(
                        "gateway: no session with {}: {why}; trying again",
                        self.options.url()
                    );
                    self.trouble = Some(why);
                }
                // Our own step has unmounted it, or somebody else has.
                Said::Over => {
                    self.fuse = None;
                    self.stop(Some(Failure::runtime(
                        "somebody has unmounted or aborted the gateway's FUSE file",
                    )));
                }
                Said::End(why) => {
                    self.stop(Some(Failure::operator(why)));
                    self.give_up();
                }
            }
        }
    }

    /// By a thread, since it may take long; it says the answer itself.
    fn resolve(&self, host: String, port: u16) {
        let Some(Ok(line)) = self.answerer.as_ref().map(|answerer| answerer.line.again()) else {
            return;
        };
        let resolve = move || {
            let found = (host.as_str(), port).to_socket_addrs();
            let found = found.map(|all| all.take(8).collect::<Vec<SocketAddr>>());
            let found = found.map_err(|error| format!("{host}: {error}"));
            let _ = line.say(&Told::Resolved(found), &[]);
        };
        let _ = thread::Builder::new()
            .name("names".to_owned())
            .spawn(resolve);
    }

    fn reached(&mut self, unit: Unit) {
        if self.trouble.take().is_some() {
            say!("gateway: there is a session with {}", self.options.url());
        }
        if let Phase::Reaching { .. } = self.phase {
            if let Err(failure) = start::check(&unit) {
                return self.stop(Some(failure));
            }
            let block_bytes = unit.block_bytes;
            self.begin.unit = Some(unit);
            let (file, mount) = (&self.file, self.mount.as_deref());
            match Step::up(file, mount, block_bytes, self.options) {
                Ok(step) => {
                    self.step = Some((Doing::Up, step));
                    self.phase = Phase::Building;
                }
                Err(failure) => self.stop(Some(failure)),
            }
        }
    }

    fn look_after_answerer(&mut self) {
        if let Some(how) = self.answerer.as_mut().and_then(Answerer::ended) {
            self.answerer = None;
            self.answerer_died(&how);
        }
        let Some(fuse) = &self.fuse else { return };
        if self.answerer.is_some() || self.birth.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.birth = None;
        match Answerer::start(&self.begin, fuse.as_fd(), self.counters.0.as_fd()) {
            Ok(answerer) => {
                self.answerer = Some(answerer);
                self.born = Instant::now();
                self.begin.is_successor = true;
            }
            Err(failure) if self.begin.unit.is_none() => self.stop(Some(failure)),
            Err(failure) => {
                say!("gateway: {failure}; trying again");
                self.birth = Some(Instant::now() + LIVES);
            }
        }
    }

    /// Another one follows, unless nothing could come of it.
    fn answerer_died(&mut self, how: &str) {
        if self.phase == Phase::Over || self.fuse.is_none() {
            return;
        }
        let is_early = self.born.elapsed() < LIVES;
        self.early_deaths = if is_early { self.early_deaths + 1 } else { 0 };
        if self.begin.unit.is_none() && self.early_deaths > EARLY_DEATHS_MAX {
            let why = format!("the process that answers ends again and again ({how})");
            return self.stop(Some(Failure::runtime(why)));
        }
        if self.begin.kernel.is_some_and(|kernel| !kernel.has_resend) {
            let why = format!(
                "the process that answers has died ({how}), and this kernel can't give its requests to another one: Linux 6.9 can"
            );
            self.stop(Some(Failure::runtime(why)));
            return self.give_up();
        }
        let doublings = self.early_deaths.min(EARLY_DEATHS_MAX);
        let wait = if is_early {
            AGAIN * (1 << doublings)
        } else {
            Duration::ZERO
        };
        self.birth = Some(Instant::now() + wait);
        say!("gateway: the process that answers has died ({how}); another one takes over");
    }

    fn look_after_step(&mut self) {
        let Some((doing, step)) = &mut self.step else {
            return;
        };
        let (doing, Some(ended)) = (*doing, step.ended()) else {
            return;
        };
        self.step = None;
        match (doing, self.phase, ended) {
            (Doing::Up, Phase::Building, Ok(built)) => self.ready(built),
            // It failed, or the end came meanwhile.
            (Doing::Up, _, ended) => {
                let failure = ended.err().filter(|_| self.phase == Phase::Building);
                self.failure = self.failure.take().or(failure);
                self.phase = Phase::Removing;
                self.remove();
            }
            (Doing::Down, _, ended) => {
                self.failure = self.failure.take().or(ended.err());
                self.end();
            }
        }
    }

    fn ready(&mut self, built: Built) {
        self.built = built;
        self.phase = Phase::Ready;
        let device = self.built.device.display();
        let Some(mount) = &self.mount else {
            say!(
                "gateway: {device} is {}: e2fsck -f {device}, or mkfs.ext4 {device}; then stop this",
                self.options.url()
            );
            return notify::tell("READY=1\n");
        };
        match Door::open(&self.options.socket, &self.options.allow_uid) {
            Ok(door) => self.door = Some(door),
            Err(failure) => return self.stop(Some(failure)),
        }
        let name = self.begin.unit.as_ref().map_or("", |unit| &unit.name);
        say!(
            "gateway: ready; {} ({name}) is mounted at {} by {device}; the server's socket is {}",
            self.options.url(),
            mount.display(),
            self.options.socket.display()
        );
        notify::tell("READY=1\n");
    }

    /// Somebody else may unmount it, which is as good a way to end as any.
    fn look_after_mount(&mut self) {
        let mut fds = [PollFd::new(&self.mountinfo, PollFlags::PRI)];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        let has_changed = polled == Ok(1) || polled == Err(Errno::INTR);
        let Some(mount) = self.mount.as_ref().filter(|_| has_changed) else {
            return;
        };
        if mounts::all().is_ok_and(|all| all.iter().all(|it| !it.is_of(&self.built.device))) {
            say!("gateway: {} was unmounted, so this ends", mount.display());
            self.stop(None);
        }
    }

    /// The answerer ends the session when its line does.
    fn end(&mut self) {
        self.phase = Phase::Over;
        let _ = fs::remove_file(&self.file);
        let Some(answerer) = self.answerer.take() else {
            return;
        };
        answerer.leave(LEAVES_WITHIN);
    }
}

/// What a server is told.
fn hello(
    options: &Gateway,
    mount: &Option<PathBuf>,
    unit: &Option<Unit>,
    built: &Built,
) -> ackpace_wire::gateway::Hello {
    let mut hello = options.hello(mount.as_deref().unwrap_or(Path::new("/")));
    hello.device = built.st_dev;
    if let Some(unit) = unit {
        hello.len_bytes = unit.len_bytes;
        hello.block_bytes = unit.block_bytes;
        hello.serial.clone_from(&unit.serial);
    }
    hello
}
