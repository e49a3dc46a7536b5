//! A file that is mapped whole, and its windows that are entered in our page tables. Nobody reads the mapping: it lets
//! us know which bytes are in memory.
//!
//! To enter a window is to have the kernel put its pages, which are in the page cache, into our page tables
//! (MADV_POPULATE_READ). While an epoch of the page cache ([`reclaim`]) lasts, no such page is dropped: that is the
//! window's proof, and nobody has to ask mincore(2). Epochs last for some seconds at most. When one is over, mincore(2)
//! is asked again, and answers faster about pages in our page tables. See [`super`] for what asking and entering cost.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ackpace_core::conn::Span;
use rustix::fs::Statx;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use super::held::HeldPages;
use super::map::Map;
use super::reclaim;
use super::windows::{WINDOW_BYTES, WINDOWS, Window};
use crate::limits::{
    ENTERED_WINDOWS_MAX, MAPPED_BYTES_MAX, MAPPED_EACH_BYTES_MAX, MAPPED_FILES_MAX,
};
use crate::store::attributes::file_system;

/// How many windows are entered at once: one that is asked for often, and those behind it. Fewer: a thread wakes more
/// often, and fast clients reach windows before they are entered.
const ENTER_AHEAD: u64 = 64;

/// Windows of all files that have a place in our page tables ([`Whole::reserve`]).
static ENTERED: AtomicU32 = AtomicU32::new(0);

/// Files that are mapped whole.
static MAPPED_FILES: AtomicU32 = AtomicU32::new(0);

/// The bytes of these files.
static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);

/// A file as it was at some time. While it is mapped, no other file can get its inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MappedVersion {
    st_dev: u64,
    st_ino: u64,
    ctime: (i64, u32),
    /// Its length.
    pub len_bytes: u64,
}

impl MappedVersion {
    /// The identity that a stat shows.
    pub fn of(stat: &Statx) -> MappedVersion {
        MappedVersion {
            st_dev: file_system(stat).st_dev,
            st_ino: stat.stx_ino,
            ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            len_bytes: stat.stx_size,
        }
    }

    fn hash(&self) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(self)
    }
}

/// A file that is mapped whole.
#[derive(Debug)]
pub struct Whole {
    identity: MappedVersion,
    /// The hash of the identity. The questions about its windows are counted by it ([`Window::place`]).
    identity_hash: u64,
    map: Map,
    /// Where the windows begin that have a place in our page tables.
    entered: Mutex<BTreeSet<u64>>,
    /// Some window was asked about often enough to be entered.
    is_hot: AtomicBool,
}

/// Memory of a file that is mapped whole: a `Whole` and the two counts of its `Arc`, but not its list of windows
/// that are entered.
pub const WHOLE_BYTES: u64 = (size_of::<Whole>() + 2 * size_of::<usize>()) as u64;
/// Memory of these lists for all files, at most. They take most if each window that is entered is in a file of its
/// own: each list is one node of a B-tree then, which has room for eleven windows.
pub const ENTERED_BYTES: u64 = ENTERED_WINDOWS_MAX as u64 * (11 * size_of::<u64>() + 32) as u64;

impl Whole {
    /// The file with this identity, mapped anew. `None`: it is too long, too many are mapped already, or the kernel refuses.
    pub fn new(file: &impl AsFd, identity: MappedVersion) -> Option<Whole> {
        let len_bytes = identity.len_bytes;
        // Counted first, or two threads could take the last place.
        let is_room = MAPPED_FILES.fetch_add(1, Ordering::Relaxed) < MAPPED_FILES_MAX
            && len_bytes <= MAPPED_EACH_BYTES_MAX
            && MAPPED_BYTES.load(Ordering::Relaxed) < MAPPED_BYTES_MAX;
        let map = is_room.then(|| Map::new(file, 0, len_bytes).ok()).flatten();
        let Some(map) = map else {
            MAPPED_FILES.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        MAPPED_BYTES.fetch_add(len_bytes, Ordering::Relaxed);
        let entered = Mutex::default();
        Some(Whole {
            identity,
            identity_hash: identity.hash(),
            map,
            entered,
            is_hot: AtomicBool::new(false),
        })
    }

    /// The windows that the span touches. Of each: the part that lies in the span, and the whole window.
    fn windows(&self, span: Span) -> impl Iterator<Item = (Span, Span)> + use<> {
        let file_bytes = self.map.len_bytes as u64;
        let end_bytes = span.end_bytes().min(file_bytes);
        let first_bytes = span.offset_bytes / WINDOW_BYTES * WINDOW_BYTES;
        (first_bytes..end_bytes)
            .step_by(WINDOW_BYTES as usize)
            .map(move |offset_bytes| {
                let from_bytes = offset_bytes.max(span.offset_bytes);
                let until_bytes = end_bytes.min(offset_bytes + WINDOW_BYTES);
                let touched = Span {
                    offset_bytes: from_bytes,
                    len_bytes: until_bytes - from_bytes,
                };
                let window = Span {
                    offset_bytes,
                    len_bytes: (file_bytes - offset_bytes).min(WINDOW_BYTES),
                };
                (touched, window)
            })
    }

    /// Which file it is, as it was when it was mapped.
    pub fn identity(&self) -> MappedVersion {
        self.identity
    }

    /// How many bytes of the span, from its start, are in memory and up to date, by mincore(2); `None` where the
    /// kernel does not say.
    pub fn resident_bytes(&self, span: Span) -> Option<u64> {
        self.map.resident_bytes(span)
    }

    /// Whether the mapping is worth keeping when the file is closed: some of it is in the page tables, or soon will be.
    pub fn is_hot(&self) -> bool {
        self.is_hot.load(Ordering::Relaxed)
    }

    /// Windows in the page tables.
    #[cfg(test)]
    pub fn entered(&self) -> usize {
        self.entered.lock().expect("no panic").len()
    }

    /// Forgets all proofs.
    #[cfg(test)]
    pub fn forget(&self) {
        let all = Span {
            offset_bytes: 0,
            len_bytes: self.map.len_bytes as u64,
        };
        for (_, window) in self.windows(all) {
            WINDOWS.forget(self.window(window));
        }
    }

    fn window(&self, window: Span) -> Window {
        let address = self.map.address(window.offset_bytes);
        Window {
            address: address.map_or(0, |address| address as usize as u64),
            len_bytes: window.len_bytes,
            place: self
                .identity_hash
                .wrapping_add(window.offset_bytes / WINDOW_BYTES),
        }
    }

    /// Whether all windows of the span were entered in this epoch of the page cache, so that the span is in memory.
    pub fn is_proven(&self, span: Span) -> bool {
        if span.end_bytes() > self.map.len_bytes as u64 {
            return false;
        }
        let mut windows = self.windows(span).map(|(_, window)| self.window(window));
        windows.next().is_some_and(|first| {
            let is_proven = |window, epoch| WINDOWS.is_proven(window, epoch);
            // First what costs least: the epoch may have to be read from /proc.
            WINDOWS.is_entered(first)
                && reclaim::epoch().is_some_and(|epoch| {
                    is_proven(first, epoch) && windows.all(|window| is_proven(window, epoch))
                })
        })
    }

    /// Counts a question about the span, and yields the windows that it is time to enter now. Windows are counted as
    /// the iterator comes to them.
    pub fn asked_often(&self, span: Span) -> impl Iterator<Item = Span> {
        let windows = self.windows(span);
        let is_due = |(touched, window): &(Span, Span)| {
            let is_due = WINDOWS.asked(self.window(*window), touched.len_bytes);
            self.is_hot.fetch_or(is_due, Ordering::Relaxed);
            is_due
        };
        windows.filter(is_due).map(|(_, window)| window)
    }

    /// Enters this window, and those behind it, up to one that is not wholly in memory: who asks for this one often
    /// will soon ask for them. Waits for the disk if a page of the `file` is dropped between the question and the call, so no
    /// worker calls it.
    pub fn enter(&self, file: &impl AsFd, window: Span) {
        let ahead = Span {
            len_bytes: ENTER_AHEAD * WINDOW_BYTES,
            ..window
        };
        self.windows(ahead)
            .all(|(_, window)| self.enter_one(file, window));
    }

    /// Enters a window; `false`: it can't be entered now.
    fn enter_one(&self, file: &impl AsFd, window: Span) -> bool {
        // Asked before all else: what is dropped from now on ends the epoch, and with it the proof.
        let Some(epoch) = reclaim::epoch() else {
            return false;
        };
        if WINDOWS.is_entered_in(self.window(window), epoch) {
            return true;
        }
        // Missing pages would be read from the disk.
        let is_here = self.map.resident_bytes(window) == Some(window.len_bytes);
        if !is_here || !self.reserve(window) {
            return false;
        }
        let entered = self.populate(file, window).is_ok();
        match entered {
            true => WINDOWS.prove(self.window(window), epoch),
            false => self.release(window.offset_bytes),
        }
        entered
    }

    /// Puts the window's pages into our page tables.
    fn populate(&self, file: &impl AsFd, window: Span) -> Result<(), Errno> {
        let mut rest = window;
        while rest.len_bytes > 0 {
            // A page that is dropped before the next call would be read by it, under the lock of the address space, and each page
            // fault of a worker would wait for that disk.
            let held = HeldPages::new(file, rest)?;
            let from = self.map.address(rest.offset_bytes).ok_or(Errno::INVAL)?;
            // SAFETY: the window lies inside the mapping, and no memory of ours changes. Linux before 5.14 refuses.
            unsafe { madvise(from, held.len_bytes as usize, Advice::LinuxPopulateRead) }?;
            rest = rest.behind(held.len_bytes);
        }
        Ok(())
    }

    /// Gives back the place of the window there, which is not in the page tables, or only in part.
    fn release(&self, offset_bytes: u64) {
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        if entered.remove(&offset_bytes) {
            ENTERED.fetch_sub(1, Ordering::Relaxed);
            self.take_out(offset_bytes);
        }
    }

    /// Keeps the window there in the page tables if it still has its proof, and takes it out if not; returns whether
    /// it is kept. A proof is lost when its epoch is over, or to another window with the same slot in [`WINDOWS`].
    fn keep_if_proven(&self, offset_bytes: u64) -> bool {
        let window = self.window(Span {
            offset_bytes,
            len_bytes: WINDOW_BYTES,
        });
        let is_entered = WINDOWS.is_entered(window);
        if !is_entered {
            self.take_out(offset_bytes);
        }
        is_entered
    }

    /// Takes the window there out of the page tables.
    fn take_out(&self, offset_bytes: u64) {
        let len_bytes = (self.map.len_bytes as u64 - offset_bytes).min(WINDOW_BYTES);
        if let Some(from) = self.map.address(offset_bytes) {
            // SAFETY: the window lies inside the mapping, which nobody reads.
            let _ = unsafe { madvise(from, len_bytes as usize, Advice::LinuxDontNeed) };
        }
    }

    /// Reserves one of the [`ENTERED_WINDOWS_MAX`] places for the window, if it has none. Where all are taken, the
    /// windows of this file that are proven no longer give up theirs. `false`: there is no place.
    fn reserve(&self, window: Span) -> bool {
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        if entered.contains(&window.offset_bytes) {
            return true;
        }
        if ENTERED.load(Ordering::Relaxed) >= ENTERED_WINDOWS_MAX {
            let before = entered.len();
            entered.retain(|offset_bytes| self.keep_if_proven(*offset_bytes));
            ENTERED.fetch_sub((before - entered.len()) as u32, Ordering::Relaxed);
        }
        let is_room = ENTERED.fetch_add(1, Ordering::Relaxed) < ENTERED_WINDOWS_MAX;
        match is_room {
            true => _ = entered.insert(window.offset_bytes),
            false => _ = ENTERED.fetch_sub(1, Ordering::Relaxed),
        }
        is_room
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let entered = self.entered.get_mut();
        let entered = std::mem::take(entered.unwrap_or_else(PoisonError::into_inner));
        // One by one: while madvise(2) takes out a window, no other thread can map a file.
        for &offset_bytes in &entered {
            let window = Span {
                offset_bytes,
                len_bytes: WINDOW_BYTES,
            };
            WINDOWS.forget(self.window(window)); // its addresses may soon be those of another file
            self.take_out(offset_bytes);
        }
        ENTERED.fetch_sub(entered.len() as u32, Ordering::Relaxed);
        MAPPED_FILES.fetch_sub(1, Ordering::Relaxed);
        MAPPED_BYTES.fetch_sub(self.map.len_bytes as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::attributes::known;

    #[test]
    fn a_window_that_was_entered_is_proven_until_its_epoch_or_its_mapping_ends() {
        let path = std::env::temp_dir().join(format!("ackpace-proven-{}", std::process::id()));
        let len_bytes = 5 * WINDOW_BYTES / 2;
        std::fs::write(&path, vec![7; len_bytes as usize]).expect("room for 2.5 MB");
        let file = std::fs::File::open(&path).expect("our own file");
        std::fs::remove_file(&path).expect("our own file");
        let stat = known(&file).expect("an open file");
        let whole = Whole::new(&file, MappedVersion::of(&stat)).expect("a short file");
        let span = |offset_bytes, len_bytes| Span {
            offset_bytes,
            len_bytes,
        };
        let windows: Vec<Span> = whole
            .windows(span(0, len_bytes))
            .map(|(_, all)| all)
            .collect();
        assert_eq!(windows.len(), 3);
        assert!(!whole.is_proven(span(0, 10)), "nothing is entered");
        windows[..2].iter().for_each(|window| {
            whole.enter_one(&file, *window);
        });
        let Some(epoch) = reclaim::epoch() else {
            println!("skipped: no pgscan_file in /proc/vmstat here");
            return;
        };
        // Another epoch may begin at any time, so the proof is given for this one.
        let prove = || {
            let prove = |window: &Span| WINDOWS.prove(whole.window(*window), epoch);
            windows[..2].iter().for_each(prove);
            reclaim::epoch() == Some(epoch)
        };
        if prove() {
            let is_proven = |span| whole.is_proven(span) || reclaim::epoch() != Some(epoch);
            assert!(is_proven(span(5, 10)));
            assert!(is_proven(span(0, 2 * WINDOW_BYTES)), "two windows");
        }
        prove();
        assert!(
            !whole.is_proven(span(WINDOW_BYTES, WINDOW_BYTES + 1)),
            "a third one"
        );
        assert!(
            !whole.is_proven(span(0, 3 * WINDOW_BYTES)),
            "beyond the file"
        );
        WINDOWS.prove(whole.window(windows[0]), epoch.wrapping_sub(1));
        assert!(!whole.is_proven(span(5, 10)), "another epoch has begun");
        prove();
        let addresses = windows
            .iter()
            .map(|window| whole.window(*window))
            .collect::<Vec<_>>();
        drop(whole);
        for window in addresses {
            assert!(
                !WINDOWS.is_proven(window, epoch),
                "other bytes may have its addresses"
            );
        }
    }
}
