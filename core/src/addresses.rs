//! Connections by client address, counted over all workers without a lock.
//!
//! A connection takes a place in a table of atomic words. A word holds a tag of its address and a count. The tag is a
//! keyed hash, so a peer can't choose addresses that meet in one bucket. A full bucket counts no more, and two workers that
//! enter an address at once may each take a word of their own: the bound of one address then lets a few connections
//! through, and refuses none that it should not.

use alloc::boxed::Box;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A client's address as far as the bound per address counts: an IPv4 address, or the /64 of an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub u64);

/// 2000::/3 and all that follows is above any IPv4 address.
impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Address {
        match ip {
            IpAddr::V4(v4) => Address(u64::from(u32::from(v4))),
            IpAddr::V6(v6) => Address((u128::from(v6) >> 64) as u64 | 1 << 63),
        }
    }
}

/// The network of a client: the /24 of its IPv4 address, or the /48 of its IPv6 one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network(u64);

impl Address {
    /// The network that it belongs to.
    pub fn network(self) -> Network {
        let host_bits = match self.0 >> 32 {
            0 => 8,
            _ => 16, // of the 64 bits of an IPv6 address
        };
        Network(self.0 >> host_bits << host_bits)
    }

    /// A number of its own, for a table whose owner keeps `secret`: nobody can choose addresses that meet there. Each bit
    /// of the input changes half of the output (the finish of SplitMix64).
    pub fn hash(self, secret: u64) -> u64 {
        let mut mixed = (self.0 ^ secret).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Words of a bucket.
const BUCKET: usize = 8;
/// Words for each connection that may be open: more, and fewer buckets are full.
const WORDS_EACH: usize = 2;
/// Memory for each connection that may be open.
pub const EACH_BYTES: usize = WORDS_EACH * size_of::<AtomicU64>();
/// How often a bucket is looked at for one connection, while other workers change its words: each time one of them has
/// counted. Fewer: a connection may go uncounted in a burst from one address.
const TRIES: u32 = 1_000;
const COUNT_BITS: u32 = 16;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// How many connections each address has.
#[derive(Debug)]
pub struct AddressCounts {
    words: Box<[AtomicU64]>,
    secret: u64,
}

/// Where a connection is counted. Give it back once, by [`AddressCounts::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedIn {
    word: u32,
}

impl AddressCounts {
    /// Room for so many connections of all workers; `secret`: a random number.
    pub fn new(connections_max: u32, secret: u64) -> AddressCounts {
        let words = (connections_max as usize * WORDS_EACH).next_multiple_of(BUCKET);
        let words = words.max(BUCKET);
        AddressCounts {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            secret,
        }
    }

    /// Counts a connection of `address`. Returns where, and how many connections the address has with this one; `None`
    /// if the table has no place for it, or other workers were faster `TRIES` times.
    pub fn enter(&self, address: Address) -> Option<(CountedIn, u32)> {
        let (bucket, tag) = self.bucket(address);
        // Another worker may take a word in between: then look again.
        for _ in 0..TRIES {
            let mut count = 0;
            let (mut own, mut free) = (None, None);
            for word in bucket..bucket + BUCKET {
                let value = self.words[word].load(Relaxed);
                let held = value & COUNT_MASK;
                if value == 0 {
                    free = free.or(Some(word));
                } else if value >> COUNT_BITS == tag {
                    count += held;
                    own = own.or((held < COUNT_MASK).then_some((word, value)));
                }
            }
            let (word, value, new) = match (own, free) {
                (Some((word, value)), _) => (word, value, value + 1),
                (None, Some(word)) => (word, 0, tag << COUNT_BITS | 1),
                (None, None) => return None,
            };
            let swapped = self.words[word].compare_exchange(value, new, Relaxed, Relaxed);
            if swapped.is_ok() {
                let counted = CountedIn { word: word as u32 };
                return Some((counted, count as u32 + 1));
            }
        }
        None
    }

    /// A connection that was counted is gone.
    pub fn leave(&self, counted: CountedIn) {
        let Some(word) = self.words.get(counted.word as usize) else {
            return;
        };
        let left = word.fetch_update(Relaxed, Relaxed, |value| match value & COUNT_MASK {
            0 => None,
            1 => Some(0), // the word is free for any address
            _ => Some(value - 1),
        });
        debug_assert!(left.is_ok(), "it was counted once and left twice");
    }

    /// Connections that are counted.
    pub fn counted(&self) -> u64 {
        let counts = self.words.iter();
        counts.map(|word| word.load(Relaxed) & COUNT_MASK).sum()
    }

    /// The first word of the bucket of an address, and its tag, which is not 0.
    fn bucket(&self, address: Address) -> (usize, u64) {
        let hash = address.hash(self.secret);
        let buckets = self.words.len() / BUCKET;
        // The bucket by the upper bits of the hash, the tag by the lower ones.
        let bucket = (u128::from(hash) * buckets as u128) >> 64;
        let tag = hash & (u64::MAX >> COUNT_BITS);
        (bucket as usize * BUCKET, tag.max(1))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_ipv6_customer_is_counted_by_its_64_bits() {
        let counted = |text: &str| Address::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(counted("2001:db8::1"), counted("2001:db8::ffff:2"));
        assert_ne!(counted("2001:db8::1"), counted("2001:db8:0:1::1"));
        assert_ne!(counted("127.0.0.1"), counted("127.0.0.2"));
        assert_ne!(counted("0.0.0.1"), counted("0:0:0:1::"));
    }

    #[test]
    fn a_network_is_24_bits_of_ipv4_and_48_of_ipv6() {
        let same = |one: u64, other: u64| Address(one).network() == Address(other).network();
        assert!(same(0xc000_0201, 0xc000_02ff) && !same(0xc000_0201, 0xc000_0301));
        let of_48 = Address::from(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0])).0;
        assert!(same(of_48, of_48 | 0xffff) && !same(of_48, of_48 | 0x1_0000));
    }

    proptest! {
        /// Whoever comes and goes, each address has the count of its connections, and in the end nothing is kept.
        #[test]
        fn counts_are_exact_while_there_is_room(
            secret: u64,
            steps in prop::collection::vec((0u64..6, any::<prop::sample::Index>(), any::<bool>()), 1..200),
        ) {
            let counts = AddressCounts::new(200, secret);
            let mut open: Vec<(u64, CountedIn)> = Vec::new();
            for (address, which, leaves) in steps {
                if leaves && !open.is_empty() {
                    let (_, counted) = open.swap_remove(which.index(open.len()));
                    counts.leave(counted);
                } else {
                    let (counted, count) = counts.enter(Address(address)).expect("six addresses fit any bucket");
                    let others = open.iter().filter(|(of, _)| *of == address).count();
                    prop_assert_eq!(count as usize, others + 1);
                    open.push((address, counted));
                }
                prop_assert_eq!(counts.counted(), open.len() as u64);
            }
            open.into_iter().for_each(|(_, counted)| counts.leave(counted));
            prop_assert_eq!(counts.counted(), 0);
        }
    }

    #[test]
    fn a_full_bucket_counts_no_more_and_one_word_holds_65535() {
        let counts = AddressCounts::new(1, 7);
        let filled: Vec<_> = (0..BUCKET as u64)
            .map(|n| counts.enter(Address(n)))
            .collect();
        assert!(filled.iter().all(Option::is_some));
        assert_eq!(counts.enter(Address(99)), None, "no word is left");
        let again = counts.enter(Address(3)).map(|(_, count)| count);
        assert_eq!(again, Some(2), "its own word has room");
        let counts = AddressCounts::new(70_000, 7);
        let all: Vec<_> = (0..70_000).map(|_| counts.enter(Address(5))).collect();
        let last = all.last().copied().flatten().map(|(_, count)| count);
        assert_eq!(last, Some(70_000), "two words add up");
    }

    #[test]
    fn workers_that_count_at_once_lose_nothing() {
        extern crate std;
        let counts = AddressCounts::new(64, 11);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let counts = &counts;
                scope.spawn(move || {
                    for round in 0..20_000u64 {
                        let entered = counts.enter(Address((round + thread) % 3));
                        let (counted, count) = entered.expect("three addresses");
                        assert!((1..=8).contains(&count), "four threads, not {count}");
                        counts.leave(counted);
                    }
                });
            }
        });
        assert_eq!(counts.counted(), 0);
    }
}
