//! The events before a law was broken, printed if `ACKPACE_STORY` is set. Drivers try thousands of inputs; a story is
//! for the one that is looked at again.

use std::collections::VecDeque;
use std::fmt::Debug;

use ackpace_core::units::Instant;

/// Notes kept: enough to see how a stream came to its state.
const NOTES_MAX: usize = 400;

/// The last notes; printed if their world ends by a panic.
pub(super) struct Story {
    notes: Option<VecDeque<String>>,
}

impl Default for Story {
    fn default() -> Story {
        let told = std::env::var_os("ACKPACE_STORY").is_some();
        Story {
            notes: told.then(VecDeque::new),
        }
    }
}

impl Story {
    /// Records an event.
    pub fn note(&mut self, now: Instant, what: &str, detail: &dyn Debug) {
        let Some(notes) = &mut self.notes else { return };
        if notes.len() == NOTES_MAX {
            notes.pop_front();
        }
        notes.push_back(format!("{:>11} us  {what:8} {detail:?}", now.us));
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let notes = self.notes.iter().flatten();
            notes.for_each(|note| eprintln!("{note}"));
        }
    }
}
