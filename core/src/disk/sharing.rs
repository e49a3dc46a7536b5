//! Sharing: whether to read a stream's next bytes into the page cache, because another reader will need them before
//! they are evicted.
//!
//! The second of two readers arrives where the first is now when it has taken all bytes between them. Until then all
//! readers that share, the first included, fill the page cache at the sum of their rates. If they bring in no more than
//! it holds ([`super::page_cache`]), the bytes are still there, and the pair shares. So the nearest pairs share, and
//! one more sharing pair may end it for the pair that is farthest apart.

use super::{DeviceChange, Disk, Flight, ReadError, ReadPath, ReaderId, first};
use crate::conn::{Held, Span, Want};
use crate::limits::WINDOW_BYTES;
use crate::units::{Instant, US_PER_S};

/// The last answer to a reader that has sent no want since.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    pub at: Instant,
    /// The reader has all bytes before this one.
    pub end_bytes: u64,
}

impl Disk {
    /// Which path a read for this stream takes: into the page cache if it will stay there for others, past it if
    /// possible.
    pub(super) fn read_path(&self, id: ReaderId, want: &Want, now: Instant) -> ReadPath {
        let (object, from_bytes) = (want.object, want.span.offset_bytes);
        if !want.absent && self.page_cache.may_hold(object, from_bytes, now) {
            return ReadPath::Cached; // the page cache was not asked, and it may be there
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

    /// Records in the journal that the reads of a stream take another path than before. Its first path is not recorded.
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

    /// Joins the stream to a read under way that brings what it wants, and to no other; `false`: there is none.
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

    /// All whose next bytes are in the window join its read.
    pub(super) fn join(&mut self, flight: &mut Flight) {
        for id in self.objects.readers(flight.object) {
            let Some(reader) = self.readers.get_mut(&id) else {
                continue;
            };
            if !flight.span.contains(reader.want.span.offset_bytes) {
                continue;
            }
            if let Some(position) = reader.position.take() {
                reader.fills = false;
                self.scheduler.remove(id, position);
                flight.waiters.push(id);
            }
        }
        let joined = flight.waiters.iter().skip(1);
        joined.for_each(|id| self.update_fill_rate(*id));
    }

    /// Whether another reader of the file follows closely enough to need these bytes while they are in the page cache.
    /// Three readers within a window always share, however little memory there is: even if some bytes are evicted and
    /// read again, that takes fewer reads than one for each.
    fn is_followed(&self, id: ReaderId, want: &Want, now: Instant) -> bool {
        let Some(reader) = self.readers.get(&id) else {
            return false;
        };
        let rate = self.rate_or_mean(want);
        let mut filled_bytes_per_s = self.filled_bytes_per_s;
        let mut room_bytes = self.page_cache.bytes(now);
        if !reader.fills {
            filled_bytes_per_s += rate - reader.filled_bytes_per_s.min(rate);
            room_bytes -= room_bytes / 4; // a stream that begins to share should not have to stop soon
        }
        let vain = self.objects.is_vain(want.object, now);
        let own_us = us_for(WINDOW_BYTES, rate).saturating_add(want.underrun_at.since_us(now));
        let lives = |us: u64| {
            let bytes = u128::from(filled_bytes_per_s) * u128::from(us.max(own_us));
            bytes / u128::from(US_PER_S) <= u128::from(room_bytes)
        };
        let mut crowd = 0;
        let mut others = self.objects.readers(want.object).filter(|of| *of != id);
        others.any(|other| {
            let comes = self.comes_in_us(other, want.span.offset_bytes, now);
            comes.is_some_and(|(behind_bytes, us)| {
                crowd += u32::from(behind_bytes < WINDOW_BYTES);
                crowd >= 2 || !vain && lives(us)
            })
        })
    }

    /// How far a reader is from this byte of its file, in bytes, and how long until it has taken all before it, in
    /// microseconds; `None`: it has that byte's window already or does not want the byte.
    fn comes_in_us(&self, id: ReaderId, to_bytes: u64, now: Instant) -> Option<(u64, u64)> {
        let reader = self.readers.get(&id)?;
        let want = reader.want.span;
        let (since, has_bytes) = match reader.answered {
            Some(answer) => (answer.at, answer.end_bytes),
            None => (now, want.offset_bytes),
        };
        let window_end_bytes = (to_bytes / WINDOW_BYTES + 1).saturating_mul(WINDOW_BYTES);
        if has_bytes >= window_end_bytes || want.end_bytes() <= to_bytes {
            return None;
        }
        // Time since its answer counts: it goes on past its answered bytes with what it finds in the page cache.
        let from = reader.want.underrun_at.max(since);
        let rate = self.rate_or_mean(&reader.want);
        let takes_us = us_for(to_bytes.saturating_sub(want.offset_bytes), rate);
        let us = from.plus_us(takes_us).since_us(now);
        Some((to_bytes.saturating_sub(has_bytes), us))
    }

    /// B_n; where it is not known, the mean of the others. If no rate is known, all count as equal.
    fn rate_or_mean(&self, want: &Want) -> u64 {
        let mean = self.rates_bytes_per_s.checked_div(self.rates_known);
        match want.rate_bytes_per_s {
            0 => mean.unwrap_or(1).max(1),
            rate => rate,
        }
    }

    /// Updates the rate at which the stream's reads fill the page cache, after something has changed for it. A stream
    /// that finds all its bytes there wants nothing, and fills nothing.
    pub(super) fn update_fill_rate(&mut self, id: ReaderId) {
        let Some(want) = self.readers.get(&id).map(|reader| reader.want) else {
            return;
        };
        let rate = self.rate_or_mean(&want);
        if let Some(reader) = self.readers.get_mut(&id) {
            let fills = reader.fills && reader.answered.is_none();
            let before = reader.filled_bytes_per_s;
            reader.filled_bytes_per_s = if fills { rate } else { 0 };
            self.filled_bytes_per_s =
                self.filled_bytes_per_s.saturating_sub(before) + reader.filled_bytes_per_s;
        }
    }

    /// The bytes that a read has brought.
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

    /// What a new want tells about the page cache: what its stream has passed since its last answer was there, and
    /// where the want begins it was not.
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

/// How long a client of this rate takes for `len_bytes`, microseconds.
fn us_for(len_bytes: u64, rate_bytes_per_s: u64) -> u64 {
    let us = u128::from(len_bytes) * u128::from(US_PER_S) / u128::from(rate_bytes_per_s.max(1));
    u64::try_from(us).unwrap_or(u64::MAX)
}
