//! Closes files in threads of their own, each for some of the file systems.
//!
//! No worker may wait for close(2), which may wait for a disk: the last close of a deleted file frees its blocks, and ext4 writes
//! out a file that was truncated and rewritten, whichever process closes it.
//!
//! A file system waits only for those that share its thread. A thread that has closed some files rests for a moment, so that a
//! busy server does not wake it for each file. The threads are the process's, since a file is closed by whoever drops it last.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;

use super::attributes::{FileSystemId, file_system, known};

/// Files of a file system that wait to be closed, or an eighth of the descriptors. More: its disk hangs, and requests
/// for further ones get 503.
pub const CLOSING_MAX: usize = 1024;
/// Threads that close files, each for some file systems.
pub const CLOSING_LANES: usize = 16;
/// How long a thread rests after it has closed some files. Longer: a deleted file keeps its space, and whoever needs a
/// descriptor waits. Shorter: a busy server wakes it for each file.
const CLOSING_REST: Duration = Duration::from_millis(20);
/// If none of these was closed for so long, the disk hangs: requests get 503.
const CLOSING_HANGS_MS: u64 = 1200;

static LANES: [ClosingLane; CLOSING_LANES] = [const { ClosingLane::new() }; CLOSING_LANES];
/// With so many files waiting, a lane is full: no more are opened while its thread hangs ([`is_full`]). 0: [`start`]
/// was not called.
static PENDING_BOUND: AtomicUsize = AtomicUsize::new(0);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Things to be dropped by one thread. Nobody who brings some takes a lock.
struct ClosingLane {
    things: SegQueue<Box<dyn Send>>,
    /// Things that wait, and those that are being dropped.
    pending: AtomicUsize,
    is_started: AtomicBool,
    thread: OnceLock<Thread>,
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
    if PENDING_BOUND.load(Ordering::Relaxed) > 0 {
        of(st_dev).push(Box::new(thing));
    }
}

/// Whether no more files of this file system should be opened: too many wait to be closed, and its disk hangs.
pub fn is_full(st_dev: u64) -> bool {
    let most = PENDING_BOUND.load(Ordering::Relaxed);
    let lane = of(st_dev);
    most > 0 && lane.pending.load(Ordering::Relaxed) >= most && lane.hangs()
}

/// Whether descriptors may be free soon: files wait for a thread that does not hang.
pub fn goes_on() -> bool {
    let waits = |lane: &&ClosingLane| lane.pending.load(Ordering::Relaxed) > 0;
    let mut waiting = LANES.iter().filter(waits);
    waiting.any(|lane| !lane.hangs())
}

/// Files that wait to be closed.
pub fn pending() -> usize {
    let pending = |lane: &ClosingLane| lane.pending.load(Ordering::Relaxed);
    LANES.iter().map(pending).sum()
}

fn now_ms() -> u64 {
    START.elapsed().as_millis() as u64
}

fn of(st_dev: u64) -> &'static ClosingLane {
    // File systems are numbered consecutively.
    &LANES[(st_dev ^ (st_dev >> 8)) as usize % LANES.len()]
}

impl ClosingLane {
    const fn new() -> ClosingLane {
        ClosingLane {
            things: SegQueue::new(),
            pending: AtomicUsize::new(0),
            is_started: AtomicBool::new(false),
            thread: OnceLock::new(),
            done_ms: AtomicU64::new(0),
        }
    }

    /// Whether its thread has made no progress for long. An idle thread makes none either, so ask only while things wait.
    fn hangs(&self) -> bool {
        now_ms().saturating_sub(self.done_ms.load(Ordering::Relaxed)) >= CLOSING_HANGS_MS
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
        if self.pending.fetch_add(1, Ordering::SeqCst) == 0 {
            self.done_ms.store(now_ms(), Ordering::Relaxed);
        }
        self.things.push(thing);
        // A thread that is still starting looks for work before it waits.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Never ends.
    fn run(&self) {
        let _ = self.thread.set(thread::current());
        loop {
            while let Some(thing) = self.things.pop() {
                drop(thing);
                self.done_ms.store(now_ms(), Ordering::Relaxed);
                self.pending.fetch_sub(1, Ordering::SeqCst);
            }
            thread::sleep(CLOSING_REST);
            if self.things.is_empty() {
                thread::park();
            }
        }
    }
}

/// An open file that is closed by the thread for its file system.
#[derive(Debug)]
pub struct Descriptor {
    /// `None` only while it is closed.
    fd: Option<OwnedFd>,
    file_system: FileSystemId,
}

impl Descriptor {
    pub fn new(fd: OwnedFd, file_system: FileSystemId) -> Descriptor {
        Descriptor {
            fd: Some(fd),
            file_system,
        }
    }

    /// A file that is open; the kernel tells its file system.
    pub fn of(fd: OwnedFd) -> rustix::io::Result<Descriptor> {
        let file_system = file_system(&known(&fd)?);
        Ok(Descriptor::new(fd, file_system))
    }

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
