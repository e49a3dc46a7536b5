//! What is believed of the paths to addresses, for their next connections (SSBT 3.3).
//!
//! Clients choose how many addresses they come from, so the table is bounded, and its memory is there from the start. The place
//! of an address depends on a secret number, so nobody can choose whose estimate to displace. Whoever is displaced starts like a
//! new client.

use alloc::boxed::Box;
use alloc::vec;

use ackpace_core::addresses::Address;
use ackpace_core::units::{Instant, US_PER_S};

use super::estimate::Belief;

/// Addresses whose estimates are kept for their next connections. Two that fall on one place: the later one has it.
const ADDRESSES_REMEMBERED_MAX: usize = 16_384;
/// How long they are kept. Longer: the path may have changed.
pub const ADDRESS_REMEMBERED_US: u64 = 600 * US_PER_S;

type Entry = Option<(Address, Belief, Instant)>;

/// Memory of the table.
pub const TABLE_BYTES: u64 = (ADDRESSES_REMEMBERED_MAX * size_of::<Entry>()) as u64;

/// The table. An IPv6 client counts by its /64 ([`Address`]).
#[derive(Clone, Debug)]
pub struct Remembered {
    /// What is believed, of which address, and since when.
    entries: Box<[Entry]>,
    secret: u64,
}

impl Remembered {
    /// An empty table. `secret`: a random number.
    pub fn new(secret: u64) -> Remembered {
        Remembered {
            entries: vec![None; ADDRESSES_REMEMBERED_MAX].into_boxed_slice(),
            secret,
        }
    }

    fn place(&self, address: Address) -> usize {
        (address.hash(self.secret) % self.entries.len() as u64) as usize
    }

    /// A connection of `address` is looked at, and this is believed of its path.
    pub fn keep(&mut self, address: Address, belief: Belief, now: Instant) {
        self.entries[self.place(address)] = Some((address, belief, now));
    }

    /// What is believed of the path to `address`, unless it is older than [`ADDRESS_REMEMBERED_US`].
    pub fn belief(&self, address: Address, now: Instant) -> Option<Belief> {
        let (of, belief, at) = self.entries[self.place(address)]?;
        (of == address && now.since_us(at) <= ADDRESS_REMEMBERED_US).then_some(belief)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_belief_of_an_address_is_kept_for_a_while_and_collisions_are_secret() {
        let (belief, now) = (Belief::default(), Instant { us: 1_000_000 });
        let mut remembered = Remembered::new(7);
        let address = Address(0xc000_0201);
        assert_eq!(remembered.belief(address, now), None);
        remembered.keep(address, belief, now);
        let last = now.plus_us(ADDRESS_REMEMBERED_US);
        assert_eq!(remembered.belief(address, last), Some(belief));
        assert_eq!(remembered.belief(address, last.plus_us(1)), None, "expired");
        let beside = |remembered: &Remembered| {
            let at = remembered.place(address);
            (0..).map(Address).find(|one| remembered.place(*one) == at)
        };
        let other = beside(&remembered).expect("one in 16,384");
        assert_eq!(remembered.belief(other, now), None, "not that of another");
        remembered.keep(other, belief, now);
        assert_eq!(remembered.belief(address, now), None, "displaced");
        assert_ne!(beside(&Remembered::new(8)), Some(other));
    }
}
