//! Which path a read takes: past the page cache into slots, or into it, for one of the reasons that [`ReadPath`] lists. And who
//! joins a read under way.
//!
//! A *reader* is a stream that reads a file of this device; its *want* is for the bytes that it needs next. A *flight* is a read
//! that is in the device; its waiters are the readers that get bytes of it. A *window* is an aligned piece of a file,
//! [`WINDOW_BYTES`] long, not one of TCP's.

use super::{Disk, Flight, Reader, ReaderId};
use crate::conn::{Held, Want};
use crate::limits::WINDOW_BYTES;
use crate::units::Instant;

/// Which path a read takes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadPath {
    /// Past the page cache.
    Direct,
    /// Through it: two others read in the same window.
    Crowd,
    /// Through it: the file is popular.
    Popular,
    /// Through it: the file can't be read past it, or no file is to be.
    Indirect,
}

impl Disk {
    /// Which path a read for this reader takes: into the page cache if others need the bytes, too, past it otherwise, if
    /// that can be.
    pub(super) fn read_path(&self, id: ReaderId, want: &Want, now: Instant) -> ReadPath {
        if self.objects.is_popular(want.object, now) {
            ReadPath::Popular
        } else if self.is_crowd(id, want) {
            ReadPath::Crowd
        } else if self.settings.direct && self.objects.is_direct(want.object) {
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
    /// those who wait for it already. `false`: none brings that byte.
    pub(super) fn join_flight(&mut self, id: ReaderId, want: &Want) -> bool {
        let mut waits = false;
        for flight in &mut self.flights {
            let waiting = flight.waiters.contains(&id);
            let brings =
                flight.object == want.object && flight.span.contains(want.span.offset_bytes);
            if !waits && brings && (waiting || flight.held == Held::PageCache) {
                waits = true;
                if !waiting {
                    flight.waiters.push(id);
                }
            } else {
                flight.waiters.retain(|waiter| *waiter != id);
            }
        }
        waits
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
