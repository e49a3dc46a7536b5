//! Keeps the pieces of listings between two slices. All listings share its memory; the oldest pieces make room for new
//! ones.
//!
//! A listing whose piece is gone reads the directory again, from its position. So slow clients cost others neither
//! memory nor responses. Where memory is scarce, pieces are small, but there is always one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackpace_core::limits::RESOLVERS_MAX;
use ackpace_wire::limits::README_BYTES_MAX;

use super::charge::{Charge, GROWTH, Holding, PieceGrowth};
use super::names::Names;
use crate::ledger::Ledger;
use crate::limits::PIECE_BYTES_MIN;
use crate::store::closing;

/// The pieces of listings between two slices, and the memory for all pieces, also those in use.
#[derive(Clone, Debug)]
pub struct Shelf {
    lying: Arc<Mutex<Lying>>,
    holding: Holding,
    room_bytes: usize,
    /// Each resolver may hold a piece of this length, whatever the others hold.
    aside_bytes: usize,
    /// Tickets handed out: the listings under way.
    tickets: Arc<AtomicUsize>,
    /// READMEs that are being read, and how many may be.
    readmes: Arc<AtomicUsize>,
    readmes_max: usize,
}

/// While this lives, a README is read and rendered.
#[derive(Debug)]
pub struct ReadmeRead<'a> {
    shelf: &'a Shelf,
}

impl Drop for ReadmeRead<'_> {
    fn drop(&mut self) {
        self.shelf.readmes.fetch_sub(1, Relaxed);
        if let Some(ledger) = &self.shelf.holding.ledger {
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

/// Gives a piece back; dropping it drops the piece, and never waits: workers drop the listings of clients that have left.
#[derive(Debug)]
pub struct Ticket {
    nth: u64,
    /// `None`: the piece was given back.
    lying: Option<Arc<Mutex<Lying>>>,
    tickets: Arc<AtomicUsize>,
}

impl Shelf {
    /// An empty one. All pieces together take `most_bytes`.
    pub fn new(most_bytes: u64) -> Shelf {
        let most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        let aside_bytes = Shelf::aside_bytes(most_bytes as u64) as usize;
        Shelf {
            lying: Arc::default(),
            holding: Holding::default(),
            room_bytes: most_bytes - aside_bytes,
            aside_bytes: aside_bytes / RESOLVERS_MAX / GROWTH,
            tickets: Arc::default(),
            readmes: Arc::default(),
            readmes_max: RESOLVERS_MAX,
        }
    }

    /// The same, which takes its memory from the ledger when it uses it, and may read READMEs of so many bytes at once.
    pub fn on(self, ledger: Arc<Ledger>, readmes_bytes: u64) -> Shelf {
        let readmes_max = usize::try_from(readmes_bytes).unwrap_or(usize::MAX) / README_COST_BYTES;
        Shelf {
            holding: self.holding.clone().on(ledger),
            readmes_max,
            ..self
        }
    }

    /// The part of the memory that it always has, whatever others want.
    pub fn aside_bytes(most_bytes: u64) -> u64 {
        most_bytes / 4
    }

    /// Permission to read a README now, if there is memory for it.
    pub fn reading(&self) -> Option<ReadmeRead<'_>> {
        let one_more = |readmes: usize| (readmes < self.readmes_max).then_some(readmes + 1);
        self.readmes.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        if !self.holding.lend(README_COST_BYTES) {
            self.readmes.fetch_sub(1, Relaxed);
            return None;
        }
        Some(ReadmeRead { shelf: self })
    }

    /// A piece to be filled. It grows with its names, up to a fair share for each listing under way, so that no piece is dropped
    /// before it is used.
    pub fn piece(&self) -> Names {
        let fair_bytes = self.room_bytes / (self.tickets.load(Relaxed) + 1);
        let small_bytes = fair_bytes.min(self.aside_bytes).max(PIECE_BYTES_MIN);
        let growth = PieceGrowth {
            piece_bytes_max: fair_bytes,
            all_bytes_max: self.room_bytes,
        };
        Names::new(small_bytes, self.holding.charge(0), Some(growth))
    }

    /// Memory for something else that a listing holds between two slices, if it is available.
    pub fn claim(&self, bytes: usize) -> Option<Charge> {
        let used_bytes = self.holding.used_bytes();
        let fits = used_bytes.saturating_add(bytes) <= self.room_bytes;
        (fits && self.holding.lend(bytes)).then(|| self.holding.charge(bytes))
    }

    /// Keeps a piece until its listing goes on. The oldest pieces make room.
    pub fn put(&self, mut names: Names) -> Ticket {
        let held_bytes = names.held_bytes();
        if let Some(ledger) = &self.holding.ledger {
            ledger.take(held_bytes as u64); // it is used already
        }
        names.charge = self.holding.charge(held_bytes);
        let mut gone = Vec::new(); // freed after the lock is released
        let mut lying = lock(&self.lying);
        lying.put += 1;
        let nth = lying.put;
        lying.by_age.insert(nth, names);
        let mut over_bytes = self.holding.used_bytes().saturating_sub(self.room_bytes);
        while over_bytes > 0 {
            let Some((_, oldest)) = lying.by_age.pop_first() else {
                break;
            };
            over_bytes = over_bytes.saturating_sub(oldest.charge.own_bytes());
            gone.push(oldest);
        }
        drop(lying);
        self.tickets.fetch_add(1, Relaxed);
        Ticket {
            nth,
            lying: Some(Arc::clone(&self.lying)),
            tickets: Arc::clone(&self.tickets),
        }
    }
}

impl Ticket {
    /// The piece, if it is still there. May wait for another thread.
    pub fn take(&mut self) -> Option<Names> {
        let lying = self.lying.take()?;
        lock(&lying).by_age.remove(&self.nth)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.tickets.fetch_sub(1, Relaxed);
        let Some(lying) = self.lying.take() else {
            return;
        };
        let nth = self.nth;
        let names = match lying.try_lock() {
            Ok(mut held) => held.by_age.remove(&nth),
            Err(_) => {
                let lying = Arc::clone(&lying);
                closing::later(ANY, GivenUp { nth, lying });
                None
            }
        };
        drop(names); // after the lock is released
    }
}

/// A piece that is dropped by a thread that may wait.
struct GivenUp {
    nth: u64,
    lying: Arc<Mutex<Lying>>,
}

/// It is on no file system.
const ANY: u64 = 0;

impl Drop for GivenUp {
    fn drop(&mut self) {
        let names = lock(&self.lying).by_age.remove(&self.nth);
        drop(names); // after the lock is released
    }
}

fn lock(lying: &Mutex<Lying>) -> MutexGuard<'_, Lying> {
    lying.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of a README until it is a page: the text itself, and up to six bytes of page for each of its bytes.
pub const README_COST_BYTES: usize = 7 * README_BYTES_MAX;

#[cfg(test)]
mod tests {
    use rustix::fs::FileType;

    use super::super::names::Name;
    use super::*;
    use crate::sched::Breath;

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
        let [mut first, mut second, mut third] = [(); 3].map(|()| put(1000));
        assert!(first.take().is_some(), "there was room for all");
        assert!(first.take().is_none(), "it was taken");
        let mut fourth = put(1001);
        assert!(second.take().is_none(), "it lay longest");
        assert!(third.take().is_some() && fourth.take().is_some());
        assert!(put(3001).take().is_none(), "larger than the shelf");
        let mut kept = put(3000);
        drop(put(3000));
        assert!(kept.take().is_none());
        assert_eq!(shelf.holding.used_bytes(), 0);
        assert!(lock(&shelf.lying).by_age.is_empty());
    }

    #[test]
    fn a_piece_is_large_where_there_is_room_and_all_resolvers_have_one_where_there_is_none() {
        const MOST_BYTES: usize = 64 << 20;
        let shelf = Shelf::new(MOST_BYTES as u64);
        let long = || filled(shelf.piece(), MOST_BYTES / 8);
        let pieces: Vec<Names> = (0..RESOLVERS_MAX).map(|_| long()).collect();
        assert!(!pieces[0].more() && pieces[0].room_bytes >= MOST_BYTES / 8);
        let least_bytes = pieces.iter().map(|piece| piece.room_bytes).min();
        assert_eq!(least_bytes, Some(MOST_BYTES / 4 / RESOLVERS_MAX / GROWTH));
        let all_bytes: usize = pieces.iter().map(|piece| GROWTH * piece.room_bytes).sum();
        assert!(all_bytes <= MOST_BYTES, "{all_bytes} in the hands of all");
        drop(pieces);
        assert_eq!(shelf.holding.used_bytes(), 0);
    }

    #[test]
    fn a_piece_takes_no_more_than_its_names_need() {
        let shelf = Shelf::new(64 << 20);
        let short = filled(shelf.piece(), 100_000);
        assert_eq!(shelf.holding.used_bytes(), 0, "it has that anyway");
        // 50,000 names of a mirror, four times at once.
        let long: Vec<Names> = (0..4).map(|_| filled(shelf.piece(), 2_100_000)).collect();
        assert!(long.iter().all(|names| !names.more()), "each is read once");
        drop((short, long));
        assert_eq!(shelf.holding.used_bytes(), 0);
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
        let found = tickets.iter_mut().filter_map(Ticket::take);
        assert!(found.count() > LISTINGS * 9 / 10);
    }

    #[test]
    fn who_gives_a_listing_up_does_not_wait_for_a_thread_that_holds_the_shelf() {
        closing::start(8192);
        let shelf = Shelf::new(4 * 1000);
        let ticket = shelf.put(filled(shelf.piece(), 1000));
        let held = lock(&shelf.lying);
        drop(ticket);
        assert_eq!(held.by_age.len(), 1, "not yet");
        drop(held);
        while shelf.holding.used_bytes() > 0 {
            std::thread::yield_now(); // the thread that closes files drops it
        }
    }
}
