//! Reading ahead of the client: which bytes are fetched while earlier ones are sent, and when they are needed.

use super::outstanding::Forecast;
use super::{Body, Stream, StreamStep, to_end};
use crate::cache::{ResidencyCache, ResidencyVerdict, rest_of_window};
use crate::conn::Held;
use crate::limits::{FETCHED_MAX, READ_BYTES_MAX, UNTAKEN_US};
use crate::send::Supply;
use crate::units::Instant;

impl Stream {
    /// The step by which more is read ahead, if it is time for one. A stream with fetched pieces keeps one want for the
    /// bytes after them, and the want's deadline follows the client's rate. No want is made while enough is fetched, or
    /// after a failed read. Nor is one made while slots wait for a client of unknown rate whose socket is not full:
    /// whether it takes them all decides.
    pub(super) fn read_ahead(
        &mut self,
        residency_cache: &ResidencyCache,
        body: &Body,
        supply: &Supply,
        now: Instant,
    ) -> Option<StreamStep> {
        let at_bytes = body.span.offset_bytes + self.at_bytes;
        let end_bytes = body.span.end_bytes();
        if let Some(told) = self.outstanding.get() {
            let forecast = self.forecast(told.span.offset_bytes, supply, now);
            let anew = self.outstanding.redate(forecast, now);
            return anew.map(StreamStep::Want);
        }
        if self.broken.is_some() {
            return None;
        }
        let last = *self.fetched.last()?;
        if last.held == Held::Slots && supply.rate_bytes_per_s == 0 && !supply.full {
            return None;
        }
        let mut ahead_bytes = last.end_bytes;
        while ahead_bytes < end_bytes && self.fetched.len() < FETCHED_MAX {
            let next = rest_of_window(ahead_bytes, end_bytes);
            match residency_cache.verdict(body.object, body.residency, next, now) {
                // It was read for somebody else. Far ahead it may be evicted before it is sent.
                ResidencyVerdict::Resident if ahead_bytes - at_bytes < READ_BYTES_MAX => {
                    ahead_bytes = next.end_bytes();
                    self.add_fetched(ahead_bytes, Held::PageCache);
                }
                ResidencyVerdict::Resident => return None,
                ResidencyVerdict::Probe => return Some(self.ask(body, next)),
                ResidencyVerdict::Unknown => {
                    let rest = to_end(ahead_bytes, end_bytes);
                    let want = self.want(body.object, rest, supply, now);
                    return Some(StreamStep::Want(want));
                }
            }
        }
        None
    }

    /// How long what the stream has lasts, if that is all bytes before `from_bytes`.
    pub(super) fn forecast(&self, from_bytes: u64, supply: &Supply, now: Instant) -> Forecast {
        Forecast {
            underrun_at: self.underrun_at(from_bytes, supply, now),
            rate_bytes_per_s: supply.rate_bytes_per_s,
        }
    }

    /// When the stream runs dry, if it has all bytes before `from_bytes`.
    ///
    /// A client of unknown rate may never take more, and thousands of them would fill the pool. So while its socket is full
    /// and a third of what it has taken is read ahead (docs/decisions/0012-reads-sized-when-chosen.md), its want is dated
    /// [`UNTAKEN_US`] ahead: nothing more is read until it takes some.
    fn underrun_at(&self, from_bytes: u64, supply: &Supply, now: Instant) -> Instant {
        let ahead_bytes = self.ahead_bytes(from_bytes);
        if supply.rate_bytes_per_s == 0 && supply.full && ahead_bytes >= self.sent_bytes / 3 {
            return now.plus_us(UNTAKEN_US);
        }
        supply.underrun_at(ahead_bytes, now)
    }

    /// D2, if the stream has all bytes before `from_bytes`.
    fn ahead_bytes(&self, from_bytes: u64) -> u64 {
        from_bytes.saturating_sub(self.body_at_bytes())
    }
}
