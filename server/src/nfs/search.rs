//! Searches a file by the hints of its handle: hashes of the names of the path by which it was found once. A long folder is read
//! once for many searches, as long as it stays as it is ([`Indexes`]).

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ackpace_wire::files::Known;
use rustix::fs::{OFlags, RawDir, Statx};
use rustix::io::Errno;

use super::eyes::Eyes;
use super::fail::Fail;
use super::identity::{Hints, hash};
use crate::store::attributes::known;
use crate::store::door::{Miss, Wait};
use crate::store::root::{READ, Root};

/// Names that are read in one search, some 0.1 us each. More: the file is stale, since nobody knows how long it would take.
const NAMES_MAX: u32 = 1 << 20;
/// Paths that wait to be looked at. More: the search ends likewise.
const PATHS_MAX: usize = 1 << 12;
/// Names of one index. More: each search reads the folder.
const INDEXED_MAX: usize = 1 << 17;
/// Bytes of these names, each with its end. More: likewise.
const INDEXED_BYTES_MAX: usize = 4 << 20;
/// Names of a folder that is worth an index.
const INDEXED_LEAST: usize = 1000;
/// Indexes that are kept. More: the one that was made first goes.
const INDEXES_MAX: usize = 2;
/// A folder that was changed in the last so many seconds may change again without a new time, so it gets no index.
const SETTLED_S: u64 = 2;

/// Memory of all indexes at worst, with that of the one that is made, which may be half empty.
pub const NFS_INDEXES_BYTES: u64 =
    ((INDEXES_MAX + 2) * (INDEXED_MAX * size_of::<Indexed>() + INDEXED_BYTES_MAX)) as u64;

/// The names of a folder, by their hashes.
#[derive(Debug, Default)]
struct Index {
    path: Vec<u8>,
    /// Of the folder: its number, its file system and its last change.
    state: State,
    /// By hash.
    names: Vec<Indexed>,
    /// Each name ends with a NUL.
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Indexed {
    hash: u32,
    start: u32,
}

type State = (u64, (u32, u32), (i64, u32));

/// The indexes of the folders that were searched last.
#[derive(Debug, Default)]
pub struct Indexes {
    all: Mutex<Vec<Arc<Index>>>,
    /// Held by the one search that makes an index.
    making: Mutex<()>,
}

impl Indexes {
    /// The index of a folder in this state.
    fn of(&self, path: &[u8], state: &State) -> Option<Arc<Index>> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = all.iter();
        all.find(|index| index.path == path && index.state == *state)
            .cloned()
    }

    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.all.lock().map_or(0, |all| all.len())
    }

    fn keep(&self, mut index: Index) {
        index.names.sort_unstable_by_key(|name| name.hash);
        index.names.shrink_to_fit();
        index.text.shrink_to_fit();
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.path != index.path);
        if all.len() >= INDEXES_MAX {
            all.remove(0);
        }
        all.push(Arc::new(index));
    }
}

impl Index {
    /// Adds a name; `false`: there is no room.
    fn add(&mut self, name: &[u8], hash: u32) -> bool {
        let start = self.text.len() as u32; // below its bound
        let has_room =
            self.names.len() < INDEXED_MAX && self.text.len() + name.len() < INDEXED_BYTES_MAX;
        if has_room {
            self.names.push(Indexed { hash, start });
            self.text.extend(name);
            self.text.push(0);
        }
        has_room
    }

    /// The names whose hashes are in this range.
    fn names(&self, first: u32, last: u32) -> impl Iterator<Item = &[u8]> {
        let start = self.names.partition_point(|name| name.hash < first);
        let names = self.names[start..].iter();
        names
            .take_while(move |name| name.hash <= last)
            .filter_map(|name| {
                let text = &self.text[name.start as usize..];
                text.split(|byte| *byte == 0).next()
            })
    }
}

/// A search under way.
pub struct Search<'a> {
    root: &'a Root,
    indexes: &'a Indexes,
    hints: Hints<'a>,
    eyes: Eyes<'a>,
    /// Folders whose names are to be looked at, with the number of names in their paths.
    folders: Vec<(Vec<u8>, usize)>,
    /// Paths that fit all hints.
    found: Vec<Vec<u8>>,
    names_left: u32,
}

impl<'a> Search<'a> {
    /// A search from the root on.
    pub fn new(
        root: &'a Root,
        indexes: &'a Indexes,
        hints: Hints<'a>,
        eyes: Eyes<'a>,
    ) -> Search<'a> {
        let top = Vec::new();
        let (folders, found) = match hints.depth() {
            0 => (Vec::new(), vec![top]),
            _ => (vec![(top, 0)], Vec::new()),
        };
        Search {
            root,
            indexes,
            hints,
            eyes,
            folders,
            found,
            names_left: NAMES_MAX,
        }
    }

    /// The next path that fits; `None`: there is no other, or the search took too long. Waits for the disk.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, Fail> {
        loop {
            if let Some(path) = self.found.pop() {
                return Ok(Some(path));
            }
            let Some((folder, depth)) = self.folders.pop() else {
                return Ok(None);
            };
            match self.look(&folder, depth) {
                // Renamed, forbidden, or no folder: it is not there for us.
                Ok(())
                | Err(Miss::NotFound | Miss::Hidden | Miss::Astray(_) | Miss::Forbidden(_)) => {}
                Err(miss) => return Err(miss.into()),
            }
        }
    }

    fn look(&mut self, folder: &[u8], depth: usize) -> Result<(), Miss> {
        let (first, last) = self.hints.range(depth);
        let (names, told) = match open(self.root, folder) {
            Err(Miss::Forbidden(_)) => self.open_as_caller(folder)?,
            opened => opened?,
        };
        let state = state(&told);
        if let Some(index) = self.indexes.of(folder, &state) {
            for name in index.names(first, last) {
                self.fits(folder, name, depth);
            }
            return Ok(());
        }
        let making = self.indexes.making.try_lock();
        let mut index = making.is_ok().then(|| Index {
            path: folder.to_vec(),
            state,
            ..Index::default()
        });
        let mut room = vec![MaybeUninit::uninit(); 32 << 10];
        let mut names = RawDir::new(names, &mut room);
        while let Some(entry) = names.next() {
            let entry = entry.map_err(|error| Miss::of(error, Wait::Yes))?;
            let name = entry.file_name().to_bytes();
            let hash = hash(name);
            let has_room = index.as_mut().is_some_and(|index| index.add(name, hash));
            index = index.filter(|_| has_room);
            if (first..=last).contains(&hash) {
                self.fits(folder, name, depth);
            }
            self.names_left = self.names_left.saturating_sub(1);
            if self.names_left == 0 || self.found.len() + self.folders.len() >= PATHS_MAX {
                self.folders.clear();
                return Ok(());
            }
        }
        let index = index.filter(|index| index.names.len() >= INDEXED_LEAST);
        if let Some(index) = index.filter(|_| is_settled(&told)) {
            self.indexes.keep(index);
        }
        Ok(())
    }

    /// The same of a folder that the server may not read.
    fn open_as_caller(&self, folder: &[u8]) -> Result<(OwnedFd, Statx), Miss> {
        let place = self.eyes.look(Errno::ACCESS, folder)?;
        let stat = rustix::fs::fstat(&place).map_err(Miss::Failed)?;
        let known_as = Known {
            path: folder.to_vec(),
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        let opened = self.eyes.read(Errno::ACCESS, known_as)?;
        let told = known(&opened).map_err(Miss::Failed)?;
        Ok((opened, told))
    }

    /// A name fits its hint.
    fn fits(&mut self, folder: &[u8], name: &[u8], depth: usize) {
        if matches!(name, b"." | b"..") {
            return;
        }
        let path = joined(folder, name);
        match depth + 1 == self.hints.depth() {
            true => self.found.push(path),
            false => self.folders.push((path, depth + 1)),
        }
    }
}

fn state(told: &Statx) -> State {
    let device = (told.stx_dev_major, told.stx_dev_minor);
    let changed = (told.stx_ctime.tv_sec, told.stx_ctime.tv_nsec);
    (told.stx_ino, device, changed)
}

/// Whether its last change is so long ago that the next one will have another time.
fn is_settled(told: &Statx) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.map_or(0, |now| now.as_secs());
    u64::try_from(told.stx_ctime.tv_sec).is_ok_and(|changed_s| changed_s + SETTLED_S < now_s)
}

fn open(root: &Root, folder: &[u8]) -> Result<(OwnedFd, Statx), Miss> {
    let door = root.door();
    let Some(top) = root.served().next() else {
        return Err(Miss::NotFound);
    };
    let name = door.name(&top.dir, folder)?;
    let failed = |error| Miss::of(error, Wait::Yes);
    let place = name.open(OFlags::PATH | OFlags::DIRECTORY, Wait::Yes);
    let owner = known(&place.map_err(failed)?)
        .map_err(Miss::Failed)?
        .stx_uid;
    let opened = door.open_quietly(owner, |quiet| {
        name.open(READ | OFlags::DIRECTORY | quiet, Wait::Yes)
    });
    let opened = opened.map_err(failed)?;
    let told = known(&opened).map_err(Miss::Failed)?;
    Ok((opened, told))
}

/// The path of a name in a folder.
pub fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder.is_empty() {
        true => name.to_vec(),
        false => [folder, b"/", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_has_each_name_at_its_hash() {
        let mut index = Index::default();
        let names: Vec<String> = (0..5000).map(|nth| format!("name-{nth}")).collect();
        for name in &names {
            assert!(index.add(name.as_bytes(), hash(name.as_bytes())));
        }
        let indexes = Indexes::default();
        let state = index.state;
        indexes.keep(index);
        let index = indexes.of(b"", &state).expect("it was just made");
        for name in &names {
            let hash = hash(name.as_bytes());
            assert!(
                index
                    .names(hash, hash)
                    .any(|other| other == name.as_bytes())
            );
        }
        let all = index.names(0, u32::MAX).count();
        let first = index.names(7 << 24, (8 << 24) - 1).count();
        assert_eq!(all, names.len());
        assert!((1..200).contains(&first), "one in 256: {first}");
        assert!(indexes.of(b"other", &state).is_none());
        assert!(indexes.of(b"", &(1, state.1, state.2)).is_none());
    }

    #[test]
    fn an_index_has_bounds() {
        let mut index = Index::default();
        let long = [b'n'; 255];
        let added = (0..1 << 20).take_while(|_| index.add(&long, 1)).count();
        assert!(added <= INDEXED_MAX && index.text.len() <= INDEXED_BYTES_MAX);
        let indexes = Indexes::default();
        for nth in 0..5u8 {
            indexes.keep(Index {
                path: vec![nth],
                ..Index::default()
            });
        }
        assert!(indexes.of(&[2], &State::default()).is_none());
        assert!(indexes.of(&[3], &State::default()).is_some());
    }
}
