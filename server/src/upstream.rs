//! The thread of a gateway's upstream: one more device. It takes the workers' questions and wants, tells two machines, the one
//! that chooses reads ([`ackpace_core::disk`]) and the one that uses connections ([`ackpace_core::upstream`]), and makes the
//! reads as ranged GETs. It decides nothing, and sleeps until the next event.
//!
//! | job | asks for | ends as |
//! |---|---|---|
//! | [`Opening`] | what an origin has at a target, with its first bytes | an object, a short response, or that it passes |
//! | [`Reading`] | bytes of an object | completions, as a disk's |
//! | [`Passing`] | a response for one client | slices, as a listing's |

mod folders;
mod link;
mod names;
mod opening;
mod pages;
mod passing;
mod reading;
mod receiving;
mod start;
mod tiered;
mod tls;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ackpace_core::conn::{ObjectId, StreamId};
use ackpace_core::disk::{Disk, In, Layout, Out, ReadId};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::upstream::{self, Fault, Kind, LinkId, Links, TaskId};
use ackpace_wire::http::Asked as Method;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use self::link::Link;
pub(crate) use self::names::Names;
use self::opening::{Opening, Waiter};
use self::passing::Passing;
use self::reading::Reading;
pub use self::start::{Context, start};
use self::tls::Broken;
use crate::clock::Clock;
use crate::disk::{Budget, Channel, Completion, DiskAsk, DiskHandle, Question, Wanted};
use crate::gateway::{Ask, Gateway, Object, Waiting, tls_told};
use crate::log::{Seldom, Topic};
use crate::resolver::{Done, Return};
use crate::store::tier::TierHandle;

/// Events of connections that are heard in one turn. More: the next turn hears them.
const EVENTS_MAX: usize = 64;
/// How long the thread sleeps while clients wait for answers or responses, who may leave without a word.
const PASSES_EACH_US: u64 = 1_000_000;
/// What comes of an origin that fails, in the words of the log.
const REFUSED: &str = "its clients get 502 or what is cached";
/// The event of the waker; links count from 1.
const WAKER: u64 = 0;

/// What a connection is used for.
enum Job {
    Open(Opening),
    Read(Reading),
    Pass(Passing),
}

struct Upstream {
    gateway: Arc<Gateway>,
    /// Chooses which bytes are fetched next.
    disk: Disk,
    /// Chooses by which connection.
    machine: Links,
    links: HashMap<LinkId, Link>,
    jobs: HashMap<TaskId, Job>,
    /// The openings under way whose answer is for everybody, by their targets.
    opening: HashMap<Box<[u8]>, TaskId>,
    passes: HashMap<u64, TaskId>,
    reads: HashMap<ReadId, TaskId>,
    /// Reads that wait for room in the slab.
    postponed: VecDeque<TaskId>,
    /// Reads that are done, and hold slots for which their reader has not asked yet.
    rested: HashMap<ReadId, Reading>,
    /// Reads whose bytes were all in the slab. The machine has them among those under way, which it bounds.
    filled: VecDeque<Reading>,
    /// The disk tier, and the reads that it makes.
    tier: Option<TierHandle>,
    tiered: HashMap<ReadId, Reading>,
    objects: Wanted<Object>,
    names: Vec<Names>,
    /// A buffer for bytes that can't be received where they belong.
    copied: Box<[u8]>,
    epoll: std::os::fd::OwnedFd,
    handle: Arc<DiskHandle>,
    questions: crossbeam_channel::Receiver<Question>,
    channels: Arc<Vec<Channel>>,
    returns: Vec<Return>,
    budget: Budget,
    clock: Clock,
    seldom: Arc<Seldom>,
    /// A bucket's 403 was told.
    is_denial_told: bool,
    /// When responses that pass were last looked at for clients that left.
    looked_at: Instant,
    /// Links that have more to say than one turn hears.
    eager: Vec<LinkId>,
    /// The last number given to a task, an object, a read or a pass.
    numbers: u64,
}

impl Upstream {
    fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            self.turn(&events);
            events.clear();
            let timeout = self.timeout();
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
        }
    }

    /// How long it may sleep.
    fn timeout(&self) -> Option<Timespec> {
        let now = self.clock.now();
        let waiting = !self.passes.is_empty() || !self.opening.is_empty();
        let passes = waiting.then(|| now.plus_us(PASSES_EACH_US));
        let postponed = (!self.postponed.is_empty()).then(|| now.plus_us(reading::ROOM_EACH_US));
        let eager = (!self.eager.is_empty()).then_some(now);
        let due = [
            self.disk.deadline(),
            self.machine.deadline(),
            self.budget.again_at,
            passes,
            postponed,
            eager,
        ];
        let due = due.into_iter().flatten().min()?;
        let left = Duration::from_micros(due.since_us(now));
        Some(Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        })
    }

    /// One turn: receive, decide, execute.
    fn turn(&mut self, events: &[Event]) {
        let now = self.clock.now();
        self.handle.waker().awake();
        self.memory_came_back(now);
        for id in std::mem::take(&mut self.eager) {
            self.hear_link(id, EventFlags::IN, now);
        }
        for event in events {
            match event.data.u64() {
                WAKER => {}
                id => self.hear_link(LinkId(id), event.flags, now),
            }
        }
        self.pump(now);
        self.hear_tier(now);
        self.hear_gateway(now);
        self.hear_workers(now);
        if now.since_us(self.looked_at) >= PASSES_EACH_US {
            self.looked_at = now;
            self.end_passes(now);
            self.end_openings(now);
        }
        self.retry_postponed(now);
        self.pump(now);
        let slots_lacking = self.disk.slots_lacking();
        self.handle.pool().wake_at_freed(slots_lacking);
        if slots_lacking > 0 {
            self.budget.lacks(now);
        }
        self.handle.publish(&self.disk);
        for (nth, origin) in self.gateway.tally.origins.iter().enumerate() {
            let (links, _) = self.machine.count(nth as u16);
            origin.links.store(links as u64, Relaxed);
        }
        crate::disk::answer(&self.questions, &self.disk, now);
    }

    fn memory_came_back(&mut self, now: Instant) {
        let freed = self.handle.pool().take_freed();
        if freed > 0 {
            self.disk.on(In::Freed(freed), now);
        }
        if let Some(memory_bytes) = self.budget.divide(self.handle.pool(), now) {
            self.disk.on(In::Budget { memory_bytes }, now);
        }
    }

    /// Executes what the machines order, until they order nothing.
    fn pump(&mut self, now: Instant) {
        loop {
            if let Some(out) = self.disk.poll(now) {
                self.execute(out, now);
            } else if let Some(out) = self.machine.poll(now) {
                self.execute_link(out, now);
            } else if let Some(reading) = self.filled.pop_front() {
                self.read_done(reading, now);
            } else {
                return;
            }
        }
    }

    fn hear_workers(&mut self, now: Instant) {
        let handle = Arc::clone(&self.handle);
        while let Some(ask) = handle.next_ask() {
            match ask {
                DiskAsk::Want(want, source) => {
                    let Some(object) = source.object() else {
                        debug_assert!(false, "files are wanted from disks");
                        continue;
                    };
                    self.objects.add(want.stream, Arc::clone(object));
                    self.disk.on(In::Want(want), now);
                }
                DiskAsk::Forget(stream) => {
                    self.objects.remove(stream);
                    self.disk.on(In::Forget(stream), now);
                }
            }
        }
    }

    fn hear_gateway(&mut self, now: Instant) {
        let gateway = Arc::clone(&self.gateway);
        while let Some(Waiting {
            stream,
            ask,
            interest,
        }) = gateway.next_ask()
        {
            match ask {
                Ask::Open(asked) if gateway.has_buckets() && asked.target.ends_with(b"/") => {
                    let waiter = Waiter {
                        stream,
                        asked,
                        interest,
                    };
                    self.open_folder(waiter, 0, now);
                }
                Ask::Open(asked) if asked.private => self.pass(stream, asked, interest, now),
                Ask::Open(asked) => self.open(stream, asked, interest, now),
                Ask::Refresh(target) => self.refresh(target, now),
                Ask::Next(pass) => self.next_slice(stream, pass, now),
            }
        }
    }

    fn execute(&mut self, out: Out, now: Instant) {
        match out {
            Out::Map(object) => {
                let mapped = In::Mapped {
                    object,
                    layout: Layout::default(),
                    direct: true,
                };
                self.disk.on(mapped, now);
            }
            Out::Read {
                read,
                object,
                span,
                into,
            } => self.read((read, object), span, into, now),
            Out::Cancel(read) => self.cancel(read, now),
            Out::Fetched {
                read,
                stream,
                seq,
                span,
                held,
                chosen,
            } => {
                let bytes = self.landed_bytes(read, span, held);
                self.tell(
                    stream,
                    Completion::Fetched(stream, seq, span, bytes, chosen),
                );
            }
            Out::Failed { stream, seq, error } => {
                self.tell(stream, Completion::Failed(stream, seq, error));
            }
        }
    }

    fn execute_link(&mut self, out: upstream::Out, now: Instant) {
        match out {
            upstream::Out::Connect { link, origin } => self.connect(link, origin, now),
            upstream::Out::Ask { link, task } => self.ask(link, task, now),
            upstream::Out::Close(link) => self.close(link, now),
            upstream::Out::Failed(task, fault) => self.failed(task, fault, now),
        }
    }

    fn connect(&mut self, id: LinkId, origin: u16, now: Instant) {
        let names = &mut self.names[usize::from(origin)];
        let peer = self.gateway.peer.as_ref();
        let address = peer.map_or_else(|| names.next(), |peer| Ok(peer.to()));
        let opened = address.and_then(|address| {
            let host = &self.gateway.origins[usize::from(origin)];
            let tls = (self.gateway.tls.as_ref()).filter(|_| host.tls);
            let tls = tls.map(|tls| tls.connection(&host.host)).transpose();
            let tls = tls.map_err(|error| error.to_string())?;
            let from = peer.map(|peer| peer.from);
            let link =
                Link::connect(origin, (from, address), tls).map_err(|error| error.to_string())?;
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&self.epoll, &link, EventData::new_u64(id.0), flags)
                .map_err(|error| error.to_string())?;
            Ok(link)
        });
        match opened {
            Ok(link) => drop(self.links.insert(id, link)),
            Err(error) => {
                names.failed();
                self.tell_origin(origin, &error, now);
                self.machine
                    .on(upstream::In::Broken(id, Fault::Unreachable), now);
            }
        }
    }

    /// The machine has no use for a link: it is idle, or nobody wants its task, or its origin has been silent for too long.
    fn close(&mut self, id: LinkId, now: Instant) {
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        let is_wanted = link.task.is_none_or(|task| self.jobs.contains_key(&task));
        let Some(why) = link.why_silent().filter(|_| is_wanted) else {
            return;
        };
        let origin = usize::from(link.origin);
        if link.task.is_none() {
            self.names[origin].failed();
        }
        let faults = &self.gateway.tally.origins[origin].faults;
        faults.fetch_add(1, Relaxed);
        self.tell_origin(link.origin, why, now);
    }

    /// Writes the request of a task, or of what is left of it.
    fn ask(&mut self, id: LinkId, task: TaskId, now: Instant) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if let Some(Job::Open(opening)) = self.jobs.get(&task) {
            if !opening.is_wanted() {
                return self.end_opening(task, now);
            }
        }
        let nth = usize::from(link.origin);
        let origin = &self.gateway.origins[nth];
        self.gateway.tally.origins[nth]
            .requests
            .fetch_add(1, Relaxed);
        let asked = match self.jobs.get(&task) {
            Some(Job::Open(opening)) => (opening.method(), opening.request(origin)),
            Some(Job::Read(reading)) => (Method::Get, reading.request(origin)),
            Some(Job::Pass(passing)) => (passing.method(), passing.request(origin)),
            None => {
                debug_assert!(false, "a task has a job");
                return self.machine.on(upstream::In::Drop(task), now);
            }
        };
        if link.is_spoilt() {
            self.gone(id, now);
            return;
        }
        let (method, request) = asked;
        match request.map(|request| link.ask(task, method, request)) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.broken(id, Fault::Closed, now),
            Err(why) => {
                tracing::debug!("a request is not sent: {why}");
                self.failed(task, Fault::Bad, now);
                self.links.remove(&id);
                self.machine.on(upstream::In::Drop(task), now);
            }
        }
    }

    /// A link failed. Its task is tried again, from where it is.
    fn broken(&mut self, id: LinkId, fault: Fault, now: Instant) {
        let link = self.links.remove(&id);
        if let Some(link) = &link {
            let origin = usize::from(link.origin);
            if fault == Fault::Unreachable {
                self.names[origin].failed();
            }
            if link.task.is_some() || fault == Fault::Unreachable {
                self.gateway.tally.origins[origin]
                    .faults
                    .fetch_add(1, Relaxed);
            }
        }
        self.machine.on(upstream::In::Broken(id, fault), now);
        let Some(task) = link.and_then(|link| link.task) else {
            return;
        };
        match self.jobs.get(&task) {
            // A response that passes can't be resumed.
            Some(Job::Pass(passing)) if passing.has_begun() => {
                self.machine.on(upstream::In::Drop(task), now);
                self.failed(task, fault, now);
            }
            Some(_) => {}
            // Nobody wanted the rest of the body.
            None => self.machine.on(upstream::In::Drop(task), now),
        }
    }

    /// No origin carries a task out.
    fn failed(&mut self, task: TaskId, fault: Fault, now: Instant) {
        match self.jobs.remove(&task) {
            Some(Job::Open(opening)) => self.open_failed(opening, fault, now),
            Some(Job::Read(reading)) => self.read_failed(reading, now),
            Some(Job::Pass(passing)) => self.pass_failed(passing, fault, now),
            None => {}
        }
    }

    /// A new task with this job.
    fn begin(&mut self, kind: Kind, job: Job, now: Instant) -> TaskId {
        let task = TaskId(self.number());
        self.jobs.insert(task, job);
        self.machine.on(upstream::In::Task(task, kind), now);
        task
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The name of a new object.
    fn object_id(&mut self) -> ObjectId {
        let number = self.number();
        ObjectId {
            device: self.gateway.device,
            index: number as u32,
            generation: (number >> 32) as u32,
        }
    }

    fn tell(&self, stream: StreamId, completion: Completion) {
        if let Some(channel) = self.channels.get(usize::from(stream.worker)) {
            channel.tell(completion);
        }
    }

    /// Leaves a worker the answer to a question of one of its streams.
    fn return_to(&self, stream: StreamId, done: Done) {
        if let Some(back) = self.returns.get(usize::from(stream.worker)) {
            back.put(stream, done);
        }
    }

    fn tell_broken(&self, origin: u16, broken: &Broken, now: Instant) {
        let text = match broken {
            Broken::Socket(error) => error.to_string(),
            Broken::Tls(error) => tls_told(error, &self.gateway.origins[usize::from(origin)].host),
            Broken::Cut => "it ended the connection before that stood".to_owned(),
        };
        self.tell_origin(origin, &text, now);
    }

    /// An origin failed, and is left alone for a while.
    fn tell_origin(&self, origin: u16, error: &str, now: Instant) {
        let then = match self.gateway.origins.len() {
            _ if self.gateway.is_peer() => "this node's disk is read instead",
            1 => REFUSED,
            _ => "the next origin is asked",
        };
        self.tell_of(origin, &format!("{error}; {then}"), now);
    }

    fn tell_of(&self, origin: u16, text: &str, now: Instant) {
        let address = self.gateway.origin_shown(origin.into());
        let text = format_args!("{text}");
        self.seldom.tell(Topic::Origin, Some(&address), text, now);
    }
}
