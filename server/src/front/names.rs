//! The names of a directory's entries, in the order in which they are listed, a piece of them at a time.
//!
//! A listing under way holds a piece: the names after those that were listed, as many as there is memory for
//! (`server/src/front/shelf.rs`).

use rustix::fs::FileType;

use super::charge::Charge;
use crate::sched::Breath;

/// How far a directory was listed: directories come first, then names bytewise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The entry is a directory, or a link to one.
    pub directory: bool,
    pub name: Vec<u8>,
}

impl Cursor {
    /// Whether an entry comes after it.
    pub fn is_before(&self, directory: bool, name: &[u8]) -> bool {
        (!self.directory, &self.name[..]) < (!directory, name)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Name {
    start: u32,
    len: u16,
    /// What it is itself, as getdents(2) reports.
    pub kind: FileType,
    /// It is a directory, or a link to one.
    pub directory: bool,
}

/// The names that come next, in two allocations.
#[derive(Debug)]
pub struct Names {
    bytes: Vec<u8>,
    entries: Vec<Name>,
    room_bytes: usize,
    next: usize,
    /// There was no memory for the names after the last entry.
    more: bool,
    charge: Charge,
}

/// A growing collection may have allocated so many times the memory of its entries.
pub const GROWTH: usize = 2;
/// One piece has this part of the memory of all at most.
const PIECES_MIN: usize = 8;

impl Names {
    /// No names yet, and memory for `room_bytes` of them. For more, `charge` grows.
    pub(super) fn new(room_bytes: usize, charge: Charge) -> Names {
        Names {
            charge,
            bytes: Vec::new(),
            entries: Vec::new(),
            room_bytes,
            next: 0,
            more: false,
        }
    }

    /// The next entry and its name.
    pub fn take(&mut self) -> Option<(Name, &[u8])> {
        let name = *self.entries.get(self.next)?;
        self.next += 1;
        Some((name, self.text(name)))
    }

    pub fn is_used_up(&self) -> bool {
        self.next == self.entries.len()
    }

    /// Whether the directory has names after these.
    pub fn more(&self) -> bool {
        self.more
    }

    /// Whether a name would be dropped again, since it comes after all that fit.
    pub fn is_beyond(&self, directory: bool, name: &[u8]) -> bool {
        // In a piece that was cut, its last entry is the last that fits.
        let last = self.entries.last().filter(|_| self.more);
        last.is_some_and(|last| (!last.directory, self.text(*last)) < (!directory, name))
    }

    /// Adds a name, in any order, that is not beyond. Without memory the later half of the names is dropped.
    pub fn push(&mut self, name: &[u8], kind: FileType, directory: bool, breath: &mut Breath) {
        let lacks_room = |names: &Names| names.cost_bytes() + cost_bytes(name) > names.room_bytes;
        while lacks_room(self) && self.grow() {}
        if lacks_room(self) {
            self.halve(breath);
            if self.is_beyond(directory, name) {
                return;
            }
        }
        let (Ok(start), Ok(len)) = (u32::try_from(self.bytes.len()), u16::try_from(name.len()))
        else {
            return; // no file system has such names
        };
        self.bytes.extend_from_slice(name);
        let name = Name {
            start,
            len,
            kind,
            directory,
        };
        match self.more {
            // The last one stays the last: the piece was cut there.
            true => self.entries.insert(self.entries.len() - 1, name),
            false => self.entries.push(name),
        }
    }

    /// Gets memory for twice as many names; `false`: there is none. A piece that was cut does not grow: the names behind the cut are
    /// gone.
    fn grow(&mut self) -> bool {
        let more_bytes = (2 * self.room_bytes).min(self.charge.room_bytes() / PIECES_MIN);
        let grows =
            !self.more && more_bytes > self.room_bytes && self.charge.resize(GROWTH * more_bytes);
        if grows {
            self.room_bytes = more_bytes;
        }
        grows
    }

    /// Sorts the names, all of which are there, and gives back unused memory.
    pub fn finish(&mut self, breath: &mut Breath) {
        self.sort(breath);
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// Keeps the half that comes first.
    fn halve(&mut self, breath: &mut Breath) {
        self.sort(breath);
        let kept = self.entries.len().div_ceil(2);
        self.more |= kept < self.entries.len();
        self.entries.truncate(kept);
        // Their text moves together, in the order of its addresses.
        self.entries.sort_unstable_by_key(|name| name.start);
        let mut end = 0;
        for entry in &mut self.entries {
            breath.take();
            let start = entry.start as usize;
            let len = usize::from(entry.len);
            self.bytes.copy_within(start..start + len, end);
            entry.start = end as u32; // not above its former start
            end += len;
        }
        self.bytes.truncate(end);
        self.sort(breath);
    }

    fn sort(&mut self, breath: &mut Breath) {
        /// Comparisons between two checks of the clock.
        const COMPARISONS: u32 = 64;
        let mut left = COMPARISONS;
        let Names { bytes, entries, .. } = self;
        let text = |name: &Name| &bytes[name.start as usize..][..usize::from(name.len)];
        entries.sort_unstable_by(|a, b| {
            left -= 1;
            if left == 0 {
                left = COMPARISONS;
                breath.take();
            }
            (!a.directory, text(a)).cmp(&(!b.directory, text(b)))
        });
    }

    fn text(&self, name: Name) -> &[u8] {
        &self.bytes[name.start as usize..][..usize::from(name.len)]
    }

    fn cost_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Name>()
    }

    /// The same, if there is memory to hold it until its listing goes on.
    pub fn kept(mut self) -> Option<Names> {
        let held_bytes = size_of::<Names>() + self.cost_bytes();
        self.charge.resize(held_bytes).then_some(self)
    }
}

fn cost_bytes(name: &[u8]) -> usize {
    name.len() + size_of::<Name>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    /// Reads all of `names` piece by piece, as a listing does.
    fn listed(names: &[(bool, Vec<u8>)], room_bytes: usize) -> Vec<(bool, Vec<u8>)> {
        let (mut listed, mut last) = (Vec::new(), None::<Cursor>);
        let mut breath = Breath::begin();
        loop {
            let mut piece = Names::new(room_bytes, Charge::default());
            for (directory, name) in names {
                let was_listed = |last: &Cursor| !last.is_before(*directory, name);
                if last.as_ref().is_some_and(was_listed) || piece.is_beyond(*directory, name) {
                    continue;
                }
                piece.push(name, FileType::RegularFile, *directory, &mut breath);
                assert!(piece.cost_bytes() <= room_bytes, "above its room");
            }
            piece.finish(&mut breath);
            while let Some((entry, name)) = piece.take() {
                listed.push((entry.directory, name.to_vec()));
            }
            last = listed.last().map(|(directory, name)| Cursor {
                directory: *directory,
                name: name.clone(),
            });
            if !piece.more() {
                return listed;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn pieces_have_every_name_once_and_in_order_whatever_their_room(
            names in proptest::collection::btree_map(proptest::collection::vec(any::<u8>(), 1..40), any::<bool>(), 0..200),
            order in any::<u64>(),
            room_bytes in 200usize..4_000,
        ) {
            let mut names: Vec<_> = names.into_iter().map(|(name, directory)| (directory, name)).collect();
            let len = names.len().max(1);
            names.rotate_left((order % len as u64) as usize);
            if order % 3 == 0 {
                names.reverse();
            }
            let got = listed(&names, room_bytes);
            names.sort_by(|a, b| (!a.0, &a.1).cmp(&(!b.0, &b.1)));
            prop_assert_eq!(got, names);
        }
    }
}
