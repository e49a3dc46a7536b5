//! What is believed of the paths to addresses, for their next connections (SSBT 3.3).
//!
//! Clients choose how many addresses they come from, so the table is bounded, its memory is there from the start, and
//! a look-up reads four entries. A new address takes the place of the oldest of its four. Which four these are depends on a
//! secret number, so nobody can choose whose estimate to displace. Who is displaced only starts like a new client.

use alloc::boxed::Box;
use alloc::vec;

use super::estimate::Belief;
use crate::addresses::Address;
use crate::limits::{ADDRESS_REMEMBERED_US, ADDRESSES_REMEMBERED_MAX};
use crate::units::Instant;

/// Entries that an address can be in.
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The address, what is believed of it, and since when.
    address: Address,
    belief: Belief,
    at: Instant,
}

const _: () = assert!(
    size_of::<Option<Entry>>() == 48,
    "as ADDRESSES_REMEMBERED_MAX says"
);

/// Memory of the table.
pub const TABLE_BYTES: u64 = (ADDRESSES_REMEMBERED_MAX * size_of::<Option<Entry>>()) as u64;

/// The table. An IPv6 client counts by its /64 ([`Address`]).
#[derive(Clone, Debug)]
pub struct Remembered {
    entries: Box<[Option<Entry>]>,
    /// Part of the hash that gives an address its place, so that nobody can choose whose estimate to displace.
    secret: u64,
}

impl Remembered {
    /// An empty table for [`ADDRESSES_REMEMBERED_MAX`] addresses. `secret`: a random number.
    pub fn new(secret: u64) -> Remembered {
        Remembered {
            entries: vec![None; ADDRESSES_REMEMBERED_MAX].into_boxed_slice(),
            secret,
        }
    }

    /// A connection of `address` ended, or is looked at, and this is believed of it. The latest counts.
    pub fn keep(&mut self, address: Address, belief: Belief, now: Instant) {
        let from = self.set(address);
        let ways = &mut self.entries[from..from + WAYS];
        let own = ways
            .iter()
            .position(|entry| entry.is_some_and(|entry| entry.address == address));
        // A free entry is older than any.
        let oldest = (0..WAYS).min_by_key(|&way| ways[way].map(|entry| entry.at));
        if let Some(way) = own.or(oldest) {
            ways[way] = Some(Entry {
                address,
                belief,
                at: now,
            });
        }
    }

    /// What is believed of the path to `address`, unless it is older than [`ADDRESS_REMEMBERED_US`].
    pub fn belief(&self, address: Address, now: Instant) -> Option<Belief> {
        let from = self.set(address);
        let entry = self.entries[from..from + WAYS]
            .iter()
            .flatten()
            .find(|entry| entry.address == address)?;
        (now.since_us(entry.at) <= ADDRESS_REMEMBERED_US).then_some(entry.belief)
    }

    /// The first of the entries that an address can be in.
    fn set(&self, address: Address) -> usize {
        let sets = (ADDRESSES_REMEMBERED_MAX / WAYS) as u64;
        (address.hash(self.secret) % sets) as usize * WAYS
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimate::{Estimate, PathSample};
    use super::*;

    const NOW: Instant = Instant { us: 1_000_000 };

    /// The belief of a connection with this delivery rate.
    fn belief(delivered_bytes_per_s: u64) -> Belief {
        let mut estimate = Estimate::default();
        for n in 0..2 {
            let sample = PathSample {
                sent_segments: 100 * (n as u32 + 1),
                delivered_bytes_per_s,
                rtt_us: 1_000,
                ..PathSample::default()
            };
            estimate.sampled(sample, Instant { us: n * 1_000_000 });
        }
        estimate.belief().expect("a thousand round trips")
    }

    #[test]
    fn an_address_is_remembered_for_a_while_and_the_latest_counts() {
        let mut remembered = Remembered::new(7);
        let address = Address(0xc000_0201);
        assert_eq!(remembered.belief(address, NOW), None);
        remembered.keep(address, belief(5), NOW);
        remembered.keep(address, belief(6), NOW.plus_us(1));
        let last = NOW.plus_us(1 + ADDRESS_REMEMBERED_US);
        assert_eq!(remembered.belief(address, last), Some(belief(6)));
        assert_eq!(remembered.belief(address, last.plus_us(1)), None, "expired");
        assert_eq!(remembered.belief(Address(0xc000_0202), NOW), None);
    }

    #[test]
    fn a_flood_of_addresses_takes_no_memory_and_the_latest_stay() {
        let mut remembered = Remembered::new(7);
        let (kept, at) = (belief(5), remembered.entries.as_ptr());
        let flood = 1_000_000;
        for n in 0..flood {
            remembered.keep(Address(1 << 63 | n), kept, NOW.plus_us(n));
        }
        assert_eq!(
            (remembered.entries.len(), remembered.entries.as_ptr()),
            (ADDRESSES_REMEMBERED_MAX, at)
        );
        let now = NOW.plus_us(flood);
        // The last 256 fall into 4,096 sets: five in one are rarer than one in ten thousand secrets.
        for n in flood - 256..flood {
            assert_eq!(
                remembered.belief(Address(1 << 63 | n), now),
                Some(kept),
                "{n}"
            );
        }
        let found = (0..flood)
            .filter(|&n| remembered.belief(Address(1 << 63 | n), now).is_some())
            .count();
        assert_eq!(found, ADDRESSES_REMEMBERED_MAX, "all of it is used");
    }

    #[test]
    fn who_shares_a_set_depends_on_the_secret() {
        let together = |secret| {
            let remembered = Remembered::new(secret);
            let set = remembered.set(Address(1));
            (2..200_000)
                .filter(|&n| remembered.set(Address(n)) == set)
                .collect::<Vec<_>>()
        };
        let (one, other) = (together(1), together(2));
        assert!((20..90).contains(&one.len()), "about 49: {}", one.len());
        assert!(one.iter().filter(|n| other.contains(n)).count() <= 3);
    }
}
