//! Which path a read takes: past the page cache into slots, or into it, for one of the reasons that [`ReadPath`] lists. And who
//! joins a read under way.
//!
//! A *reader* is a stream that reads a file of this device; its *want* is for the bytes that it needs next. A *flight* is a read
//! that is in the device; its waiters are the readers that get bytes of it. A *window* is an aligned piece of a file,
//! [`WINDOW_BYTES`] long, not one of TCP's.
//!
//! One path needs a rule, [`ReadPath::Followed`]: a reader *shares*, so reads into the page cache, if another reader will need
//! the same bytes before they are evicted. The reader behind reaches the place of the reader ahead once it has taken all bytes
//! between them. Until then all readers that share, the one ahead included, fill the page cache at the sum of their rates
//! ([`Disk::cache_fill_bytes_per_s`]). If the page cache ([`super::page_cache`]) holds all that they bring in until then, the
//! bytes are still there when the reader behind arrives, and the pair shares. So the nearest pairs share. One more pair raises
//! the sum, so the pair that is farthest apart may stop.

use super::{DeviceChange, Disk, Flight, ReadError, ReadPath, ReaderId, first};
use crate::cache::window_end_bytes;
use crate::conn::{Held, Span, Want};
use crate::limits::WINDOW_BYTES;
use crate::prefetch::us_for;
use crate::units::{Instant, US_PER_S};

/// The last answer to a reader that has sent no want since.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    /// When it was given.
    pub at: Instant,
    /// The reader has all bytes before this one.
    pub end_bytes: u64,
}

/// How far a reader is from a byte of its file.
struct Distance {
    /// The bytes between those that it has and that byte.
    bytes: u64,
    /// The time until it has taken all before that byte.
    us: u64,
}

impl Disk {
    /// Which path a read for this reader takes: into the page cache if the bytes may be there already, or will be needed by
    /// others; past it otherwise, if the device can.
    pub(super) fn read_path(&self, id: ReaderId, want: &Want, now: Instant) -> ReadPath {
        let (object, from_bytes) = (want.object, want.span.offset_bytes);
        if !want.absent && self.page_cache.may_hold(object, from_bytes, now) {
            // They were read lately. The kernel was not asked whether they are still cached, or cannot tell on this file
            // system. If they are, a read through the page cache finds them.
            return ReadPath::Cached;
        }
        if self.objects.is_popular(object, now) {
            return ReadPath::Popular;
        }
        if self.is_followed(id, want, now) {
            return ReadPath::Followed;
        }
        match self.settings.direct {
            true => ReadPath::Direct,
            false => ReadPath::Indirect,
        }
    }

    /// Records in the journal that the reads of a reader take another path than before. Its first path is not recorded.
    pub(super) fn note_path(&mut self, id: ReaderId, to: ReadPath, now: Instant) {
        let Some(reader) = self.readers.get_mut(&id) else {
            return;
        };
        let Want { stream, object, .. } = reader.want;
        let before = reader.path.replace(to);
        if before.is_some_and(|before| before != to) && !id.is_gone() {
            let change = DeviceChange::ReadPath { stream, object, to };
            self.journal.record(change, now);
        }
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
    /// scheduler. The flight's first waiter is the reader for which it was chosen.
    pub(super) fn join(&mut self, flight: &mut Flight) {
        for id in self.objects.readers(flight.object) {
            let Some(reader) = self.readers.get_mut(&id) else {
                continue;
            };
            if !flight.span.contains(reader.want.span.offset_bytes) {
                continue;
            }
            if let Some(position) = reader.position.take() {
                reader.reads_for_cache = false;
                self.scheduler.remove(id, position);
                flight.waiters.push(id);
            }
        }
        let joined = flight.waiters.iter().skip(1); // the caller updates the first one
        joined.for_each(|id| self.update_fill_rate(*id));
    }

    /// Whether another reader of the file follows so closely that it needs these bytes while they are in the page cache.
    ///
    /// Three readers within a window always share, however little memory there is: even if some bytes are evicted and read
    /// again, that takes fewer reads than one for each. Two do not while sharing is off for the file
    /// ([`super::objects::Objects::is_sharing_off`]): lately too many of its windows were evicted before a reader came.
    fn is_followed(&self, id: ReaderId, want: &Want, now: Instant) -> bool {
        let Some(reader) = self.readers.get(&id) else {
            return false;
        };
        let rate = self.rate_or_mean(want);
        let mut cache_fill_bytes_per_s = self.cache_fill_bytes_per_s;
        let mut room_bytes = self.page_cache.bytes(now);
        if !reader.reads_for_cache {
            cache_fill_bytes_per_s += rate - reader.cache_fill_bytes_per_s.min(rate);
            room_bytes -= room_bytes / 4; // a reader that begins to share should not have to stop soon
        }
        let is_off = self.objects.is_sharing_off(want.object, now);
        // This reader sends the bytes from the page cache, too: they must last until it runs dry, plus the time for a window.
        let own_us = us_for(WINDOW_BYTES, rate).saturating_add(want.underrun_at.since_us(now));
        let stays_cached_for = |us: u64| {
            let bytes = u128::from(cache_fill_bytes_per_s) * u128::from(us.max(own_us));
            bytes / u128::from(US_PER_S) <= u128::from(room_bytes)
        };
        let mut crowd = 0; // others within a window
        for other in self.objects.readers(want.object).filter(|of| *of != id) {
            let Some(distance) = self.distance_to(other, want.span.offset_bytes, now) else {
                continue;
            };
            crowd += u32::from(distance.bytes < WINDOW_BYTES);
            if crowd >= 2 || !is_off && stays_cached_for(distance.us) {
                return true;
            }
        }
        false
    }

    /// How far a reader is from the byte at `to_bytes` of its file; `None`: it has that byte's window already, or its response
    /// ends before the byte.
    ///
    /// A reader has all bytes before its want, and after an answer also those that it brought, until it sends another want. When it
    /// runs dry (`underrun_at`) it has taken all before its want. From then on, or from the answer if that came later, it comes
    /// nearer at its rate: it sends what the answer brought, and then what it finds in the page cache, without a new want.
    fn distance_to(&self, id: ReaderId, to_bytes: u64, now: Instant) -> Option<Distance> {
        let reader = self.readers.get(&id)?;
        let want = reader.want.span;
        let (since, has_bytes) = match reader.answered {
            Some(answer) => (answer.at, answer.end_bytes),
            None => (now, want.offset_bytes),
        };
        if has_bytes >= window_end_bytes(to_bytes) || want.end_bytes() <= to_bytes {
            return None;
        }
        let from = reader.want.underrun_at.max(since);
        let rate = self.rate_or_mean(&reader.want);
        let takes_us = us_for(to_bytes.saturating_sub(want.offset_bytes), rate);
        let us = from.plus_us(takes_us).since_us(now);
        Some(Distance {
            bytes: to_bytes.saturating_sub(has_bytes),
            us,
        })
    }

    /// The rate of the client, bytes per second (B_n of TPF); if it is unknown, the mean of the known ones. If none is known, 1:
    /// then all clients count as equally fast, and only the bytes between them decide.
    fn rate_or_mean(&self, want: &Want) -> u64 {
        let mean = self.rates_bytes_per_s.checked_div(self.rates_known);
        match want.rate_bytes_per_s {
            0 => mean.unwrap_or(1).max(1),
            rate => rate,
        }
    }

    /// Updates the rate at which the reader brings bytes into the page cache, after something has changed for it. That is its own
    /// rate, if its last read was made for it and into the page cache ([`super::reading::Reader::reads_for_cache`]), and its want
    /// is not answered. A reader that finds all its bytes there wants nothing, and brings nothing.
    pub(super) fn update_fill_rate(&mut self, id: ReaderId) {
        let Some(want) = self.readers.get(&id).map(|reader| reader.want) else {
            return;
        };
        let rate = self.rate_or_mean(&want);
        if let Some(reader) = self.readers.get_mut(&id) {
            let brings = reader.reads_for_cache && reader.answered.is_none();
            let before = reader.cache_fill_bytes_per_s;
            reader.cache_fill_bytes_per_s = if brings { rate } else { 0 };
            self.cache_fill_bytes_per_s =
                self.cache_fill_bytes_per_s.saturating_sub(before) + reader.cache_fill_bytes_per_s;
        }
    }

    /// The bytes that a flight has brought. Those that are in the page cache now are noted there.
    pub(super) fn landed(&mut self, flight: &Flight, result: Result<u64, ReadError>) -> Span {
        let got_bytes = match result {
            Ok(bytes) => bytes,
            // What lies before the bad place was read.
            Err(error) => error.offset_bytes.saturating_sub(flight.span.offset_bytes),
        };
        let landed = first(flight.span, got_bytes);
        if flight.held == Held::PageCache {
            self.page_cache.read(flight.object, landed);
        }
        landed
    }

    /// Learns from a new want what the page cache holds. Its reader found there all bytes between its last answer (`before`) and
    /// the want. The first byte of the want was evicted, if the want says that it is absent ([`Want::absent`]) and no flight is
    /// bringing it.
    pub(super) fn learn(&mut self, before: Option<Answer>, want: &Want, now: Instant) {
        let (object, from_bytes) = (want.object, want.span.offset_bytes);
        if let Some(answer) = before {
            let found = self
                .page_cache
                .found(object, answer.end_bytes, from_bytes, now);
            self.objects.found(object, found);
        }
        let is_read = self.flights.iter().any(|flight| {
            let cached = flight.held == Held::PageCache;
            cached && flight.object == object && flight.span.contains(from_bytes)
        });
        if want.absent && !is_read {
            let gone = self.page_cache.gone(object, from_bytes, now);
            self.objects.gone(object, gone, now);
        }
    }
}
