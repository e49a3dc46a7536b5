//! What a stream has told the disk machine, and when that has to hear otherwise.

use crate::conn::{ObjectId, Span};
use crate::limits::{REDATE_US_MIN, UNKNOWN_MARGIN_US};
use crate::units::Instant;

/// What the disk machine was asked for.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub object: ObjectId,
    pub span: Span,
    pub dry_at: Instant,
    pub rate_bytes_per_s: u64,
    /// Its number: an answer to any other is void.
    pub seq: u32,
    /// Signs of congestion until then.
    pub signals: u32,
    /// The page cache was asked, and has not all of its first window.
    pub absent: bool,
}

impl Wish {
    /// Whether the disk machine should hear that the stream runs dry at another time than it said.
    pub fn is_moved(&self, dry_at: Instant, rate_bytes_per_s: u64, now: Instant) -> bool {
        if rate_bytes_per_s == 0 {
            let soon = now.plus_us(UNKNOWN_MARGIN_US);
            let taken = dry_at <= soon && self.dry_at > soon;
            return taken || dry_at <= now && self.dry_at > now; // all else is a guess
        }
        let (before, after) = (self.dry_at, dry_at);
        let late = before <= now && after <= now;
        let moved_us = before.since_us(after) + after.since_us(before);
        self.rate_bytes_per_s == 0
            || !late && moved_us > REDATE_US_MIN.max(before.since_us(now) / 8)
    }
}
