//! The thread pool for work that may block: finding files that are not in the kernel's caches, and reading directories.
//!
//! Its threads have a low priority, so one that holds a lock may stand for milliseconds. No worker waits for one: jobs come
//! by a queue to which workers add without a lock, and results lie behind a lock that a worker only tries to take
//! (docs/decisions/0025-what-a-worker-locks.md).

mod lanes;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;

use ackpace_core::conn::StreamId;
use ackpace_core::limits::RESOLVERS_MAX;
use crossbeam_queue::SegQueue;
use rustix::thread::futex;

use self::lanes::{Lanes, Taken};
use crate::front::listing::{Listing, Slice};
use crate::front::site::{Query, Site, SiteAnswer};
pub use crate::interest::JobInterest;
use crate::mailbox::ThreadWaker;
use crate::sched;
use crate::store::closing;
use crate::store::device::Device;
use crate::store::root::Wait;

/// How often a request looks again that finds no descriptor left, or a lease on its file.
const CLOSING_EACH: std::time::Duration = std::time::Duration::from_millis(5);
/// Waits, of [`CLOSING_EACH`] each, of a request that finds no descriptor left, or too many files waiting, while files
/// may be closed soon: a second. More: it gets 503.
const CLOSING_WAITS_MAX: usize = 200;
/// Waits, of [`CLOSING_EACH`] each, for a program that has a lease on a file and was asked for it: a tenth of a second. More:
/// requests for files of one that keeps it take the threads of the others.
const LEASE_WAITS_MAX: usize = 20;
/// How long a thread of the pool rests before it tries again to add to a worker's full queue of results.
const RESULTS_FULL_EACH: std::time::Duration = std::time::Duration::from_millis(1);

/// A job for a stream, which has at most one at a time.
pub enum Job {
    /// Find the file, or begin a listing.
    Find(Query),
    /// Make the next slice of a listing.
    Slice(Box<Listing>),
    /// Anything else that may wait.
    Errand(Box<dyn Errand>),
}

/// A job of which this pool knows nothing.
pub trait Errand: Send {
    /// Does it; the result is known to who submitted it.
    fn run(&self) -> Box<dyn Any + Send>;
    /// Memory that it holds while it waits.
    fn held_bytes(&self) -> usize;
}

impl Job {
    /// Memory of its request. The names of a listing are charged with those of all listings.
    fn bytes(&self) -> u64 {
        let held = match self {
            Job::Find(query) => {
                let accepted = query.accept_encoding.iter();
                query.path.len()
                    + accepted
                        .map(|field| field.len() + size_of_val(field))
                        .sum::<usize>()
            }
            Job::Slice(_) => 0,
            Job::Errand(errand) => errand.held_bytes(),
        };
        (2 * size_of::<Waiting>() + INTEREST_BYTES + held) as u64
    }

    /// The path to be found, or to be listed.
    fn path(&self) -> &[u8] {
        match self {
            Job::Find(query) => &query.path,
            Job::Slice(listing) => listing.path(),
            Job::Errand(_) => b"", // somewhere below the root
        }
    }
}

/// What a job's interest points to: its two counts.
const INTEREST_BYTES: usize = 2 * size_of::<usize>();

pub enum Done {
    /// The file, or why there is none.
    Found(SiteAnswer),
    /// A slice, and the listing if more of it follows.
    Sliced(io::Result<Slice>, Option<Box<Listing>>),
    /// The result of an errand.
    Ran(Box<dyn Any + Send>),
}

/// The queue of results to a worker.
#[derive(Clone)]
pub struct Return {
    worker: usize,
    results: Arc<Mutex<Results>>,
    results_max: usize,
    waker: Arc<ThreadWaker>,
}

type Results = VecDeque<(StreamId, Done)>;

/// Memory of a connection in the queue of results: two may be under way for it.
pub const RESULT_BYTES: u64 = 2 * (size_of::<(StreamId, Done)>() + 16) as u64;

/// A worker's end of its queue of results.
pub struct Inbox {
    results: Arc<Mutex<Results>>,
    /// Those that were taken out of the queue, all at once.
    taken: Results,
}

impl Return {
    /// A queue of results, and the worker's end of it. `places` bounds the jobs that a worker can have under way.
    pub fn new(worker: usize, places: u32, waker: Arc<ThreadWaker>) -> (Return, Inbox) {
        let results = Arc::default();
        let inbox = Inbox {
            results: Arc::clone(&results),
            taken: Results::new(),
        };
        let back = Return {
            worker,
            results,
            // A connection that is closed and replaced while its job runs has two results under way.
            results_max: 2 * places as usize + RESOLVERS_MAX,
            waker,
        };
        (back, inbox)
    }

    /// Leaves a result. In a full queue the worker makes room in its next turns; one that has ended makes none.
    pub(crate) fn put(&self, stream: StreamId, done: Done) {
        let mut results = self.lock();
        while results.len() >= self.results_max && Arc::strong_count(&self.results) > 1 {
            drop(results);
            self.waker.wake(); // it may have met this lock
            thread::sleep(RESULTS_FULL_EACH);
            results = self.lock();
        }
        results.push_back((stream, done));
        drop(results);
        self.waker.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    /// The next result. Never waits: a thread of the pool that holds the lock in this moment wakes the worker afterwards.
    pub fn take(&mut self) -> Option<(StreamId, Done)> {
        if self.taken.is_empty() {
            let mut results = match self.results.try_lock() {
                Ok(results) => results,
                Err(TryLockError::Poisoned(results)) => results.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            std::mem::swap(&mut self.taken, &mut results);
        }
        self.taken.pop_front()
    }

    /// Whether there are some that the worker has not heard yet: taken out of the queue, or still in it. Who left these may have found
    /// the worker's signal set, and wakes nobody any more.
    pub fn has_more(&self) -> bool {
        let waits = || match self.results.try_lock() {
            Ok(results) => !results.is_empty(),
            Err(TryLockError::Poisoned(results)) => !results.into_inner().is_empty(),
            Err(TryLockError::WouldBlock) => false, // who has the lock wakes the worker afterwards
        };
        !self.taken.is_empty() || waits()
    }
}

/// The loop of a thread of the pool.
fn resolve_all(jobs: &Jobs, site: &Site, returns: &[Return]) {
    sched::be_patient();
    let mut before = None;
    loop {
        let (taken, mut waiting) = jobs.next(before);
        before = Some(taken);
        let back = returns.iter().find(|back| back.worker == waiting.worker);
        // A client that has left needs no result, nor does a worker that has ended.
        let Some(back) = back.filter(|_| waiting.is_wanted()) else {
            continue;
        };
        match run(site, taken, waiting.job) {
            Ok(done) => back.put(waiting.stream, done),
            Err(job) => {
                waiting.job = job;
                jobs.put_off(taken.device, waiting);
            }
        }
    }
}

#[derive(Clone)]
pub struct Resolver {
    site: Arc<Site>,
    jobs: Arc<Jobs>,
}

struct Waiting {
    worker: usize,
    stream: StreamId,
    job: Job,
    wanted: Weak<()>,
}

impl Waiting {
    /// Whether its client is still there.
    fn is_wanted(&self) -> bool {
        self.wanted.strong_count() > 0
    }
}

/// Jobs that wait and the threads that wait for them.
struct Jobs {
    /// Jobs from workers, each with its device; not yet in a lane.
    arrived: SegQueue<(u16, Waiting)>,
    /// For the threads of the pool only, and held for a push or a pop.
    lanes: Mutex<Lanes<Waiting>>,
    /// Counts signals: a thread waits in futex(2) until it changes. (An eventfd(2) wakes all that read it.)
    signals: AtomicU32,
    /// Threads that wait, or are about to.
    idle: AtomicUsize,
    /// A thread was signalled and has not looked since. It will look for all that has come until then, and wake the next one if
    /// there is more: so a burst of short jobs does not wake all threads.
    signalled: AtomicBool,
    /// Jobs that wait, and may wait.
    waiting: AtomicUsize,
    waiting_max: usize,
    /// Memory that the waiting jobs hold, and may hold.
    held_bytes: AtomicU64,
    held_bytes_max: u64,
}

impl Resolver {
    /// Starts the threads, which live as long as the process.
    pub fn start(
        site: &Arc<Site>,
        returns: Vec<Return>,
        places: u32,
        held_bytes_max: u64,
    ) -> io::Result<Resolver> {
        let waiting_max = 2 * places as usize * returns.len().max(1);
        let jobs = Arc::new(Jobs::new(waiting_max, held_bytes_max));
        let returns = Arc::new(returns);
        for n in 0..RESOLVERS_MAX {
            let (jobs, site, returns) = (Arc::clone(&jobs), Arc::clone(site), Arc::clone(&returns));
            let work = move || resolve_all(&jobs, &site, &returns);
            thread::Builder::new()
                .name(format!("resolve-{n}"))
                .spawn(work)?;
        }
        let site = Arc::clone(site);
        Ok(Resolver { site, jobs })
    }

    pub fn busy(&self) -> usize {
        self.jobs.lanes().busy()
    }

    /// Queues a job, which is done if the [`JobInterest`] is still there when its turn comes. `None`: it is refused. Refused are
    /// jobs beyond the number of connections, since those of departed clients pile up only behind a disk that hangs, and
    /// jobs that would hold too much memory together. The next slice of a listing is never refused for its memory.
    pub fn submit(&self, stream: StreamId, job: Job) -> Option<JobInterest> {
        let device = self.site.device_of_search(job.path());
        self.jobs.put(device, stream, job)
    }
}

impl Jobs {
    fn new(waiting_max: usize, held_bytes_max: u64) -> Jobs {
        Jobs {
            arrived: SegQueue::new(),
            lanes: Mutex::new(Lanes::new(RESOLVERS_MAX)),
            signals: AtomicU32::new(0),
            idle: AtomicUsize::new(0),
            signalled: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            waiting_max,
            held_bytes: AtomicU64::new(0),
            held_bytes_max,
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<Waiting>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job, if there is room for it. Takes no lock.
    fn put(&self, device: u16, stream: StreamId, job: Job) -> Option<JobInterest> {
        if !self.admit(&job) {
            return None;
        }
        let (interest, wanted) = JobInterest::new();
        let waiting = Waiting {
            worker: usize::from(stream.worker),
            stream,
            job,
            wanted,
        };
        self.arrived.push((device, waiting));
        self.wake_one();
        Some(interest)
    }

    /// Counts a job that comes from a worker, unless there are too many or they hold too much.
    fn admit(&self, job: &Job) -> bool {
        let one_more = |waiting| (waiting < self.waiting_max).then_some(waiting + 1);
        let counted = (self.waiting).fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        if counted.is_err() {
            return false;
        }
        let held_bytes_max = match job {
            Job::Slice(_) => u64::MAX,
            Job::Find(_) | Job::Errand(_) => self.held_bytes_max,
        };
        let with_it = |held: u64| Some(held + job.bytes()).filter(|held| *held <= held_bytes_max);
        let held = (self.held_bytes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it);
        if held.is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        held.is_ok()
    }

    /// Wakes a thread of the pool, if one has nothing to do and none is waking up.
    fn wake_one(&self) {
        // A thread looks for jobs after it has counted itself as idle: it sees the job, or is seen here.
        fence(Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) > 0 && !self.signalled.swap(true, Ordering::SeqCst) {
            self.signals.fetch_add(1, Ordering::SeqCst);
            let _ = futex::wake(&self.signals, futex::Flags::PRIVATE, 1);
        }
    }

    /// Queues a job that has turned out to be a long one. The calling thread takes the next job at once, so none has to
    /// be woken.
    fn put_off(&self, device: u16, waiting: Waiting) {
        let bytes = waiting.job.bytes();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.lanes().put(device, true, waiting);
    }

    /// The next job, after `before` is done; waits for one.
    fn next(&self, before: Option<Taken>) -> (Taken, Waiting) {
        if let Some(taken) = self.take(before) {
            return taken;
        }
        loop {
            self.idle.fetch_add(1, Ordering::SeqCst);
            let seen = self.signals.load(Ordering::SeqCst);
            self.signalled.store(false, Ordering::SeqCst); // who signals from here on changes what was seen
            fence(Ordering::SeqCst);
            let taken = self.take(None);
            if taken.is_none() {
                let _ = futex::wait(&self.signals, futex::Flags::PRIVATE, seen, None);
            }
            self.idle.fetch_sub(1, Ordering::SeqCst);
            if let Some(taken) = taken {
                return taken;
            }
        }
    }

    /// The next job that may begin, after `before` is done.
    fn take(&self, before: Option<Taken>) -> Option<(Taken, Waiting)> {
        let mut lanes = self.lanes();
        before.into_iter().for_each(|taken| lanes.done(taken));
        while let Some((device, waiting)) = self.arrived.pop() {
            lanes.put(device, false, waiting);
        }
        let taken = lanes.take()?;
        // The job that ended may have made room for more than one, and several may have arrived.
        let more = lanes.is_ready();
        drop(lanes);
        if more {
            self.wake_one();
        }
        let bytes = taken.1.job.bytes();
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }
}

/// Does a job, or gives it back to be queued as a long one.
fn run(site: &Site, taken: Taken, job: Job) -> Result<Done, Job> {
    let device = site.devices.get(taken.device);
    if device.is_none() {
        site.meet(job.path()); // no worker does
    }
    let _under_way = device.map(Device::look_up);
    match job {
        Job::Find(query) => {
            let wait = if taken.long { Wait::Long } else { Wait::Yes };
            match find(site, &query, wait) {
                None if !taken.long => Err(Job::Find(query)),
                found => Ok(Done::Found(found.unwrap_or(SiteAnswer::Exhausted))),
            }
        }
        Job::Slice(mut listing) => {
            let slice = match listing.slice(site.around(), taken.long).transpose() {
                Some(slice) => slice,
                None => return Err(Job::Slice(listing)),
            };
            let more = slice.as_ref().is_ok_and(|slice| !slice.last);
            Ok(Done::Sliced(slice, more.then_some(listing)))
        }
        Job::Errand(errand) => Ok(Done::Ran(errand.run())),
    }
}

/// Finds what a query asks for. If no descriptor is left, waits a little for files that are being closed; and for whoever
/// has a lease on the file, to give it up. `None`: it takes long, which it may not.
fn find(site: &Site, query: &Query, wait: Wait) -> Option<SiteAnswer> {
    let mut answer = None;
    for waits in 0..CLOSING_WAITS_MAX {
        answer = site.find(query, wait);
        match answer {
            // Files that waited to be closed may be closed by now.
            Some(SiteAnswer::Exhausted) if closing::goes_on() || waits == 0 => {}
            Some(SiteAnswer::Leased) if waits < LEASE_WAITS_MAX => {}
            _ => break,
        }
        thread::sleep(CLOSING_EACH);
    }
    answer
}
