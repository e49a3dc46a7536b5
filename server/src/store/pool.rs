//! Memory for what is read past the page cache: one mapping, lent out in slots of [`SLOT_BYTES`].
//!
//! A [`Lease`] owns its slots until it gives them back: some as soon as their bytes are sent, the rest when it is dropped.
//! Nobody else can see or fill them. Low slots are lent first, and memory that was never lent is never touched, so what the
//! process occupies follows what it uses. It grows by huge pages: reading into one costs a third of the CPU time of reading
//! into small pages. A slot that was lent before still holds old bytes: of a short read, only what came may be sent.
//!
//! A slot is in circulation (free or lent) or retired. The kernel gets the memory of a retired slot back, and nobody gets the
//! slot. A huge page with retired slots gets MADV_NOHUGEPAGE, or khugepaged would fill the retired part again.

mod lease;
mod runs;

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use ackpace_core::limits::SLOT_BYTES;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::mailbox::ThreadWaker;
pub use lease::Lease;
use runs::{End, Run, Runs, push, runs_of, set, take};

/// What a huge page is on x86-64, and on aarch64 with pages of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The slots of a huge page.
const HUGE_PAGE_SLOTS: u32 = (HUGE_PAGE_BYTES as u64 / SLOT_BYTES) as u32;

/// The slots, and who hears of those that come back. One thread, the disk thread, leases, retires and enlists slots; any
/// thread returns them. [`Pool::lease`] would be safe in several threads, too.
#[derive(Debug)]
pub struct Pool {
    /// The mapping, at a multiple of [`HUGE_PAGE_BYTES`] and as long as the slots.
    base: NonNull<u8>,
    slots: u32,
    /// A bit for each slot, set while it is free.
    free: Box<[AtomicU64]>,
    /// The same of those that are retired; for the thread that lends.
    retired: Box<[AtomicU64]>,
    retired_slots: AtomicU32,
    /// A bit for each slot that has its memory.
    touched: Box<[AtomicU64]>,
    /// For each huge page, whether it is told to be small ones.
    small: Box<[AtomicBool]>,
    /// Free slots that no lease has claimed. A lease claims slots here and then clears their bits; a return sets bits and then
    /// adds here. Another thread may see the two steps of a return in the other order, and looks for the bits again.
    unclaimed: AtomicU32,
    /// Slots that came back since the last [`Pool::take_freed`].
    freed: AtomicU32,
    /// So many of these wake the disk thread; 0: none do.
    wake_at: AtomicU32,
    waker: Arc<ThreadWaker>,
}

// SAFETY: the mapping belongs to the pool and is as long-lived; its bytes are reached through leases only, and the bits
// of `free` give each slot to one lease at a time.
unsafe impl Send for Pool {}
// SAFETY: as above; all else in it is atomic.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool of `slots`, at least one, all of them retired. Its address space is reserved now, its memory taken as slots are
    /// used. Fails where the address space is lacking (ENOMEM, RLIMIT_AS), or the machine's pages are larger than a slot.
    pub fn new(slots: u32, waker: Arc<ThreadWaker>) -> io::Result<Pool> {
        let slots = slots.max(1);
        // The kernel takes back whole pages, and with larger ones it would clear a slot next to the one that is retired.
        if SLOT_BYTES % rustix::param::page_size() as u64 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "memory for reading ahead comes in slots of 16 KiB, and this machine's pages are larger: a kernel with pages of 4 or 16 KiB is needed",
            ));
        }
        let words = || (0..slots.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0));
        let pool = Pool {
            base: map(slots)?,
            slots,
            free: words().collect(),
            retired: words().collect(),
            retired_slots: AtomicU32::new(slots),
            touched: words().collect(),
            small: (0..slots.div_ceil(HUGE_PAGE_SLOTS))
                .map(|_| AtomicBool::new(false))
                .collect(),
            unclaimed: AtomicU32::new(0),
            freed: AtomicU32::new(0),
            wake_at: AtomicU32::new(0),
            waker,
        };
        let all = Run {
            first: 0,
            count: slots,
        };
        set(&pool.retired, all);
        Ok(pool)
    }

    /// Slots in circulation.
    pub fn slots(&self) -> u32 {
        self.slots - self.retired_slots.load(Ordering::Relaxed)
    }

    /// Slots that it may have.
    pub fn slots_max(&self) -> u32 {
        self.slots
    }

    /// Slots in circulation that no lease has.
    pub fn free_slots(&self) -> u32 {
        self.unclaimed.load(Ordering::Relaxed)
    }

    /// `count` slots, the lowest that are free; none if there are fewer.
    pub fn lease(self: &Arc<Pool>, count: u32) -> Option<Lease> {
        let claim = |free: u32| free.checked_sub(count);
        self.unclaimed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim)
            .ok()?;
        let runs = self.take_claimed(count, End::Low);
        runs.iter().for_each(|run| self.touch(*run));
        Some(Lease::new(Arc::clone(self), runs, count))
    }

    /// Slots that came back since the last call.
    pub fn take_freed(&self) -> u32 {
        self.freed.swap(0, Ordering::SeqCst)
    }

    /// Wake the disk thread, once, as soon as `slots` slots have come back since the last [`Pool::take_freed`]; 0: don't.
    pub fn wake_at_freed(&self, slots: u32) {
        self.wake_at.store(slots, Ordering::SeqCst);
        self.wake_if_enough(); // they may have come back in between
    }

    /// Take so many free slots out of circulation, the highest first, or all that are free: their memory goes back to the kernel.
    /// Returned is how many. For the thread that lends.
    pub fn retire(&self, count: u32) -> u32 {
        let claim = |free: u32| Some(free - free.min(count));
        let before = (self.unclaimed).fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim);
        let claimed = before.unwrap_or_else(|same| same).min(count);
        let runs = self.take_claimed(claimed, End::High);
        runs.iter().for_each(|run| set(&self.retired, *run));
        self.retired_slots.fetch_add(claimed, Ordering::Relaxed);
        for run in &runs {
            self.advise(*run); // first, or khugepaged may fill what is cleared
            self.clear(*run);
        }
        claimed
    }

    /// Bring so many retired slots back into circulation, the lowest first, or all. Returned is how many. For the thread that lends.
    pub fn enlist(&self, count: u32) -> u32 {
        let runs = take(&self.retired, count, End::Low);
        let enlisted = runs.iter().map(|run| run.count).sum();
        runs.iter().for_each(|run| self.advise(*run)); // before anybody touches them
        runs.iter().for_each(|run| set(&self.free, *run));
        self.retired_slots.fetch_sub(enlisted, Ordering::Relaxed);
        self.unclaimed.fetch_add(enlisted, Ordering::Relaxed);
        enlisted
    }

    /// Give the memory of slots back to the kernel. They are nobody's.
    fn clear(&self, run: Run) {
        let (start, len_bytes) = (self.at(run.start_bytes()), run.len_bytes() as usize);
        // SAFETY: the slots lie inside the mapping, and being taken, they are nobody else's. A refusal changes nothing: the
        // memory is kept.
        let _ = unsafe { madvise(start.cast(), len_bytes, Advice::LinuxDontNeed) };
        for (word, bits) in run.words() {
            self.touched[word].fetch_and(!bits, Ordering::Relaxed);
        }
    }

    /// Tells the huge pages of a run to be small pages while some of their slots are retired.
    fn advise(&self, run: Run) {
        for page in run.first / HUGE_PAGE_SLOTS..=(run.first + run.count - 1) / HUGE_PAGE_SLOTS {
            let first = page * HUGE_PAGE_SLOTS;
            let slots = Run {
                first,
                count: (self.slots - first).min(HUGE_PAGE_SLOTS),
            };
            let is_retired =
                |(word, bits): (usize, u64)| self.retired[word].load(Ordering::Relaxed) & bits != 0;
            let small = slots.words().any(is_retired);
            if self.small[page as usize].swap(small, Ordering::Relaxed) == small {
                continue;
            }
            let advice = match small {
                true => Advice::LinuxNoHugepage,
                false => Advice::LinuxHugepage,
            };
            let (start, len_bytes) = (self.at(slots.start_bytes()), slots.len_bytes() as usize);
            // SAFETY: the slots lie inside the mapping; the advice changes no byte. Refused, it has the pages that it had.
            let _ = unsafe { madvise(start.cast(), len_bytes, advice) };
        }
    }

    /// Takes free slots that were claimed. Since as many bits are set as there are claims, this ends: if others take bits
    /// behind our back, bits that came back behind our back are found in the next round.
    fn take_claimed(&self, count: u32, end: End) -> Runs {
        let (mut runs, mut left) = (Runs::new(), count);
        while left > 0 {
            for run in take(&self.free, left, end) {
                left -= run.count;
                push(&mut runs, run);
            }
        }
        runs
    }

    /// Gives slots that were never lent their memory, by writing to it. A direct read into untouched memory makes the kernel
    /// zero a huge page while it holds the lock of the address space. A worker whose memory grows would wait for that lock.
    fn touch(&self, run: Run) {
        for (word, bits) in run.words() {
            let fresh = bits & !self.touched[word].fetch_or(bits, Ordering::Relaxed);
            for run in runs_of(word as u32 * u64::BITS, fresh) {
                for page in (0..run.len_bytes()).step_by(rustix::param::page_size()) {
                    // SAFETY: the slots were just taken, so they are nobody else's, and lie inside the mapping.
                    unsafe { self.at(run.start_bytes() + page).write_volatile(0) };
                }
            }
        }
    }

    fn give_back(&self, run: Run) {
        set(&self.free, run);
        self.unclaimed.fetch_add(run.count, Ordering::Relaxed);
        self.freed.fetch_add(run.count, Ordering::SeqCst);
        self.wake_if_enough();
    }

    /// If a return and [`Pool::wake_at_freed`] meet, at least one of both sees the other (SeqCst), so no wake-up is lost.
    fn wake_if_enough(&self) {
        let wake_at = self.wake_at.load(Ordering::SeqCst);
        if wake_at == 0 || self.freed.load(Ordering::SeqCst) < wake_at {
            return;
        }
        let reached = self
            .wake_at
            .compare_exchange(wake_at, 0, Ordering::SeqCst, Ordering::SeqCst);
        if reached.is_ok() {
            self.waker.wake();
        }
    }

    fn at(&self, offset_bytes: u64) -> *mut u8 {
        assert!(offset_bytes < u64::from(self.slots) * SLOT_BYTES);
        // SAFETY: the offset lies inside the mapping, as was just checked.
        unsafe { self.base.as_ptr().add(offset_bytes as usize) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made; each lease holds the pool, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), slots_bytes(self.slots)) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Address space for the slots, aligned for huge pages: what is mapped in front and behind for that is unmapped again, so
/// that no huge page reaches beyond the slots.
fn map(slots: u32) -> io::Result<NonNull<u8>> {
    let len_bytes = slots_bytes(slots);
    let long_bytes = len_bytes.checked_add(HUGE_PAGE_BYTES);
    let long_bytes = long_bytes.ok_or(io::ErrorKind::OutOfMemory)?;
    let (access, how) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::PRIVATE | MapFlags::NORESERVE,
    );
    // SAFETY: a new mapping at a place that the kernel chooses; nobody else knows of it, and all that is done to it here
    // lies inside: `front_bytes` is at most a huge page, less the small one that mappings are aligned to.
    unsafe {
        let start = mmap_anonymous(ptr::null_mut(), long_bytes, access, how)?;
        let front_bytes = start.cast::<u8>().align_offset(HUGE_PAGE_BYTES);
        let base = start.byte_add(front_bytes);
        if front_bytes > 0 {
            munmap(start, front_bytes)?;
        }
        munmap(base.byte_add(len_bytes), HUGE_PAGE_BYTES - front_bytes)?;
        // Refused, it has small pages.
        let _ = madvise(base, len_bytes, Advice::LinuxHugepage);
        NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory.into())
    }
}

fn slots_bytes(slots: u32) -> usize {
    usize::try_from(u64::from(slots) * SLOT_BYTES).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
