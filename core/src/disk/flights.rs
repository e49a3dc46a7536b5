//! Which path a read takes: past the page cache into slots, or into it, for one of the reasons that [`ReadPath`] lists. Who joins
//! a read under way, and what a read is to each of them when it has completed.
//!
//! A *reader* is a stream that reads a file of this device; its *want* is for the bytes that it needs next. A *flight* is a read
//! that is in the device; its waiters are the readers that get bytes of it. A *window* is an aligned piece of a file,
//! [`WINDOW_BYTES`] long, not one of TCP's.

use alloc::vec::Vec;

use super::{Disk, Out, ReadError, ReadId, Reader, ReaderId};
use crate::conn::{Held, ObjectId, Span, Want};
use crate::limits::{READ_ALIGN_BYTES, WINDOW_BYTES};
use crate::units::Instant;
use crate::why::{Chosen, Reason};

/// A read in the device and who waits for it.
pub(super) struct Flight {
    pub read: ReadId,
    /// The file, and which bytes of it.
    pub object: ObjectId,
    pub span: Span,
    /// What will hold the bytes.
    pub held: Held,
    /// It is the first read of its stream.
    pub urgent: bool,
    /// For whom it was chosen first, why, and when.
    pub chosen: (ReaderId, Chosen, Instant),
    /// Readers that get bytes of it. When it begins, the first is the one for which it was chosen.
    pub waiters: Vec<ReaderId>,
    /// Bytes from its start that have arrived, where they arrive in order.
    pub came_bytes: u64,
    /// Bytes from its start that are its reader's, of a flight into slots.
    pub handed_bytes: u64,
}

/// Which path a read takes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadPath {
    /// Past the page cache.
    Direct,
    /// Through it: two others read in the same window.
    Crowd,
    /// Through it: the file is popular.
    Popular,
    /// Through it: the file can't be read past it, no file is to be, or the want says so.
    Indirect,
}

impl Disk {
    /// Which path a read for this reader takes: into the page cache if others need the bytes, too, past it otherwise, if
    /// that can be.
    pub(super) fn read_path(&self, id: ReaderId, want: &Want, now: Instant) -> ReadPath {
        let can_be = self.settings.direct && self.objects.is_direct(want.object);
        let direct = can_be && !want.through_cache;
        if direct && now < self.past_cache_until {
            ReadPath::Direct
        } else if self.objects.is_popular(want.object, now) {
            ReadPath::Popular
        } else if self.is_crowd(id, want) {
            ReadPath::Crowd
        } else if direct {
            ReadPath::Direct
        } else {
            ReadPath::Indirect
        }
    }

    /// Whether the next bytes of two others lie in the same window. Two readers at a distance share nothing
    /// (docs/decisions/0015-shared-files-pauses-depth.md).
    fn is_crowd(&self, id: ReaderId, want: &Want) -> bool {
        let window = want.span.offset_bytes / WINDOW_BYTES;
        let inside = |of: &ReaderId| {
            let at_bytes = self.readers.get(of).map(Reader::at_bytes);
            *of != id && at_bytes.is_some_and(|at_bytes| at_bytes / WINDOW_BYTES == window)
        };
        let mut others = self.objects.readers(want.object).filter(inside);
        others.nth(1).is_some()
    }

    /// The reader waits for the first flight that brings its next byte, and leaves all others. A flight into slots serves only
    /// those who wait for it already. Returned is its place; `None`: none brings that byte.
    pub(super) fn join_flight(&mut self, id: ReaderId, want: &Want) -> Option<usize> {
        let mut joined = None;
        for (nth, flight) in self.flights.iter_mut().enumerate() {
            let waiting = flight.waiters.contains(&id);
            let brings =
                flight.object == want.object && flight.to_come().contains(want.span.offset_bytes);
            if joined.is_none() && brings && (waiting || !flight.held.is_own_memory()) {
                joined = Some(nth);
                if !waiting {
                    flight.waiters.push(id);
                }
            } else {
                flight.waiters.retain(|waiter| *waiter != id);
            }
        }
        self.cancel_abandoned();
        joined
    }

    /// All queued readers whose next byte is brought by this new flight into the page cache join it: their wants leave the
    /// scheduler.
    pub(super) fn join(&mut self, flight: &mut Flight) {
        for id in self.objects.readers(flight.object) {
            let Some(reader) = self.readers.get_mut(&id) else {
                continue;
            };
            if !flight.span.contains(reader.want.span.offset_bytes) {
                continue;
            }
            if let Some(position) = reader.position.take() {
                self.scheduler.remove(id, position);
                flight.waiters.push(id);
            }
        }
    }
}

/// A completed read, as its waiters see it.
pub(super) struct Landed {
    /// The read.
    read: ReadId,
    /// What holds its bytes.
    held: Held,
    /// The bytes that were read.
    pub span: Span,
    /// How many bytes it brought, or where it failed.
    result: Result<u64, ReadError>,
    /// For which stream it was chosen, and why.
    chosen: (ReaderId, Chosen),
}

impl Flight {
    /// What it may still bring a reader: all of it, but for the slots that are a reader's already.
    pub(super) fn to_come(&self) -> Span {
        self.span.behind(self.handed_bytes)
    }

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

    /// What has arrived of it so far, as a read that brought no more.
    pub(super) fn landed_so_far(&self, now: Instant) -> Landed {
        self.land(Ok(self.came_bytes), now)
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

/// The first `len_bytes` of a span.
pub(super) fn first(span: Span, len_bytes: u64) -> Span {
    Span {
        len_bytes: span.len_bytes.min(len_bytes),
        ..span
    }
}
