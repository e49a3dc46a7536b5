//! Reading ahead of the client: which bytes are wanted while earlier ones are sent, when they are needed, what the disk machine was
//! told last, and when that needs a new deadline.

use super::{Body, Stream, StreamStep, to_end};
use crate::cache::{ResidencyCache, ResidencyVerdict, rest_of_window};
use crate::congestion::Delay;
use crate::conn::{Held, ObjectId, Span, StreamId, Want, WantSeq};
use crate::limits::{FETCHED_MAX, READ_BYTES_MAX, REDATE_US_MIN, UNKNOWN_MARGIN_US, UNTAKEN_US};
use crate::send::Supply;
use crate::units::Instant;

/// How long what a stream has lasts, for a want ([`Want`] has the meanings).
#[derive(Clone, Copy, Debug)]
pub(in crate::worker) struct Forecast {
    pub underrun_at: Instant,
    pub rate_bytes_per_s: u64,
}

/// A stream has one want at most. Its number tells an answer to it from a late one.
pub(in crate::worker) struct Outstanding {
    stream: StreamId,
    /// The want that the disk machine has and has not answered yet.
    want: Option<Want>,
    /// The number of the last want.
    seq: WantSeq,
    /// Number of answers from the disk machine so far.
    answers: u32,
    /// Number of congestion signals so far.
    signals: u32,
    /// What congestion does to the want.
    delay: Delay,
}

impl Outstanding {
    /// A stream that has wanted nothing yet.
    pub fn new(stream: StreamId, delay: Delay) -> Outstanding {
        Outstanding {
            stream,
            want: None,
            seq: WantSeq::default(),
            answers: 0,
            signals: 0,
            delay,
        }
    }

    /// The want, if there is one.
    pub fn get(&self) -> Option<Want> {
        self.want
    }

    /// Whether an answer to the want of this number is awaited. Late answers, to any other number, are void.
    pub fn awaits(&self, seq: WantSeq) -> bool {
        self.want.is_some_and(|want| want.seq == seq)
    }

    /// Whether there has ever been a want: the stream reads from the disk.
    pub fn has_wanted(&self) -> bool {
        self.seq != WantSeq::default()
    }

    /// A new want. It replaces the one before.
    pub fn begin(&mut self, object: ObjectId, span: Span, forecast: Forecast) -> Want {
        self.seq = self.seq.next();
        self.tell(Want {
            stream: self.stream,
            object,
            span,
            underrun_at: forecast.underrun_at,
            rate_bytes_per_s: forecast.rate_bytes_per_s,
            seq: self.seq,
            answers: self.answers,
            signals: self.signals,
            through_cache: false,
        })
    }

    /// The same want with a new deadline, if the change is worth telling the disk machine.
    pub fn redate(&mut self, forecast: Forecast, now: Instant) -> Option<Want> {
        let told = self.want?;
        let (answers, signals) = (self.answers, self.signals);
        // Like a request already given to the kernel: the worker never postpones it, only the disk machine may.
        let keeps = self.delay != Delay::Rate && told.rate_bytes_per_s > 0;
        let anew = match keeps && forecast.underrun_at >= told.underrun_at {
            true if self.delay == Delay::Off || told.signals == signals => return None,
            true => told,
            false if is_moved(&told, &forecast, now) => Want {
                underrun_at: forecast.underrun_at,
                rate_bytes_per_s: forecast.rate_bytes_per_s,
                ..told
            },
            false => return None,
        };
        Some(self.tell(Want {
            answers,
            signals,
            ..anew
        }))
    }

    /// This is the want that the disk machine is told.
    fn tell(&mut self, want: Want) -> Want {
        self.want = Some(want);
        want
    }

    /// The path is congested. `false`: there is no want that this could change.
    pub fn congested(&mut self) -> bool {
        self.signals = self.signals.wrapping_add(1);
        self.want.is_some()
    }

    /// The want of this number is answered, and returned; `None`: the answer is late, and void.
    pub fn answered(&mut self, seq: WantSeq) -> Option<Want> {
        let want = self.want.take_if(|want| want.seq == seq)?;
        self.answers = self.answers.wrapping_add(1);
        Some(want)
    }

    /// Drops the want; `false` if there was none.
    pub fn drop_it(&mut self) -> bool {
        self.want.take().is_some()
    }

    /// Drops the want if it begins behind this byte of the file; `false` if not.
    pub fn drop_behind(&mut self, at_bytes: u64) -> bool {
        let behind = |want: &mut Want| want.span.offset_bytes > at_bytes;
        self.want.take_if(behind).is_some()
    }
}

/// Whether the stream of this want now runs dry at a time so different that the want needs a new deadline.
fn is_moved(told: &Want, forecast: &Forecast, now: Instant) -> bool {
    let underrun_at = forecast.underrun_at;
    if forecast.rate_bytes_per_s == 0 {
        let soon = now.plus_us(UNKNOWN_MARGIN_US);
        let taken = underrun_at <= soon && told.underrun_at > soon;
        return taken || underrun_at <= now && told.underrun_at > now; // all else is a guess
    }
    told.rate_bytes_per_s == 0 || differ(told.underrun_at, underrun_at, now)
}

/// Whether two times differ by more than the first one's distance makes worth telling. Those in the past are alike.
fn differ(before: Instant, after: Instant, now: Instant) -> bool {
    let late = before <= now && after <= now;
    let moved_us = before.since_us(after) + after.since_us(before);
    !late && moved_us > REDATE_US_MIN.max(before.since_us(now) / 8)
}

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
        if last.held.is_own_memory() && supply.rate_bytes_per_s == 0 && !supply.full {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::ConnId;

    #[test]
    fn news_of_unread_bytes_keep_the_date() {
        let now = Instant { us: 1_000_000 };
        let conn = ConnId {
            index: 0,
            generation: 0,
        };
        let stream = StreamId {
            worker: 0,
            conn,
            nth: 0,
        };
        let object = ObjectId {
            device: 0,
            index: 0,
            generation: 0,
        };
        let span = Span {
            offset_bytes: 0,
            len_bytes: 1 << 20,
        };
        let forecast = Forecast {
            underrun_at: now.plus_us(4_000_000),
            rate_bytes_per_s: 100_000,
        };
        for delay in [Delay::Off, Delay::Paper, Delay::Rate] {
            let mut outstanding = Outstanding::new(stream, delay);
            outstanding.begin(object, span, forecast);
            let earlier = Forecast {
                underrun_at: now.plus_us(3_999_999),
                ..forecast
            };
            assert_eq!(outstanding.redate(earlier, now), None);
        }
    }
}
