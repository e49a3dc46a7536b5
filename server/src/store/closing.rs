//! Closes files in threads of their own, each for some of the file systems.
//!
//! No worker may wait for close(2), which may wait for a disk: the last close of a deleted file frees its blocks, and ext4 writes
//! out a file that was truncated and rewritten, whichever process closes it.
//!
//! A file system waits only for those that share its thread. A thread that has closed some files rests, and collects what comes
//! meanwhile, so that a busy server does not wake it for each file. A rest ends after [`CLOSING_REST`], when many files wait,
//! or when somebody hurries the thread ([`hurry`]). Where the process may have few descriptors, no thread rests.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;

use super::attributes::{FileSystemId, file_system, known};
use crate::limits::{
    CLOSING_HANGS_MS, CLOSING_LANES, CLOSING_MAX, CLOSING_REST, CLOSING_STANDS_MS,
};

static LANES: [ClosingLane; CLOSING_LANES] =
    [const { ClosingLane::new(CLOSING_REST) }; CLOSING_LANES];
/// With so many files waiting, a lane is full: no more are opened while its thread stands still ([`standstill`]). 0: [`start`]
/// was not called.
static PENDING_BOUND: AtomicUsize = AtomicUsize::new(0);

/// Things to be dropped by one thread. Nobody who brings some takes a lock.
struct ClosingLane {
    things: SegQueue<Box<dyn Send>>,
    /// Things that wait, and those that are being dropped.
    pending: AtomicUsize,
    is_started: AtomicBool,
    thread: OnceLock<Thread>,
    /// For how long the thread collects things after it has dropped some.
    rest: Duration,
    /// The thread rests now. Who brings a thing need not wake it: it looks by itself when its rest is over.
    rests: AtomicBool,
    /// Somebody hurried the thread while things waited and it did not rest: its next rest is left out.
    hurried: AtomicBool,
    /// When the thread last made progress ([`now_ms`]): it woke up, or dropped a thing.
    done_ms: AtomicU64,
}

/// From now on, threads drop things; before this call, the caller does. The bound on files that wait follows from
/// `descriptors_max`, how many descriptors the process may have.
pub fn start(descriptors_max: u64) {
    let most = usize::try_from(descriptors_max / 8).unwrap_or(usize::MAX);
    PENDING_BOUND.store(most.clamp(16, CLOSING_MAX), Ordering::Relaxed);
}

/// Drops the thing soon, in the thread for this file system (`st_dev`). If no thread can be started, the caller drops it, and may
/// wait.
pub fn later(st_dev: u64, thing: impl Send + 'static) {
    if is_started() {
        of(st_dev).push(Box::new(thing));
    }
}

/// Whether threads do this, and not the caller.
fn is_started() -> bool {
    PENDING_BOUND.load(Ordering::Relaxed) > 0
}

/// For how long a thread has made no progress, though files wait. Its disk does nothing, so no more files should be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standstill {
    /// For a moment: it may go on soon.
    Short,
    /// For long: its disk hangs.
    Long,
}

/// Whether no more files of this file system should be opened: too many wait to be closed, and their thread has made no
/// progress for a while. `None`: they may be opened.
pub fn standstill(st_dev: u64) -> Option<Standstill> {
    let most = PENDING_BOUND.load(Ordering::Relaxed);
    let lane = of(st_dev);
    let is_full = most > 0 && lane.pending.load(Ordering::Relaxed) >= most;
    lane.standstill().filter(|_| is_full)
}

/// Ends the rest of all threads, since the caller waits for a descriptor. Returns whether files may be closed soon: some waited
/// while a thread rested, or wait for a thread that does not hang.
pub fn goes_on() -> bool {
    if hurry() {
        return true; // they may be closed by now
    }
    let waits = |lane: &&ClosingLane| lane.pending.load(Ordering::Relaxed) > 0;
    let mut waiting = LANES.iter().filter(waits);
    waiting.any(|lane| lane.standstill() != Some(Standstill::Long))
}

/// Ends the rest of all threads, and returns at once: a descriptor is needed, or the process is about to end. Returns whether one
/// rested while files waited.
pub fn hurry() -> bool {
    LANES
        .iter()
        .map(ClosingLane::hurry)
        .fold(false, |any, one| any | one)
}

/// Files that wait to be closed.
pub fn pending() -> usize {
    let pending = |lane: &ClosingLane| lane.pending.load(Ordering::Relaxed);
    LANES.iter().map(pending).sum()
}

/// Milliseconds since the first call.
fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64
}

fn of(st_dev: u64) -> &'static ClosingLane {
    // File systems are numbered consecutively.
    &LANES[(st_dev ^ (st_dev >> 8)) as usize % LANES.len()]
}

impl ClosingLane {
    const fn new(rest: Duration) -> ClosingLane {
        ClosingLane {
            things: SegQueue::new(),
            pending: AtomicUsize::new(0),
            is_started: AtomicBool::new(false),
            thread: OnceLock::new(),
            rest,
            rests: AtomicBool::new(false),
            hurried: AtomicBool::new(false),
            done_ms: AtomicU64::new(0),
        }
    }

    /// For how long its thread has made no progress; `None`: it goes on, or rests. An idle thread makes no progress either, so
    /// ask only while things wait.
    fn standstill(&self) -> Option<Standstill> {
        if self.rests.load(Ordering::SeqCst) {
            return None;
        }
        match now_ms().saturating_sub(self.done_ms.load(Ordering::Relaxed)) {
            ms if ms >= CLOSING_HANGS_MS => Some(Standstill::Long),
            ms if ms >= CLOSING_STANDS_MS => Some(Standstill::Short),
            _ => None,
        }
    }

    /// Starts the thread if need be; `false`: no thread can be had. The next thing tries again.
    fn starts(&'static self) -> bool {
        if !self.is_started.swap(true, Ordering::Relaxed) {
            let thread = thread::Builder::new().name("closing".to_owned());
            if thread.spawn(|| self.run()).is_err() {
                self.is_started.store(false, Ordering::Relaxed);
                return false;
            }
        }
        true
    }

    fn push(&'static self, thing: Box<dyn Send>) {
        if !self.starts() {
            return; // it is dropped here
        }
        // Counted first: its thread subtracts what it takes.
        let before = self.pending.fetch_add(1, Ordering::SeqCst);
        self.things.push(thing);
        if before == 0 && !self.rests.load(Ordering::SeqCst) {
            self.wake();
        } else if before + 1 == things_until_hurry() {
            self.hurry();
        }
    }

    /// Ends the thread's rest, also one that it is about to begin. Returns whether it rested while things waited.
    fn hurry(&self) -> bool {
        let waits = self.pending.load(Ordering::SeqCst) > 0;
        self.hurried.store(waits, Ordering::SeqCst);
        if !self.rests.load(Ordering::SeqCst) {
            return false;
        }
        self.done_ms.store(now_ms(), Ordering::Relaxed); // its rest was no standstill
        let rested = self.rests.swap(false, Ordering::SeqCst);
        if rested {
            self.hurried.store(false, Ordering::SeqCst); // its rest has ended, and the next one may be whole
            self.wake();
        }
        rested && waits
    }

    fn wake(&self) {
        // A thread that is still starting looks for work before it waits: one of both sees what the other wrote.
        fence(Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Never ends. Drops the first thing at once. Then rests if it may, and drops together what came meanwhile.
    fn run(&self) {
        let _ = self.thread.set(thread::current());
        fence(Ordering::SeqCst);
        let mut rests_until = None;
        loop {
            self.wait(rests_until.take());
            self.done_ms.store(now_ms(), Ordering::Relaxed);
            match self.drop_things() {
                0 => thread::yield_now(), // who brings it is about to
                _ => rests_until = self.may_rest().then(|| Instant::now() + self.rest),
            }
        }
    }

    /// Returns when things wait. With `rests_until` the thread rests: it leaves things until then, unless many come or somebody
    /// hurries it. [`ClosingLane::hurry`] ends the rest from another thread.
    fn wait(&self, rests_until: Option<Instant>) {
        self.rests.store(rests_until.is_some(), Ordering::SeqCst);
        let hurried = self.hurried.swap(false, Ordering::SeqCst);
        if hurried || self.pending.load(Ordering::SeqCst) >= things_until_hurry() {
            self.rests.store(false, Ordering::SeqCst); // who hurried, or brought the last, saw no rest to end
        }
        loop {
            match rests_until.filter(|_| self.rests.load(Ordering::SeqCst)) {
                // Who brings a thing from now on wakes it.
                Some(until) if until <= Instant::now() => self.rests.store(false, Ordering::SeqCst),
                Some(until) => {
                    thread::park_timeout(until.saturating_duration_since(Instant::now()))
                }
                None if self.pending.load(Ordering::SeqCst) > 0 => return,
                None => thread::park(),
            }
        }
    }

    /// Where a process may have few descriptors, files are closed at once.
    fn may_rest(&self) -> bool {
        PENDING_BOUND.load(Ordering::Relaxed) == CLOSING_MAX
    }

    /// Drops what waits, and returns how many things that were. One that is counted may not be in the queue yet, and comes next time.
    fn drop_things(&self) -> usize {
        let count = self.things.len();
        for thing in (0..count).map_while(|_| self.things.pop()) {
            drop(thing);
            self.pending.fetch_sub(1, Ordering::SeqCst);
            self.done_ms.store(now_ms(), Ordering::Relaxed);
        }
        count
    }
}

/// With so many things waiting a thread rests no longer, so that all threads together hold back a quarter of [`CLOSING_MAX`] at
/// most.
const fn things_until_hurry() -> usize {
    CLOSING_MAX / 4 / CLOSING_LANES
}

/// An open file that is closed by the thread for its file system.
#[derive(Debug)]
pub struct Descriptor {
    /// `None` only while it is closed.
    fd: Option<OwnedFd>,
    file_system: FileSystemId,
}

impl Descriptor {
    /// A file that is open, and its file system.
    pub fn new(fd: OwnedFd, file_system: FileSystemId) -> Descriptor {
        Descriptor {
            fd: Some(fd),
            file_system,
        }
    }

    /// A file that is open; the kernel tells its file system.
    ///
    /// # Errors
    /// As statx(2).
    pub fn of(fd: OwnedFd) -> rustix::io::Result<Descriptor> {
        let file_system = file_system(&known(&fd)?);
        Ok(Descriptor::new(fd, file_system))
    }

    /// Its file system.
    pub fn file_system(&self) -> FileSystemId {
        self.file_system
    }

    /// The number of its file system.
    pub fn st_dev(&self) -> u64 {
        self.file_system.st_dev
    }

    /// Closes it here and now: another descriptor holds the same file, so nothing is freed, and nothing waits.
    pub fn close_here(mut self) {
        drop(self.fd.take());
    }
}

impl Deref for Descriptor {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        match &self.fd {
            Some(fd) => fd,
            None => unreachable!("only who closes it takes it"),
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.deref().as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            later(self.st_dev(), fd);
        }
    }
}

#[cfg(test)]
#[path = "closing_tests.rs"]
mod tests;
