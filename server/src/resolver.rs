//! The pool for what may block: finding files that the kernel has not in its caches, reading directories.

use std::io;
use std::sync::Arc;
use std::thread;

use ackpace_core::conn::StreamId;
use ackpace_core::limits::RESOLVERS_MAX;
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::front::listing::{Listing, Slice};
use crate::front::site::{Answer, Query, Site};
use crate::mailbox::Bell;
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
    jobs: Sender<(usize, StreamId, Job)>,
}

impl Resolver {
    /// Starts the threads. They end when the last `Resolver` is dropped.
    ///
    /// # Errors
    /// When threads are lacking.
    pub fn start(site: &Arc<Site>, returns: Vec<Return>, places: u32) -> io::Result<Resolver> {
        let (jobs, work) = bounded::<(usize, StreamId, Job)>(2 * places as usize * returns.len());
        let returns = Arc::new(returns);
        for n in 0..RESOLVERS_MAX {
            let (work, site, returns) = (work.clone(), Arc::clone(site), Arc::clone(&returns));
            thread::Builder::new()
                .name(format!("resolve-{n}"))
                .spawn(move || {
                    be_patient();
                    for (worker, stream, job) in work {
                        let Some(back) = returns.iter().find(|back| back.worker == worker) else {
                            continue;
                        };
                        // A worker that is gone needs no answer.
                        let _ = back.results.send((stream, run(&site, job)));
                        back.bell.ring();
                    }
                })?;
        }
        Ok(Resolver { jobs })
    }

    /// Have a job done. `false` if more jobs wait than connections can have: those of clients that
    /// left pile up only behind a disk that hangs.
    #[must_use]
    pub fn submit(&self, stream: StreamId, job: Job) -> bool {
        self.jobs
            .try_send((usize::from(stream.worker), stream, job))
            .is_ok()
    }
}

fn run(site: &Site, job: Job) -> Done {
    match job {
        Job::Find(query) => Done::Found(site.find(&query, Wait::Yes).unwrap_or(Answer::Exhausted)),
        Job::Slice(mut listing) => {
            let slice = listing.slice(site.shelf());
            let more = slice.as_ref().is_ok_and(|slice| !slice.last);
            Done::Sliced(slice, more.then_some(listing))
        }
    }
}

/// Workers come first where they share a core with the pool: whoever waits here waits for a disk
/// anyway. A thread of SCHED_BATCH never interrupts a worker by waking up, so a turn is not cut in two by
/// the reading of a large directory (sched(7)); where that is refused, nothing is lost but this.
fn be_patient() {
    let no_priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the struct lives until the call returns; 0 is the calling thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &no_priority) };
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 5);
}
