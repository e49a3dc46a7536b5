//! A file's pages as addresses that nobody touches, so that mincore(2) tells of each whether it is in the page cache and holds
//! what it should. cachestat(2) counts those that are still being read, too.
//!
//! Asking of a MiB costs some 15 us where the kernel has to find each page in the cache, and a tenth of that where it finds them in
//! our page tables, which name only pages that are there and hold what they should. So a window that is asked about again and
//! again is entered there. That costs as much as ten questions.
//!
//! Most files are mapped whole, for as long as they are open. Addresses and mappings of a process are few beside the files that it may
//! have open, so a very long file, and any file once many are mapped, is mapped a window at a time, for each question.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use ackpace_core::conn::Span;
use ackpace_core::limits::SEND_BYTES_MAX;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::closing::{at_leisure, later};
use crate::limits::{
    ENTERED_WINDOWS_MAX, MAPPED_BYTES_MAX, MAPPED_EACH_BYTES_MAX, MAPPED_FILES_MAX,
    WINDOWS_COUNTED, WINDOWS_FORGOTTEN_MAX,
};

/// Pages that mincore(2) is asked about in one call: all of a long send, since a call costs as much as some hundred pages.
const PAGES_AT_ONCE: usize = SEND_BYTES_MAX as usize / 4096 + 1;
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

/// Files that are mapped whole, and their bytes.
static MAPPED: (AtomicU32, AtomicU64) = (AtomicU32::new(0), AtomicU64::new(0));

/// The first bytes of a file as addresses.
#[derive(Debug)]
pub struct Pages {
    /// All of it; `None`: what is asked about is mapped for the question.
    whole: Option<Arc<Whole>>,
    len_bytes: u64,
    st_dev: u64,
}

impl Pages {
    /// The first `len_bytes` of a file of the file system `st_dev`. Takes address space, and no memory.
    ///
    /// # Errors
    /// As mmap(2): what can't be mapped (some FUSE files), or no address space.
    pub fn new(file: &impl AsFd, st_dev: u64, len_bytes: u64) -> Result<Pages, Errno> {
        let whole = Whole::new(file, len_bytes).map(Arc::new);
        if whole.is_none() {
            drop(Map::new(file, 0, len_bytes.min(WINDOW_BYTES))?);
        }
        Ok(Pages {
            whole,
            len_bytes,
            st_dev,
        })
    }

    /// How many bytes of the span of this file, from its start, are in memory and hold what they should; `None` where the kernel
    /// does not say.
    pub fn resident_bytes(&self, file: &impl AsFd, span: Span) -> Option<u64> {
        match &self.whole {
            Some(whole) => {
                let resident_bytes = whole.map.look(span)?;
                for offset_bytes in whole.asked_often(span) {
                    // Of a file that is closed meanwhile no window is entered.
                    let whole = Arc::downgrade(whole);
                    // Between a look and this a page may be dropped, which is read then: no worker does it.
                    at_leisure(self.st_dev, move || {
                        if let Some(whole) = whole.upgrade() {
                            whole.enter(offset_bytes);
                        }
                    });
                }
                Some(resident_bytes)
            }
            None => {
                let page_bytes = rustix::param::page_size() as u64;
                let from_bytes = span.offset_bytes / page_bytes * page_bytes;
                let end_bytes = span.end_bytes().min(self.len_bytes);
                let len_bytes = end_bytes.checked_sub(from_bytes).filter(|len| *len > 0)?;
                let map = Map::new(file, from_bytes, len_bytes).ok()?;
                map.look(Span {
                    offset_bytes: span.offset_bytes - from_bytes,
                    ..span
                })
            }
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(whole) = self.whole.take() {
            later(self.st_dev, whole);
        }
    }
}

/// Bytes of a file as addresses.
#[derive(Debug)]
struct Map {
    base: NonNull<c_void>,
    len_bytes: usize,
}

// SAFETY: the addresses are never read or written; they only name pages to the kernel, which any thread may ask.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// `offset_bytes` begin a page.
    fn new(file: &impl AsFd, offset_bytes: u64, len_bytes: u64) -> Result<Map, Errno> {
        let len_bytes = usize::try_from(len_bytes).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: a new mapping at a place of the kernel's choice, which nobody reads: truncation can't hurt.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                offset_bytes,
            )
        }?;
        Ok(Map {
            base: NonNull::new(base).ok_or(Errno::INVAL)?,
            len_bytes,
        })
    }

    fn address(&self, offset_bytes: u64) -> Option<*mut c_void> {
        let at = usize::try_from(offset_bytes).ok()?;
        // SAFETY: it is checked that the place lies inside the mapping.
        (at < self.len_bytes).then(|| unsafe { self.base.as_ptr().cast::<u8>().add(at).cast() })
    }

    fn look(&self, span: Span) -> Option<u64> {
        let page_bytes = rustix::param::page_size() as u64;
        let first = span.offset_bytes / page_bytes;
        let end_bytes = span.end_bytes().min(self.len_bytes as u64);
        let pages = end_bytes.div_ceil(page_bytes).checked_sub(first)?;
        let mut counted = 0;
        while counted < pages {
            let mut present = [0u8; PAGES_AT_ONCE];
            let count = (pages - counted).min(PAGES_AT_ONCE as u64);
            let len_bytes = (count * page_bytes) as usize;
            let from = self.address((first + counted) * page_bytes)?;
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
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `Map::new` made, and it is gone with its owner.
        let _ = unsafe { munmap(self.base.as_ptr(), self.len_bytes) };
    }
}

/// A file that is mapped whole, and how many of its windows are in the page tables.
#[derive(Debug)]
struct Whole {
    map: Map,
    entered: AtomicU32,
}

impl Whole {
    /// `None`: it is too long, too many are mapped already, or the kernel refuses.
    fn new(file: &impl AsFd, len_bytes: u64) -> Option<Whole> {
        let (files, bytes) = (&MAPPED.0, &MAPPED.1);
        let is_room = files.fetch_add(1, Ordering::Relaxed) < MAPPED_FILES_MAX
            && len_bytes <= MAPPED_EACH_BYTES_MAX
            && bytes.load(Ordering::Relaxed) < MAPPED_BYTES_MAX;
        let map = is_room.then(|| Map::new(file, 0, len_bytes).ok()).flatten();
        let Some(map) = map else {
            files.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        bytes.fetch_add(len_bytes, Ordering::Relaxed);
        let entered = AtomicU32::new(0);
        let whole = Whole { map, entered };
        whole.forget_counts();
        Some(whole)
    }

    /// Counts what is asked for, and says where the windows begin that it is time to enter now.
    fn asked_often(&self, span: Span) -> impl Iterator<Item = u64> {
        let end_bytes = span.end_bytes();
        let first_bytes = span.offset_bytes / WINDOW_BYTES * WINDOW_BYTES;
        let windows = (first_bytes..end_bytes).step_by(WINDOW_BYTES as usize);
        windows.filter(move |&window_bytes| {
            let asked = self.asked(window_bytes);
            let before = asked.load(Ordering::Relaxed);
            if before >= ENTER_AFTER {
                return false; // it was
            }
            let until_bytes = end_bytes.min(window_bytes + WINDOW_BYTES);
            let inside_bytes = until_bytes - span.offset_bytes.max(window_bytes);
            let more = inside_bytes.div_ceil(COUNT_BYTES) as u16;
            asked.fetch_add(more, Ordering::Relaxed);
            before + more >= ENTER_AFTER
        })
    }

    /// Enter a window that is wholly in memory in our page tables. Waits for the disk if a page goes in this moment.
    fn enter(&self, offset_bytes: u64) {
        let left_bytes = (self.map.len_bytes as u64).saturating_sub(offset_bytes);
        let window = Span {
            offset_bytes,
            len_bytes: left_bytes.min(WINDOW_BYTES),
        };
        // Pages that are missing would be waited for.
        let whole = window.len_bytes > 0 && self.map.look(window) == Some(window.len_bytes);
        let Some(from) = self.map.address(offset_bytes).filter(|_| whole) else {
            return;
        };
        if ENTERED.fetch_add(1, Ordering::Relaxed) >= ENTERED_WINDOWS_MAX {
            ENTERED.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.entered.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the window lies inside the mapping, and no memory of ours changes. Linux before 5.14 refuses.
        let _ = unsafe { madvise(from, window.len_bytes as usize, Advice::LinuxPopulateRead) };
    }
    /// What was asked for of the window that begins there.
    fn asked(&self, offset_bytes: u64) -> &'static AtomicU16 {
        let window = (self.map.base.as_ptr() as usize as u64).wrapping_add(offset_bytes);
        let hash = window.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32; // Fibonacci hashing (Knuth, vol. 3, 6.4)
        &ASKED[hash as usize % WINDOWS_COUNTED]
    }

    /// Another file may have had these addresses.
    fn forget_counts(&self) {
        for window in 0..(self.map.len_bytes as u64)
            .div_ceil(WINDOW_BYTES)
            .min(WINDOWS_FORGOTTEN_MAX)
        {
            self.asked(window * WINDOW_BYTES)
                .store(0, Ordering::Relaxed);
        }
    }

    /// Takes its pages out of the page tables, piece by piece: while a piece is taken out nobody can map another file.
    fn leave(&self) {
        let len_bytes = self.map.len_bytes as u64;
        let pieces = len_bytes.div_ceil(WINDOW_BYTES);
        for offset_bytes in (0..pieces).map(|piece| piece * WINDOW_BYTES) {
            let piece_bytes = (len_bytes - offset_bytes).min(WINDOW_BYTES);
            if let Some(from) = self.map.address(offset_bytes) {
                // SAFETY: the piece lies inside the mapping, which nobody reads.
                let _ = unsafe { madvise(from, piece_bytes as usize, Advice::LinuxDontNeed) };
            }
        }
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let entered = *self.entered.get_mut();
        if entered > 0 {
            self.leave();
        }
        ENTERED.fetch_sub(entered, Ordering::Relaxed);
        MAPPED.0.fetch_sub(1, Ordering::Relaxed);
        MAPPED
            .1
            .fetch_sub(self.map.len_bytes as u64, Ordering::Relaxed);
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
        let half = |offset_bytes| Span {
            offset_bytes,
            len_bytes: WINDOW_BYTES / 2,
        };
        let whole = pages.whole.as_ref().expect("a short file");
        let entered = || whole.entered.load(Ordering::Relaxed);
        for offset_bytes in [0, 2 * WINDOW_BYTES] {
            let before = entered();
            for nth in 1..=200 {
                let told = pages.resident_bytes(&file, half(offset_bytes));
                assert_eq!(told, Some(WINDOW_BYTES / 2), "look {nth}");
            }
            while entered() == before {
                std::thread::yield_now(); // another thread may do it
            }
            assert_eq!(entered() - before, 1);
        }
        // Pages that are mapped are told as truly: those that the kernel took are missed.
        let writer = std::fs::File::options().write(true).open(&path);
        writer
            .and_then(|file| file.set_len(0))
            .expect("our own file");
        assert_eq!(pages.resident_bytes(&file, half(0)), Some(0));
        std::fs::remove_file(&path).expect("our own file");
    }
    #[test]
    fn who_asks_does_not_enter_a_window_himself() {
        use std::sync::mpsc::{Receiver, channel};
        /// Hangs until it is told.
        struct Hung(Receiver<()>);
        impl Drop for Hung {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        let path = std::env::temp_dir().join(format!("ackpace-enter-{}", std::process::id()));
        std::fs::write(&path, vec![7; WINDOW_BYTES as usize]).expect("room for a MiB");
        let file = std::fs::File::open(&path).expect("our own file");
        std::fs::remove_file(&path).expect("our own file");
        let st_dev = 5; // a lane that no other test has
        crate::store::closing::start(1024);
        let (go_on, told) = channel();
        later(st_dev, Hung(told));
        let pages = Pages::new(&file, st_dev, WINDOW_BYTES).expect("a file of a temporary folder");
        let all = Span {
            offset_bytes: 0,
            len_bytes: WINDOW_BYTES,
        };
        for _ in 0..20 {
            assert_eq!(pages.resident_bytes(&file, all), Some(WINDOW_BYTES));
        }
        let entered = || {
            let whole = pages.whole.as_ref().expect("a short file");
            whole.entered.load(Ordering::Relaxed)
        };
        assert_eq!(entered(), 0, "its disk may hang");
        drop(go_on);
        while entered() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(pages.resident_bytes(&file, all), Some(WINDOW_BYTES));
    }

    /// Addresses that this process has, in bytes (proc(5)).
    fn address_bytes() -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").expect("proc(5)");
        let pages = text.split(' ').next().and_then(|pages| pages.parse().ok());
        pages.map_or(0, |pages: u64| pages * rustix::param::page_size() as u64)
    }

    #[test]
    fn very_long_files_take_hardly_any_addresses_and_are_told_of_as_exactly() {
        let path = std::env::temp_dir().join(format!("ackpace-long-{}", std::process::id()));
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .expect("a file");
        std::fs::remove_file(&path).expect("our own file");
        // What ext4 allows, where it does; more than is mapped whole, anywhere.
        let longest = 15 << 40;
        let sparse = file.set_len(longest).map(|()| longest);
        let len_bytes = sparse.unwrap_or_else(|_| {
            let len_bytes = 2 * MAPPED_EACH_BYTES_MAX;
            file.set_len(len_bytes).expect("a sparse file");
            len_bytes
        });
        let at_bytes = len_bytes - 5_000_000;
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 20_000], at_bytes).expect("room");
        let before = address_bytes();
        let all: Vec<Pages> = (0..20)
            .map(|_| Pages::new(&file, 0, len_bytes).expect("a file of a temporary folder"))
            .collect();
        assert!(address_bytes() - before < MAPPED_EACH_BYTES_MAX);
        let span = |offset_bytes, len_bytes| Span {
            offset_bytes,
            len_bytes,
        };
        for pages in &all {
            let told = |span| pages.resident_bytes(&file, span);
            assert_eq!(told(span(at_bytes, 20_000)), Some(20_000));
            assert_eq!(told(span(at_bytes + 4097, 9)), Some(9));
            assert!(told(span(at_bytes, 1 << 20)) < Some(1 << 20), "a hole");
            assert_eq!(told(span(0, 4096)), Some(0), "nobody has read it");
        }
    }
}
