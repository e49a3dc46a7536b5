//! The disk tier of a gateway: which windows of which objects lie in the cache folder, and which of them leaves next.
//!
//! Each window of an object is one file. Its [`Name`] is a hash of what it holds, so a start finds its way without any
//! other record. A hash may be that of another window: the file's first page says whose it is, and is compared.
//!
//! The files leave in the order in which they came, but for a second chance: one that was read since it was last looked
//! at stays for another round. The order of those found at a start is the folder's.

use alloc::collections::BTreeMap;

use crate::conn::Span;
use crate::limits::WINDOW_BYTES;

/// Memory of a file in the index at most: it is in two B-trees, whose nodes may be half empty.
pub const FILE_MEMORY_BYTES: u64 = 160;
/// Files that are looked at for one that leaves: some 20 microseconds. More: the next one goes, read or not.
const LOOKS_MAX: usize = 64;

/// FNV-1a of 128 bits (draft-eastlake-fnv).
const FNV_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// The name of a file of the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub u128);

impl Name {
    /// The name for this window of an object of this identity and length.
    pub fn of(identity: &[u8], object_len_bytes: u64, window: u64) -> Name {
        let numbers = [object_len_bytes.to_le_bytes(), window.to_le_bytes()];
        let bytes = numbers.as_flattened().iter().chain(identity);
        Name(bytes.fold(FNV_OFFSET, |hash, byte| {
            (hash ^ u128::from(*byte)).wrapping_mul(FNV_PRIME)
        }))
    }
}

/// The bytes of this window of an object; none if it lies behind the object's end.
pub fn window_span(object_len_bytes: u64, window: u64) -> Span {
    let offset_bytes = window.saturating_mul(WINDOW_BYTES);
    let left_bytes = object_len_bytes.saturating_sub(offset_bytes);
    Span {
        offset_bytes,
        len_bytes: left_bytes.min(WINDOW_BYTES),
    }
}

/// What is known of a file.
#[derive(Clone, Copy, Debug)]
struct File {
    turn: u64,
    cost_bytes: u32,
    /// It was read since it was last looked at.
    used: bool,
    /// Its bytes were compared with their checksum.
    checked: bool,
}

/// The files of the cache folder.
#[derive(Debug)]
pub struct Index {
    files: BTreeMap<Name, File>,
    /// The order in which they leave.
    by_turn: BTreeMap<u64, Name>,
    last_turn: u64,
    kept_bytes: u64,
    bytes_max: u64,
    files_max: usize,
}

impl Index {
    /// An empty index of files that take at most `bytes_max` together, and of at most `files_max` of them.
    pub fn new(bytes_max: u64, files_max: usize) -> Index {
        Index {
            files: BTreeMap::new(),
            by_turn: BTreeMap::new(),
            last_turn: 0,
            kept_bytes: 0,
            bytes_max,
            files_max,
        }
    }

    /// Whether there is such a file.
    pub fn has(&self, name: Name) -> bool {
        self.files.contains_key(&name)
    }

    /// A file is about to be read: it earns a second chance. Says whether its bytes were compared with their checksum;
    /// `None`: there is none.
    pub fn read(&mut self, name: Name) -> Option<bool> {
        let file = self.files.get_mut(&name)?;
        file.used = true;
        Some(file.checked)
    }

    /// The bytes of a file agree with their checksum.
    pub fn checked(&mut self, name: Name) {
        if let Some(file) = self.files.get_mut(&name) {
            file.checked = true;
        }
    }

    /// A file is there that takes so many bytes, for which there [is room](Index::next_to_leave).
    pub fn add(&mut self, name: Name, cost_bytes: u32, checked: bool) {
        self.remove(name);
        self.last_turn += 1;
        let file = File {
            turn: self.last_turn,
            cost_bytes,
            used: false,
            checked,
        };
        self.by_turn.insert(file.turn, name);
        self.files.insert(name, file);
        self.kept_bytes += u64::from(cost_bytes);
    }

    /// A file is not there any more.
    pub fn remove(&mut self, name: Name) {
        if let Some(file) = self.files.remove(&name) {
            self.by_turn.remove(&file.turn);
            self.kept_bytes -= u64::from(file.cost_bytes);
        }
    }

    /// The next file that has to leave before one of this cost is added, which is in the index no more; `None`: there is
    /// room. A file that would not even fit alone finds room in the end, and leaves first.
    pub fn next_to_leave(&mut self, cost_bytes: u32) -> Option<Name> {
        let fits = self.kept_bytes + u64::from(cost_bytes) <= self.bytes_max
            && self.files.len() < self.files_max;
        match fits {
            true => None,
            false => self.oldest(),
        }
    }

    /// The file whose turn it is to leave, which is in the index no more.
    pub fn oldest(&mut self) -> Option<Name> {
        for _ in 0..LOOKS_MAX {
            let (_, name) = self.by_turn.first_key_value()?;
            let file = self.files.get_mut(name)?;
            if !core::mem::take(&mut file.used) {
                break;
            }
            self.last_turn += 1;
            file.turn = self.last_turn;
            if let Some((_, name)) = self.by_turn.pop_first() {
                self.by_turn.insert(self.last_turn, name);
            }
        }
        let (_, name) = self.by_turn.first_key_value()?;
        let name = *name;
        self.remove(name);
        Some(name)
    }

    /// How many files there are, and what they take together.
    pub fn kept(&self) -> (usize, u64) {
        (self.files.len(), self.kept_bytes)
    }
}

#[cfg(test)]
mod tests;
