//! The names of a directory's entries, in the order in which they are listed, a piece of them at a time.
//!
//! A listing that is being made holds a piece: the names that follow what was listed, as many as there is room for. Between
//! two slices the piece lies on a [`Shelf`] that all listings share, where those that lie longest make room for new ones.
//! Who finds nothing there reads the directory again, from where it was. So clients that take a listing slowly cost
//! others neither room nor answers; and where room is scarce, pieces are small, but there is always one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackpace_core::limits::RESOLVERS_MAX;
use ackpace_wire::limits::README_BYTES_MAX;
use rustix::fs::FileType;

use crate::ledger::Ledger;
use crate::limits::PIECE_BYTES_MIN;
use crate::sched::Breath;

/// Up to where a directory was listed: directories come first, then names bytewise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The entry is a directory, or a link to one.
    pub directory: bool,
    /// Its name.
    pub name: Vec<u8>,
}

impl Cursor {
    /// Whether an entry comes behind it.
    pub fn is_before(&self, directory: bool, name: &[u8]) -> bool {
        (!self.directory, &self.name[..]) < (!directory, name)
    }
}

/// An entry of a piece.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    start: u32,
    len: u16,
    /// What it is itself, as getdents(2) tells.
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
    /// There was no room for what comes after the last entry.
    more: bool,
    charge: Charge,
}

/// A part of the room of a [`Shelf`], given back when it is dropped.
#[derive(Debug, Default)]
pub struct Charge {
    used_bytes: Arc<AtomicUsize>,
    own_bytes: usize,
    ledger: Option<Arc<Ledger>>,
}

impl Charge {
    /// So much is used from now on; what the ledger has of it, too.
    fn new(shelf: &Shelf, own_bytes: usize) -> Charge {
        shelf.used_bytes.fetch_add(own_bytes, Relaxed);
        Charge {
            used_bytes: Arc::clone(&shelf.used_bytes),
            own_bytes,
            ledger: shelf.ledger.clone(),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used_bytes.fetch_sub(self.own_bytes, Relaxed);
        if let Some(ledger) = &self.ledger {
            ledger.give(self.own_bytes as u64);
        }
    }
}

impl Names {
    /// None yet, and room for `room_bytes` of them.
    fn new(room_bytes: usize, charge: Charge) -> Names {
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

    /// Whether all entries were taken.
    pub fn is_used_up(&self) -> bool {
        self.next == self.entries.len()
    }

    /// Whether the directory has names behind these.
    pub fn more(&self) -> bool {
        self.more
    }

    /// Whether a name would be dropped again, as it comes after all for which there is room.
    pub fn is_beyond(&self, directory: bool, name: &[u8]) -> bool {
        // Behind a piece that was cut, its last entry is the last one for which there is room.
        let last = self.entries.last().filter(|_| self.more);
        last.is_some_and(|last| (!last.directory, self.text(*last)) < (!directory, name))
    }

    /// Adds a name, in any order, that is not beyond. Without room the later half of the names is dropped.
    pub fn push(&mut self, name: &[u8], kind: FileType, directory: bool, breath: &mut Breath) {
        if self.cost_bytes() + cost_bytes(name) > self.room_bytes {
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
            // The last one stays the last: that is where the piece was cut.
            true => self.entries.insert(self.entries.len() - 1, name),
            false => self.entries.push(name),
        }
    }

    /// All names are there: sorts them, and gives back what they do not need.
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
        // Their text moves together, in the order in which it lies.
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
        /// Comparisons that are worth a look at the clock.
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

    /// With what it needs itself.
    fn held_bytes(&self) -> usize {
        size_of::<Names>() + self.cost_bytes()
    }
}

fn cost_bytes(name: &[u8]) -> usize {
    name.len() + size_of::<Name>()
}

/// Where the pieces of listings lie between two slices, and the room for all of them, in whosever hands.
#[derive(Clone, Debug)]
pub struct Shelf {
    lying: Arc<Mutex<Lying>>,
    used_bytes: Arc<AtomicUsize>,
    room_bytes: usize,
    /// Each resolver may hold a piece of this length whatever else there is.
    aside_bytes: usize,
    /// Tickets that are out: the listings under way.
    tickets: Arc<AtomicUsize>,
    /// READMEs that are read now, and how many may be.
    readmes: Arc<AtomicUsize>,
    readmes_max: usize,
    /// Who else wants the memory; `None`: the room is ours.
    ledger: Option<Arc<Ledger>>,
}

/// A README is read and made a page of, for as long as this lives.
#[derive(Debug)]
pub struct Reading<'a> {
    shelf: &'a Shelf,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.shelf.readmes.fetch_sub(1, Relaxed);
        if let Some(ledger) = &self.shelf.ledger {
            ledger.give(README_COST_BYTES as u64);
        }
    }
}

#[derive(Debug, Default)]
struct Lying {
    /// In the order in which they were put.
    by_age: BTreeMap<u64, Names>,
    put: u64,
}

/// With which a piece is asked for again. Dropped, it takes the piece along.
#[derive(Debug)]
pub struct Ticket {
    nth: u64,
    lying: Arc<Mutex<Lying>>,
    tickets: Arc<AtomicUsize>,
}

impl Shelf {
    /// An empty one. All pieces together take `most_bytes`.
    pub fn new(most_bytes: u64) -> Shelf {
        let most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        let aside_bytes = Shelf::aside_bytes(most_bytes as u64) as usize;
        Shelf {
            lying: Arc::default(),
            used_bytes: Arc::default(),
            room_bytes: most_bytes - aside_bytes,
            aside_bytes: aside_bytes / RESOLVERS_MAX / GROWTH,
            tickets: Arc::default(),
            readmes: Arc::default(),
            readmes_max: RESOLVERS_MAX,
            ledger: None,
        }
    }

    /// The same, which takes its room from the ledger when it uses it, and reads READMEs of so many bytes at once.
    pub fn on(self, ledger: Arc<Ledger>, readmes_bytes: u64) -> Shelf {
        let readmes_max = usize::try_from(readmes_bytes).unwrap_or(usize::MAX) / README_COST_BYTES;
        Shelf {
            ledger: Some(ledger),
            readmes_max,
            ..self
        }
    }

    /// What of its room it has whatever others want.
    pub fn aside_bytes(most_bytes: u64) -> u64 {
        most_bytes / 4
    }

    /// A README may be read now, if there is memory for it.
    pub fn reading(&self) -> Option<Reading<'_>> {
        let one_more = |readmes: usize| (readmes < self.readmes_max).then_some(readmes + 1);
        self.readmes.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        if !self.lent(README_COST_BYTES) {
            self.readmes.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Reading { shelf: self })
    }

    fn lent(&self, bytes: usize) -> bool {
        let ledger = self.ledger.as_ref();
        ledger.is_none_or(|ledger| ledger.claim(bytes as u64))
    }

    /// A piece to be filled. No longer than would be there for each of the listings under way, so that none makes room
    /// before it is used.
    pub fn piece(&self) -> Names {
        let _one_by_one = lock(&self.lying);
        let fair_bytes = self.room_bytes / (self.tickets.load(Relaxed) + 1);
        let used_bytes = self.used_bytes.load(Relaxed);
        let free_bytes = self.room_bytes.saturating_sub(used_bytes) / GROWTH / 2;
        match fair_bytes.min(free_bytes) {
            large if large > self.aside_bytes && self.lent(GROWTH * large) => {
                Names::new(large, Charge::new(self, GROWTH * large))
            }
            _ => {
                let small = fair_bytes.min(self.aside_bytes).max(PIECE_BYTES_MIN);
                Names::new(small, Charge::default())
            }
        }
    }

    /// Room for something else that a listing holds between two slices, if it is there.
    pub fn claim(&self, bytes: usize) -> Option<Charge> {
        let used_bytes = self.used_bytes.load(Relaxed);
        let fits = used_bytes.saturating_add(bytes) <= self.room_bytes;
        (fits && self.lent(bytes)).then(|| Charge::new(self, bytes))
    }

    /// Lays a piece down until its listing goes on. Those that lie longest make room.
    pub fn put(&self, mut names: Names) -> Ticket {
        let held_bytes = names.held_bytes();
        if let Some(ledger) = &self.ledger {
            ledger.take(held_bytes as u64); // it is used already
        }
        names.charge = Charge::new(self, held_bytes);
        let mut gone = Vec::new(); // freed when nobody waits for the lock
        let mut lying = lock(&self.lying);
        lying.put += 1;
        let nth = lying.put;
        lying.by_age.insert(nth, names);
        let mut over_bytes = self
            .used_bytes
            .load(Relaxed)
            .saturating_sub(self.room_bytes);
        while over_bytes > 0 {
            let Some((_, oldest)) = lying.by_age.pop_first() else {
                break;
            };
            over_bytes = over_bytes.saturating_sub(oldest.charge.own_bytes);
            gone.push(oldest);
        }
        drop(lying);
        self.tickets.fetch_add(1, Relaxed);
        Ticket {
            nth,
            lying: Arc::clone(&self.lying),
            tickets: Arc::clone(&self.tickets),
        }
    }
}

impl Ticket {
    /// The piece, if it still lies there.
    pub fn take(&self) -> Option<Names> {
        lock(&self.lying).by_age.remove(&self.nth)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let names = self.take();
        drop(names); // when nobody waits for the lock
        self.tickets.fetch_sub(1, Relaxed);
    }
}

fn lock(lying: &Mutex<Lying>) -> MutexGuard<'_, Lying> {
    lying.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a README takes until it is a page, each byte of which takes up to six beside the text itself.
pub const README_COST_BYTES: usize = 7 * README_BYTES_MAX;

/// What grows as it is filled may hold so many times of what is in it.
const GROWTH: usize = 2;

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

    fn filled(mut names: Names, held_bytes: usize) -> Names {
        let (kind, mut breath) = (FileType::RegularFile, Breath::begin());
        let mut left_bytes = held_bytes - size_of::<Names>();
        while left_bytes > size_of::<Name>() {
            let len = (left_bytes - size_of::<Name>()).min(4096);
            left_bytes -= len + size_of::<Name>();
            names.push("n".repeat(len).as_bytes(), kind, false, &mut breath);
        }
        names.finish(&mut breath);
        names
    }

    #[test]
    fn what_lies_longest_makes_room_and_what_is_taken_or_given_up_leaves_it() {
        let shelf = Shelf::new(4 * 1000);
        let put = |held_bytes| shelf.put(filled(shelf.piece(), held_bytes));
        let [first, second, third] = [(); 3].map(|()| put(1000));
        assert!(first.take().is_some(), "there was room for all");
        assert!(first.take().is_none(), "it was taken");
        let fourth = put(1001);
        assert!(second.take().is_none(), "it lay longest");
        assert!(third.take().is_some() && fourth.take().is_some());
        assert!(put(3001).take().is_none(), "larger than the shelf");
        let kept = put(3000);
        drop(put(3000));
        assert!(kept.take().is_none());
        assert_eq!(shelf.used_bytes.load(Relaxed), 0);
        assert!(lock(&shelf.lying).by_age.is_empty());
    }

    #[test]
    fn a_piece_is_large_where_there_is_room_and_all_resolvers_have_one_where_there_is_none() {
        const MOST_BYTES: usize = 64 << 20;
        let shelf = Shelf::new(MOST_BYTES as u64);
        let pieces: Vec<Names> = (0..RESOLVERS_MAX).map(|_| shelf.piece()).collect();
        assert!(pieces[0].room_bytes >= MOST_BYTES / 8);
        let least_bytes = pieces.iter().map(|piece| piece.room_bytes).min();
        assert_eq!(least_bytes, Some(MOST_BYTES / 4 / RESOLVERS_MAX / GROWTH));
        let all_bytes: usize = pieces.iter().map(|piece| GROWTH * piece.room_bytes).sum();
        assert!(all_bytes <= MOST_BYTES, "{all_bytes} in the hands of all");
        drop(pieces);
        assert_eq!(shelf.used_bytes.load(Relaxed), 0);
    }

    #[test]
    fn with_many_listings_pieces_are_so_small_that_all_of_them_find_theirs_again() {
        const LISTINGS: usize = 300;
        let shelf = Shelf::new(16 << 20);
        let put = || {
            let piece = shelf.piece();
            let room_bytes = piece.room_bytes;
            shelf.put(filled(piece, room_bytes))
        };
        // The first ones took more; by the second time all have come to a fair part.
        let mut tickets: Vec<Ticket> = (0..LISTINGS).map(|_| put()).collect();
        for _ in 0..2 {
            tickets = tickets.into_iter().map(|_| put()).collect();
        }
        let found = tickets.iter().filter(|ticket| ticket.take().is_some());
        assert!(found.count() > LISTINGS * 9 / 10);
    }
}
