//! Memory of listings and of responses with many ranges, counted while it is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::ledger::Ledger;

/// Memory that several hold together, and the account it comes from.
#[derive(Clone, Debug, Default)]
pub struct Room {
    used_bytes: Arc<AtomicUsize>,
    most_bytes: usize,
    /// `None`: the memory is theirs.
    ledger: Option<Arc<Ledger>>,
}

/// A part of that memory, given back when it is dropped.
#[derive(Debug, Default)]
pub struct Charge {
    of: Room,
    own_bytes: usize,
}

impl Room {
    /// So much memory, which the ledger has until it is claimed.
    pub fn new(most_bytes: u64, ledger: Option<Arc<Ledger>>) -> Room {
        Room {
            used_bytes: Arc::default(),
            most_bytes: usize::try_from(most_bytes).unwrap_or(usize::MAX),
            ledger,
        }
    }

    pub fn charge(&self) -> Charge {
        Charge {
            of: self.clone(),
            own_bytes: 0,
        }
    }

    /// Memory for one of them, if that leaves half of what is free to others.
    pub fn claim(&self, bytes: usize) -> Option<Charge> {
        let mut charge = self.charge();
        charge.grow(bytes).then_some(charge)
    }
}

impl Charge {
    /// Takes more memory, if that leaves half of what is free to others; returns whether it does.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let Room {
            used_bytes,
            most_bytes,
            ledger,
        } = &self.of;
        let more = |used_bytes: usize| {
            let free_bytes = most_bytes.saturating_sub(used_bytes);
            (bytes <= free_bytes / 2).then_some(used_bytes + bytes)
        };
        if used_bytes.fetch_update(Relaxed, Relaxed, more).is_err() {
            return false;
        }
        let is_lent = ledger
            .as_ref()
            .is_none_or(|ledger| ledger.claim(bytes as u64));
        if is_lent {
            self.own_bytes += bytes;
        } else {
            used_bytes.fetch_sub(bytes, Relaxed);
        }
        is_lent
    }

    /// Holds so much from now on; gives the rest back, or takes what is lacking. Returns whether it could.
    pub fn resize(&mut self, bytes: usize) -> bool {
        if bytes > self.own_bytes {
            return self.grow(bytes - self.own_bytes);
        }
        let spare_bytes = self.own_bytes - bytes;
        self.own_bytes = bytes;
        self.of.used_bytes.fetch_sub(spare_bytes, Relaxed);
        if let Some(ledger) = &self.of.ledger {
            ledger.give(spare_bytes as u64);
        }
        true
    }

    /// All memory that there is, whoever holds it.
    pub fn room_bytes(&self) -> usize {
        self.of.most_bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_takes_half_of_what_is_free_at_most_and_gives_it_back() {
        let ledger = Arc::new(Ledger::new(1000, 0, 0));
        let room = Room::new(400, Some(Arc::clone(&ledger)));
        let first = room.claim(200).expect("half of it");
        assert!(room.claim(101).is_none(), "more than half of the rest");
        let mut second = room.claim(100).expect("half of the rest");
        assert!(second.resize(60) && second.resize(100));
        assert!(ledger.claim(700) && !ledger.claim(1), "both are charged");
        assert!(room.claim(1).is_none(), "the ledger has nothing");
        drop((first, second));
        assert!(ledger.claim(300) && room.used_bytes.load(Relaxed) == 0);
    }
}
