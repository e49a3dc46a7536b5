//! What came into the caches of this node and left them since the other nodes were last told.

use std::collections::HashSet;

use ackpace_wire::limits::CLUSTER_KEYS_MAX;

/// Keys that wait to be told, those that came and those that went together: two seconds' worth of frames. More: they are left
/// out, since all that the others do with them is to guess better.
#[allow(dead_code, reason = "the relay of requests tells it")]
const WAITING_MAX: usize = 2 * CLUSTER_KEYS_MAX;

/// A key is in one of the two at most.
#[derive(Debug, Default)]
pub struct Reports {
    came: HashSet<u64>,
    went: HashSet<u64>,
}

#[allow(dead_code, reason = "the relay of requests tells it")]
impl Reports {
    /// An object is there.
    pub fn came(&mut self, key: u64) {
        self.went.remove(&key);
        if self.has_room() {
            self.came.insert(key);
        }
    }

    /// An object is there no more.
    pub fn went(&mut self, key: u64) {
        self.came.remove(&key);
        if self.has_room() {
            self.went.insert(key);
        }
    }

    fn has_room(&self) -> bool {
        self.came.len() + self.went.len() < WAITING_MAX
    }

    /// Takes what one frame of each kind holds.
    pub fn take(&mut self) -> (Vec<u64>, Vec<u64>) {
        (some(&mut self.came), some(&mut self.went))
    }
}

fn some(keys: &mut HashSet<u64>) -> Vec<u64> {
    let taken: Vec<u64> = keys.iter().copied().take(CLUSTER_KEYS_MAX).collect();
    taken.iter().for_each(|key| {
        keys.remove(key);
    });
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_a_key_counts_and_their_number_is_bounded() {
        let mut reports = Reports::default();
        reports.came(1);
        reports.went(1);
        reports.went(2);
        reports.came(2);
        reports.came(2);
        assert_eq!(reports.take(), (vec![2], vec![1]));
        assert_eq!(reports.take(), (vec![], vec![]));
        (0..3 * WAITING_MAX as u64).for_each(|key| reports.came(key));
        let mut told = 0;
        for _ in 0..3 {
            let (came, _) = reports.take();
            assert!(came.len() <= CLUSTER_KEYS_MAX);
            told += came.len();
        }
        assert_eq!(told, WAITING_MAX);
    }
}
