//! Files are closed by a thread of their own.
//!
//! close(2) may wait for a disk: the last one of a file that was deleted gives its blocks back, and ext4 writes a file out that was
//! truncated and written anew, whoever closes it. Unmapping takes time for each page that is in the page tables. No worker is to
//! wait for either.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::limits::{CLOSING_EACH, CLOSING_MAX};

static CLOSER: Closer = Closer {
    waiting: Mutex::new(Vec::new()),
    called: Condvar::new(),
};
static STARTED: AtomicBool = AtomicBool::new(false);

/// Things that are to be dropped by the thread.
struct Closer {
    waiting: Mutex<Vec<Box<dyn Send>>>,
    called: Condvar,
}

/// Starts the thread; before that, things are dropped where they are.
///
/// # Errors
/// No more threads.
pub fn start() -> std::io::Result<()> {
    if !STARTED.load(Ordering::Relaxed) {
        let thread = thread::Builder::new().name("closing".to_owned());
        thread.spawn(|| CLOSER.run())?;
        STARTED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Drops the thing soon, in the thread. If too many wait: here.
pub fn later(thing: impl Send + 'static) {
    if !STARTED.load(Ordering::Relaxed) {
        return;
    }
    let mut waiting = CLOSER.lock();
    if waiting.len() >= CLOSING_MAX {
        return; // the thing is dropped behind the lock
    }
    waiting.push(Box::new(thing));
    let first = waiting.len() == 1;
    drop(waiting);
    if first {
        CLOSER.called.notify_one();
    }
}

impl Closer {
    fn lock(&self) -> MutexGuard<'_, Vec<Box<dyn Send>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never ends. It takes what came in [`CLOSING_EACH`] at once: a busy server wakes it a hundred times a second, not for each file.
    fn run(&self) {
        loop {
            let called = self
                .called
                .wait_while(self.lock(), |waiting| waiting.is_empty());
            drop(called);
            thread::sleep(CLOSING_EACH);
            let all = std::mem::take(&mut *self.lock());
            drop(all);
        }
    }
}

/// An open file that is closed by the thread.
#[derive(Debug)]
pub struct Descriptor {
    /// There until it is dropped.
    fd: Option<OwnedFd>,
}

impl From<OwnedFd> for Descriptor {
    fn from(fd: OwnedFd) -> Descriptor {
        Descriptor { fd: Some(fd) }
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
            later(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Tells by whom it is dropped.
    struct Thing(Sender<Option<String>>);

    impl Drop for Thing {
        fn drop(&mut self) {
            let name = thread::current().name().map(str::to_owned);
            let _ = self.0.send(name);
        }
    }

    #[test]
    fn things_are_dropped_by_the_thread_in_their_order_and_files_are_closed() {
        start().expect("one more thread");
        start().expect("it is there");
        let (told, by) = channel();
        let (mut end, other) = UnixStream::pair().expect("two descriptors");
        later(Thing(told.clone()));
        drop(Descriptor::from(OwnedFd::from(other)));
        later(Thing(told));
        for _ in 0..2 {
            assert_eq!(by.recv(), Ok(Some("closing".to_owned())));
        }
        let read = std::io::Read::read(&mut end, &mut [0]);
        assert_eq!(
            read.expect("an open pipe"),
            0,
            "nobody else holds the other end"
        );
    }
}
