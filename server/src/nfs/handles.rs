//! What is known of the files whose handles clients have: by which path each was found last, and a descriptor of it.
//!
//! A descriptor that is open as a place (O_PATH) tells the file's path after a rename (`/proc/self/fd`). One that nobody uses costs
//! little, but it keeps a removed file's space: [`Handles::sweep`] closes those.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ackpace_core::conn::Version;

use super::identity::{Body, Identity};
use crate::store::attributes::known;
use crate::store::closing::Descriptor;
use crate::store::door::Wait;
use crate::store::file::File;
use crate::store::files::lock;

/// Files that are known. More: the one that was not used for longest is forgotten, and found by the hints of its handle when a client
/// uses that again.
pub const NFS_FILES_MAX: usize = 65_536;
/// Bytes of their paths. More: files are forgotten as above.
pub const NFS_PATHS_BYTES_MAX: usize = 16 << 20;
/// Files that are open, at most two or three descriptors each. More: the one that was not used for longest is closed, and is not
/// found after a rename.
pub const NFS_OPEN_MAX: usize = 2048;
/// A file that was not used for so long is open as a place only. Longer: leases of other programs on it wait for so long.
const IDLE: Duration = Duration::from_secs(10);
/// Parts of the table: two of 16 busy threads seldom meet in one.
const PARTS: usize = 16;

/// Memory of all that is known at worst. Tables may be half empty.
pub const NFS_HANDLES_BYTES: u64 =
    (NFS_FILES_MAX * 2 * (size_of::<(Identity, Entry)>() + 2 * size_of::<Identity>())
        + NFS_OPEN_MAX * size_of::<Open>()
        + NFS_PATHS_BYTES_MAX) as u64;

/// A known file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Below the served directory, without links; where it was last.
    pub path: Arc<[u8]>,
    /// The body of its handle, which stays as it is while the file is known.
    pub body: Body,
    /// Its descriptors.
    pub open: Option<Box<Open>>,
    /// It was used since its age was looked at.
    is_used: bool,
}

/// An open file.
#[derive(Clone, Debug)]
pub struct Open {
    /// As a place.
    pub place: Arc<Descriptor>,
    /// When it was found by its path.
    pub found_at: Instant,
    /// For reading, with the version at that time.
    pub file: Option<(Arc<File>, Version)>,
}

/// What is known of a file that was just found.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The body of its handle.
    pub body: Body,
    /// As in [`Open`]: the descriptor that was there before, if it is of the same mount.
    pub place: Option<Arc<Descriptor>>,
    /// As in [`Open`].
    pub file: Option<(Arc<File>, Version)>,
}

impl Open {
    /// Whether it was not used for a while.
    pub fn is_idle(&self) -> bool {
        self.found_at.elapsed() >= IDLE
    }
}

/// All known files.
#[derive(Debug)]
pub struct Handles {
    parts: [Mutex<Part>; PARTS],
    open_max: usize,
}

#[derive(Debug, Default)]
struct Part {
    known: HashMap<Identity, Entry>,
    by_age: VecDeque<Identity>,
    /// Those that are open, by age. Some may have been closed since.
    opened: VecDeque<Identity>,
    paths_bytes: usize,
}

impl Handles {
    /// An empty table that keeps at most so many files open.
    pub fn new(open_max: usize) -> Handles {
        Handles {
            parts: Default::default(),
            open_max: open_max.min(NFS_OPEN_MAX),
        }
    }

    /// What is known of a file. `None`: another thread has the lock, and this one may not wait.
    pub fn get(&self, file: &Identity, wait: Wait) -> Option<Option<Entry>> {
        let mut part = lock(self.part(file), wait)?;
        let entry = part.known.get_mut(file);
        Some(entry.map(|entry| {
            entry.is_used = true;
            entry.clone()
        }))
    }

    /// A file was found by this path, and is kept open if there is a `place`. `None` as above.
    pub fn found(
        &self,
        file: &Identity,
        path: &[u8],
        place: Option<&Arc<Descriptor>>,
        wait: Wait,
    ) -> Option<Kept> {
        let mut part = lock(self.part(file), wait)?;
        let (kept, closed) = part.found(file, path, place, self.open_max / PARTS);
        drop(part);
        drop(closed); // without the lock
        Some(kept)
    }

    /// Keeps the file's descriptor for reading, as long as it is kept open at all.
    pub fn keep(&self, of: &Identity, file: &Arc<File>, version: Version, wait: Wait) {
        let part = lock(self.part(of), wait);
        let Some(mut part) = part else {
            return;
        };
        let entry = part.known.get_mut(of).and_then(|entry| entry.open.as_mut());
        let before = entry.and_then(|open| open.file.replace((Arc::clone(file), version)));
        drop(part);
        drop(before);
    }

    /// Closes the file: it was found elsewhere, or not at all.
    pub fn close(&self, file: &Identity, wait: Wait) {
        let part = lock(self.part(file), wait);
        let closed = part.and_then(|mut part| part.known.get_mut(file)?.open.take());
        drop(closed);
    }

    /// Closes removed files, and those that are not `wanted`; of files that were not used for a while only the place stays open. For a
    /// thread that may wait, about once a second.
    pub fn sweep(&self, wanted: impl Fn(&Open) -> bool) {
        for part in &self.parts {
            let open: Vec<(Identity, Box<Open>)> = {
                let part = lock(part, Wait::Yes);
                let known = part.iter().flat_map(|part| &part.known);
                known
                    .filter_map(|(file, entry)| Some((*file, entry.open.clone()?)))
                    .collect()
            };
            for (file, open) in open {
                let is_there = known(&*open.place).is_ok_and(|told| told.stx_nlink > 0);
                if !is_there || !wanted(&open) {
                    self.close(&file, Wait::Yes);
                } else if open.file.is_some() && open.is_idle() {
                    self.close_for_reading(&file);
                }
            }
        }
    }

    fn close_for_reading(&self, file: &Identity) {
        let part = lock(self.part(file), Wait::Yes);
        let closed = part.and_then(|mut part| {
            let open = part.known.get_mut(file)?.open.as_mut()?;
            open.file.take()
        });
        drop(closed);
    }

    fn part(&self, file: &Identity) -> &Mutex<Part> {
        let mixed = file.mixed().wrapping_mul(0x9E37_79B9);
        &self.parts[(mixed >> 16) as usize % PARTS]
    }
}

impl Part {
    /// Enters a file. Returns what is known of it, and what is closed for it.
    fn found(
        &mut self,
        file: &Identity,
        path: &[u8],
        place: Option<&Arc<Descriptor>>,
        open_max: usize,
    ) -> (Kept, Vec<Open>) {
        let entry = match self.known.entry(*file) {
            Slot::Occupied(entry) => entry.into_mut(),
            Slot::Vacant(free) => {
                self.by_age.push_back(*file);
                self.paths_bytes += path.len();
                free.insert(Entry {
                    path: path.into(),
                    body: Body::new(file, path),
                    open: None,
                    is_used: true,
                })
            }
        };
        if *entry.path != *path {
            self.paths_bytes = self.paths_bytes - entry.path.len() + path.len();
            entry.path = path.into();
        }
        let mut closed = Vec::new();
        if let Some(place) = place {
            let is_same = |open: &Open| open.place.file_system() == place.file_system();
            let before = entry.open.take();
            if before.is_none() {
                self.opened.push_back(*file);
            }
            entry.open = Some(match before {
                Some(mut open) if is_same(&open) => {
                    open.found_at = Instant::now();
                    open
                }
                before => {
                    closed.extend(before.map(|open| *open));
                    Box::new(Open {
                        place: Arc::clone(place),
                        found_at: Instant::now(),
                        file: None,
                    })
                }
            });
        }
        let open = entry.open.as_ref();
        let kept = Kept {
            body: entry.body,
            place: open.map(|open| Arc::clone(&open.place)),
            file: open.and_then(|open| open.file.clone()),
        };
        while self.opened.len() > open_max.max(1) {
            closed.extend(self.close_oldest());
        }
        while self.known.len() > NFS_FILES_MAX / PARTS
            || self.paths_bytes > NFS_PATHS_BYTES_MAX / PARTS
        {
            closed.extend(self.forget_oldest());
        }
        (kept, closed)
    }

    /// Closes the open file that was not used for longest.
    fn close_oldest(&mut self) -> Option<Open> {
        for _ in 0..=self.opened.len() {
            let oldest = self.opened.pop_front()?;
            let Some(entry) = self.known.get_mut(&oldest) else {
                return None; // forgotten
            };
            if entry.open.is_none() || !std::mem::take(&mut entry.is_used) {
                return entry.open.take().map(|open| *open);
            }
            self.opened.push_back(oldest);
        }
        None
    }

    /// Forgets the file that was not used for longest.
    fn forget_oldest(&mut self) -> Option<Open> {
        for _ in 0..=self.by_age.len() {
            let oldest = self.by_age.pop_front()?;
            let Some(entry) = self.known.get_mut(&oldest) else {
                continue;
            };
            if std::mem::take(&mut entry.is_used) {
                self.by_age.push_back(oldest);
                continue;
            }
            self.paths_bytes -= entry.path.len();
            return self.known.remove(&oldest)?.open.map(|open| *open);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_table_keeps_its_bounds_and_what_was_used() {
        let file = fs::File::open("/").expect("the root directory");
        let place = Arc::new(Descriptor::of(file.into()).expect("open"));
        let real = Identity::of(&*place, 0).expect("a file");
        let of = |file_system: u64| {
            let mut other = real;
            other.file_system = file_system;
            other
        };
        let handles = Handles::new(64);
        let path = [b'a'; 512];
        let used = of(0);
        for nth in 0..3 * NFS_FILES_MAX as u64 / 2 {
            let kept = handles.found(&of(nth), &path, Some(&place), Wait::Yes);
            assert!(kept.is_some());
            let entry = handles.get(&used, Wait::Yes).flatten();
            assert!(entry.is_some_and(|entry| *entry.path == path), "{nth}");
        }
        let (mut known, mut open, mut bytes) = (0, 0, 0);
        for part in &handles.parts {
            let part = part.lock().expect("no panic");
            known += part.known.len();
            open += part
                .known
                .values()
                .filter(|entry| entry.open.is_some())
                .count();
            bytes += part
                .known
                .values()
                .map(|entry| entry.path.len())
                .sum::<usize>();
            assert_eq!(part.known.len(), part.by_age.len());
            assert!(part.opened.len() <= 64 / PARTS);
        }
        assert!(known <= NFS_FILES_MAX && open <= 64 && bytes <= NFS_PATHS_BYTES_MAX);
        assert!(bytes > NFS_PATHS_BYTES_MAX / 2, "{bytes}");
        handles.sweep(|_| false);
        let is_open = handles
            .get(&used, Wait::Yes)
            .flatten()
            .map(|entry| entry.open.is_some());
        assert_eq!(is_open, Some(false));
    }

    #[test]
    fn a_thread_that_may_not_wait_does_not() {
        let file = fs::File::open("/").expect("the root directory");
        let identity = Identity::of(&file, 0).expect("a file");
        let handles = Handles::new(64);
        let _held = handles.part(&identity).lock();
        assert!(handles.get(&identity, Wait::No).is_none());
    }
}
