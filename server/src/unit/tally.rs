//! What is counted of the unit, and why READs go through the mount.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::store::place::Unmapped;

/// Why a READ of a file goes through the mount: the index in [`Tally::fallbacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The gateway program or the unit is not there, or they do not fit together.
    Away,
    /// It was changed just now.
    Young,
    /// It was changed while it was read, or its neighbours on the unit were, again and again.
    Changed,
    /// A part of it is not on the unit as it is: not written, kept in the inode, encoded.
    Kind,
    /// It has a hole.
    Hole,
    /// It has too many extents.
    Many,
    /// There is no memory for its map or its bytes.
    Memory,
}

impl Fallback {
    pub const NAMES: [&'static str; 7] =
        ["away", "young", "changed", "kind", "hole", "many", "memory"];
}

impl From<Unmapped> for Fallback {
    fn from(why: Unmapped) -> Fallback {
        match why {
            Unmapped::Kind => Fallback::Kind,
            Unmapped::Hole => Fallback::Hole,
            Unmapped::Many => Fallback::Many,
            Unmapped::Memory => Fallback::Memory,
        }
    }
}

/// The counters of the unit. Any thread may count.
#[derive(Debug, Default)]
pub struct Tally {
    /// Reads of the target that it has answered.
    pub reads: AtomicU64,
    /// The bytes that they brought.
    pub read_bytes: AtomicU64,
    /// READs of clients whose bytes were in memory.
    pub hits: AtomicU64,
    /// Those whose bytes were not.
    pub misses: AtomicU64,
    /// Reads that were made again, since a counter changed meanwhile.
    pub repeats: AtomicU64,
    /// READs through the mount.
    pub fallbacks: [AtomicU64; Fallback::NAMES.len()],
    /// Sessions that were lost.
    pub lost: AtomicU64,
}

impl Tally {
    /// Bytes of a READ were looked for.
    pub fn looked(&self, is_there: bool) {
        let count = if is_there { &self.hits } else { &self.misses };
        count.fetch_add(1, Relaxed);
    }

    pub fn fell_back(&self, why: Fallback) {
        self.fallbacks[why as usize].fetch_add(1, Relaxed);
    }
}
