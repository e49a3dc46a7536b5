//! What is believed to be in the page cache: which windows of which files can be sent at once.
//!
//! Asking the kernel costs .2 us a window when it holds large folios and 3.5 us when it holds
//! single pages, beside 55 us to send one; so an answer is trusted for a moment. If the kernel drops
//! a page in that moment, one sendfile waits for the disk: rare, and short of a wrong answer.

use alloc::vec;
use alloc::vec::Vec;

use crate::conn::{ObjectId, Oracle};
use crate::limits::{BELIEF_TRUST_US, BELIEFS_MAX, WINDOW_BYTES};
use crate::units::Instant;

/// What to do about a window before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it.
    Resident,
    /// Ask the kernel.
    Probe,
    /// Want it from the disk; asking would disturb.
    Cold,
}

/// A direct-mapped table of windows that were seen in memory. A collision forgets the older one,
/// which costs one question.
pub struct Beliefs {
    slots: Vec<Option<Belief>>,
}

#[derive(Clone, Copy)]
struct Belief {
    object: ObjectId,
    window: u64,
    seen_at: Instant,
}

impl Default for Beliefs {
    fn default() -> Beliefs {
        Beliefs {
            slots: vec![None; BELIEFS_MAX],
        }
    }
}

impl Beliefs {
    /// What is believed of the window around `offset_bytes`.
    pub fn verdict(
        &self,
        object: ObjectId,
        oracle: Oracle,
        offset_bytes: u64,
        now: Instant,
    ) -> Verdict {
        let window = offset_bytes / WINDOW_BYTES;
        let seen =
            self.slots[slot(object, window)].filter(|b| b.object == object && b.window == window);
        match (oracle, seen) {
            (Oracle::Always, _) => Verdict::Resident,
            (_, Some(belief)) if now.since_us(belief.seen_at) < BELIEF_TRUST_US => {
                Verdict::Resident
            }
            (Oracle::Ask, _) | (Oracle::Remember, Some(_)) => Verdict::Probe,
            (Oracle::Remember, None) => Verdict::Cold,
        }
    }

    /// The window was seen in memory now: the kernel said so, or we have just read it.
    pub fn seen(&mut self, object: ObjectId, offset_bytes: u64, now: Instant) {
        let window = offset_bytes / WINDOW_BYTES;
        self.slots[slot(object, window)] = Some(Belief {
            object,
            window,
            seen_at: now,
        });
    }

    /// The window is not, or no longer, whole in memory.
    pub fn gone(&mut self, object: ObjectId, offset_bytes: u64) {
        let window = offset_bytes / WINDOW_BYTES;
        let slot = &mut self.slots[slot(object, window)];
        if slot.is_some_and(|b| b.object == object && b.window == window) {
            *slot = None;
        }
    }
}

/// Neighbouring windows of one file lie side by side; files start at scattered places.
fn slot(object: ObjectId, window: u64) -> usize {
    let scattered = u64::from(object.index).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    (scattered.wrapping_add(window) % BELIEFS_MAX as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ObjectId = ObjectId {
        device: 0,
        index: 7,
        generation: 1,
    };
    const START: Instant = Instant { us: 1_000 };

    #[test]
    fn a_window_is_trusted_for_a_moment_and_asked_about_later() {
        let mut beliefs = Beliefs::default();
        assert_eq!(beliefs.verdict(FILE, Oracle::Ask, 0, START), Verdict::Probe);
        beliefs.seen(FILE, 0, START);
        assert_eq!(
            beliefs.verdict(FILE, Oracle::Ask, WINDOW_BYTES - 1, START),
            Verdict::Resident
        );
        assert_eq!(
            beliefs.verdict(FILE, Oracle::Ask, WINDOW_BYTES, START),
            Verdict::Probe
        );
        let later = START.plus_us(BELIEF_TRUST_US);
        assert_eq!(beliefs.verdict(FILE, Oracle::Ask, 0, later), Verdict::Probe);
    }

    #[test]
    fn without_an_oracle_a_cold_window_is_never_probed() {
        let mut beliefs = Beliefs::default();
        assert_eq!(
            beliefs.verdict(FILE, Oracle::Remember, 0, START),
            Verdict::Cold
        );
        beliefs.seen(FILE, 0, START);
        let later = START.plus_us(BELIEF_TRUST_US);
        assert_eq!(
            beliefs.verdict(FILE, Oracle::Remember, 0, later),
            Verdict::Probe
        );
        beliefs.gone(FILE, 0);
        assert_eq!(
            beliefs.verdict(FILE, Oracle::Remember, 0, later),
            Verdict::Cold
        );
    }

    #[test]
    fn a_new_user_of_a_slot_inherits_nothing() {
        let mut beliefs = Beliefs::default();
        beliefs.seen(FILE, 0, START);
        let next = ObjectId {
            generation: 2,
            ..FILE
        };
        assert_eq!(
            beliefs.verdict(next, Oracle::Remember, 0, START),
            Verdict::Cold
        );
        beliefs.gone(next, 0);
        assert_eq!(
            beliefs.verdict(FILE, Oracle::Remember, 0, START),
            Verdict::Resident
        );
    }

    #[test]
    fn files_in_memory_need_no_question() {
        assert_eq!(
            Beliefs::default().verdict(FILE, Oracle::Always, 0, START),
            Verdict::Resident
        );
    }
}
