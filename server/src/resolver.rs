//! The thread pool for work that may block: finding files that are not in the kernel's caches, and reading directories.

mod lanes;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use ackpace_core::conn::StreamId;
use ackpace_core::limits::RESOLVERS_MAX;
use crossbeam_channel::{Receiver, Sender, bounded};

use self::lanes::{Lanes, Taken};
use crate::front::listing::{Listing, Slice};
use crate::front::site::{Answer, Query, Site};
use crate::limits::{CLOSING_EACH, CLOSING_WAITS_MAX};
use crate::mailbox::ThreadWaker;
use crate::sched;
use crate::store::closing;
use crate::store::device::Device;
use crate::store::root::Wait;

/// A job for a stream, which has at most one at a time.
pub enum Job {
    /// Find the file.
    Find(Query),
    /// Make the next slice of a listing.
    Slice(Box<Listing>),
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
        };
        (2 * size_of::<Waiting>() + held) as u64
    }

    /// The path to be found, or to be listed.
    fn path(&self) -> &[u8] {
        match self {
            Job::Find(query) => &query.path,
            Job::Slice(listing) => listing.path(),
        }
    }
}

/// The result of a job.
pub enum Done {
    /// The file, or why there is none.
    Found(Answer),
    /// A slice, and the listing if more of it follows.
    Sliced(io::Result<Slice>, Option<Box<Listing>>),
}

/// The queue of results to a worker.
pub struct Return {
    worker: usize,
    results: Sender<(StreamId, Done)>,
    waker: Arc<ThreadWaker>,
}

/// Memory of a connection in the queue of results: two may be under way for it.
pub const RESULT_BYTES: u64 = 2 * (size_of::<(StreamId, Done)>() + 16) as u64;

/// A worker's end of its queue of results.
pub type Inbox = Receiver<(StreamId, Done)>;

impl Return {
    /// A queue of results, and the worker's end of it. `places` bounds the jobs that a worker can have under way.
    pub fn new(worker: usize, places: u32, waker: Arc<ThreadWaker>) -> (Return, Inbox) {
        // A connection that is closed and replaced while its job runs has two results under way.
        let (results, inbox) = bounded(2 * places as usize + RESOLVERS_MAX);
        (
            Return {
                worker,
                results,
                waker,
            },
            inbox,
        )
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
        // A worker that has ended needs no result.
        let Some(back) = back else { continue };
        match run(site, taken, waiting.job) {
            Ok(done) => {
                let _ = back.results.send((waiting.stream, done));
                back.waker.wake();
            }
            Err(job) => {
                waiting.job = job;
                jobs.put_off(taken.device, waiting);
            }
        }
    }
}

/// A handle of the pool.
#[derive(Clone)]
pub struct Resolver {
    site: Arc<Site>,
    jobs: Arc<Jobs>,
}

/// A job, and its stream.
struct Waiting {
    worker: usize,
    stream: StreamId,
    job: Job,
}

/// Jobs that wait and the threads that wait for them. The lock is held for a push or a pop only.
struct Jobs {
    lanes: Mutex<Lanes<Waiting>>,
    arrived: Condvar,
    waiting_max: usize,
    /// Memory that the waiting jobs hold, and may hold.
    held_bytes: AtomicU64,
    held_bytes_max: u64,
}

impl Resolver {
    /// Starts the threads, which live as long as the process.
    ///
    /// # Errors
    /// When threads are lacking.
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

    /// Threads that are working now.
    pub fn busy(&self) -> usize {
        self.jobs.lanes().busy()
    }

    /// Queues a job; returns `false` if it is refused. Refused are jobs beyond the number of connections, since those
    /// of departed clients pile up only behind a disk that hangs, and jobs that would hold too much memory together.
    /// The next slice of a listing is never refused for its memory.
    #[must_use]
    pub fn submit(&self, stream: StreamId, job: Job) -> bool {
        let device = self.site.device_of_search(job.path());
        self.jobs.put(device, stream, job)
    }
}

impl Jobs {
    fn new(waiting_max: usize, held_bytes_max: u64) -> Jobs {
        Jobs {
            lanes: Mutex::new(Lanes::new(RESOLVERS_MAX)),
            arrived: Condvar::new(),
            waiting_max,
            held_bytes: AtomicU64::new(0),
            held_bytes_max,
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<Waiting>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job, if there is room for it.
    fn put(&self, device: u16, stream: StreamId, job: Job) -> bool {
        let mut lanes = self.lanes();
        let bytes = job.bytes();
        let held_bytes = self.held_bytes.load(Ordering::Relaxed) + bytes;
        let fits = held_bytes <= self.held_bytes_max || matches!(job, Job::Slice(_));
        let accepted = fits && lanes.waiting() < self.waiting_max;
        if accepted {
            self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
            let waiting = Waiting {
                worker: usize::from(stream.worker),
                stream,
                job,
            };
            lanes.put(device, false, waiting);
            drop(lanes);
            self.arrived.notify_one();
        }
        accepted
    }

    /// Queues a job that has turned out to be a long one. The calling thread takes the next job at once, so none has to
    /// be woken.
    fn put_off(&self, device: u16, waiting: Waiting) {
        let mut lanes = self.lanes();
        let bytes = waiting.job.bytes();
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        lanes.put(device, true, waiting);
    }

    /// The next job, after `before` is done; waits for one.
    fn next(&self, before: Option<Taken>) -> (Taken, Waiting) {
        let mut lanes = self.lanes();
        before.into_iter().for_each(|taken| lanes.done(taken));
        loop {
            if let Some(taken) = lanes.take() {
                let bytes = taken.1.job.bytes();
                self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
                // The job that ended may have made room for more than one.
                if lanes.is_ready() {
                    self.arrived.notify_one();
                }
                return taken;
            }
            let waited = self.arrived.wait(lanes);
            lanes = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Does a job, or gives it back to be queued as a long one.
fn run(site: &Site, taken: Taken, job: Job) -> Result<Done, Job> {
    let _under_way = site.devices.get(taken.device).map(Device::look_up);
    match job {
        Job::Find(query) => Ok(Done::Found(find(site, &query))),
        Job::Slice(mut listing) => {
            let slice = match listing.slice(site.around(), taken.long).transpose() {
                Some(slice) => slice,
                None => return Err(Job::Slice(listing)),
            };
            let more = slice.as_ref().is_ok_and(|slice| !slice.last);
            Ok(Done::Sliced(slice, more.then_some(listing)))
        }
    }
}

/// Finds what a query asks for. If no descriptor is left, waits a little for files that are being closed.
fn find(site: &Site, query: &Query) -> Answer {
    for _ in 0..CLOSING_WAITS_MAX {
        match site.find(query, Wait::Yes) {
            Some(Answer::Exhausted) if closing::pending() > 0 => thread::sleep(CLOSING_EACH),
            answer => return answer.unwrap_or(Answer::Exhausted),
        }
    }
    Answer::Exhausted
}

#[cfg(test)]
mod tests {
    use super::*;
    use ackpace_core::conn::ConnId;
    use ackpace_wire::listing::Format;

    #[test]
    fn what_waits_is_bounded_by_what_it_holds_and_makes_room_when_it_is_taken() {
        let jobs = Jobs::new(1_000, 10_000);
        let put = |path_bytes: usize| {
            let (index, generation) = (0, 0);
            let stream = StreamId {
                worker: 0,
                conn: ConnId { index, generation },
                nth: 0,
            };
            let query = Query {
                path: vec![b'/'; path_bytes].into(),
                accept_encoding: [Box::from(&b"gzip"[..])].into(),
                format: Format::Html,
                chunked: None,
            };
            jobs.put(0, stream, Job::Find(query))
        };
        assert!(put(4_000) && put(4_000));
        assert!(!put(4_000), "a long one does not fit");
        assert!(put(100), "a short one does");
        let (device, _) = jobs.next(None);
        assert!(put(4_000), "one of them is being done");
        (0..3).for_each(|_| drop(jobs.next(Some(device))));
        assert_eq!(jobs.held_bytes.load(Ordering::Relaxed), 0);
    }
}
