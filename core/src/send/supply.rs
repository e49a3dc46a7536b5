//! What a connection has and takes, for the stage that fetches its bytes.

use crate::limits::{LOWAT_BYTES_MAX, UNKNOWN_MARGIN_US};
use crate::prefetch::us_for;
use crate::units::Instant;

/// A socket is nearly empty when one part in so many of what it should hold is left.
const WATCHED_PART: u64 = 4;
/// What lasts no longer than this counts as nothing.
const WATCHED_US_MIN: u64 = 10_000;

/// What a connection has in its socket, and how fast it takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// D1: held unsent, as predicted.
    pub socket_bytes: u64,
    /// B_n; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// The socket takes no more for now.
    pub full: bool,
}

impl Supply {
    /// When the connection runs dry, if `memory_bytes` (D2) more wait for it in memory.
    pub fn underrun_at(&self, memory_bytes: u64, now: Instant) -> Instant {
        let bytes = self.socket_bytes.saturating_add(memory_bytes);
        match self.rate_bytes_per_s {
            // It has taken everything as fast as it came.
            0 if memory_bytes == 0 && !self.full => now,
            0 => now.plus_us(UNKNOWN_MARGIN_US),
            rate => now.plus_us(us_for(bytes, rate)),
        }
    }

    /// The level below which a socket is nearly empty, bytes; `None` if it is nearly empty by now, as far as is predicted, or
    /// nothing can be predicted.
    pub fn watched_bytes(&self, now: Instant) -> Option<u32> {
        let lasts = self.underrun_at(0, now) > now.plus_us(WATCHED_US_MIN);
        let known = self.rate_bytes_per_s > 0;
        let bytes = (self.socket_bytes / WATCHED_PART).min(LOWAT_BYTES_MAX.into());
        (known && lasts && bytes > 0).then_some(bytes as u32)
    }
}
