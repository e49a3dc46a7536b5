//! Which windows of files are known to be in memory and up to date, so that counting their pages is enough.
//!
//! A page that is there and holds nothing yet is one that somebody is just reading. A look at each page tells (mincore(2), some 8 us a
//! MiB), a count of them does not (cachestat(2), .2 us with large folios, 3.5 with single pages). But a page that was up to date is so
//! until it is dropped, and then it is missing for a while before somebody reads it again: whoever counts often sees that.

use ackpace_core::conn::{ObjectId, Oracle, Span};
use ackpace_core::limits::WINDOW_BYTES;
use ackpace_core::units::Instant;

use super::file::File;
use super::residency::{cached_pages, pages_of};
use crate::limits::{CONFIRMED_MAX, CONFIRMED_US};

/// A direct-mapped table of windows, of one worker.
pub struct Confirmed {
    slots: Box<[Option<Window>]>,
}

#[derive(Clone, Copy)]
struct Window {
    object: ObjectId,
    nth: u64,
    /// When each page was looked at, and when they were last counted.
    looked_at: Instant,
    counted_at: Instant,
}

/// What one of these tables takes.
pub const CONFIRMED_BYTES: u64 = (CONFIRMED_MAX * size_of::<Option<Window>>()) as u64;

impl Default for Confirmed {
    fn default() -> Confirmed {
        Confirmed {
            slots: vec![None; CONFIRMED_MAX].into(),
        }
    }
}

impl Confirmed {
    /// How many bytes of the span, from its start, can be sent without waiting for a disk, whoever reads them now; `None` where
    /// nobody can say.
    pub fn resident_bytes(&mut self, file: &File, span: Span, now: Instant) -> Option<u64> {
        if file.oracle != Oracle::Ask {
            return file.exact_bytes(span);
        }
        let mut resident_bytes = 0;
        while resident_bytes < span.len_bytes {
            let offset_bytes = span.offset_bytes + resident_bytes;
            let nth = offset_bytes / WINDOW_BYTES;
            let window_end_bytes = (nth + 1).saturating_mul(WINDOW_BYTES);
            let piece = Span {
                offset_bytes,
                len_bytes: window_end_bytes.min(span.end_bytes()) - offset_bytes,
            };
            let here_bytes = self.piece_bytes(file, nth, piece, now)?;
            resident_bytes += here_bytes;
            if here_bytes < piece.len_bytes {
                break;
            }
        }
        Some(resident_bytes)
    }

    /// The same of a part of one window.
    fn piece_bytes(&mut self, file: &File, nth: u64, piece: Span, now: Instant) -> Option<u64> {
        let slot = &mut self.slots[slot(file.id, nth)];
        let known = slot.filter(|known| known.object == file.id && known.nth == nth);
        if let Some(known) = known.filter(|known| known.is_fresh(file.missed_at(), now)) {
            let pages = cached_pages(&file.fd, piece);
            if pages.is_ok_and(|pages| pages >= pages_of(piece)) {
                *slot = Some(Window {
                    counted_at: now,
                    ..known
                });
                return Some(piece.len_bytes);
            }
            file.missed(now);
        }
        let whole = Span {
            offset_bytes: nth * WINDOW_BYTES,
            len_bytes: WINDOW_BYTES,
        };
        // The whole window is looked at, so that the next pieces of it are known, too.
        let exact_bytes = file.exact_bytes(piece)?;
        if exact_bytes < piece.len_bytes {
            file.missed(now);
            *slot = None;
        } else if piece == whole || is_whole(file, whole) {
            *slot = Some(Window {
                object: file.id,
                nth,
                looked_at: now,
                counted_at: now,
            });
        }
        Some(exact_bytes)
    }
}

impl Window {
    fn is_fresh(&self, missed_at: Instant, now: Instant) -> bool {
        self.looked_at > missed_at && now.since_us(self.counted_at) < CONFIRMED_US
    }
}

/// Whether all pages of a window, or of what there is of it, are up to date.
fn is_whole(file: &File, window: Span) -> bool {
    let len_bytes = file.version().map_or(0, |version| version.len_bytes);
    let there = Span {
        len_bytes: len_bytes
            .saturating_sub(window.offset_bytes)
            .min(window.len_bytes),
        ..window
    };
    file.exact_bytes(there) == Some(there.len_bytes)
}

/// Neighbouring windows of one file lie side by side; files start at scattered places.
fn slot(object: ObjectId, nth: u64) -> usize {
    let scattered = u64::from(object.index).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    (scattered.wrapping_add(nth) % CONFIRMED_MAX as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_known_until_a_page_of_its_file_is_missed_or_nobody_counts() {
        let at = |us| Instant { us };
        let window = Window {
            object: ObjectId {
                device: 0,
                index: 1,
                generation: 0,
            },
            nth: 0,
            looked_at: at(1_000),
            counted_at: at(5_000),
        };
        assert!(window.is_fresh(at(999), at(5_000 + CONFIRMED_US - 1)));
        assert!(!window.is_fresh(at(999), at(5_000 + CONFIRMED_US)));
        assert!(!window.is_fresh(at(1_000), at(5_001)));
    }
}
