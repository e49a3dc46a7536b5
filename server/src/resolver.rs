//! The pool for what may block: finding files that the kernel has not in its caches, reading directories.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use ackpace_core::conn::StreamId;
use ackpace_core::limits::RESOLVERS_MAX;
use crossbeam_channel::{Receiver, Sender, bounded};
use crossbeam_queue::ArrayQueue;
use rustix::event::{EventfdFlags, eventfd};

use crate::front::listing::{Listing, Slice};
use crate::front::site::{Answer, Query, Site};
use crate::mailbox::Bell;
use crate::sched;
use crate::store::device::Device;
use crate::store::root::Wait;

/// What there is to do for a stream. A stream has at most one job at a time.
pub enum Job {
    /// Find the file.
    Find(Query),
    /// Make the next slice of a listing.
    Slice(Box<Listing>),
}

/// What came of it.
pub enum Done {
    /// The file, or why there is none.
    Found(Answer),
    /// A slice, and the listing if more of it follows.
    Sliced(io::Result<Slice>, Option<Box<Listing>>),
}

/// Where a worker's results go.
pub struct Return {
    worker: usize,
    results: Sender<(StreamId, Done)>,
    bell: Arc<Bell>,
}

impl Return {
    /// The way back to a worker, and the worker's end of it. `places` bounds the jobs that a worker
    /// can have under way.
    pub fn new(
        worker: usize,
        places: u32,
        bell: Arc<Bell>,
    ) -> (Return, Receiver<(StreamId, Done)>) {
        // A connection that is closed and replaced while its job runs has two results under way.
        let (results, inbox) = bounded(2 * places as usize + RESOLVERS_MAX);
        (
            Return {
                worker,
                results,
                bell,
            },
            inbox,
        )
    }
}

/// The pool's entrance.
#[derive(Clone)]
pub struct Resolver {
    jobs: Arc<Jobs>,
}

/// Jobs that wait, and a ticket for each (eventfd(2) as a semaphore): a thread without work sleeps in
/// the kernel. Waiting by spinning would take the core from the worker that shares it.
struct Jobs {
    waiting: ArrayQueue<(usize, StreamId, Job)>,
    /// Threads that do one.
    busy: AtomicU32,
    tickets: OwnedFd,
}

impl Resolver {
    /// Starts the threads, which live as long as the process.
    ///
    /// # Errors
    /// When threads or descriptors are lacking.
    pub fn start(site: &Arc<Site>, returns: Vec<Return>, places: u32) -> io::Result<Resolver> {
        let jobs = Arc::new(Jobs {
            waiting: ArrayQueue::new(2 * places as usize * returns.len().max(1)),
            busy: AtomicU32::new(0),
            tickets: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?,
        });
        let returns = Arc::new(returns);
        for n in 0..RESOLVERS_MAX {
            let (jobs, site, returns) = (Arc::clone(&jobs), Arc::clone(site), Arc::clone(&returns));
            let work = move || {
                sched::be_patient();
                loop {
                    let (worker, stream, job) = jobs.take();
                    let Some(back) = returns.iter().find(|back| back.worker == worker) else {
                        continue;
                    };
                    // A worker that is gone needs no answer.
                    jobs.busy.fetch_add(1, Relaxed);
                    let done = run(&site, job);
                    jobs.busy.fetch_sub(1, Relaxed);
                    let _ = back.results.send((stream, done));
                    back.bell.ring();
                }
            };
            thread::Builder::new()
                .name(format!("resolve-{n}"))
                .spawn(work)?;
        }
        Ok(Resolver { jobs })
    }

    /// Threads that are at work now.
    pub fn busy(&self) -> u32 {
        self.jobs.busy.load(Relaxed)
    }

    /// Have a job done. `false` if more jobs wait than connections can have: those of clients that
    /// left pile up only behind a disk that hangs.
    #[must_use]
    pub fn submit(&self, stream: StreamId, job: Job) -> bool {
        let job = (usize::from(stream.worker), stream, job);
        let accepted = self.jobs.waiting.push(job).is_ok();
        if accepted {
            // The count of tickets can't overflow: it is that of the jobs.
            let _ = rustix::io::write(&self.jobs.tickets, &1u64.to_ne_bytes());
        }
        accepted
    }
}

impl Jobs {
    /// The next job; waits for one.
    fn take(&self) -> (usize, StreamId, Job) {
        loop {
            let mut ticket = [0u8; 8];
            let ticket = rustix::io::read(&self.tickets, &mut ticket);
            if let Some(job) = ticket.ok().and_then(|_| self.waiting.pop()) {
                return job;
            }
        }
    }
}

fn run(site: &Site, job: Job) -> Done {
    let _under_way = site.device().map(Device::look_up);
    match job {
        Job::Find(query) => Done::Found(site.find(&query, Wait::Yes).unwrap_or(Answer::Exhausted)),
        Job::Slice(mut listing) => {
            let slice = listing.slice(site.shelf());
            let more = slice.as_ref().is_ok_and(|slice| !slice.last);
            Done::Sliced(slice, more.then_some(listing))
        }
    }
}
