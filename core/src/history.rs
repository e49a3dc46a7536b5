//! A bounded history: the last entries of whatever explains a machine's behaviour.

use alloc::vec::Vec;

/// The last `most` entries, in their order. Nothing is allocated after the start: a new entry replaces the oldest.
#[derive(Clone, Debug)]
pub struct History<T> {
    ring: Vec<T>,
    next: usize,
    most: usize,
}

impl<T> History<T> {
    /// An empty one with room for `most` entries, at least one.
    pub fn new(most: usize) -> History<T> {
        let most = most.max(1);
        History {
            ring: Vec::with_capacity(most),
            next: 0,
            most,
        }
    }

    /// Adds the newest entry.
    pub fn push(&mut self, entry: T) {
        match self.ring.get_mut(self.next) {
            Some(oldest) => *oldest = entry,
            None => self.ring.push(entry),
        }
        self.next = (self.next + 1) % self.most;
    }

    /// All entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        older.iter().chain(newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_last_entries_in_their_order_and_never_grows() {
        const MOST: u64 = 50;
        let mut history = History::new(MOST as usize);
        let capacity = history.ring.capacity();
        assert_eq!(history.iter().count(), 0);
        for n in 0..3 * MOST + 7 {
            history.push(n);
            let first = (n + 1).saturating_sub(MOST);
            assert!(history.iter().copied().eq(first..=n), "after {n}");
        }
        assert_eq!(history.ring.capacity(), capacity);
    }
}
