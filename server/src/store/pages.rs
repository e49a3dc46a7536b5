//! A file's pages as addresses that nobody touches, so that mincore(2) tells of each whether it is in the page cache and holds
//! what it should. cachestat(2) counts those that are still being read, too.
//!
//! Asking of a MiB costs 15 to 40 us where the kernel has to find each page in the cache, and a tenth of that where it finds them in
//! our page tables, which name only pages that are there and hold what they should. So a window that is asked about again and
//! again is entered there. That costs as much as three questions. While an epoch of the page cache lasts ([`reclaim`])
//! what was entered is in memory, and nobody has to ask. Truncation and holes take pages out, too, but change the file's
//! version, which is checked before each send.
//!
//! Most files are mapped whole, for as long as they are open, and a little longer if they are asked for often (`lingering`).
//! Addresses and mappings of a process are few beside the files that it may have open, so a very long file, and any file once
//! many are mapped, is mapped a window at a time, for each question.

mod held;
mod lingering;
mod map;
pub mod reclaim;
mod whole;
mod windows;

use std::sync::Arc;

use ackpace_core::conn::Span;
use rustix::io::Errno;

use super::closing::{Descriptor, at_leisure, later};
use crate::limits::ENTERED_WINDOWS_MAX;
use lingering::LINGERING_BYTES;
pub use lingering::end_all as end_lingering;
use map::Map;
use whole::{ENTERED_BYTES, Whole};
pub use whole::{MappedVersion, WHOLE_BYTES};
use windows::WINDOW_BYTES;
pub use windows::WINDOWS_BYTES;

/// Memory of what is known of the windows of all files, besides [`WHOLE_BYTES`] of each file.
pub const PAGES_BYTES: u64 = WINDOWS_BYTES + ENTERED_BYTES + LINGERING_BYTES;
/// The kernel's memory for the page tables of windows that are entered, at most: half a page for a window if its
/// neighbour is entered, too, and a page if not.
pub const PAGE_TABLES_BYTES: u64 = ENTERED_WINDOWS_MAX as u64 * 4096;

/// The first bytes of a file as addresses.
#[derive(Debug)]
pub struct Pages {
    file: Arc<Descriptor>,
    /// All of it; `None`: what is asked about is mapped for the question.
    whole: Option<Arc<Whole>>,
    len_bytes: u64,
    /// Windows of it may be entered: nothing drops their pages without a sign.
    is_here: bool,
}

impl Pages {
    /// The pages of a file as it is now; `is_here`: its file system asks no daemon and no file server. Takes address space, and no memory.
    ///
    /// # Errors
    /// As mmap(2): what can't be mapped (some FUSE files), or no address space.
    pub fn new(
        file: &Arc<Descriptor>,
        is_here: bool,
        identity: MappedVersion,
    ) -> Result<Pages, Errno> {
        let kept = lingering::take(identity);
        let whole = kept.or_else(|| Whole::new(file, identity).map(Arc::new));
        if whole.is_none() {
            drop(Map::new(file, 0, identity.len_bytes.min(WINDOW_BYTES))?);
        }
        Ok(Pages {
            file: file.clone(),
            whole,
            len_bytes: identity.len_bytes,
            is_here,
        })
    }

    /// How many bytes of the span, from its start, are in memory and hold what they should, if the file still has
    /// its version; `None` where the kernel does not say.
    pub fn resident_bytes(&self, span: Span) -> Option<u64> {
        match &self.whole {
            Some(whole) => {
                if whole.is_proven(span) {
                    return Some(span.len_bytes);
                }
                let resident_bytes = whole.resident_bytes(span)?;
                // A FUSE daemon's pages are dropped without a sign when the file is opened once more.
                let often = self.is_here.then(|| whole.asked_often(span));
                for window in often.into_iter().flatten() {
                    // Of a file that is closed or unmapped meanwhile no window is entered.
                    let weak = (Arc::downgrade(whole), Arc::downgrade(&self.file));
                    // Between the question and this a page may be dropped, which is read then: no worker does it.
                    at_leisure(self.file.st_dev(), move || {
                        if let (Some(whole), Some(file)) = (weak.0.upgrade(), weak.1.upgrade()) {
                            whole.enter(&file, window);
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
                let map = Map::new(&self.file, from_bytes, len_bytes).ok()?;
                map.resident_bytes(Span {
                    offset_bytes: span.offset_bytes - from_bytes,
                    ..span
                })
            }
        }
    }

    /// Whether all of the span is in memory, since it was entered in this epoch.
    pub fn are_proven(&self, span: Span) -> bool {
        let whole = self.whole.as_ref();
        whole.is_some_and(|whole| whole.is_proven(span))
    }

    /// Whether all of the span is in memory, and nobody can drop it in this moment.
    pub fn stay(&self, span: Span) -> bool {
        reclaim::is_fresh() && self.are_proven(span)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        match self.whole.take() {
            Some(whole) if whole.is_hot() => lingering::keep(self.file.st_dev(), whole),
            Some(whole) => later(self.file.st_dev(), whole),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAPPED_EACH_BYTES_MAX;
    use crate::store::attributes::{FileSystemId, known};

    fn opened(file: std::fs::File, st_dev: u64) -> Arc<Descriptor> {
        let mount_id = 0;
        let file_system = FileSystemId { st_dev, mount_id };
        Arc::new(Descriptor::new(file.into(), file_system))
    }

    fn now(file: &Arc<Descriptor>) -> MappedVersion {
        MappedVersion::of(&known(file).expect("an open file"))
    }

    #[test]
    fn a_window_that_is_asked_for_often_is_entered_with_those_behind_it() {
        let path = std::env::temp_dir().join(format!("ackpace-pages-{}", std::process::id()));
        let len_bytes = 5 * WINDOW_BYTES / 2;
        std::fs::write(&path, vec![7; len_bytes as usize]).expect("room for 2.5 MB");
        let file = opened(std::fs::File::open(&path).expect("our own file"), 0);
        let pages = Pages::new(&file, true, now(&file)).expect("a file of a temporary folder");
        let half = |offset_bytes| Span {
            offset_bytes,
            len_bytes: WINDOW_BYTES / 2,
        };
        let whole = pages.whole.as_ref().expect("a short file");
        // Windows of other tests may share its count, and another thread may enter it.
        while whole.entered() < 2 {
            let told = pages.resident_bytes(half(WINDOW_BYTES));
            assert_eq!(told, Some(WINDOW_BYTES / 2));
        }
        // Pages that the kernel took out are missed, unless nothing was scanned: then the file's version tells.
        let writer = std::fs::File::options().write(true).open(&path);
        writer
            .and_then(|file| file.set_len(0))
            .expect("our own file");
        whole.forget();
        assert_eq!(pages.resident_bytes(half(0)), Some(0));
        std::fs::remove_file(&path).expect("our own file");
    }

    #[test]
    fn only_a_file_that_was_asked_for_often_and_did_not_change_stays_mapped() {
        crate::store::closing::start(8192);
        let path = std::env::temp_dir().join(format!("ackpace-linger-{}", std::process::id()));
        std::fs::write(&path, [7; 4096]).expect("room for a page");
        let file = opened(std::fs::File::open(&path).expect("our own file"), 0);
        let page = Span {
            offset_bytes: 0,
            len_bytes: 4096,
        };
        let mapped = || Pages::new(&file, true, now(&file)).expect("a file of a temporary folder");
        let address = |pages: &Pages| pages.whole.as_ref().map(Arc::as_ptr);
        let identity = || now(&file);

        let seldom = mapped();
        assert_eq!(seldom.resident_bytes(page), Some(4096));
        drop(seldom);
        assert!(lingering::take(identity()).is_none(), "asked for once");

        let often = mapped();
        for _ in 0..20 {
            assert_eq!(often.resident_bytes(page), Some(4096));
        }
        let first = address(&often);
        drop(often);
        let again = mapped();
        assert_eq!(address(&again), first, "the same mapping");
        drop(again);
        end_lingering();
        assert!(lingering::take(identity()).is_none(), "the process ends");
        let often = mapped();
        for _ in 0..20 {
            assert_eq!(often.resident_bytes(page), Some(4096));
        }
        let second = address(&often);
        drop(often);

        std::fs::write(&path, [8; 4096]).expect("room for a page");
        assert!(lingering::take(identity()).is_none(), "it changed");
        assert_ne!(address(&mapped()), second);
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
        let st_dev = 5; // a lane that no other test has
        let file = opened(std::fs::File::open(&path).expect("our own file"), st_dev);
        std::fs::remove_file(&path).expect("our own file");
        crate::store::closing::start(8192);
        let (go_on, told) = channel();
        later(st_dev, Hung(told));
        let pages = Pages::new(&file, true, now(&file)).expect("a file of a temporary folder");
        let all = Span {
            offset_bytes: 0,
            len_bytes: WINDOW_BYTES,
        };
        let ask = || assert_eq!(pages.resident_bytes(all), Some(WINDOW_BYTES));
        (0..20).for_each(|_| ask());
        let entered = || {
            let whole = pages.whole.as_ref().expect("a short file");
            whole.entered()
        };
        assert_eq!(entered(), 0, "its disk may hang");
        drop(go_on);
        while entered() == 0 {
            ask(); // windows of other tests may share its count
        }
        ask();
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
        let file = opened(file, 0);
        let before = address_bytes();
        let all: Vec<Pages> = (0..20)
            .map(|_| Pages::new(&file, true, now(&file)).expect("a file of a temporary folder"))
            .collect();
        // Other tests of this process unmap files meanwhile.
        assert!(address_bytes().saturating_sub(before) < MAPPED_EACH_BYTES_MAX);
        let span = |offset_bytes, len_bytes| Span {
            offset_bytes,
            len_bytes,
        };
        for pages in &all {
            let told = |span| pages.resident_bytes(span);
            assert_eq!(told(span(at_bytes, 20_000)), Some(20_000));
            assert_eq!(told(span(at_bytes + 4097, 9)), Some(9));
            assert!(told(span(at_bytes, 1 << 20)) < Some(1 << 20), "a hole");
            assert_eq!(told(span(0, 4096)), Some(0), "nobody has read it");
        }
    }
}
