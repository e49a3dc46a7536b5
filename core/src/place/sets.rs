//! The server set of each object: the nodes that have it in memory, as far as is known.
//!
//! The table has a fixed size. An object has its row in one bucket of eight; in a full bucket it replaces the object that was
//! touched longest ago. A forgotten object counts as one that nobody has, and a wrong set costs a read, never a byte.

use alloc::boxed::Box;

use super::nodes::NodeSet;

/// Objects whose sets are known: 6 MiB, and what nodes with 16 GiB of memory hold at 64 KiB each. More: those that were
/// touched longest ago are forgotten.
pub const OBJECTS_MAX: usize = 262_144;
const BUCKET: usize = 8;

/// A free row has an empty set.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    key: u64,
    set: NodeSet,
    touched: u64,
}

/// The memory of a table for [`OBJECTS_MAX`] objects.
pub const BYTES: u64 = (OBJECTS_MAX * size_of::<Row>()) as u64;

/// Server sets by the objects' keys.
#[derive(Debug)]
pub struct Sets {
    rows: Box<[Row]>,
    touches: u64,
}

impl Sets {
    /// Room for so many objects: at least a bucket, at most [`OBJECTS_MAX`].
    pub fn new(objects: usize) -> Sets {
        let rows = objects.clamp(1, OBJECTS_MAX).next_multiple_of(BUCKET);
        Sets {
            rows: (0..rows).map(|_| Row::default()).collect(),
            touches: 0,
        }
    }

    /// The set of an object that is asked for; empty if nothing is known.
    pub fn ask(&mut self, key: u64) -> NodeSet {
        self.touches += 1;
        let touched = self.touches;
        let row = self.bucket(key).iter_mut().find(|row| row.is_of(key));
        row.map_or(NodeSet::default(), |row| {
            row.touched = touched;
            row.set
        })
    }

    /// This node has it.
    pub fn came(&mut self, node: usize, key: u64) {
        let joins = NodeSet::default().with(node);
        if joins == NodeSet::default() {
            return;
        }
        self.touches += 1;
        let touched = self.touches;
        let bucket = self.bucket(key);
        let place = bucket.iter().position(|row| row.is_of(key)).unwrap_or({
            let age = |nth: &usize| match bucket[*nth].set == NodeSet::default() {
                true => 0,
                false => bucket[*nth].touched,
            };
            (0..BUCKET).min_by_key(age).unwrap_or(0)
        });
        let row = &mut bucket[place];
        let before = match row.is_of(key) {
            true => row.set,
            false => NodeSet::default(),
        };
        let set = NodeSet(before.0 | joins.0);
        *row = Row { key, set, touched };
    }

    /// This node has it no more.
    pub fn went(&mut self, node: usize, key: u64) {
        let row = self.bucket(key).iter_mut().find(|row| row.is_of(key));
        if let Some(row) = row {
            row.set = row.set.without(node);
        }
    }

    /// This node has nothing: it was started anew, or nobody hears from it.
    pub fn forget(&mut self, node: usize) {
        for row in &mut self.rows {
            row.set = row.set.without(node);
        }
    }

    /// Objects of which a node is known that has them.
    pub fn known(&self) -> usize {
        let rows = self.rows.iter();
        rows.filter(|row| row.set != NodeSet::default()).count()
    }

    fn bucket(&mut self, key: u64) -> &mut [Row] {
        let buckets = (self.rows.len() / BUCKET) as u128;
        let mixed = u128::from(super::hashing::mix(key));
        let first = ((mixed * buckets) >> 64) as usize * BUCKET;
        &mut self.rows[first..first + BUCKET]
    }
}

impl Row {
    fn is_of(&self, key: u64) -> bool {
        self.key == key && self.set != NodeSet::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_bucket_forgets_what_was_touched_longest_ago() {
        let mut sets = Sets::new(BUCKET);
        (0..BUCKET as u64).for_each(|key| sets.came(3, key));
        sets.ask(0);
        sets.came(5, 99);
        assert_eq!(sets.ask(0), NodeSet(1 << 3), "it was asked for");
        assert_eq!(sets.ask(1), NodeSet::default(), "it was the oldest");
        assert_eq!(sets.ask(99), NodeSet(1 << 5));
        sets.went(3, 0);
        sets.came(1, 100);
        assert_eq!(sets.ask(2), NodeSet(1 << 3), "the free row came first");
    }

    proptest! {
        /// Against a plain map, while there is room; and there are never more than the table has rows.
        #[test]
        fn sets_are_what_came_and_did_not_go(
            steps in prop::collection::vec((0usize..70, 0u64..40, 0u8..8), 0..300),
            small: bool,
        ) {
            let mut sets = Sets::new(if small { 8 } else { OBJECTS_MAX });
            let mut plain = std::collections::BTreeMap::<u64, u64>::new();
            for (node, key, what) in steps {
                let set = plain.entry(key).or_default();
                let bit = 1u64.checked_shl(node as u32).unwrap_or(0);
                match what {
                    0 => {
                        sets.forget(node);
                        plain.values_mut().for_each(|set| *set &= !bit);
                    }
                    1..=2 => {
                        sets.went(node, key);
                        *set &= !bit;
                    }
                    _ => {
                        sets.came(node, key);
                        *set |= bit;
                    }
                }
                let known = sets.ask(key).0;
                let set = plain[&key];
                let right = if small { known & !set == 0 } else { known == set };
                prop_assert!(right, "{known:b}, not {set:b}");
            }
            let bound = if small { 8 } else { 40 };
            prop_assert!(sets.known() <= bound);
        }
    }
}
