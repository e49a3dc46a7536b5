//! What a node counts of its cluster.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ackpace_core::handoff::{Refusal, Step};

use super::lock;
use super::placing::By;

/// Counts for operators.
#[derive(Debug, Default)]
pub struct ClusterTally {
    /// Sent, and heard.
    pub frames: [AtomicU64; 2],
    /// Those that stood and broke; and those that were refused: a wrong key or name, rubbish, or no handshake in time.
    pub streams: [AtomicU64; 2],
    /// What became of connections that were to move ([`STEPS`]).
    pub steps: [AtomicU64; STEPS.len()],
    /// Those that were refused, by the reason ([`REASONS`]).
    pub reasons: [AtomicU64; REASONS.len()],
    /// Questions that the broker refused.
    pub broker_refused: AtomicU64,
    /// Responses by how they were placed ([`By`]).
    pub placed: [AtomicU64; By::NAMES.len()],
    /// Connections of this node that others serve, or that are on their way; and those that it serves for others. As of the last
    /// turn of the thread.
    pub moved: [AtomicU64; 2],
    /// Connections that were taken over from each node and are not in the log yet: at most an entry per place.
    taken_over: Mutex<BTreeMap<usize, u64>>,
}

/// The steps of connections that move, for [`ClusterTally::steps`].
pub const STEPS: [&str; 6] = [
    "moved",
    "returned",
    "taken_over",
    "lapsed",
    "refused",
    "reset",
];

/// Why connections stay, for [`ClusterTally::reasons`].
pub const REASONS: [&str; 5] = ["moment", "object", "busy", "silent", "socket"];

impl ClusterTally {
    /// Counts a step.
    pub fn count(&self, step: Step) {
        let at = match step {
            Step::Moved => 0,
            Step::Returned => 1,
            Step::TookOver => 2,
            Step::Lapsed => 3,
            Step::Refused(why) => {
                self.reasons[reason(why)].fetch_add(1, Relaxed);
                4
            }
        };
        self.steps[at].fetch_add(1, Relaxed);
    }

    /// Counts a connection that was taken over from a node, for the next line in the log.
    pub fn took_over(&self, node: usize) {
        *lock(&self.taken_over).entry(node).or_default() += 1;
    }

    /// Those since this was last asked, by nodes.
    pub fn taken_over(&self) -> BTreeMap<usize, u64> {
        std::mem::take(&mut lock(&self.taken_over))
    }

    /// Counts a client that got RST, since nobody knew how its connection goes on.
    pub fn reset(&self) {
        self.steps[5].fetch_add(1, Relaxed);
    }

    /// Counts a response by how it was placed.
    pub fn placed(&self, by: By) {
        self.placed[by as usize].fetch_add(1, Relaxed);
    }

    /// Says how many connections are away now, and how many guests are here.
    pub fn stand(&self, away: usize, guests: usize) {
        self.moved[0].store(away as u64, Relaxed);
        self.moved[1].store(guests as u64, Relaxed);
    }
}

/// Which of [`REASONS`] it is.
fn reason(why: Refusal) -> usize {
    match why {
        Refusal::Hold(_) | Refusal::Late | Refusal::Moving | Refusal::Itself => 0,
        Refusal::Object => 1,
        Refusal::Busy | Refusal::Draining | Refusal::Version => 2,
        Refusal::Silent => 3,
        Refusal::Save | Refusal::Restore => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_stays_is_counted_with_its_reason() {
        let tally = ClusterTally::default();
        let steps = [Refusal::Object, Refusal::Restore, Refusal::Object].map(Step::Refused);
        steps.into_iter().for_each(|step| tally.count(step));
        tally.count(Step::Moved);
        let of = |name| REASONS.iter().position(|reason| *reason == name);
        let count = |name| tally.reasons[of(name).expect("a reason")].load(Relaxed);
        assert_eq!(
            (count("object"), count("socket"), count("moment")),
            (2, 1, 0)
        );
        let steps = [0, 4].map(|at: usize| tally.steps[at].load(Relaxed));
        assert_eq!(steps, [1, 3]);
    }
}
