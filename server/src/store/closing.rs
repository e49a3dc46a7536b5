//! Closes files in threads of their own, one for each few file systems.
//!
//! close(2) may wait for a disk: the last one of a deleted file frees its blocks, and ext4 writes out a file that was
//! truncated and rewritten, whichever process closes it. munmap(2) takes time for each page in the page tables, and
//! mapping pages there waits for one that was just dropped. No worker may wait for any of these, and no file for the
//! disk of another one.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use crate::limits::{
    CHORES_EACH, CHORES_MAX, CLOSING_EACH, CLOSING_LANES, CLOSING_MAX, CLOSING_STANDS_MS,
};

static LANES: [Lane; CLOSING_LANES] = [const { Lane::new() }; CLOSING_LANES];
/// How many files may wait in a lane before no more are opened; 0: no thread was started.
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Work that may be delayed.
type Chore = Box<dyn FnOnce() + Send>;

/// Things to be dropped by one thread, and its chores.
struct Lane {
    waiting: Mutex<Waiting>,
    called: Condvar,
    /// Those that wait, and those that are being dropped.
    pending: AtomicUsize,
    started: AtomicBool,
    /// When one was last dropped, milliseconds of [`now_ms`].
    done_ms: AtomicU64,
}

/// The work of a lane.
struct Waiting {
    things: Vec<Box<dyn Send>>,
    chores: Vec<Chore>,
    /// When the chores are due; `None`: there are none.
    chores_at: Option<Instant>,
}

/// From now on threads drop things, with room for so many descriptors in the process. Before that, things are dropped
/// by the caller.
pub fn start(descriptors_max: u64) {
    let most = usize::try_from(descriptors_max / 8).unwrap_or(usize::MAX);
    MOST.store(most.clamp(16, CLOSING_MAX), Ordering::Relaxed);
}

/// Drops the thing soon, in the thread for this file system (`st_dev`).
pub fn later(st_dev: u64, thing: impl Send + 'static) {
    if MOST.load(Ordering::Relaxed) > 0 {
        lane_of(st_dev).push(Box::new(thing));
    }
}

/// Does this within [`CHORES_EACH`], in the thread for this file system, which wakes once for many chores. A chore that finds
/// [`CHORES_MAX`] waiting is forgotten.
pub fn at_leisure(st_dev: u64, chore: impl FnOnce() + Send + 'static) {
    match MOST.load(Ordering::Relaxed) {
        0 => chore(),
        _ => lane_of(st_dev).push_chore(Box::new(chore)),
    }
}

/// Whether so many files of this file system wait to be closed that no more should be opened: its disk hangs.
pub fn is_full(st_dev: u64) -> bool {
    let most = MOST.load(Ordering::Relaxed);
    let lane = lane_of(st_dev);
    most > 0 && lane.pending.load(Ordering::Relaxed) >= most && lane.stands()
}

/// Files that wait to be closed.
pub fn pending() -> usize {
    let pending = |lane: &Lane| lane.pending.load(Ordering::Relaxed);
    LANES.iter().map(pending).sum()
}

/// Milliseconds since the first call.
fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64
}

fn lane_of(st_dev: u64) -> &'static Lane {
    // File systems are numbered consecutively.
    &LANES[(st_dev ^ (st_dev >> 8)) as usize % CLOSING_LANES]
}

impl Lane {
    const fn new() -> Lane {
        Lane {
            waiting: Mutex::new(Waiting {
                things: Vec::new(),
                chores: Vec::new(),
                chores_at: None,
            }),
            called: Condvar::new(),
            pending: AtomicUsize::new(0),
            started: AtomicBool::new(false),
            done_ms: AtomicU64::new(0),
        }
    }

    /// Whether its thread has dropped nothing for a while.
    fn stands(&self) -> bool {
        now_ms().saturating_sub(self.done_ms.load(Ordering::Relaxed)) >= CLOSING_STANDS_MS
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread if need be; `false`: no thread can be had. The next thing tries again.
    fn starts(&'static self) -> bool {
        if !self.started.swap(true, Ordering::Relaxed) {
            let thread = thread::Builder::new().name("closing".to_owned());
            if thread.spawn(|| self.run()).is_err() {
                self.started.store(false, Ordering::Relaxed);
                return false;
            }
        }
        true
    }

    fn push(&'static self, thing: Box<dyn Send>) {
        if !self.starts() {
            return; // it is dropped here
        }
        self.pending.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.lock();
        waiting.things.push(thing);
        let first = waiting.things.len() == 1;
        drop(waiting);
        if first {
            self.called.notify_one();
        }
    }

    fn push_chore(&'static self, chore: Chore) {
        if !self.starts() {
            return;
        }
        let mut waiting = self.lock();
        if waiting.chores.len() >= CHORES_MAX {
            return;
        }
        waiting.chores.push(chore);
        let first = waiting.chores_at.is_none();
        waiting
            .chores_at
            .get_or_insert(Instant::now() + CHORES_EACH);
        drop(waiting);
        if first {
            self.called.notify_one();
        }
    }

    /// Waits for things, or chores that are due.
    fn wait(&self) {
        let mut waiting = self.lock();
        while waiting.things.is_empty() {
            let poisoned = PoisonError::into_inner;
            waiting = match waiting.chores_at {
                None => self.called.wait(waiting).unwrap_or_else(poisoned),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    let timed = self.called.wait_timeout(waiting, left);
                    timed.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Never ends. It takes all that came in [`CLOSING_EACH`] at once, so that a busy server does not wake it for each
    /// file.
    fn run(&self) {
        loop {
            self.wait();
            self.done_ms.store(now_ms(), Ordering::Relaxed);
            // Few descriptors are used up soon.
            if self.pending.load(Ordering::Relaxed) < MOST.load(Ordering::Relaxed) / 4 {
                thread::sleep(CLOSING_EACH);
            }
            let (things, chores) = {
                let mut waiting = self.lock();
                waiting.chores_at = None;
                let things = std::mem::take(&mut waiting.things);
                (things, std::mem::take(&mut waiting.chores))
            };
            for thing in things {
                drop(thing);
                self.pending.fetch_sub(1, Ordering::Relaxed);
                self.done_ms.store(now_ms(), Ordering::Relaxed);
            }
            for chore in chores {
                chore();
                self.done_ms.store(now_ms(), Ordering::Relaxed);
            }
        }
    }
}

/// An open file that is closed by the thread for its file system.
#[derive(Debug)]
pub struct Descriptor {
    /// `None` only while it is dropped.
    fd: Option<OwnedFd>,
    st_dev: u64,
}

impl Descriptor {
    /// A file that is open, and the number of its file system.
    pub fn new(fd: OwnedFd, st_dev: u64) -> Descriptor {
        Descriptor {
            fd: Some(fd),
            st_dev,
        }
    }
}

impl Deref for Descriptor {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        match &self.fd {
            Some(fd) => fd,
            None => unreachable!("only `drop` takes it"),
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
            later(self.st_dev, fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Reports the thread that drops it.
    struct Thing(Sender<Option<String>>);

    impl Drop for Thing {
        fn drop(&mut self) {
            let name = thread::current().name().map(str::to_owned);
            let _ = self.0.send(name);
        }
    }

    #[test]
    fn things_are_dropped_by_a_thread_in_their_order_and_files_are_closed() {
        start(1024);
        let (told, by) = channel();
        let (mut end, other) = UnixStream::pair().expect("two descriptors");
        later(7, Thing(told.clone()));
        drop(Descriptor::new(OwnedFd::from(other), 7));
        later(7, Thing(told));
        for _ in 0..2 {
            assert_eq!(by.recv(), Ok(Some("closing".to_owned())));
        }
        let read = std::io::Read::read(&mut end, &mut [0]);
        assert_eq!(read.expect("open"), 0, "nobody holds the other end");
    }

    #[test]
    fn chores_wait_for_each_other_and_are_bounded() {
        start(1024);
        let (told, by) = channel();
        for nth in 0..2 * CHORES_MAX {
            let told = told.clone();
            at_leisure(11, move || {
                let _ = told.send(nth);
            });
        }
        drop(told);
        let done: Vec<usize> = by.iter().collect();
        assert!((CHORES_MAX..2 * CHORES_MAX).contains(&done.len()));
        assert!(done.iter().take(CHORES_MAX).copied().eq(0..CHORES_MAX));
        assert_eq!(pending_in(11), 0, "they are no files");
    }

    fn pending_in(st_dev: u64) -> usize {
        lane_of(st_dev).pending.load(Ordering::Relaxed)
    }

    #[test]
    fn a_file_system_that_hangs_is_full_and_holds_up_no_other_one() {
        start(1024);
        let (hang, hangs) = channel::<()>();
        let (told, by) = channel();
        /// Hangs until it is released.
        struct Hung(std::sync::mpsc::Receiver<()>);
        impl Drop for Hung {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        later(8, Hung(hangs));
        assert!(!is_full(8));
        (0..1024 / 8).for_each(|_| later(8, Thing(told.clone())));
        while !is_full(8) {
            thread::yield_now(); // until it has stood for a while
        }
        assert!(!is_full(9) && pending() > 1024 / 8);
        let (other, by_other) = channel();
        later(9, Thing(other));
        assert!(by_other.recv().is_ok(), "it waits for nobody");
        assert!(by.try_recv().is_err(), "these wait");
        drop(hang);
        (0..1024 / 8).for_each(|_| assert!(by.recv().is_ok()));
    }
}
