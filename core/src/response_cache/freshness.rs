//! Freshness: a response may be used for a second after its file was looked up. The first request in the second half of
//! that second triggers a new lookup after its own response is sent. So nobody waits as long as requests keep coming.
//!
//! Some cached responses are a head and an open file (`server/src/response_cache/mod.rs`). Such a file may change within the
//! second. So the first use in a turn compares it with its head. A turn is a pass of the worker's loop; `now` stays the same
//! in it.

use crate::limits::{CACHED_FRESH_US, REVALIDATIONS_PER_TURN_MAX};
use crate::units::Instant;

/// The age of a cached response.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    looked_up: Instant,
    /// The turn in which an open file was last compared with the version that the head describes.
    compared: Instant,
    /// It has triggered the new lookup.
    due: bool,
}

impl Freshness {
    /// A response whose file was looked up at this time.
    pub fn new(looked_up: Instant) -> Freshness {
        Freshness {
            looked_up,
            compared: looked_up,
            due: false,
        }
    }

    /// Whether the response may still be used.
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.age_us(now) < CACHED_FRESH_US
    }

    /// Whether an open file has to be compared with its head: once a turn, since that costs a tenth of the response.
    pub fn needs_comparison(&self, now: Instant) -> bool {
        self.compared != now
    }

    /// The response may be used without a comparison for the rest of this turn: its open file was compared and matches the head, or
    /// it is a copy.
    pub fn compared(&mut self, now: Instant) {
        self.compared = now;
    }

    /// Whether this use of the response should trigger a new lookup of its file. Returns `true` once. `waiting` files are to be
    /// looked up already; with [`REVALIDATIONS_PER_TURN_MAX`] of them a later use triggers it.
    pub fn falls_due(&mut self, now: Instant, waiting: usize) -> bool {
        let late = self.age_us(now) >= CACHED_FRESH_US / 2;
        let falls_due = late && !self.due && waiting < REVALIDATIONS_PER_TURN_MAX;
        self.due |= falls_due;
        falls_due
    }

    fn age_us(&self, now: Instant) -> u64 {
        now.since_us(self.looked_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant { us: 7 };

    #[test]
    fn a_response_is_fresh_for_a_second() {
        let freshness = Freshness::new(START);
        assert!(freshness.is_fresh(START.plus_us(CACHED_FRESH_US - 1)));
        assert!(!freshness.is_fresh(START.plus_us(CACHED_FRESH_US)));
    }

    #[test]
    fn an_open_file_is_compared_once_a_turn() {
        let mut freshness = Freshness::new(START);
        assert!(!freshness.needs_comparison(START), "it was just looked up");
        let turn = START.plus_us(1);
        assert!(freshness.needs_comparison(turn));
        freshness.compared(turn);
        assert!(!freshness.needs_comparison(turn));
        assert!(freshness.needs_comparison(turn.plus_us(1)));
    }

    #[test]
    fn the_first_use_in_the_second_half_has_the_file_looked_up_once() {
        let mut freshness = Freshness::new(START);
        let late = START.plus_us(CACHED_FRESH_US / 2);
        assert!(!freshness.falls_due(START.plus_us(CACHED_FRESH_US / 2 - 1), 0));
        let full = REVALIDATIONS_PER_TURN_MAX;
        assert!(!freshness.falls_due(late, full), "too many wait already");
        assert!(freshness.falls_due(late, full - 1));
        assert!(!freshness.falls_due(late, 0), "once");
    }
}
