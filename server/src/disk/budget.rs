//! The memory that a device's thread reads into: its share of what nobody else needs, divided anew again and again.

use std::sync::Arc;

use ackpace_core::limits::{AHEAD_EACH_US, AHEAD_SHORT_US, SLOT_BYTES};
use ackpace_core::units::Instant;

use crate::ledger::Ledger;
use crate::memory;
use crate::store::pool::Pool;

/// Memory of a slot of the pool, with its entry in the list of slots that a stream holds.
pub const SLOT_COST_BYTES: u64 = SLOT_BYTES + 32;

/// What the thread has of the ledger, and when that is divided again.
pub(crate) struct Budget {
    ledger: Arc<Ledger>,
    /// The slots that the machine may use; `None`: it was not told yet.
    slots: Option<u32>,
    divided_at: Option<Instant>,
    /// When the memory is to be divided again if no other event comes first.
    pub again_at: Option<Instant>,
}

impl Budget {
    pub fn new(ledger: Arc<Ledger>) -> Budget {
        Budget {
            ledger,
            slots: None,
            divided_at: None,
            again_at: None,
        }
    }

    /// Claims memory that others do not use for reading ahead, and gives back what they want. Returns the bytes that
    /// the machine may use from now on, if that has changed.
    pub fn divide(&mut self, pool: &Pool, now: Instant) -> Option<u64> {
        self.ledger.heard();
        let each_us = match self.ledger.is_short() || self.owes(pool) {
            true => AHEAD_SHORT_US,
            false => AHEAD_EACH_US,
        };
        let next_at = self.divided_at.map(|at| at.plus_us(each_us));
        if let Some(next_at) = next_at.filter(|at| now < *at) {
            self.again_at = Some(next_at).filter(|_| each_us == AHEAD_SHORT_US);
            return None;
        }
        self.divided_at = Some(now);
        let slots = self.take_share(pool).min(pool.slots());
        let before = self.slots.replace(slots);
        let soon = now.plus_us(AHEAD_SHORT_US);
        self.again_at = self.owes(pool).then_some(soon);
        (before != Some(slots)).then_some(u64::from(slots) * SLOT_BYTES)
    }

    /// The next read lacks slots. Others may have given some back by then.
    pub fn lacks(&mut self, now: Instant) {
        self.again_at.get_or_insert(now.plus_us(AHEAD_EACH_US));
    }

    /// Whether the pool has slots that the machine may not use any more.
    fn owes(&self, pool: &Pool) -> bool {
        self.slots.is_some_and(|slots| slots < pool.slots())
    }

    /// Makes the pool as large as its share, as far as its slots are free and the ledger allows; returns the share, in
    /// slots.
    fn take_share(&self, pool: &Pool) -> u32 {
        let has = pool.slots();
        let held_bytes = memory::held_bytes().unwrap_or(0);
        let share_bytes = (self.ledger).share_bytes(u64::from(has) * SLOT_COST_BYTES, held_bytes);
        let share = u32::try_from(share_bytes / SLOT_COST_BYTES).unwrap_or(u32::MAX);
        if share < has {
            let gone = pool.retire(has - share);
            self.ledger.give_ahead(u64::from(gone) * SLOT_COST_BYTES);
        } else {
            let more = (share - has).min(pool.slots_max() - has);
            if self.ledger.claim_ahead(u64::from(more) * SLOT_COST_BYTES) {
                pool.enlist(more);
            }
        }
        share
    }
}
