//! A table that never outgrows its bound: of too many keys it keeps every second one, then every fourth, and so on. What it keeps is
//! complete from the first line on, so counts and shares of it stand for all (adaptive sampling: M. Wegman; P. Flajolet, 1990).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// See the module. Keys are hashes ([`key`]).
pub struct Sampled<V> {
    kept: HashMap<u64, V>,
    keys_max: usize,
    /// Keys whose last bits are 0 are kept.
    bits: u32,
}

/// The key of texts. Alike in each run.
pub fn key(texts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    hasher.finish()
}

impl<V: Default> Sampled<V> {
    pub fn new(keys_max: usize) -> Sampled<V> {
        Sampled {
            kept: HashMap::new(),
            keys_max,
            bits: 0,
        }
    }

    /// What is known of a key; `None`: it is not of the sample.
    pub fn of(&mut self, key: u64) -> Option<&mut V> {
        while self.has_room_for(key) && self.is_full_for(key) {
            self.bits += 1;
            let bits = self.bits;
            self.kept.retain(|key, _| is_of_sample(*key, bits));
        }
        let here = is_of_sample(key, self.bits);
        here.then(|| self.kept.entry(key).or_default())
    }

    fn has_room_for(&self, key: u64) -> bool {
        self.bits < u64::BITS - 1 && is_of_sample(key, self.bits)
    }

    fn is_full_for(&self, key: u64) -> bool {
        self.kept.len() >= self.keys_max && !self.kept.contains_key(&key)
    }

    /// What is known of the sample.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.kept.values()
    }

    /// For how many keys each of the sample stands.
    pub fn stands_for(&self) -> u64 {
        1 << self.bits
    }
}

fn is_of_sample(key: u64, bits: u32) -> bool {
    key & ((1 << bits) - 1) == 0
}
