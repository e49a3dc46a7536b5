//! Who shares: whether the next bytes of a stream go into the page cache, since somebody else will come for them while they are there.
//!
//! Of two readers of a file the second comes to where the first is when it has taken all that lies between them. Until then
//! so many bytes are read into the page cache: what all who share read in that time, the first one among them. If
//! that is no more than the page cache holds ([`super::page_cache`]), the two are near by, and share. So the nearest share, and
//! one pair more that shares may be the end of it for the one that is farthest apart.

use super::{Disk, Flight, Place, ReadError, Way, first};
use crate::conn::{Held, Span, Want};
use crate::limits::WINDOW_BYTES;
use crate::units::{Instant, US_PER_S};

/// What a reader was told last, and has not wished since.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    pub at: Instant,
    /// It has all before this byte.
    pub end_bytes: u64,
}

impl Disk {
    /// Which way a read for this stream takes: into the page cache if it stays there for others, past it if it can.
    pub(super) fn way(&self, at: Place, want: &Want, now: Instant) -> Way {
        let (object, from_bytes) = (want.object, want.span.offset_bytes);
        if !want.absent && self.page_cache.may_hold(object, from_bytes, now) {
            return Way::Cached; // nobody was asked, and it may well be there
        }
        if self.objects.is_popular(object, now) {
            return Way::Popular;
        }
        if self.is_followed(at, want, now) {
            return Way::Followed;
        }
        match self.settings.direct {
            true => Way::Direct,
            false => Way::Indirect,
        }
    }

    /// Whether another reader of the file is near by: it comes for these bytes while they are there. A crowd at one place is,
    /// whatever memory there is: a few reads are less than one for each.
    fn is_followed(&self, at: Place, want: &Want, now: Instant) -> bool {
        let Some(reader) = self.readers.get(&at) else {
            return false;
        };
        let rate = self.rate_or_mean(want);
        let mut filled_bytes_per_s = self.filled_bytes_per_s;
        let mut room_bytes = self.page_cache.bytes(now);
        if !reader.fills {
            filled_bytes_per_s += rate - reader.filled_bytes_per_s.min(rate);
            room_bytes -= room_bytes / 4; // who begins to share shall not have to end it soon
        }
        let vain = self.objects.is_vain(want.object, now);
        let own_us = us_for(WINDOW_BYTES, rate).saturating_add(want.dry_at.since_us(now));
        let lives = |us: u64| {
            let bytes = u128::from(filled_bytes_per_s) * u128::from(us.max(own_us));
            bytes / u128::from(US_PER_S) <= u128::from(room_bytes)
        };
        let mut crowd = 0;
        let mut others = self.objects.readers(want.object).filter(|of| *of != at);
        others.any(|other| {
            let comes = self.comes_in_us(other, want.span.offset_bytes, now);
            comes.is_some_and(|(behind_bytes, us)| {
                crowd += u32::from(behind_bytes < WINDOW_BYTES);
                crowd >= 2 || !vain && lives(us)
            })
        })
    }

    /// How far a reader is from this byte of its file, or from its window, and when it will have taken all before it;
    /// `None`: it has that byte or does not want it.
    fn comes_in_us(&self, at: Place, to_bytes: u64, now: Instant) -> Option<(u64, u64)> {
        let reader = self.readers.get(&at)?;
        let wish = reader.want.span;
        let (since, has_bytes) = match reader.answered {
            Some(answer) => (answer.at, answer.end_bytes),
            None => (now, wish.offset_bytes),
        };
        let window_end_bytes = (to_bytes / WINDOW_BYTES + 1).saturating_mul(WINDOW_BYTES);
        if has_bytes >= window_end_bytes || wish.end_bytes() <= to_bytes {
            return None;
        }
        // Who was answered long ago goes on by what it finds in the page cache.
        let from = reader.want.dry_at.max(since);
        let rate = self.rate_or_mean(&reader.want);
        let takes_us = us_for(to_bytes.saturating_sub(wish.offset_bytes), rate);
        let us = from.plus_us(takes_us).since_us(now);
        Some((to_bytes.saturating_sub(has_bytes), us))
    }

    /// B_n; of those whose rate is not known it is that of the others. If nobody's is, all are alike.
    fn rate_or_mean(&self, want: &Want) -> u64 {
        let mean = self.rates_bytes_per_s.checked_div(self.rates_known);
        match want.rate_bytes_per_s {
            0 => mean.unwrap_or(1).max(1),
            rate => rate,
        }
    }

    /// What the stream's reads bring into the page cache, now that something has changed for it. Who finds all its bytes
    /// there wishes for nothing, and brings nothing.
    pub(super) fn refill(&mut self, at: Place) {
        let Some(want) = self.readers.get(&at).map(|reader| reader.want) else {
            return;
        };
        let rate = self.rate_or_mean(&want);
        if let Some(reader) = self.readers.get_mut(&at) {
            let fills = reader.fills && reader.answered.is_none();
            let before = reader.filled_bytes_per_s;
            reader.filled_bytes_per_s = if fills { rate } else { 0 };
            self.filled_bytes_per_s =
                self.filled_bytes_per_s.saturating_sub(before) + reader.filled_bytes_per_s;
        }
    }

    /// What a read has brought.
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

    /// What a new wish tells of the page cache: what its stream has passed since it was answered was there, and where it
    /// begins it is not.
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

/// How long a client of this rate takes for so many bytes.
fn us_for(len_bytes: u64, rate_bytes_per_s: u64) -> u64 {
    let us = u128::from(len_bytes) * u128::from(US_PER_S) / u128::from(rate_bytes_per_s.max(1));
    u64::try_from(us).unwrap_or(u64::MAX)
}
