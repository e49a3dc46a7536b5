//! The memory of listings: of the names that come next, and of READMEs. Listings hold their names between two slices only
//! where there is memory for them; otherwise they read the directory again, from their position.

use std::sync::Arc;

use ackpace_core::limits::RESOLVERS_MAX;
use ackpace_wire::limits::README_BYTES_MAX;

use super::charge::{Charge, Room};
use super::names::{GROWTH, Names};
use crate::ledger::Ledger;

/// Memory for names that each listing gets at once, in bytes, however little memory there is: enough for a slice. More:
/// the directory is read again for the names that follow.
const PIECE_BYTES_MIN: usize = 8 << 10;

/// The memory of all listings. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shelf {
    room: Room,
    /// Each resolver may fill a piece of this length, whatever the others hold.
    aside_bytes: usize,
}

impl Shelf {
    /// All together take `most_bytes`, which come from the ledger when they are used.
    pub fn new(most_bytes: u64, ledger: Option<Arc<Ledger>>) -> Shelf {
        let aside_bytes = Shelf::aside_bytes(most_bytes);
        Shelf {
            room: Room::new(most_bytes - aside_bytes, ledger),
            aside_bytes: aside_bytes as usize / RESOLVERS_MAX / GROWTH,
        }
    }

    /// The part of the memory that it always has, whatever others want.
    pub fn aside_bytes(most_bytes: u64) -> u64 {
        most_bytes / 4
    }

    /// Memory to read a README now, if there is some.
    pub fn reading(&self) -> Option<Charge> {
        self.room.claim(README_COST_BYTES)
    }

    /// A piece to be filled. It grows with its names.
    pub fn piece(&self) -> Names {
        let small_bytes = self.aside_bytes.max(PIECE_BYTES_MIN);
        Names::new(small_bytes, self.room.charge())
    }

    /// Memory for something else that a listing holds between two slices, if it is available.
    pub fn claim(&self, bytes: usize) -> Option<Charge> {
        self.room.claim(bytes)
    }
}

/// Memory of a README until it is a page: the text itself, and up to six bytes of page for each of its bytes.
const README_COST_BYTES: usize = 7 * README_BYTES_MAX;
