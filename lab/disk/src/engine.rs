//! Runs the model in real time: each request is answered when the model says that it is done.
//!
//! Model time is real time since the start. A thread that wakes late answers late. The model's next service
//! still starts where the last one ended, so lateness does not add up while requests wait. But a host that
//! waits for each answer would see every delay as a slower device. So answers leave early by the cost of the
//! path to the host ([`Lead`]). A request that follows a late answer at once is dated back to when it would
//! have come otherwise (`arrivals.rs`).

use super::arrivals::{Arrivals, Sent};
use super::counts::{self, ByFile, Counters, LoggedRead};
use super::store::Store;
use ackpace_lab_base::content::Tag;
use ackpace_lab_base::error::{Doing, Result};
use ackpace_lab_base::punctual::be_punctual;
use ackpace_sim::models::array::Device;
use ackpace_sim::models::disk::profile::Profile;
use ackpace_sim::models::disk::request::{self, Completion, Kind, Request};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Real-time priority of a disk's threads, which never run for long.
pub const PRIORITY: i32 = 1;

/// Sends the answer; the argument is true if the device failed.
pub type Respond = Box<dyn FnOnce(bool) + Send>;

/// Time that a request of `len` bytes spends outside the model, from the host's block layer to the engine and back, on an
/// otherwise idle device: `base_ns + per_mb_ns * len / 1 MB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lead {
    /// Overhead of the shortest request.
    pub base_ns: u64,
    /// Additional overhead for each 2^20 bytes.
    pub per_mb_ns: u64,
}

impl Lead {
    fn of(&self, len_bytes: u64) -> u64 {
        self.base_ns + ((self.per_mb_ns * len_bytes) >> 20)
    }
}

/// How requests are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Answer at once: for filling the disk.
    Fast,
    /// Answer after a fixed time: for measuring the path overhead.
    Flat {
        /// The time in microseconds.
        us: u64,
    },
    /// Answer as the model says.
    Model,
}

/// The emulated device: its medium and its requests. Shared by the FUSE session and the clock thread.
pub struct Engine {
    /// The blocks of the medium.
    pub store: Mutex<Store>,
    state: Mutex<State>,
    wake: Condvar,
    start: Instant,
    size_bytes: u64,
}

struct State {
    device: Device,
    timing: Timing,
    lead: Lead,
    open: HashMap<u64, Open>,
    due: BinaryHeap<Reverse<Due>>,
    failed: HashMap<u64, bool>,
    next_id: u64,
    asleep_until_ns: u64,
    arrivals: Arrivals,
    totals: request::DeviceTotals,
    by_file: ByFile,
    names: HashMap<Tag, String>,
    log: Option<Vec<LoggedRead>>,
    stopping: bool,
}

/// An answer to be sent. They are ordered by the first field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    due_ns: u64,
    id: u64,
    finished_ns: u64,
}

struct Open {
    respond: Respond,
    owner: Option<Tag>,
}

impl Engine {
    /// Starts an engine in fast mode, with its thread; the thread ends after [`Engine::stop`]. The medium
    /// stores at most `pages_max` blocks verbatim.
    pub fn start(profile: &Profile, pages_max: usize) -> Result<(Arc<Self>, JoinHandle<()>)> {
        let device = Device::new(profile);
        let engine = Arc::new(Self {
            store: Mutex::new(Store::new(pages_max)),
            size_bytes: device.size_bytes(),
            state: Mutex::new(State {
                device,
                timing: Timing::Fast,
                lead: Lead::default(),
                open: HashMap::new(),
                due: BinaryHeap::new(),
                failed: HashMap::new(),
                next_id: 0,
                asleep_until_ns: 0,
                arrivals: Arrivals::default(),
                totals: request::DeviceTotals::default(),
                by_file: ByFile::default(),
                names: HashMap::new(),
                log: None,
                stopping: false,
            }),
            wake: Condvar::new(),
            start: Instant::now(),
        });
        let thread = std::thread::Builder::new().name("lab-disk".into());
        let own = Arc::clone(&engine);
        let thread = thread.spawn(move || own.run());
        Ok((engine, thread.doing(|| "thread of a disk".into())?))
    }

    /// Capacity in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Submits a request that came at `now_ns` (of [`Engine::now_ns`]), not before an earlier submitted one.
    /// The range must end within the device. `respond` is called in this thread (fast mode) or in the engine's.
    pub fn submit(
        &self,
        now_ns: u64,
        offset_bytes: u64,
        len_bytes: u64,
        kind: Kind,
        respond: Respond,
    ) {
        let blocks = offset_bytes / 4096..(offset_bytes + len_bytes).div_ceil(4096);
        let owners = lock(&self.store).owners(blocks);
        let mut state = lock(&self.state);
        if state.timing == Timing::Fast || state.stopping {
            drop(state);
            return respond(false);
        }
        let id = state.next_id;
        state.next_id += 1;
        let owner = owners
            .first()
            .and_then(|(_, owner)| owner.map(|(tag, _)| tag));
        state.open.insert(id, Open { respond, owner });
        if let Timing::Flat { us } = state.timing {
            let due_ns = now_ns + us * 1000;
            state.due.push(Reverse(Due {
                due_ns,
                id,
                finished_ns: due_ns,
            }));
        } else {
            if kind == Kind::Read {
                state.by_file.read(&owners);
            }
            let request = Request {
                id,
                offset_bytes,
                len_bytes,
                kind,
            };
            let arrived_ns = state.arrivals.arrival_ns(now_ns);
            state.device.submit(arrived_ns, request);
        }
        let wakes = state.next_ns() < state.asleep_until_ns;
        drop(state); // the woken thread must find the lock free
        if wakes {
            self.wake.notify_one();
        }
    }

    /// Changes the timing of later requests.
    pub fn set_timing(&self, timing: Timing) {
        lock(&self.state).timing = timing;
    }

    /// Sets the path overhead: what a request costs outside the model while the device is idle.
    pub fn set_lead(&self, lead: Lead) {
        lock(&self.state).lead = lead;
    }

    /// How late the last answer left, in nanoseconds.
    pub fn last_late_ns(&self) -> u64 {
        lock(&self.state).arrivals.last_late_ns()
    }

    /// Stops all answers until [`Engine::resume`].
    pub fn hang(&self) {
        let now_ns = self.now_ns();
        lock(&self.state).device.hang(now_ns);
        self.wake.notify_one();
    }

    /// Ends a hang.
    pub fn resume(&self) {
        let now_ns = self.now_ns();
        lock(&self.state).device.resume(now_ns);
        self.wake.notify_one();
    }

    /// Requests that touch one of the ranges fail with EIO from now on. No ranges: all requests succeed again.
    pub fn set_bad(&self, regions: &[Range<u64>]) {
        lock(&self.state).device.set_bad(regions);
    }

    /// Sets the name of the file whose blocks carry this tag.
    pub fn set_name(&self, tag: Tag, name: &str) {
        lock(&self.state).names.insert(tag, name.to_owned());
    }

    /// Activity since the last reset.
    pub fn counters(&self) -> Counters {
        let now_us = self.now_ns() / 1000;
        let state = lock(&self.state);
        Counters {
            now_us,
            members: state.device.members(),
            queued: state.device.under_way(),
            files: state.by_file.files(&state.names),
            ..counts::totals(&state.totals)
        }
    }

    /// Resets the counters and the set of blocks that were read.
    pub fn reset_counters(&self) {
        let mut state = lock(&self.state);
        state.totals = request::DeviceTotals::default();
        state.by_file = ByFile::default();
    }

    /// Begins to log reads of files, or ends that; returns those that were logged.
    pub fn log(&self, on: bool) -> Vec<LoggedRead> {
        let log = &mut lock(&self.state).log;
        std::mem::replace(log, on.then(Vec::new)).unwrap_or_default()
    }

    /// Answers all open requests and ends the thread.
    pub fn stop(&self) {
        lock(&self.state).stopping = true;
        self.wake.notify_one();
    }

    /// Model time: nanoseconds since the start.
    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(&self) {
        be_punctual(PRIORITY);
        let mut state = lock(&self.state);
        loop {
            let now_ns = self.now_ns();
            state.advance(now_ns);
            // One at a time: each answer is as late as the ones before it made it.
            if let Some((respond, failed)) = state.answer(now_ns) {
                state.asleep_until_ns = 0; // this thread checks again by itself
                drop(state);
                respond(failed);
                state = lock(&self.state);
            } else if state.stopping {
                return;
            } else {
                state.asleep_until_ns = state.next_ns();
                let nap = state.asleep_until_ns.saturating_sub(self.now_ns());
                let nap = Duration::from_nanos(nap.min(3_600_000_000_000));
                let woken = self.wake.wait_timeout(state, nap);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl State {
    /// The next time at which the thread must act, if no new requests come.
    fn next_ns(&self) -> u64 {
        let lead_max_ns = self.lead.of(1 << 20);
        let model = self.device.next_ns();
        let model = model.map(|due_ns| due_ns.saturating_sub(lead_max_ns));
        let due = self.due.peek().map(|Reverse(due)| due.due_ns);
        let next = [model, due].into_iter().flatten().min();
        next.unwrap_or(u64::MAX)
    }

    /// Schedules the answers of requests that the model finishes soon.
    fn advance(&mut self, now_ns: u64) {
        let horizon_ns = now_ns + self.lead.of(1 << 20);
        while let Some(done) = self.device.complete(horizon_ns) {
            self.done(&done);
        }
    }

    /// The next answer that is due, if any; any open one when stopping.
    fn answer(&mut self, now_ns: u64) -> Option<(Respond, bool)> {
        if self.stopping {
            let id = *self.open.keys().next()?;
            return self.open.remove(&id).map(|open| (open.respond, false));
        }
        let Reverse(due) = *self.due.peek().filter(|due| due.0.due_ns <= now_ns)?;
        self.due.pop();
        self.arrivals.sent(Sent {
            left_ns: now_ns,
            late_ns: now_ns - due.due_ns,
            finished_ns: due.finished_ns,
        });
        let failed = self.failed.remove(&due.id).unwrap_or(false);
        self.open.remove(&due.id).map(|open| (open.respond, failed))
    }

    fn done(&mut self, done: &Completion) {
        let id = done.request.id;
        self.totals.count(done);
        if done.request.kind == Kind::Read {
            let owner = self.open.get(&id).and_then(|open| open.owner);
            if let (Some(log), Some(tag)) = (&mut self.log, owner) {
                log.push(LoggedRead {
                    arrived_us: done.arrived_ns / 1000,
                    finished_us: done.finished_ns / 1000,
                    len_bytes: done.request.len_bytes,
                    file: counts::name(&self.names, tag),
                });
            }
        }
        let lead_ns = self.lead.of(done.request.len_bytes);
        let due_ns = done.finished_ns.saturating_sub(lead_ns);
        if done.failed {
            self.failed.insert(id, true);
        }
        self.due.push(Reverse(Due {
            due_ns,
            id,
            finished_ns: done.finished_ns,
        }));
    }
}

/// Locks a mutex even if it is poisoned: a panic elsewhere must not stop a disk that carries a mount.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
