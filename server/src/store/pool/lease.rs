//! Slots of the pool that have an owner.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use ackpace_core::limits::SLOT_BYTES;
use smallvec::SmallVec;

use super::Pool;
use super::runs::Runs;

/// Pieces of memory in one system call (UIO_MAXIOV). More: a further call reads or sends the rest.
const IOVECS_MAX: usize = 1024;

/// Some slots of a pool, for one owner. What it holds is one row of bytes, wherever the slots lie; all offsets count from
/// its first byte, also after some of it was given back.
#[derive(Debug)]
pub struct Lease {
    pool: Arc<Pool>,
    pub(super) runs: Runs,
    /// Slots that it had at first.
    pub(super) slots: u32,
    /// Those of them that went back.
    pub(super) released: u32,
}

impl Lease {
    /// These slots of the pool, `slots` in all, which nobody else has.
    pub(super) fn new(pool: Arc<Pool>, runs: Runs, slots: u32) -> Lease {
        let released = 0;
        Lease {
            pool,
            runs,
            slots,
            released,
        }
    }

    /// The bytes that it had room for at first.
    pub fn len_bytes(&self) -> u64 {
        u64::from(self.slots) * SLOT_BYTES
    }

    /// The slots that it has now.
    pub fn slots(&self) -> u32 {
        self.slots - self.released
    }

    /// Give back the slots that end within the first `bytes`: these are sent.
    pub fn release_front(&mut self, bytes: u64) {
        let whole = (bytes / SLOT_BYTES).min(u64::from(self.slots)) as u32;
        while self.released < whole {
            let count = self.runs[0].count.min(whole - self.released);
            let gone = self.runs[0].split_front(count);
            if self.runs[0].count == 0 {
                self.runs.remove(0);
            }
            self.released += count;
            self.pool.give_back(gone);
        }
    }

    /// A lease of its first `slots` slots, which this one has no more: its first byte is the one behind them.
    ///
    /// # Panics
    /// If some of them went back, or it has fewer.
    pub fn split_front(&mut self, slots: u32) -> Lease {
        assert!(
            self.released == 0 && slots <= self.slots,
            "{slots} of {self:?}"
        );
        let (mut front, mut left) = (Runs::new(), slots);
        while left > 0 {
            let count = self.runs[0].count.min(left);
            front.push(self.runs[0].split_front(count));
            if self.runs[0].count == 0 {
                self.runs.remove(0);
            }
            left -= count;
        }
        self.slots -= slots;
        Lease::new(Arc::clone(&self.pool), front, slots)
    }

    /// Whether the byte at this place is in a slot that it still has.
    pub fn has(&self, at_bytes: u64) -> bool {
        let gone_bytes = u64::from(self.released) * SLOT_BYTES;
        (gone_bytes..self.len_bytes()).contains(&at_bytes)
    }

    /// The memory of `len_bytes` from `from_bytes` on, for sending; slots that lie side by side are one slice. Of more
    /// than `IOVECS_MAX` slices these come first.
    ///
    /// # Panics
    /// If that is more than it has.
    pub fn slices(&self, from_bytes: u64, len_bytes: u64) -> SmallVec<[IoSlice<'_>; 4]> {
        let slice = |(at, len): (*mut u8, usize)| {
            // SAFETY: the bytes are ours, inside the mapping, and were zeroed by the kernel at first; whoever writes to
            // them has `&mut self`, or owns the lease and is the kernel.
            IoSlice::new(unsafe { std::slice::from_raw_parts(at, len) })
        };
        self.pieces(from_bytes, len_bytes).map(slice).collect()
    }

    /// As [`Lease::slices`], for reading into it.
    ///
    /// # Panics
    /// As there.
    pub fn iovecs(&mut self, from_bytes: u64, len_bytes: u64) -> SmallVec<[IoSliceMut<'_>; 4]> {
        let slice = |(at, len): (*mut u8, usize)| {
            // SAFETY: as for `slices`; the pieces do not overlap, and `&mut self` keeps all others away.
            IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(at, len) })
        };
        self.pieces(from_bytes, len_bytes).map(slice).collect()
    }

    fn pieces(&self, from_bytes: u64, len_bytes: u64) -> impl Iterator<Item = (*mut u8, usize)> {
        let gone_bytes = u64::from(self.released) * SLOT_BYTES;
        let room_bytes = self.len_bytes().checked_sub(from_bytes);
        let inside = from_bytes >= gone_bytes && room_bytes.is_some_and(|room| len_bytes <= room);
        assert!(inside, "{len_bytes} bytes at {from_bytes} of {self:?}");
        let (mut skip_bytes, mut left_bytes) = (from_bytes - gone_bytes, len_bytes);
        let runs = self.runs.iter().filter_map(move |run| {
            let skipped_bytes = skip_bytes.min(run.len_bytes());
            let here_bytes = left_bytes.min(run.len_bytes() - skipped_bytes);
            skip_bytes -= skipped_bytes;
            left_bytes -= here_bytes;
            let at_bytes = run.start_bytes() + skipped_bytes;
            (here_bytes > 0).then(|| (self.pool.at(at_bytes), here_bytes as usize))
        });
        runs.take(IOVECS_MAX)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        for run in std::mem::take(&mut self.runs) {
            self.pool.give_back(run);
        }
    }
}
