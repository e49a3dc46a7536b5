//! What came into the caches of this node since the other nodes were last told. What left them is not told: a node that is wrongly
//! believed to have a file reads it, and has it again.

use std::collections::HashSet;

use ackpace_wire::limits::CLUSTER_KEYS_MAX;

/// Keys that wait to be told: two seconds' worth of frames. More: they are left out, since all that the others do with them is to
/// guess better.
const WAITING_MAX: usize = 2 * CLUSTER_KEYS_MAX;

#[derive(Debug, Default)]
pub struct Reports(HashSet<u64>);

impl Reports {
    /// An object is there.
    pub fn came(&mut self, key: u64) {
        if self.0.len() < WAITING_MAX {
            self.0.insert(key);
        }
    }

    /// Takes what one frame holds.
    pub fn take(&mut self) -> Vec<u64> {
        let taken: Vec<u64> = self.0.iter().copied().take(CLUSTER_KEYS_MAX).collect();
        taken.iter().for_each(|key| {
            self.0.remove(key);
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_told_once_and_their_number_is_bounded() {
        let mut reports = Reports::default();
        reports.came(2);
        reports.came(2);
        assert_eq!(reports.take(), [2]);
        assert!(reports.take().is_empty());
        (0..3 * WAITING_MAX as u64).for_each(|key| reports.came(key));
        let taken = [reports.take(), reports.take(), reports.take()];
        let lens = taken.map(|keys| keys.len());
        assert_eq!(lens, [CLUSTER_KEYS_MAX, CLUSTER_KEYS_MAX, 0]);
    }
}
