//! Memory of listings and of responses with many ranges, counted while it is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::ledger::Ledger;

/// The memory that all of them hold together, and the account it comes from.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    used_bytes: Arc<AtomicUsize>,
    /// `None`: the memory is theirs.
    pub(super) ledger: Option<Arc<Ledger>>,
}

/// The memory of responses with more ranges than their connections have memory for. All sites of the process share it.
#[derive(Clone, Debug, Default)]
pub struct RangesRoom {
    holding: Holding,
    most_bytes: usize,
}

impl RangesRoom {
    /// So much memory, which the ledger has until it is claimed.
    pub fn new(most_bytes: u64, ledger: Arc<Ledger>) -> RangesRoom {
        RangesRoom {
            holding: Holding::default().on(ledger),
            most_bytes: usize::try_from(most_bytes).unwrap_or(usize::MAX),
        }
    }

    /// Memory for one response, if that leaves half of what is free to others.
    pub fn claim(&self, bytes: usize) -> Option<Charge> {
        let mut charge = self.holding.charge(0);
        charge.grow(bytes, self.most_bytes).then_some(charge)
    }
}

/// A part of that memory, given back when it is dropped.
#[derive(Debug, Default)]
pub struct Charge {
    of: Holding,
    own_bytes: usize,
}

impl Holding {
    /// The same, with the ledger that has the memory.
    pub fn on(self, ledger: Arc<Ledger>) -> Holding {
        Holding {
            ledger: Some(ledger),
            ..self
        }
    }

    /// Counts memory that was taken from the ledger before.
    pub fn charge(&self, own_bytes: usize) -> Charge {
        self.used_bytes.fetch_add(own_bytes, Relaxed);
        Charge {
            of: self.clone(),
            own_bytes,
        }
    }

    /// The memory in use now.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Relaxed)
    }

    /// Takes so much from the ledger; returns whether it was available.
    pub fn lend(&self, bytes: usize) -> bool {
        let ledger = self.ledger.as_ref();
        ledger.is_none_or(|ledger| ledger.claim(bytes as u64))
    }
}

impl Charge {
    /// Takes more memory and counts it, if that leaves half of what is free of `all_bytes_max`; returns whether it does.
    fn grow(&mut self, bytes: usize, all_bytes_max: usize) -> bool {
        let Holding { used_bytes, .. } = &self.of;
        let more = |used_bytes: usize| {
            let free_bytes = all_bytes_max.saturating_sub(used_bytes);
            (bytes <= free_bytes / 2).then_some(used_bytes + bytes)
        };
        if used_bytes.fetch_update(Relaxed, Relaxed, more).is_err() {
            return false;
        }
        let is_lent = self.of.lend(bytes);
        match is_lent {
            true => self.own_bytes += bytes,
            false => _ = used_bytes.fetch_sub(bytes, Relaxed),
        }
        is_lent
    }

    /// The bytes that it counts.
    pub fn own_bytes(&self) -> usize {
        self.own_bytes
    }
}

/// A growing collection may have allocated so many times the memory of its entries.
pub const GROWTH: usize = 2;

/// How far a piece of names may grow while it is filled.
#[derive(Clone, Copy, Debug)]
pub struct PieceGrowth {
    /// The most that the piece may become.
    pub piece_bytes_max: usize,
    /// The most that all pieces together may take.
    pub all_bytes_max: usize,
}

impl PieceGrowth {
    /// Room for twice as many names as now, or for as many as the piece may have; `charge` counts all of it then. `None`: there is
    /// no memory. Half of what is free stays free, for others who begin.
    pub fn more_bytes(&self, room_bytes: usize, charge: &mut Charge) -> Option<usize> {
        let more_bytes = (2 * room_bytes).min(self.piece_bytes_max);
        let wanted_bytes = (GROWTH * more_bytes).saturating_sub(charge.own_bytes);
        let grows = more_bytes > room_bytes && charge.grow(wanted_bytes, self.all_bytes_max);
        grows.then_some(more_bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of.used_bytes.fetch_sub(self.own_bytes, Relaxed);
        if let Some(ledger) = &self.of.ledger {
            ledger.give(self.own_bytes as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_take_half_of_what_is_free_at_most_and_give_it_back() {
        let ledger = Arc::new(Ledger::new(1000, 0, 0));
        let room = RangesRoom::new(400, Arc::clone(&ledger));
        let first = room.claim(200).expect("half of it");
        assert!(room.claim(101).is_none(), "more than half of the rest");
        let second = room.claim(100).expect("half of the rest");
        assert!(ledger.claim(700) && !ledger.claim(1), "both are charged");
        assert!(room.claim(1).is_none(), "the ledger has nothing");
        drop((first, second));
        assert!(ledger.claim(300) && room.holding.used_bytes() == 0);
    }
}
