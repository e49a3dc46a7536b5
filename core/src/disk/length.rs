//! How long a read is, and where its bytes go.

use super::sharing::ReadPath;
use super::{Destination, Disk};
use crate::cache::rest_of_window;
use crate::conn::{Span, Want};
use crate::limits::{FIRST_READ_BYTES, READ_ALIGN_BYTES, SLOT_BYTES};
use crate::prefetch::{LengthBound, ReadNeed};
use crate::units::Instant;

impl Disk {
    /// What is read for a want on this path, where to, and what sets the length. `None`: the pool lacks the slots for it.
    pub(super) fn length(
        &mut self,
        want: &Want,
        path: ReadPath,
        target_us: u64,
        now: Instant,
    ) -> Option<(Span, Destination, LengthBound)> {
        let need = self.read_need(want, target_us, now);
        let (read_bytes, bound) = self.settings.prefetch.read_bytes(&need);
        let (span, into, bound) = match path {
            ReadPath::Crowd | ReadPath::Popular => (
                rest_of_window(want.span.offset_bytes, want.span.end_bytes()),
                Destination::PageCache,
                LengthBound::Window,
            ),
            ReadPath::Direct => {
                let slots = self.slots_for(want.span, read_bytes)?;
                let whole = (read_bytes / SLOT_BYTES).max(1);
                let short = u64::from(slots) < whole;
                let bound = if short { LengthBound::Memory } else { bound };
                (in_slots(want.span, slots), Destination::Slots(slots), bound)
            }
            ReadPath::Indirect => (first(want.span, read_bytes), Destination::PageCache, bound),
        };
        let ends = span.end_bytes() >= want.span.end_bytes();
        Some((span, into, if ends { LengthBound::End } else { bound }))
    }

    /// The evidence from which the policy computes the length of a read for a want.
    pub(super) fn read_need(&self, want: &Want, target_us: u64, now: Instant) -> ReadNeed {
        let free = self.slots_max().saturating_sub(self.slots_used);
        ReadNeed {
            target_us,
            margin_us: want.underrun_at.since_us(now),
            rate_bytes_per_s: self.rate_for(want, now),
            nth: want.answers,
            rest_bytes: want.span.len_bytes,
            most_bytes: self.model.read_bytes_max(),
            free_bytes: u64::from(free) * SLOT_BYTES,
            rates_bytes_per_s: self.load().rates_bytes_per_s,
        }
    }

    /// B_n for a read. After an underrun the measured rate is only a lower bound: our reads were late, not the client slow.
    /// Such a stream counts with the mean rate of all, if that is more, or it would stay as slow as it was read for.
    pub(super) fn rate_for(&self, want: &Want, now: Instant) -> u64 {
        let mean = self.rates_bytes_per_s.checked_div(self.rates_known);
        let least = mean.filter(|_| has_underrun(want, now)).unwrap_or(0);
        want.rate_bytes_per_s.max(least)
    }
}

/// The first `len_bytes` of a span.
pub(super) fn first(span: Span, len_bytes: u64) -> Span {
    Span {
        len_bytes: span.len_bytes.min(len_bytes),
        ..span
    }
}

/// Whether a stream whose rate is known has run dry: its client has taken all bytes before this want.
pub(super) fn has_underrun(want: &Want, now: Instant) -> bool {
    want.rate_bytes_per_s > 0 && want.underrun_at <= now
}

/// The span to read into so many slots. It begins at the start of what is wanted, rounded down to what a direct read must
/// begin at. It ends where the slots end, or earlier at the end of what is wanted, rounded up.
fn in_slots(wanted: Span, slots: u32) -> Span {
    let offset_bytes = wanted.offset_bytes / READ_ALIGN_BYTES * READ_ALIGN_BYTES;
    let room_bytes = u64::from(slots) * SLOT_BYTES;
    let need_bytes = wanted.end_bytes() - offset_bytes;
    let len_bytes = room_bytes.min(need_bytes.next_multiple_of(READ_ALIGN_BYTES));
    Span {
        offset_bytes,
        len_bytes,
    }
}

const _: () = assert!(FIRST_READ_BYTES % SLOT_BYTES == 0 && SLOT_BYTES % READ_ALIGN_BYTES == 0);
