//! Tells whether a change was the only one of its file meanwhile. Only then a client hears what the file was like before (wcc_data,
//! RFC 1813 section 2.6): it would take another client's change for its own otherwise, and keep what it has cached.

use std::sync::atomic::{AtomicU64, Ordering};

use super::tree::Node;

/// Files share counters. More: two that are changed at once seldom meet in one; who does tells less, and nothing wrong.
const COUNTERS: usize = 256;

/// Changes that are under way.
pub struct Changes([Counter; COUNTERS]);

#[derive(Default)]
struct Counter {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes(std::array::from_fn(|_| Counter::default()))
    }
}

/// A change of a file that is under way.
pub struct Under<'a> {
    counter: &'a Counter,
    /// The change's number; `None`: another one was under way when it began.
    alone: Option<u64>,
}

impl Changes {
    /// A change of this file begins.
    pub fn begin(&self, file: &Node) -> Under<'_> {
        let counter = &self.0[file.identity.mixed() as usize % COUNTERS];
        let before = counter.begun.fetch_add(1, Ordering::SeqCst);
        let is_alone = counter.ended.load(Ordering::SeqCst) == before;
        Under {
            counter,
            alone: is_alone.then_some(before + 1),
        }
    }
}

impl Under<'_> {
    /// Whether no other change has begun before this moment that did not end before this one began.
    pub fn is_alone(&self) -> bool {
        let begun = self.counter.begun.load(Ordering::SeqCst);
        self.alone == Some(begun)
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.counter.ended.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_knows_of_those_beside_it() {
        let counter = Counter::default();
        let begin = || {
            let before = counter.begun.fetch_add(1, Ordering::SeqCst);
            let is_alone = counter.ended.load(Ordering::SeqCst) == before;
            Under {
                counter: &counter,
                alone: is_alone.then_some(before + 1),
            }
        };
        let first = begin();
        assert!(first.is_alone());
        let second = begin();
        assert!(!first.is_alone() && !second.is_alone());
        drop(first);
        assert!(!second.is_alone());
        drop(second);
        assert!(begin().is_alone());
    }
}
