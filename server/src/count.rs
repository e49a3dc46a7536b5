//! A number that one thread counts and any thread may read, at the price of a plain one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to it. Only for its one writer.
    pub fn add(&self, more: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Replaces it. Only for its one writer.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_it_grow() {
        let count = Count::default();
        let sum = std::thread::scope(|scope| {
            scope.spawn(|| (0..100_000).for_each(|_| count.add(2)));
            let (mut last, mut looks) = (0, 0);
            while last < 200_000 {
                let now = count.get();
                assert!(now >= last, "it fell from {last} to {now}");
                (last, looks) = (now, looks + 1);
            }
            looks
        });
        assert!(sum > 0);
        count.set(7);
        assert_eq!(count.get(), 7);
    }
}
