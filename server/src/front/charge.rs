//! Memory of listings, counted while it is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::ledger::Ledger;

/// The memory that all listings hold together, and the account it comes from.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    used_bytes: Arc<AtomicUsize>,
    /// `None`: the memory belongs to the listings.
    pub(super) ledger: Option<Arc<Ledger>>,
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
    /// Counts more memory, which was taken from the ledger before.
    pub fn grow(&mut self, bytes: usize) {
        self.of.used_bytes.fetch_add(bytes, Relaxed);
        self.own_bytes += bytes;
    }

    /// The bytes that it counts.
    pub fn own_bytes(&self) -> usize {
        self.own_bytes
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
