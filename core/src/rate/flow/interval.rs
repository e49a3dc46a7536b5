//! What a client read over a time, and how evenly.

use crate::limits::{FLOW_STEPS, INTERVAL_US_MIN};

/// A sampling interval: what a client read over some time in which it had something to read.
///
/// Programs read in bursts, and receivers announce large windows at once. So reading shows as steps, with silences
/// between them. A rate is valid only from the end of one step to the end of another, never within a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    pub us: u64,
    pub bytes: u64,
    /// What may have been read in it besides: a bound from above counts it, or it would rest on one from below.
    pub unsure_bytes: u64,
    /// The part of `us` in which the client's window held it up.
    pub limited_us: u64,
    /// The most that was read in one step.
    pub step_bytes: u64,
    /// Some samples showed that nothing was read.
    pub uneven: bool,
    /// The longest time in which nothing was read.
    pub silent_us: u64,
}

impl Interval {
    pub fn and(self, other: Interval) -> Interval {
        Interval {
            us: self.us.saturating_add(other.us),
            bytes: self.bytes.saturating_add(other.bytes),
            unsure_bytes: self.unsure_bytes.saturating_add(other.unsure_bytes),
            limited_us: self.limited_us.saturating_add(other.limited_us),
            step_bytes: self.step_bytes.max(other.step_bytes),
            uneven: self.uneven || other.uneven,
            silent_us: self.silent_us.max(other.silent_us),
        }
    }

    pub fn is_by_itself(&self) -> bool {
        self.us > 0 && self.limited_us >= self.us / 4
    }

    /// The most that the client can have read.
    pub fn most_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.unsure_bytes)
    }

    /// Whether one step more or less would change little.
    pub fn is_whole(&self) -> bool {
        self.us >= 2 * INTERVAL_US_MIN && self.bytes / FLOW_STEPS >= self.step_bytes
    }
}
