//! The outstanding want of a stream: what the disk machine was told last, and when that needs a new deadline.

use crate::congestion::Delay;
use crate::conn::{ObjectId, Span, StreamId, Want, WantSeq};
use crate::limits::{REDATE_US_MIN, UNKNOWN_MARGIN_US};
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
