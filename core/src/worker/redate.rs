//! When the disk machine has to hear that a stream runs dry at another time than it was told.

use crate::conn::Want;
use crate::limits::{REDATE_US_MIN, UNKNOWN_MARGIN_US};
use crate::units::Instant;

/// Whether a stream that told of this want runs dry at so different a time now that its want has to be dated anew.
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
