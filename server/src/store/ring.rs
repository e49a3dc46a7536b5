//! Reads past the page cache by io_uring: one ring for the thread of each device, and no threads of its own.
//!
//! A read is made in pieces. Usually one piece is the whole read; more follow where the kernel reads less than it was
//! asked for, or meets a bad block ([`Progress`] knows the next one). A piece goes through these states:
//!
//! | a piece is | until |
//! |---|---|
//! | in the submission queue, since the kernel has no memory to start it | [`Ring::completions`] submits it again, after [`Ring::retry_after`] |
//! | in the kernel | the ring's descriptor becomes readable, and [`Ring::completions`] takes the result |
//! | completed | the next piece is submitted, or the caller gets the [`CompletedRead`] |
//!
//! The kernel writes into the memory of a read, a [`Lease`] of the pool, at any time until it has completed the piece. The
//! ring owns the lease until then. A ring that is dropped before leaks it, since a device that hangs may never complete.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ackpace_core::conn::Span;
use ackpace_core::disk::ReadError;
use io_uring::{IoUring, opcode, types};

use super::direct::Direct;
use super::pool::Lease;
use super::progress::{Next, NextRead, Progress};

/// Pause before a retry of reads that the kernel had no memory to start.
const RING_RETRY: Duration = Duration::from_millis(10);

/// A read to make. `tag` comes back with the result.
#[derive(Debug)]
pub struct ReadOrder<T> {
    /// Identifies the read for the caller.
    pub tag: T,
    /// The file.
    pub direct: Arc<Direct>,
    /// The bytes to read; it begins and ends at multiples of `READ_ALIGN_BYTES`.
    pub span: Span,
    /// The memory to read into, from its start on. At least as long as the span.
    pub lease: Lease,
}

/// A read that was completed, or failed.
#[derive(Debug)]
pub struct CompletedRead<T> {
    /// As in its [`ReadOrder`].
    pub tag: T,
    /// As in its [`ReadOrder`].
    pub span: Span,
    /// The memory with the bytes.
    pub lease: Lease,
    /// The number of bytes read, fewer than the span has only where the file ends. Or the first error with its offset in
    /// the file; the bytes before that were read.
    pub result: Result<u64, ReadError>,
}

/// The reads under way. Used by one thread at a time.
pub struct Ring<T> {
    ring: IoUring,
    /// The reads under way. The index of a read is the `user_data` that the kernel gets with its piece and gives back.
    reads: Box<[Option<Box<Submitted<T>>>]>,
    /// Indexes into `reads` that are not in use.
    free: Vec<u32>,
}

/// A read under way, with a piece that is in the submission queue or in the kernel.
struct Submitted<T> {
    order: ReadOrder<T>,
    progress: Progress,
    vectors: Vectors,
}

/// The parts of the lease that the kernel writes a piece to. They stay here until it has completed the piece.
struct Vectors(Vec<libc::iovec>);

// SAFETY: the pointers lead into the lease beside them, which is Send itself; only the kernel follows them.
unsafe impl Send for Vectors {}

impl<T> Ring<T> {
    /// A ring for `entries` reads at once.
    /// Errors: Where io_uring is refused; [`refusal`] says why. The reading threads make all reads then.
    pub fn new(entries: u32) -> io::Result<Ring<T>> {
        let ring = IoUring::new(entries.next_power_of_two())?;
        ring.submit()?; // nothing: a seccomp profile may refuse the call alone
        Ok(Ring {
            ring,
            reads: (0..entries).map(|_| None).collect(),
            free: (0..entries).rev().collect(),
        })
    }

    /// Starts a read with its first piece.
    /// Errors: The order itself, if as many reads as there are entries are under way.
    ///
    /// # Panics
    /// If the span is empty, not aligned, or longer than the lease: the disk machine orders no such read.
    pub fn submit(&mut self, order: ReadOrder<T>) -> Result<(), ReadOrder<T>> {
        let Some(index) = self.free.pop() else {
            return Err(order);
        };
        let (progress, first) = Progress::new(order.span);
        let read = Submitted {
            order,
            progress,
            vectors: Vectors(Vec::new()), // until its first piece starts
        };
        self.start(index, Box::new(read), first);
        Ok(())
    }

    /// The number of reads under way.
    pub fn in_flight(&self) -> usize {
        self.reads.len() - self.free.len()
    }

    /// Submits what the kernel has not taken yet, and returns the reads that ended since the last call. Call this when the
    /// ring's descriptor is readable, and after [`Ring::retry_after`].
    pub fn completions(&mut self) -> impl Iterator<Item = CompletedRead<T>> + '_ {
        self.submit_queued();
        std::iter::from_fn(move || self.completion())
    }

    /// After which time to call [`Ring::completions`] although the descriptor is not readable: the kernel had no memory to
    /// start a piece. `None`: it has started all.
    pub fn retry_after(&mut self) -> Option<Duration> {
        (!self.ring.submission().is_empty()).then_some(RING_RETRY)
    }

    /// Takes results of pieces until a read is over. A read that is not over goes on with its next piece.
    fn completion(&mut self) -> Option<CompletedRead<T>> {
        loop {
            let entry = self.ring.completion().next()?;
            let index = entry.user_data() as u32;
            let read = self.reads.get_mut(index as usize).and_then(Option::take);
            let Some(mut read) = read else {
                debug_assert!(false, "the kernel answers what it was asked");
                continue;
            };
            // The bytes that were read, or an errno (io_uring(7)).
            let answer = u64::try_from(entry.result()).map_err(|_| -entry.result());
            let direct = &read.order.direct;
            match read.progress.on(answer, || direct.len_bytes()) {
                Next::Read(piece) => self.start(index, read, piece),
                Next::Done(result) => {
                    self.free.push(index);
                    let ReadOrder {
                        tag, span, lease, ..
                    } = read.order;
                    return Some(CompletedRead {
                        tag,
                        span,
                        lease,
                        result,
                    });
                }
            }
        }
    }

    fn start(&mut self, index: u32, mut read: Box<Submitted<T>>, piece: NextRead) {
        let into = read.order.lease.iovecs(piece.from_bytes, piece.len_bytes);
        let vectors = into.into_iter().map(|mut into| libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        });
        read.vectors = Vectors(vectors.collect());
        let file = types::Fd(read.order.direct.as_fd().as_raw_fd());
        let vectors = &read.vectors.0;
        let entry = opcode::Readv::new(file, vectors.as_ptr(), vectors.len() as u32)
            .offset(read.order.span.offset_bytes + piece.from_bytes)
            .build()
            .user_data(index.into());
        self.reads[index as usize] = Some(read);
        // SAFETY: the file, the vectors and the memory that they name belong to the read. It stays in `reads` until the
        // kernel has completed the piece, or is leaked, and until then nothing reads the memory.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(
            pushed.is_ok(),
            "each read has one entry, and there is room for all"
        );
        self.submit_queued();
    }

    /// Submits what is in the submission queue. Where the kernel refuses (EAGAIN, EBUSY: no memory now), the rest stays there
    /// for [`Ring::retry_after`].
    fn submit_queued(&mut self) {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(taken) if taken > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
    }
}

impl<T> AsFd for Ring<T> {
    /// Readable when a read has ended (poll(2)).
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's, and open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl<T> Drop for Ring<T> {
    /// Does not wait: a device may hang. Memory of reads that are over goes back to the pool. That of all others is leaked,
    /// since the kernel still writes there.
    fn drop(&mut self) {
        while self.completion().is_some() {}
        for read in self.reads.iter_mut().filter_map(Option::take) {
            std::mem::forget(read);
        }
    }
}

/// Why there is no ring, and what to do, for the log.
pub fn refusal(error: &io::Error) -> String {
    let cause = match error.raw_os_error() {
        Some(libc::EPERM) => {
            "forbidden; look at sysctl kernel.io_uring_disabled and at the seccomp profile"
                .to_owned()
        }
        Some(libc::ENOSYS) => {
            "not there; the kernel was built without it, or a seccomp profile hides it".to_owned()
        }
        Some(libc::ENOMEM) => {
            "no memory may be locked for it; raise RLIMIT_MEMLOCK (LimitMEMLOCK=)".to_owned()
        }
        _ => error.to_string(),
    };
    format!("lost: io_uring: {cause}. Until this is fixed, threads read the disk instead")
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use ackpace_core::limits::SLOT_BYTES;

    use super::*;
    use crate::mailbox::ThreadWaker;
    use crate::store::direct::open_direct;
    use crate::store::pool::Pool;

    const LEN: usize = 300_000;

    /// A ring, if this machine has one.
    fn ring(entries: u32) -> Option<Ring<u32>> {
        let ring = Ring::new(entries);
        ring.map_err(|error| println!("skipped: ring: {}", refusal(&error)))
            .ok()
    }

    /// Slots of each lease: more than any read here takes.
    const SLOTS: u32 = (192 * 1024 / SLOT_BYTES) as u32;

    fn pool(slots: u32) -> Arc<Pool> {
        let waker = Arc::new(ThreadWaker::new().expect("a descriptor"));
        let pool = Pool::new(slots, waker).expect("address space");
        pool.enlist(slots);
        Arc::new(pool)
    }

    fn content() -> Vec<u8> {
        (0..LEN as u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect()
    }

    /// A file past the page cache, if the directory for temporary files is on a disk.
    fn direct(name: &str) -> Option<Arc<Direct>> {
        let path = std::env::temp_dir().join(format!("ackpace-ring-{name}-{}", std::process::id()));
        std::fs::write(&path, content()).expect("a file");
        let file = std::fs::File::open(&path).expect("our file").into();
        std::fs::remove_file(&path).expect("our file");
        let direct = open_direct(&file).map_err(|why| println!("skipped: ring: {why}"));
        direct.ok().map(Arc::new)
    }

    fn order(tag: u32, direct: &Arc<Direct>, span: (u64, u64), pool: &Arc<Pool>) -> ReadOrder<u32> {
        let (offset_bytes, len_bytes) = span;
        ReadOrder {
            tag,
            direct: Arc::clone(direct),
            span: Span {
                offset_bytes,
                len_bytes,
            },
            lease: pool.lease(SLOTS).expect("slots"),
        }
    }

    fn wait(ring: &mut Ring<u32>, count: usize) -> Vec<CompletedRead<u32>> {
        let mut all = Vec::new();
        while all.len() < count {
            let mut fds = [PollFd::new(ring, PollFlags::IN)];
            poll(&mut fds, None).expect("poll");
            all.extend(ring.completions());
        }
        all.sort_by_key(|done| done.tag);
        all
    }

    #[test]
    fn reads_come_back_with_their_bytes_and_a_full_ring_gives_the_order_back() {
        let (Some(mut ring), Some(direct)) = (ring(3), direct("bytes")) else {
            return;
        };
        let (pool, content) = (pool(4 * SLOTS), content());
        // Several slots in one read, the end of the file, and behind it.
        for (tag, span) in [
            (0, (4096, 131_072)),
            (1, (262_144, 65_536)),
            (2, (524_288, 4096)),
        ] {
            assert!(ring.submit(order(tag, &direct, span, &pool)).is_ok());
        }
        let refused = ring.submit(order(3, &direct, (0, 4096), &pool));
        assert_eq!(refused.map_err(|order| order.tag), Err(3));
        let all = wait(&mut ring, 3);
        let got: Vec<_> = all.iter().map(|done| done.result).collect();
        assert_eq!(got, [Ok(131_072), Ok(LEN as u64 - 262_144), Ok(0)]);
        for done in &all {
            let got_bytes = done.result.expect("read");
            let slices = done.lease.slices(0, got_bytes);
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let from = (done.span.offset_bytes as usize).min(LEN);
            assert!(
                bytes == content[from..from + got_bytes as usize],
                "other bytes"
            );
        }
        assert_eq!((ring.in_flight(), ring.retry_after()), (0, None));
        drop(all);
        assert_eq!(pool.free_slots(), 4 * SLOTS);
    }

    #[test]
    fn the_memory_of_reads_that_a_ring_did_not_see_the_end_of_is_never_lent_again() {
        let (Some(mut ring), Some(direct)) = (ring(8), direct("drop")) else {
            return;
        };
        let pool = pool(8 * SLOTS);
        for tag in 0..8 {
            assert!(
                ring.submit(order(tag, &direct, (0, 131_072), &pool))
                    .is_ok()
            );
        }
        let held = Arc::strong_count(&pool);
        drop(ring);
        // Completed reads gave theirs back; each of the others keeps the pool, and its slots.
        let left = Arc::strong_count(&pool) as u32 - 1;
        assert!(held == 9 && left <= 8, "{held} then {left}");
        assert_eq!(pool.free_slots(), (8 - left) * SLOTS);
    }

    #[test]
    fn what_refuses_a_ring_is_said_with_its_cure() {
        let text = |errno| refusal(&io::Error::from_raw_os_error(errno));
        assert!(text(libc::EPERM).contains("kernel.io_uring_disabled"));
        assert!(text(libc::ENOSYS).contains("seccomp"));
        assert!(text(libc::ENOMEM).contains("RLIMIT_MEMLOCK"));
        assert!(text(libc::EMFILE).contains("os error 24"));
    }
}
