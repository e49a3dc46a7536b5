//! Searches a file by the hints of its handle: a byte for each name of the path by which it was found once. So of a folder's names
//! one in 256 is looked at more closely.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags, RawDir};

use super::fail::Fail;
use super::identity::hint;
use crate::store::attributes::known;
use crate::store::door::{Miss, Wait};
use crate::store::root::{READ, Root};

/// Names that are read in one search, some 0.1 us each. More: the file is stale, since nobody knows how long it would take.
const NAMES_MAX: u32 = 1 << 20;
/// Paths that wait to be looked at. More: the search ends likewise.
const PATHS_MAX: usize = 1 << 12;

/// A search under way.
pub struct Search<'a> {
    root: &'a Root,
    hints: &'a [u8],
    /// Folders whose names are to be read, with the number of hints that they had.
    folders: Vec<(Vec<u8>, usize)>,
    /// Paths that have all hints.
    found: Vec<Vec<u8>>,
    names_left: u32,
}

impl<'a> Search<'a> {
    /// A search from the root on.
    pub fn new(root: &'a Root, hints: &'a [u8]) -> Search<'a> {
        let (folders, found) = match hints {
            [] => (Vec::new(), vec![Vec::new()]),
            _ => (vec![(Vec::new(), 0)], Vec::new()),
        };
        Search {
            root,
            hints,
            folders,
            found,
            names_left: NAMES_MAX,
        }
    }

    /// The next path with the right hints; `None`: there is no other, or the search took too long. Waits for the disk.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, Fail> {
        loop {
            if let Some(path) = self.found.pop() {
                return Ok(Some(path));
            }
            let Some((folder, depth)) = self.folders.pop() else {
                return Ok(None);
            };
            match self.read(&folder, depth) {
                // Renamed or forbidden: it is not there for us.
                Ok(())
                | Err(Miss::NotFound | Miss::Hidden | Miss::Astray(_) | Miss::Forbidden(_)) => {}
                Err(miss) => return Err(miss.into()),
            }
        }
    }

    fn read(&mut self, folder: &[u8], depth: usize) -> Result<(), Miss> {
        let names = open(self.root, folder)?;
        let (wanted, is_last) = (self.hints[depth], depth + 1 == self.hints.len());
        let mut room = [MaybeUninit::uninit(); 32 << 10];
        let mut names = RawDir::new(names, &mut room);
        while let Some(entry) = names.next() {
            let entry = entry.map_err(Miss::Failed)?;
            let name = entry.file_name().to_bytes();
            let may_lead =
                is_last || matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            self.names_left = self.names_left.saturating_sub(1);
            if self.names_left == 0 || self.found.len() + self.folders.len() >= PATHS_MAX {
                self.folders.clear();
                return Ok(());
            }
            if hint(name) != wanted || !may_lead || matches!(name, b"." | b"..") {
                continue;
            }
            let path = joined(folder, name);
            match is_last {
                true => self.found.push(path),
                false => self.folders.push((path, depth + 1)),
            }
        }
        Ok(())
    }
}

fn open(root: &Root, folder: &[u8]) -> Result<OwnedFd, Miss> {
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
    opened.map_err(failed)
}

/// The path of a name in a folder.
pub fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder.is_empty() {
        true => name.to_vec(),
        false => [folder, b"/", name].concat(),
    }
}
