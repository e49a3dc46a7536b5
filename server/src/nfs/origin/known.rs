//! What is remembered of paths: those of long handles, which are folders, which are missing, and when a folder's listing was last
//! seen to change.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Paths that are remembered. More: the one that was not used for longest is forgotten, and asked for when it is used again.
const KNOWN_MAX: usize = 16_384;
/// Bytes of these paths. More: likewise.
const PATHS_BYTES_MAX: usize = 4 << 20;
/// How long a folder is one. Longer: a file in its place is seen so late.
const FOLDER: Duration = Duration::from_secs(60);
/// How long what is missing is not asked for. Longer: a new file is seen so late.
const MISSING: Duration = Duration::from_secs(5);

/// Memory of all that at worst. Tables may be half empty.
pub const KNOWN_BYTES: u64 = (2 * KNOWN_MAX * size_of::<(u64, Entry)>()
    + 2 * KNOWN_MAX * size_of::<u64>()
    + KNOWN_MAX * 2 * size_of::<usize>()
    + PATHS_BYTES_MAX) as u64;

/// What a path is, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A folder.
    Folder,
    /// Nothing.
    Missing,
}

/// A listing as it was seen last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    digest: u64,
    since_unix_s: u32,
}

#[derive(Debug)]
struct Entry {
    path: Arc<[u8]>,
    note: Option<(Note, Instant)>,
    seen: Option<Seen>,
    is_used: bool,
}

/// The table, by the keyed hashes of paths.
#[derive(Debug, Default)]
pub struct Known(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<u64, Entry>,
    by_age: VecDeque<u64>,
    paths_bytes: usize,
}

impl Known {
    /// A path by its hash.
    pub fn path(&self, hash: u64) -> Option<Arc<[u8]>> {
        let mut table = self.lock();
        let entry = table.entries.get_mut(&hash)?;
        entry.is_used = true;
        Some(Arc::clone(&entry.path))
    }

    /// What a path is.
    pub fn note(&self, hash: u64) -> Option<Note> {
        let table = self.lock();
        let (note, until) = table.entries.get(&hash)?.note?;
        (Instant::now() < until).then_some(note)
    }

    /// Since when a folder has been listed as it is, in seconds since 1970.
    pub fn listed_since(&self, hash: u64) -> Option<u32> {
        let mut table = self.lock();
        let entry = table.entries.get_mut(&hash)?;
        entry.is_used = true;
        Some(entry.seen?.since_unix_s)
    }

    /// Remembers a path.
    pub fn remember(&self, hash: u64, path: &[u8]) {
        self.with(hash, path, |_| {});
    }

    /// Remembers what a path is.
    pub fn keep(&self, hash: u64, path: &[u8], note: Note) {
        let lasts = match note {
            Note::Folder => FOLDER,
            Note::Missing => MISSING,
        };
        let until = Instant::now() + lasts;
        self.with(hash, path, |entry| entry.note = Some((note, until)));
    }

    /// A folder was listed, with a listing of this digest.
    pub fn listed(&self, hash: u64, path: &[u8], digest: u64, now_unix_s: u32) {
        self.with(hash, path, |entry| {
            let is_same = entry.seen.is_some_and(|seen| seen.digest == digest);
            if !is_same {
                entry.seen = Some(Seen {
                    digest,
                    since_unix_s: now_unix_s,
                });
            }
        });
    }

    fn with(&self, hash: u64, path: &[u8], change: impl FnOnce(&mut Entry)) {
        let mut table = self.lock();
        if !table.entries.contains_key(&hash) {
            table.make_room(path.len());
            table.by_age.push_back(hash);
            table.paths_bytes += path.len();
        }
        let entry = table.entries.entry(hash);
        let entry = entry.and_modify(|entry| entry.is_used = true);
        let entry = entry.or_insert_with(|| Entry {
            path: path.into(),
            note: None,
            seen: None,
            is_used: false,
        });
        change(entry);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// For one more path of this length. What was used since it was looked at last stays.
    fn make_room(&mut self, len: usize) {
        while self.entries.len() >= KNOWN_MAX || self.paths_bytes + len > PATHS_BYTES_MAX {
            let Some(oldest) = self.by_age.pop_front() else {
                return;
            };
            let entry = self.entries.get_mut(&oldest);
            if entry.is_some_and(|entry| std::mem::take(&mut entry.is_used)) {
                self.by_age.push_back(oldest);
            } else if let Some(entry) = self.entries.remove(&oldest) {
                self.paths_bytes -= entry.path.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_bound_and_keeps_what_is_used() {
        let known = Known::default();
        let path = [b'p'; 300];
        for hash in 0..2 * KNOWN_MAX as u64 {
            known.remember(hash, &path);
            assert_eq!(known.path(0).as_deref(), Some(&path[..]), "{hash}");
        }
        let table = known.lock();
        assert!(table.entries.len() <= KNOWN_MAX && table.paths_bytes <= PATHS_BYTES_MAX);
        assert_eq!(table.entries.len(), table.by_age.len());
        assert!(table.paths_bytes > PATHS_BYTES_MAX / 2);
    }

    #[test]
    fn a_folder_is_as_old_as_its_listing() {
        let known = Known::default();
        assert_eq!(known.listed_since(1), None);
        known.listed(1, b"a", 7, 100);
        known.listed(1, b"a", 7, 200);
        assert_eq!(known.listed_since(1), Some(100));
        known.listed(1, b"a", 8, 300);
        assert_eq!(known.listed_since(1), Some(300));
        known.keep(1, b"a", Note::Folder);
        assert_eq!(known.note(1), Some(Note::Folder));
    }
}
