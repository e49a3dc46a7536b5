//! When a want needs a new deadline.

use crate::conn::Want;
use crate::limits::{REDATE_US_MIN, UNKNOWN_MARGIN_US};
use crate::units::Instant;

/// Whether the stream of this want now runs dry at a time so different that the want needs a new deadline.
pub(super) fn is_moved(told: &Want, dry_at: Instant, rate_bytes_per_s: u64, now: Instant) -> bool {
    if rate_bytes_per_s == 0 {
        let soon = now.plus_us(UNKNOWN_MARGIN_US);
        let taken = dry_at <= soon && told.dry_at > soon;
        return taken || dry_at <= now && told.dry_at > now; // all else is a guess
    }
    let (before, after) = (told.dry_at, dry_at);
    let late = before <= now && after <= now;
    let moved_us = before.since_us(after) + after.since_us(before);
    told.rate_bytes_per_s == 0 || !late && moved_us > REDATE_US_MIN.max(before.since_us(now) / 8)
}
