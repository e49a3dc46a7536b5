//! The end of the process: after the signal to stop it waits for its workers, then for calls that wait for a disk. Both
//! waits have a bound, so a thread that hangs can't keep the process.

use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::disk::DiskHandle;
use crate::failure::Failure;
use crate::limits::{LAST_READS_WAIT, WORKERS_LATE_MAX};
use crate::store::closing;
use crate::worker::Shared;

/// How long the last reads may take when the process ends. Longer: the log says what the kernel waits for.
const LAST_READS_QUIET: Duration = Duration::from_secs(1);
/// Interval at which they are checked.
const LAST_READS_LOOK_EACH: Duration = Duration::from_millis(10);

/// What the main thread is told: one message for each signal to stop, and one for each worker.
enum WorkerEvent {
    Stopping,
    Ended(usize, Result<io::Result<()>, Box<dyn Any + Send>>),
}

/// The workers that run, as the main thread sees them.
pub struct Running {
    /// The names of their threads.
    names: Vec<String>,
    tell: Sender<WorkerEvent>,
    events: Receiver<WorkerEvent>,
}

impl Default for Running {
    fn default() -> Self {
        let (tell, events) = unbounded(); // of as many messages as there are workers, and one
        Running {
            names: Vec::new(),
            tell,
            events,
        }
    }
}

/// Tells the main thread that the workers were told to stop.
pub struct Stopping(Sender<WorkerEvent>);

impl Stopping {
    /// From now on the workers have as long as the drain may take, and little more.
    pub fn begin(&self) {
        let _ = self.0.send(WorkerEvent::Stopping);
    }
}

impl Running {
    /// Starts the thread of one more worker, or of NFS, by this name.
    pub fn start(
        &mut self,
        name: String,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let (index, tell) = (self.names.len(), self.tell.clone());
        let thread = thread::Builder::new().name(name.clone());
        thread.spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(run));
            let _ = tell.send(WorkerEvent::Ended(index, ended));
        })?;
        self.names.push(name);
        Ok(())
    }

    /// For who tells them to stop.
    pub fn stopping(&self) -> Stopping {
        Stopping(self.tell.clone())
    }

    /// Waits for the last worker. After the signal to stop they have `drain_max`, and [`WORKERS_LATE_MAX`] to notice
    /// that it is over.
    pub fn wait(self, drain_max: Duration) -> Result<(), Failure> {
        self.wait_at_most(drain_max.saturating_add(WORKERS_LATE_MAX))
    }

    /// The same, `most` after the signal.
    fn wait_at_most(self, most: Duration) -> Result<(), Failure> {
        let mut running: BTreeSet<usize> = (0..self.names.len()).collect();
        let (mut stopping, mut ends_at) = (false, None);
        while !running.is_empty() {
            let event = match ends_at {
                Some(at) => self.events.recv_deadline(at).ok(),
                None => self.events.recv().ok(),
            };
            match event {
                Some(WorkerEvent::Stopping) => {
                    stopping = true;
                    ends_at = Instant::now().checked_add(most);
                }
                Some(WorkerEvent::Ended(index, how)) => {
                    running.remove(&index);
                    tell_end(how);
                }
                None => return Err(hang(running.iter().map(|nth| &*self.names[*nth]), most)),
            }
        }
        match stopping {
            true => Ok(()),
            false => Err(Failure::runtime("no worker is left; the log says why")),
        }
    }
}

/// Logs how a worker ended, if not as told.
fn tell_end(how: Result<io::Result<()>, Box<dyn Any + Send>>) {
    match how {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(
            "a worker ended: {error}; the others go on. Restart, and please report this"
        ),
        Err(_) => tracing::error!("a worker panicked. Please report this"),
    }
}

fn hang<'a>(names: impl Iterator<Item = &'a str>, most: Duration) -> Failure {
    let names: Vec<_> = names.collect();
    Failure::runtime(format!(
        "{} did not end within {} s of the signal (drain_timeout and {} s): ended all the same. Does a disk hang? If none \
         does, please report this",
        names.join(", "),
        most.as_secs(),
        WORKERS_LATE_MAX.as_secs(),
    ))
}

/// Waits for calls that wait for a disk: they can't be cancelled, and the kernel ends a process only with its last
/// call. The log says what the process waits for. As long as it lives, a second signal is handled and gives its exit
/// code; after exit(2) it could not.
pub fn wait_for_disks(shared: &Shared) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut told = false;
    loop {
        let Some(hangs) = what_hangs(shared) else {
            return Ok(());
        };
        let waited = begun.elapsed();
        if waited >= LAST_READS_WAIT {
            return Err(Failure::runtime(format!(
                "{hangs} after {} s: ended all the same",
                waited.as_secs()
            )));
        }
        if waited >= LAST_READS_QUIET && !told {
            tracing::warn!("{hangs}: the process is gone when they are done");
            told = true;
        }
        thread::sleep(LAST_READS_LOOK_EACH);
    }
}

/// What threads other than the workers wait for at disks; `None`: nothing.
fn what_hangs(shared: &Shared) -> Option<String> {
    let waits = |(device, disk): (usize, &DiskHandle)| {
        let reads = disk.tally().in_flight.load(Ordering::Relaxed);
        (reads > 0).then(|| format!("disk {device} has not answered {reads} reads"))
    };
    let lookups = shared.resolver.busy();
    let lookups = (lookups > 0).then(|| format!("{lookups} look-ups of files wait"));
    let closes = closing::pending();
    let closes = (closes > 0).then(|| format!("{closes} files wait to be closed"));
    let all: Vec<_> = shared
        .disks
        .started()
        .filter_map(waits)
        .chain(lookups)
        .chain(closes)
        .collect();
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_end_after_the_signal_are_in_order() {
        let mut workers = Running::default();
        workers.stopping().begin();
        for _ in 0..3 {
            workers
                .start("worker-0".to_owned(), || Ok(()))
                .expect("a thread");
        }
        assert!(workers.wait(Duration::MAX).is_ok());
    }

    #[test]
    fn a_worker_that_hangs_is_named_once_the_drain_is_over() {
        let running = ["worker-1", "worker-3"].into_iter();
        let said = hang(running, Duration::from_secs(35)).to_string();
        let begin =
            "worker-1, worker-3 did not end within 35 s of the signal (drain_timeout and 5 s)";
        assert!(said.starts_with(begin), "{said}");
    }

    #[test]
    fn the_process_ends_although_a_worker_hangs() {
        let (_never, hangs) = crossbeam_channel::bounded::<()>(0);
        let mut workers = Running::default();
        workers.stopping().begin();
        let stuck = move || {
            let _ = hangs.recv(); // until the test is over
            Ok(())
        };
        workers
            .start("worker-0".to_owned(), stuck)
            .expect("a thread");
        let failed = workers.wait_at_most(Duration::ZERO).expect_err("it hangs");
        assert!(failed.to_string().starts_with("worker-0 "), "{failed}");
    }

    #[test]
    fn the_process_fails_when_all_workers_end_by_themselves() {
        let mut workers = Running::default();
        let refused = || Err(io::Error::other("epoll is refused"));
        workers
            .start("worker-0".to_owned(), refused)
            .expect("a thread");
        let failed = workers.wait(Duration::ZERO).expect_err("nobody stopped it");
        assert_eq!(failed.exit_code(), 1);
    }
}
