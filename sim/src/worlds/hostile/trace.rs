//! The events before a law was broken, printed if `ACKPACE_TRACE` is set. Drivers try thousands of inputs; a trace is
//! for the one input that failed.

use std::collections::VecDeque;
use std::fmt::Debug;

use ackpace_core::units::Instant;

/// Events kept: enough to see how a stream came to its state.
const NOTES_MAX: usize = 400;

/// The last events; printed if their world ends by a panic.
pub(super) struct Trace {
    notes: Option<VecDeque<String>>,
}

impl Default for Trace {
    fn default() -> Trace {
        let told = std::env::var_os("ACKPACE_TRACE").is_some();
        Trace {
            notes: told.then(VecDeque::new),
        }
    }
}

impl Trace {
    /// Records an event.
    pub fn note(&mut self, now: Instant, what: &str, detail: &dyn Debug) {
        let Some(notes) = &mut self.notes else { return };
        if notes.len() == NOTES_MAX {
            notes.pop_front();
        }
        notes.push_back(format!("{:>11} us  {what:8} {detail:?}", now.us));
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let notes = self.notes.iter().flatten();
            notes.for_each(|note| eprintln!("{note}"));
        }
    }
}
