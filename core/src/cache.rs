//! The residency cache: which windows of which files are believed to be in the page cache, so that they can be sent at
//! once.
//!
//! Asking the kernel costs some 4 us per window, sending one 55 us. So an answer is believed for a second. What a wrong one
//! costs is in [`residency`](crate::residency).

use alloc::vec;
use alloc::vec::Vec;

use crate::conn::{ObjectId, ResidencySource, Span};
use crate::limits::WINDOW_BYTES;
use crate::units::Instant;

/// Windows whose residency is remembered by one worker. A collision costs one question.
pub const RESIDENCY_CACHED_MAX: usize = 4096;
/// How long "this window is in memory" is believed without asking again. Longer: what was dropped is missed later. Shorter: a
/// client that takes a window slowly has it asked about again and again.
pub const RESIDENCY_TRUST_US: u64 = 1_000_000;

/// What to do about a window before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidencyVerdict {
    /// Send it.
    Resident,
    /// Ask the kernel.
    Probe,
    /// Nothing is known, and asking would start a read: want it from the disk.
    Unknown,
}

/// Memory of one sighting.
pub const SIGHTING_BYTES: u64 = size_of::<Option<Sighting>>() as u64;

/// A direct-mapped table of windows that were seen in memory, whole or in part. A collision forgets the older one,
/// which costs one question.
pub struct ResidencyCache {
    slots: Vec<Option<Sighting>>,
}

#[derive(Clone, Copy)]
struct Sighting {
    object: ObjectId,
    /// What was seen, inside one window. The rest of the window may be cold: having asked about its last bytes says
    /// nothing about its first.
    span: Span,
    seen_at: Instant,
}

impl Sighting {
    /// Whether it is recent. A sighting from the future, left behind by a clock that went back, is not believed.
    fn is_fresh(&self, now: Instant) -> bool {
        self.seen_at <= now && now.since_us(self.seen_at) < RESIDENCY_TRUST_US
    }
}

impl Default for ResidencyCache {
    fn default() -> ResidencyCache {
        ResidencyCache {
            slots: vec![None; RESIDENCY_CACHED_MAX],
        }
    }
}

impl ResidencyCache {
    /// What is believed about `span`, which lies inside one window.
    pub fn verdict(
        &self,
        object: ObjectId,
        residency: ResidencySource,
        span: Span,
        now: Instant,
    ) -> ResidencyVerdict {
        match (residency, self.sighting(object, span)) {
            (ResidencySource::Always, _) => ResidencyVerdict::Resident,
            (_, Some(sighting)) if sighting.is_fresh(now) => ResidencyVerdict::Resident,
            (ResidencySource::Ask, _) | (ResidencySource::Remember, Some(_)) => {
                ResidencyVerdict::Probe
            }
            (ResidencySource::Remember, None) => ResidencyVerdict::Unknown,
        }
    }

    /// The last sighting of all of `span`.
    fn sighting(&self, object: ObjectId, span: Span) -> Option<Sighting> {
        self.slots[slot(object, span)]
            .filter(|sighting| sighting.object == object && sighting.span.covers(span))
    }

    /// `span` was seen in memory now: the kernel said so, or we have just read it.
    pub fn seen(&mut self, object: ObjectId, span: Span, now: Instant) {
        self.slots[slot(object, span)] = Some(Sighting {
            object,
            span,
            seen_at: now,
        });
    }

    /// `span` is not, or no longer, completely in memory: what was seen of it is not believed any more.
    pub fn gone(&mut self, object: ObjectId, span: Span) {
        let slot = &mut self.slots[slot(object, span)];
        if slot.is_some_and(|b| b.object == object && b.span.overlaps(span)) {
            *slot = None;
        }
    }
}

/// From `offset_bytes` to the end of its window or to `end_bytes`, whichever comes first.
pub(crate) fn rest_of_window(offset_bytes: u64, end_bytes: u64) -> Span {
    let until_bytes = window_end_bytes(offset_bytes).min(end_bytes);
    Span {
        offset_bytes,
        len_bytes: until_bytes.saturating_sub(offset_bytes),
    }
}

/// The span in pieces that lie inside one window each.
pub(crate) fn windows(span: Span) -> impl Iterator<Item = Span> {
    let mut rest = span;
    core::iter::from_fn(move || {
        let window = rest_of_window(rest.offset_bytes, rest.end_bytes());
        rest = rest.behind(window.len_bytes);
        (window.len_bytes > 0).then_some(window)
    })
}

/// Where the window of this byte ends.
fn window_end_bytes(offset_bytes: u64) -> u64 {
    (offset_bytes / WINDOW_BYTES + 1).saturating_mul(WINDOW_BYTES)
}

fn window(span: Span) -> u64 {
    span.offset_bytes / WINDOW_BYTES
}

/// Neighbouring windows of one file lie side by side; files start at scattered places.
fn slot(object: ObjectId, span: Span) -> usize {
    let scattered = u64::from(object.index).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    (scattered.wrapping_add(window(span)) % RESIDENCY_CACHED_MAX as u64) as usize
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
    const WINDOW: Span = Span {
        offset_bytes: 0,
        len_bytes: WINDOW_BYTES,
    };

    #[test]
    fn a_window_is_trusted_for_a_moment_and_asked_about_later() {
        let mut residency_cache = ResidencyCache::default();
        let verdict =
            |b: &ResidencyCache, span, now| b.verdict(FILE, ResidencySource::Ask, span, now);
        assert_eq!(
            verdict(&residency_cache, WINDOW, START),
            ResidencyVerdict::Probe
        );
        residency_cache.seen(FILE, WINDOW, START);
        let just_in_time = START.plus_us(RESIDENCY_TRUST_US - 1);
        assert_eq!(
            verdict(&residency_cache, WINDOW, just_in_time),
            ResidencyVerdict::Resident
        );
        let next = Span {
            offset_bytes: WINDOW_BYTES,
            ..WINDOW
        };
        assert_eq!(
            verdict(&residency_cache, next, START),
            ResidencyVerdict::Probe
        );
        let later = START.plus_us(RESIDENCY_TRUST_US);
        assert_eq!(
            verdict(&residency_cache, WINDOW, later),
            ResidencyVerdict::Probe
        );
    }

    #[test]
    fn the_last_bytes_of_a_window_say_nothing_of_its_first() {
        let tail = Span {
            offset_bytes: WINDOW_BYTES - 10,
            len_bytes: 10,
        };
        let mut residency_cache = ResidencyCache::default();
        residency_cache.seen(FILE, tail, START);
        for (residency, whole) in [
            (ResidencySource::Ask, ResidencyVerdict::Probe),
            (ResidencySource::Remember, ResidencyVerdict::Unknown),
        ] {
            assert_eq!(
                residency_cache.verdict(FILE, residency, tail, START),
                ResidencyVerdict::Resident
            );
            assert_eq!(
                residency_cache.verdict(FILE, residency, WINDOW, START),
                whole
            );
        }
        let rest = Span {
            len_bytes: WINDOW_BYTES - 10,
            ..WINDOW
        };
        residency_cache.gone(FILE, rest);
        let verdict = residency_cache.verdict(FILE, ResidencySource::Ask, tail, START);
        assert_eq!(verdict, ResidencyVerdict::Resident, "it was not among them");
    }

    #[test]
    fn a_span_is_cut_where_windows_end() {
        let span = Span {
            offset_bytes: WINDOW_BYTES - 10,
            len_bytes: WINDOW_BYTES + 20,
        };
        let lengths: Vec<u64> = windows(span).map(|window| window.len_bytes).collect();
        assert_eq!(lengths, [10, WINDOW_BYTES, 10]);
        assert_eq!(windows(span.behind(span.len_bytes)).next(), None);
    }

    #[test]
    fn without_a_source_a_cold_window_is_never_probed() {
        let mut residency_cache = ResidencyCache::default();
        let verdict =
            |b: &ResidencyCache, now| b.verdict(FILE, ResidencySource::Remember, WINDOW, now);
        assert_eq!(verdict(&residency_cache, START), ResidencyVerdict::Unknown);
        residency_cache.seen(FILE, WINDOW, START);
        let later = START.plus_us(RESIDENCY_TRUST_US);
        assert_eq!(verdict(&residency_cache, later), ResidencyVerdict::Probe);
        residency_cache.gone(FILE, WINDOW);
        assert_eq!(verdict(&residency_cache, later), ResidencyVerdict::Unknown);
    }

    #[test]
    fn a_new_user_of_a_slot_inherits_nothing() {
        let mut residency_cache = ResidencyCache::default();
        residency_cache.seen(FILE, WINDOW, START);
        let next = ObjectId {
            generation: 2,
            ..FILE
        };
        let verdict =
            |b: &ResidencyCache, file| b.verdict(file, ResidencySource::Remember, WINDOW, START);
        assert_eq!(verdict(&residency_cache, next), ResidencyVerdict::Unknown);
        residency_cache.gone(next, WINDOW);
        assert_eq!(verdict(&residency_cache, FILE), ResidencyVerdict::Resident);
    }

    #[test]
    fn files_in_memory_need_no_question() {
        assert_eq!(
            ResidencyCache::default().verdict(FILE, ResidencySource::Always, WINDOW, START),
            ResidencyVerdict::Resident
        );
    }
}
