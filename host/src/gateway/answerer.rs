//! The answerer: one thread and one poll(2) over /dev/fuse, the connection to the target, and the line to the supervisor.
//!
//! It answers reads and writes of the file system that is mounted above it, also those with which the kernel frees memory. So it
//! waits for nothing that needs memory to be freed first: all of its own is there before the first request, it opens no file, starts
//! no process and has no descriptor of the mount. Only a new connection to the target takes memory of the kernel; PR_SET_IO_FLUSHER
//! (set by the supervisor, and inherited) and a cgroup of its own keep that from waiting for this very process (docs/host-gateway.md).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::failure::Failure;
use ackpace_wire::iscsi::session::Order;
use ackpace_wire::iscsi::{Address, Chap, Mutual, Session, Settings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{Gid, Uid};

use super::link::Link;
use super::memory::{Counters, Slots};
use super::messages::{Begin, Line, Said, Told};
use super::tasks::Tasks;

/// Who it is after its start: nobody.
const USER: u32 = 65_534;
/// The target may take so long for the end of the session.
const LEAVES_WITHIN_US: u64 = 1_000_000;
/// The longest data segment of the target; most send no longer ones.
const SEGMENT_BYTES: u32 = 256 << 10;
/// Answers until the supervisor closes the line, which is standard input. `supervisor`: its process, which has to live.
///
/// # Errors
/// What it needs can't be had.
pub fn run(supervisor: u32) -> Result<(), Failure> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| Failure::runtime(format!("{what}: {error}"))
    };
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let line = Line::of(stdin.map_err(failed("standard input"))?);
    let (begin, fuse, counters) = first(&line)?;
    let slots = Slots::new().map_err(failed("memory for requests"))?;
    let counters = Counters::map(counters).map_err(failed("the counters"))?;
    let session = session(&begin)?;
    let mut tasks = Tasks::new(fuse, slots, counters, &begin);
    let locked = lock();
    drop_rights(supervisor)?;
    match (begin.is_successor, locked) {
        (true, _) => tasks.resend(),
        (false, Some(lost)) => tasks.say(Said::Line(lost)),
        (false, None) => {}
    }
    Answerer {
        line,
        tasks,
        session,
        link: Link::new(),
        resolves: None,
        started: Instant::now(),
        leaves_until_us: None,
    }
    .serve()
}

/// The first message, with what travels beside.
fn first(line: &Line) -> Result<(Begin, OwnedFd, OwnedFd), Failure> {
    let wrong =
        || Failure::runtime("ackpace-host gateway starts this process; it is of no use otherwise");
    loop {
        match line.hear::<Told>() {
            Ok(None) => {
                let fd = line.fd();
                let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None);
            }
            Ok(Some((Told::Begin(begin), beside))) => {
                let [fuse, counters] = beside.try_into().map_err(|_| wrong())?;
                return Ok((*begin, fuse, counters));
            }
            _ => return Err(wrong()),
        }
    }
}

/// Keeps all memory from being swapped out, if that is allowed.
fn lock() -> Option<String> {
    let all = Rlimit {
        current: None,
        maximum: None,
    };
    let _ = rustix::process::setrlimit(Resource::Memlock, all);
    // What is allocated later must not fail for a limit.
    let is_unlimited = rustix::process::getrlimit(Resource::Memlock)
        .current
        .is_none();
    let mut flags = MlockAllFlags::CURRENT;
    flags.set(MlockAllFlags::FUTURE, is_unlimited);
    let error = rustix::mm::mlockall(flags).err()?;
    Some(format!(
        "mlockall: {error}: without CAP_IPC_LOCK (the unit file gives it) the gateway's memory may be swapped out, and a machine that \
         is short of memory may stall"
    ))
}

fn drop_rights(supervisor: u32) -> Result<(), Failure> {
    let failed = |error: Errno| Failure::runtime(format!("giving up rights: {error}"));
    if rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
        // Of this thread, which is the only one.
        rustix::thread::set_thread_groups(&[]).map_err(failed)?;
        rustix::thread::set_thread_res_gid(group, group, group).map_err(failed)?;
        rustix::thread::set_thread_res_uid(user, user, user).map_err(failed)?;
    }
    capabilities::keep_only(CapabilitySet::empty())?;
    // Another user's process forgets it, so it comes last.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    let parent = rustix::process::getppid().map(Pid::as_raw_nonzero);
    match parent.is_some_and(|parent| parent.get() == supervisor as i32) {
        true => Ok(()),
        false => Err(Failure::runtime("the supervisor has ended")),
    }
}

fn session(begin: &Begin) -> Result<Session, Failure> {
    let address: Address = begin
        .url
        .parse()
        .map_err(|error| Failure::operator(format!("--iscsi {}: {error}", begin.url)))?;
    let [id, challenge @ ..] =
        random().map_err(|error| Failure::runtime(format!("getrandom: {error}")))?;
    let chap = begin.chap.as_ref().map(|own| Chap {
        name: own.name.clone(),
        secret: own.secret.clone(),
        mutual: begin.target.as_ref().map(|target| Mutual {
            name: target.name.clone(),
            secret: target.secret.clone(),
            challenge,
            id,
        }),
    });
    let settings = Settings {
        initiator: begin.initiator.clone(),
        target: address.target.clone(),
        isid: ackpace_wire::gateway::gateway_isid(address.lun),
        chap,
        header_digests: begin.header_digest,
        data_digests: begin.data_digest,
        segment_bytes: SEGMENT_BYTES,
    };
    let patience_us = u64::from(begin.patience_s) * 1_000_000;
    Session::new(&address, settings, patience_us)
        .map_err(|error| Failure::operator(format!("--iscsi: {error}")))
}

fn random() -> io::Result<[u8; 17]> {
    let mut bytes = [0; 17];
    let len_bytes = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    match len_bytes == bytes.len() {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

struct Answerer {
    line: Line,
    tasks: Tasks,
    session: Session,
    link: Link,
    /// The port that belongs to the name which the supervisor resolves.
    resolves: Option<u16>,
    started: Instant,
    /// The supervisor has closed the line.
    leaves_until_us: Option<u64>,
}

/// What poll(2) has reported.
#[derive(Default)]
struct Ready {
    line: bool,
    fuse: bool,
    link: bool,
}

impl Answerer {
    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn serve(mut self) -> Result<(), Failure> {
        loop {
            self.orders();
            let now_us = self.now_us();
            if self.tasks.is_elsewhere() {
                self.say();
                return Ok(()); // before anything is written there
            }
            self.link.send(&mut self.session, &mut self.tasks, now_us);
            self.orders();
            self.say();
            let is_out = self.session.deadline_us().is_none();
            let is_late = self
                .leaves_until_us
                .is_some_and(|at_us| at_us <= self.now_us());
            if self.tasks.is_over() && self.leaves_until_us.is_none() {
                let _ = self.line.say(&Said::Over, &[]);
                self.leave();
            }
            if self.leaves_until_us.is_some() && (is_out || is_late) {
                return Ok(());
            }
            let ready = self.wait()?;
            let now_us = self.now_us();
            if ready.line {
                self.hear();
            }
            if ready.link {
                self.link.turn(&mut self.session, &mut self.tasks, now_us);
            }
            if ready.fuse && !self.tasks.is_over() {
                self.tasks.take(&mut self.session);
            }
        }
    }

    /// Executes what the session orders, and passes on what it tells.
    fn orders(&mut self) {
        let now_us = self.now_us();
        while let Some(order) = self.session.poll(now_us) {
            match order {
                Order::Close => {
                    self.link.close();
                    self.resolves = None;
                    self.tasks.sent();
                }
                Order::Connect { host, port } => self.connect(host, port, now_us),
            }
            self.tasks.hear(&mut self.session, self.link.sends());
        }
        self.tasks.hear(&mut self.session, self.link.sends());
    }

    fn connect(&mut self, host: String, port: u16, now_us: u64) {
        self.tasks.sent();
        match host.parse::<IpAddr>() {
            Ok(address) => {
                let address = SocketAddr::new(address, port);
                self.link.open(vec![address], &mut self.session, now_us);
            }
            Err(_) => {
                self.resolves = Some(port);
                let asked = Said::Resolve { host, port };
                if self.line.say(&asked, &[]).is_err() {
                    self.session.lost("its name can't be asked for", now_us);
                }
            }
        }
    }

    fn say(&mut self) {
        while let Some(said) = self.tasks.says() {
            // A supervisor that does not listen gets less.
            let _ = self.line.say(&said, &[]);
        }
    }

    fn hear(&mut self) {
        let now_us = self.now_us();
        match self.line.hear::<Told>() {
            Ok(Some((Told::Resolved(resolved), _))) if self.resolves.take().is_some() => {
                match resolved {
                    Ok(addresses) => self.link.open(addresses, &mut self.session, now_us),
                    Err(why) => self.session.lost(&why, now_us),
                }
            }
            Ok(_) => {}
            Err(_) => self.leave(),
        }
    }

    /// Ends the session, and then itself.
    fn leave(&mut self) {
        self.session.log_out();
        self.leaves_until_us
            .get_or_insert(self.started.elapsed().as_micros() as u64 + LEAVES_WITHIN_US);
    }

    fn wait(&self) -> Result<Ready, Failure> {
        let now_us = self.now_us();
        let until_us = [self.session.deadline_us(), self.leaves_until_us];
        let until_us = until_us.into_iter().flatten().min();
        let timeout = until_us.map(|at_us| {
            let wait_us = at_us.saturating_sub(now_us);
            Timespec {
                tv_sec: (wait_us / 1_000_000) as i64,
                tv_nsec: (wait_us % 1_000_000 * 1_000) as i64,
            }
        });
        let link = self.link.wants();
        let fuse = self.tasks.wants().filter(|_| !self.tasks.is_over());
        let is_hearing = self.leaves_until_us.is_none();
        // What is not waited for has no events: a closed line would report its end again and again.
        let line = self.line.fd();
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = [None, None, None];
        fds[0] = is_hearing.then(|| of(line));
        fds[1] = fuse.map(of);
        fds[2] = link.map(|(fd, is_sending)| {
            let sends = if is_sending {
                PollFlags::OUT
            } else {
                PollFlags::empty()
            };
            PollFd::from_borrowed_fd(fd, PollFlags::IN | sends)
        });
        let is_there = [0, 1, 2].map(|nth: usize| fds[nth].is_some());
        let mut waited: Vec<PollFd<'_>> = fds.into_iter().flatten().collect();
        match poll(&mut waited, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(Failure::runtime(format!("poll: {error}"))),
        }
        let mut reported = waited.iter().map(|fd| !fd.revents().is_empty());
        let mut next = |nth: usize| is_there[nth] && reported.next().unwrap_or(false);
        Ok(Ready {
            line: next(0),
            fuse: next(1),
            link: next(2),
        })
    }
}
