//! A file's pages as addresses that nobody touches, so that mincore(2) tells of each whether it is in the page cache and holds
//! what it should. cachestat(2) counts those that are still being read, too.
//!
//! Asking of a MiB costs some 15 us where the kernel has to find each page in the cache, and a tenth of that where it finds them in
//! our page tables, which name only pages that are there and hold what they should. So a window that is asked about again and
//! again is entered there. That costs as much as ten questions.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use ackpace_core::conn::Span;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::closing::later;
use crate::limits::{ENTERED_WINDOWS_MAX, WINDOWS_COUNTED, WINDOWS_FORGOTTEN_MAX};

/// Pages that mincore(2) is asked about in one call.
const PAGES_AT_ONCE: usize = 256;
/// What is entered in the page tables at once, at a multiple of itself.
const WINDOW_BYTES: u64 = 1 << 20;
/// Bytes of a window are counted in these.
const COUNT_BYTES: u64 = 64 << 10;
/// After so many bytes that were asked for of a window it is entered, once: by then asking has cost what that costs.
const ENTER_AFTER: u16 = (10 * WINDOW_BYTES / COUNT_BYTES) as u16;

/// What was asked for of windows, in [`COUNT_BYTES`], by their addresses. Those that meet here are entered sooner or later than they
/// should, and that is all.
static ASKED: [AtomicU16; WINDOWS_COUNTED] = [const { AtomicU16::new(0) }; WINDOWS_COUNTED];
/// Windows in our page tables, of all files.
static ENTERED: AtomicU32 = AtomicU32::new(0);

/// The first bytes of a file as addresses.
#[derive(Debug)]
pub struct Pages {
    range: Range,
    st_dev: u64,
}

impl Pages {
    /// The first `len_bytes` of a file of the file system `st_dev`. Takes address space, and no memory.
    ///
    /// # Errors
    /// As mmap(2): what can't be mapped (some FUSE files), or no address space.
    pub fn new(file: &impl AsFd, st_dev: u64, len_bytes: u64) -> Result<Pages, Errno> {
        let len_bytes = usize::try_from(len_bytes).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: a new mapping at a place of the kernel's choice, which nobody reads: truncation can't hurt.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let range = Range {
            base: NonNull::new(base).ok_or(Errno::INVAL)?,
            len_bytes,
            entered: AtomicU32::new(0),
        };
        range.forget_counts();
        Ok(Pages { range, st_dev })
    }

    /// How many bytes of the span, from its start, are in memory and hold what they should; `None` where the kernel does not say.
    pub fn resident_bytes(&self, span: Span) -> Option<u64> {
        let resident_bytes = self.look(span)?;
        if self.is_asked_often(span) {
            self.enter(span.offset_bytes / WINDOW_BYTES * WINDOW_BYTES);
        }
        Some(resident_bytes)
    }

    fn look(&self, span: Span) -> Option<u64> {
        let page_bytes = rustix::param::page_size() as u64;
        let first = span.offset_bytes / page_bytes;
        let end_bytes = span.end_bytes().min(self.range.len_bytes as u64);
        let pages = end_bytes.div_ceil(page_bytes).checked_sub(first)?;
        let mut counted = 0;
        while counted < pages {
            let mut present = [0u8; PAGES_AT_ONCE];
            let count = (pages - counted).min(PAGES_AT_ONCE as u64);
            let len_bytes = (count * page_bytes) as usize;
            let from = self.range.address((first + counted) * page_bytes)?;
            // SAFETY: the pages lie inside the mapping, and the kernel writes one byte for each into the array.
            if unsafe { libc::mincore(from, len_bytes, present.as_mut_ptr()) } != 0 {
                return None;
            }
            let here = present[..count as usize].iter();
            let here = here.take_while(|present| *present & 1 == 1).count() as u64;
            counted += here;
            if here < count {
                break;
            }
        }
        let until_bytes = ((first + counted) * page_bytes).min(end_bytes);
        Some(until_bytes.saturating_sub(span.offset_bytes))
    }

    /// Count what is asked for, and say when it is time to enter its window.
    fn is_asked_often(&self, span: Span) -> bool {
        let asked = self
            .range
            .asked(span.offset_bytes / WINDOW_BYTES * WINDOW_BYTES);
        let before = asked.load(Ordering::Relaxed);
        if before >= ENTER_AFTER {
            return false; // it was
        }
        let more = span.len_bytes.min(WINDOW_BYTES).div_ceil(COUNT_BYTES) as u16;
        asked.fetch_add(more, Ordering::Relaxed);
        before + more >= ENTER_AFTER
    }

    /// Enter a window that is wholly in memory in our page tables.
    fn enter(&self, offset_bytes: u64) {
        let left_bytes = (self.range.len_bytes as u64).saturating_sub(offset_bytes);
        let window = Span {
            offset_bytes,
            len_bytes: left_bytes.min(WINDOW_BYTES),
        };
        // Pages that are missing would be waited for.
        let whole = window.len_bytes > 0 && self.look(window) == Some(window.len_bytes);
        let Some(from) = self.range.address(offset_bytes).filter(|_| whole) else {
            return;
        };
        if ENTERED.fetch_add(1, Ordering::Relaxed) >= ENTERED_WINDOWS_MAX {
            ENTERED.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.range.entered.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the window lies inside the mapping, and no memory of ours changes. Linux before 5.14 refuses.
        let _ = unsafe { madvise(from, window.len_bytes as usize, Advice::LinuxPopulateRead) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        later(self.st_dev, self.range.take());
    }
}

/// Addresses of a file, and how many of its windows are in the page tables.
#[derive(Debug)]
struct Range {
    base: NonNull<c_void>,
    len_bytes: usize,
    entered: AtomicU32,
}

// SAFETY: the addresses are never read or written; they only name pages to the kernel, which any thread may ask.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

impl Range {
    fn address(&self, offset_bytes: u64) -> Option<*mut c_void> {
        let at = usize::try_from(offset_bytes).ok()?;
        // SAFETY: it is checked that the place lies inside the mapping.
        (at < self.len_bytes).then(|| unsafe { self.base.as_ptr().cast::<u8>().add(at).cast() })
    }

    /// What was asked for of the window that begins there.
    fn asked(&self, offset_bytes: u64) -> &'static AtomicU16 {
        let window = (self.base.as_ptr() as usize as u64).wrapping_add(offset_bytes);
        let hash = window.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32; // Fibonacci hashing (Knuth, vol. 3, 6.4)
        &ASKED[hash as usize % WINDOWS_COUNTED]
    }

    /// Another file may have had these addresses.
    fn forget_counts(&self) {
        for window in 0..(self.len_bytes as u64)
            .div_ceil(WINDOW_BYTES)
            .min(WINDOWS_FORGOTTEN_MAX)
        {
            self.asked(window * WINDOW_BYTES)
                .store(0, Ordering::Relaxed);
        }
    }

    /// Takes its pages out of the page tables, piece by piece: while a piece is taken out nobody can map another file.
    fn leave(&self) {
        let pieces = (self.len_bytes as u64).div_ceil(WINDOW_BYTES);
        for offset_bytes in (0..pieces).map(|piece| piece * WINDOW_BYTES) {
            let len_bytes = (self.len_bytes as u64 - offset_bytes).min(WINDOW_BYTES);
            if let Some(from) = self.address(offset_bytes) {
                // SAFETY: the piece lies inside the mapping, which nobody reads.
                let _ = unsafe { madvise(from, len_bytes as usize, Advice::LinuxDontNeed) };
            }
        }
    }

    /// The same, with nothing left here.
    fn take(&mut self) -> Range {
        Range {
            base: self.base,
            len_bytes: std::mem::take(&mut self.len_bytes),
            entered: std::mem::take(&mut self.entered),
        }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if self.len_bytes > 0 {
            if *self.entered.get_mut() > 0 {
                self.leave();
            }
            // SAFETY: this is the mapping that `Pages::new` made, and it is gone with its owner.
            let _ = unsafe { munmap(self.base.as_ptr(), self.len_bytes) };
            ENTERED.fetch_sub(*self.entered.get_mut(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_asked_for_often_is_entered_once() {
        let path = std::env::temp_dir().join(format!("ackpace-pages-{}", std::process::id()));
        let len_bytes = 5 * WINDOW_BYTES / 2;
        std::fs::write(&path, vec![7; len_bytes as usize]).expect("room for 2.5 MB");
        let file = std::fs::File::open(&path).expect("our own file");
        let pages = Pages::new(&file, 0, len_bytes).expect("a file of a temporary folder");
        let whole = |offset_bytes| Span {
            offset_bytes,
            len_bytes: WINDOW_BYTES / 2,
        };
        let entered = || pages.range.entered.load(Ordering::Relaxed);
        for offset_bytes in [0, 2 * WINDOW_BYTES] {
            let before = entered();
            for nth in 1..=200 {
                let told = pages.resident_bytes(whole(offset_bytes));
                assert_eq!(told, Some(WINDOW_BYTES / 2), "look {nth}");
            }
            assert_eq!(entered() - before, 1);
        }
        // Pages that are mapped are told as truly: those that the kernel took are missed.
        let writer = std::fs::File::options().write(true).open(&path);
        writer
            .and_then(|file| file.set_len(0))
            .expect("our own file");
        assert_eq!(pages.resident_bytes(whole(0)), Some(0));
        std::fs::remove_file(&path).expect("our own file");
    }
}
