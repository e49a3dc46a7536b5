//! A read that has completed: what it is to each stream that waits for it.

use super::{Chosen, Flight, Out, ReadError, ReadId, ReaderId, Reason, first};
use crate::conn::{Span, Want};
use crate::limits::READ_ALIGN_BYTES;
use crate::units::Instant;

/// A completed read, as its waiters see it.
pub(super) struct Landed {
    /// The read.
    read: ReadId,
    /// What holds its bytes.
    held: crate::conn::Held,
    /// The bytes that were read.
    pub span: Span,
    /// How many bytes it brought, or where it failed.
    result: Result<u64, ReadError>,
    /// For which stream it was chosen, and why.
    chosen: (ReaderId, Chosen),
}

impl Flight {
    /// What the read, which has completed, is to those who wait for it.
    pub(super) fn land(&self, result: Result<u64, ReadError>, now: Instant) -> Landed {
        let (chosen_for, chosen, begun_at) = self.chosen;
        let took_us = now.since_us(begun_at);
        let got_bytes = match result {
            Ok(bytes) => bytes,
            // What lies before the bad place was read.
            Err(error) => error.offset_bytes.saturating_sub(self.span.offset_bytes),
        };
        Landed {
            read: self.read,
            held: self.held,
            span: first(self.span, got_bytes),
            result,
            chosen: (chosen_for, Chosen { took_us, ..chosen }),
        }
    }
}

impl Landed {
    /// The answer to a want; `None`: its bytes were not tried.
    pub fn answer(&self, id: ReaderId, want: &Want) -> Option<Out> {
        let Want { stream, seq, .. } = *want;
        let failed = |error| Out::Failed { stream, seq, error };
        if let Some(span) = common(want.span, self.span) {
            return Some(Out::Fetched {
                read: self.read,
                stream,
                seq,
                span,
                held: self.held,
                chosen: self.chosen_for(id),
            });
        }
        match self.result {
            Err(error) if is_behind(want.span, error) => None,
            Err(error) => Some(failed(error)),
            Ok(_) => Some(failed(ReadError {
                errno: 0,
                offset_bytes: want.span.offset_bytes,
            })),
        }
    }

    /// Why it was made, as this reader is told: for itself, or for another one.
    fn chosen_for(&self, id: ReaderId) -> Chosen {
        let (chosen_for, chosen) = self.chosen;
        let reason = if id == chosen_for {
            chosen.reason
        } else {
            Reason::Shared
        };
        Chosen { reason, ..chosen }
    }
}

/// Whether a span begins behind the block that could not be read: its bytes were not tried.
fn is_behind(span: Span, error: ReadError) -> bool {
    span.offset_bytes / READ_ALIGN_BYTES > error.offset_bytes / READ_ALIGN_BYTES
}

/// What two spans share.
pub(super) fn common(a: Span, b: Span) -> Option<Span> {
    let offset_bytes = a.offset_bytes.max(b.offset_bytes);
    let end_bytes = a.end_bytes().min(b.end_bytes());
    (offset_bytes < end_bytes).then(|| Span {
        offset_bytes,
        len_bytes: end_bytes - offset_bytes,
    })
}
