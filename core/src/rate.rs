//! How fast a connection takes its bytes: TPF's B_n.
//!
//! At first it is a guess, by what leaves the socket from moment to moment ([`Rate::look`]). But what leaves a socket at
//! once may only fill the client's receive buffer. So as soon as TCP's counters tell more ([`Rate::count`]), the rate is
//! what they show over intervals of a second or more. An interval is one of three things:
//!
//! - *a sample*: the client could read all the time, since the socket was never empty. It read what it acknowledged, less what
//!   came to lie in its receive buffer. A window shrinks by what is stored and widens by what is read, so that is by how far
//!   the right edge of the window has advanced.
//! - *a bound from below*: the socket was empty for some of the time, so the client may be faster.
//! - *a bound from above*: the window stays closed. Whatever the client reads, it has not made room worth telling of.
//!
//! A window opens in steps, so intervals go from the end of one step to the end of another. The end is dated exactly: a socket that
//! the window has stopped sent last when it opened last.
//!
//! Where TCP counts nothing (a unix socket, an old kernel), what leaves the socket over such an interval has to do.

use crate::limits::{
    FIRST_SAMPLE_BYTES_MIN, FLOW_US_MAX, INTERVAL_US_MIN, RATE_BYTES_PER_S_MAX, RATE_SAMPLE_US_MIN,
};
use crate::units::{Instant, US_PER_S};

/// A closed window opens when one part in so many of the receive buffer is free (Linux, `__tcp_select_window`).
const WINDOW_OPENS_PART: u64 = 16;

/// The rate of one connection. It never exceeds [`RATE_BYTES_PER_S_MAX`]: all rates enter through this file, so sums of
/// them can't overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// 0: not known yet.
    bytes_per_s: u64,
    source: RateSource,
    congested: Congested,
    /// Where the current interval began.
    from: Option<(Instant, Flow)>,
    /// What the client had acknowledged then, and its program had not read, as far as its window shows.
    unread_bytes: u64,
    /// Its receive buffer, as large as it was seen; 0: TCP has counted nothing yet.
    buffer_bytes: u64,
    /// What was read in the interval before: as much may be read at once again.
    step_bytes: u64,
    /// The last look at the level of the socket.
    looked: Option<Look>,
}

/// What is believed of a client's rate, for the machine that takes its connection over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BelievedRate {
    /// B_n; 0: not known yet.
    pub bytes_per_s: u64,
    /// Where it comes from.
    pub source: RateSource,
}

/// Where a rate comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateSource {
    /// A guess: what left the socket last.
    #[default]
    Guess,
    /// The client's path holds it up.
    Path,
    /// The client reads at its own pace: its window holds the path up.
    Itself,
    /// The same at first. Since then it had nothing to read for some of the time, so it may be faster.
    AtLeast,
}

/// What congestion signals mean for the next samples. A path that loses segments all the time signals all the time, and
/// must not be measured by its worst moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Congested {
    #[default]
    No,
    /// What was measured before the signal says little: the next sample comes soon and counts in full.
    Now,
    /// That sample is taken; the following one is ordinary, whatever comes.
    Lately,
}

/// What TCP has counted of a connection (tcp(7), `struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// `tcpi_bytes_acked`.
    pub acked_bytes: u64,
    /// `tcpi_busy_time`: the socket held bytes, sent or not.
    pub busy_us: u64,
    /// `tcpi_rwnd_limited`: the part of it in which the client's window was what held it up.
    pub window_limited_us: u64,
    /// `tcpi_snd_wnd`, the window that the client offers.
    pub window_bytes: u64,
    /// `tcpi_snd_mss`, a full segment.
    pub segment_bytes: u64,
    /// `tcpi_last_data_sent`, the time since the socket sent bytes last.
    pub quiet_us: u64,
}

/// A look at the level of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    at: Instant,
    /// All that had left it by then.
    gone_bytes: u64,
    /// It was empty at some time since the interval began.
    was_dry: bool,
}

impl Rate {
    /// The rate that another machine believed. It may come from another node, so it is bounded here, too.
    pub fn believed(rate: BelievedRate) -> Rate {
        Rate {
            bytes_per_s: rate.bytes_per_s.min(RATE_BYTES_PER_S_MAX),
            source: rate.source,
            ..Rate::default()
        }
    }

    /// What is believed, for another machine.
    pub fn belief(&self) -> BelievedRate {
        BelievedRate {
            bytes_per_s: self.bytes_per_s,
            source: self.source,
        }
    }

    /// B_n, bytes per second; 0: nothing is known.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// Whether it is only a guess. It does to fill a socket by, but not to read ahead by: a receive buffer that takes what it has
    /// room for looks a thousand times too fast.
    pub fn is_guess(&self) -> bool {
        self.source == RateSource::Guess
    }

    /// Whether the client reads at its own pace, as TCP's counters have shown.
    pub fn is_own_pace(&self) -> bool {
        matches!(self.source, RateSource::Itself | RateSource::AtLeast)
    }

    /// Whether the client's path holds it up.
    pub fn is_of_path(&self) -> bool {
        self.source == RateSource::Path
    }

    /// Whether an interval has told how fast it is.
    pub fn is_sampled(&self) -> bool {
        self.step_bytes > 0
    }

    /// Whether TCP has counted anything.
    pub fn is_counted(&self) -> bool {
        self.buffer_bytes > 0
    }

    /// The connection had nothing to send: that time counts for nothing.
    pub fn begin_anew(&mut self) {
        (self.from, self.looked) = (None, None);
    }

    /// The client is faster than was believed, by an unknown amount. One that reads at its own pace has only taken more into
    /// its buffer.
    pub fn raise(&mut self) {
        if !self.is_own_pace() {
            self.bytes_per_s = (self.bytes_per_s / 4 * 5 + 1).min(RATE_BYTES_PER_S_MAX);
        }
    }

    /// The path is congested, and carries at most this much if that is known. That bound holds at once, and an interval that
    /// begins now tells whether the rate is less. About a client that reads at its own pace, congestion says nothing.
    pub fn congest(&mut self, most_bytes_per_s: Option<u64>) {
        if self.is_guess() || self.is_own_pace() {
            return;
        }
        let most_bytes_per_s = most_bytes_per_s.unwrap_or(u64::MAX).max(1);
        self.bytes_per_s = self.bytes_per_s.min(most_bytes_per_s);
        if self.congested == Congested::No {
            self.congested = Congested::Now;
            self.begin_anew();
        }
    }

    /// A look at the level of the socket: `gone_bytes` have left it in all. `is_dry`: it was empty at some time since the
    /// last look.
    pub fn look(&mut self, gone_bytes: u64, is_dry: bool, now: Instant) {
        let before = self.looked.unwrap_or(Look {
            at: now,
            gone_bytes,
            was_dry: false,
        });
        let us = now.since_us(before.at);
        let bytes = gone_bytes.saturating_sub(before.gone_bytes);
        let says = us >= RATE_SAMPLE_US_MIN;
        let of_little = is_dry && self.bytes_per_s == 0 && bytes < FIRST_SAMPLE_BYTES_MIN;
        let (at, gone_bytes_then) = match says || of_little {
            true => (now, gone_bytes),
            false => (before.at, before.gone_bytes),
        };
        self.looked = Some(Look {
            at,
            gone_bytes: gone_bytes_then,
            was_dry: before.was_dry || is_dry,
        });
        if self.is_guess() && says && !of_little {
            let (sample, guess) = (per_s(bytes, us), self.bytes_per_s);
            self.bytes_per_s = match guess {
                0 => sample,
                _ if sample >= guess => middle(guess, sample),
                _ if is_dry => guess,
                _ => guess - (guess - sample) / 4,
            };
        }
        if !self.is_counted() {
            self.look_long(gone_bytes, of_little, now);
        }
    }

    /// The same over an interval, where TCP counts nothing. `of_little`: a first one begins here.
    fn look_long(&mut self, gone_bytes: u64, of_little: bool, now: Instant) {
        let begun = self.from.filter(|_| !of_little);
        let begin = Flow {
            acked_bytes: gone_bytes,
            ..Flow::default()
        };
        let (from, before) = *self.from.insert(begun.unwrap_or((now, begin)));
        let us = now.since_us(from);
        if begun.is_some() && us < self.least_us() {
            return;
        }
        let was_dry = self.looked.is_some_and(|look| look.was_dry);
        if begun.is_some() {
            let sample = per_s(gone_bytes.saturating_sub(before.acked_bytes), us);
            let least = match was_dry && !self.is_guess() {
                true => self.bytes_per_s,
                false => 0,
            };
            self.sample(sample.max(least), false);
        }
        self.from = Some((now, begin));
        self.looked = self.looked.map(|look| Look {
            was_dry: false,
            ..look
        });
    }

    /// An interval says nothing before it is this long, microseconds.
    fn least_us(&self) -> u64 {
        match self.is_guess() || self.congested == Congested::Now {
            true => INTERVAL_US_MIN / 2,
            false => INTERVAL_US_MIN,
        }
    }

    /// TCP's counters.
    pub fn count(&mut self, flow: Flow, now: Instant) {
        let begun = self.from.filter(|(from, before)| {
            let ordered = flow.acked_bytes >= before.acked_bytes && flow.busy_us >= before.busy_us;
            self.is_counted() && ordered && now.since_us(*from) <= FLOW_US_MAX
        });
        let Some((from, before)) = begun else {
            let held_bytes = match self.is_counted() {
                true => self.unread_bytes,
                false => flow.acked_bytes, // all of it, or none
            };
            self.widen(held_bytes, flow);
            self.from = Some((now, flow));
            return;
        };
        let us = now.since_us(from);
        let acked_bytes = flow.acked_bytes - before.acked_bytes;
        let had_bytes = self.unread_bytes.saturating_add(acked_bytes);
        let unread_bytes = (self.unread_bytes.saturating_add(before.window_bytes))
            .saturating_sub(flow.window_bytes)
            .min(had_bytes);
        let read_bytes = had_bytes - unread_bytes;
        self.widen(unread_bytes, flow);
        let busy_us = (flow.busy_us - before.busy_us).min(us);
        let limited_us = flow
            .window_limited_us
            .saturating_sub(before.window_limited_us);
        let is_fed = busy_us >= us / 10 * 9;
        // Its window has stopped the socket since it sent last: what was told by now was told by then.
        let quiet_us = flow.quiet_us.min(us);
        let is_stopped = is_fed && is_held_up(flow) && limited_us >= quiet_us / 10 * 9;
        let silent_us = if is_stopped { quiet_us } else { 0 };
        let us = us - silent_us;
        // Nothing is told of what is read while nothing is sent, and a first piece may still lie unread.
        let is_little = self.is_guess() && read_bytes < FIRST_SAMPLE_BYTES_MIN;
        let is_news = is_fed || acked_bytes > 0 && !is_little;
        if us < self.least_us() || !is_news {
            self.at_most(read_bytes, us + silent_us, flow);
            return;
        }
        let (busy_us, limited_us) = (
            busy_us.saturating_sub(silent_us),
            limited_us.saturating_sub(silent_us),
        );
        let by_itself = busy_us > 0 && limited_us >= busy_us / 4;
        match (is_fed, by_itself) {
            (true, true) => self.sample(per_s(read_bytes, us), true),
            (true, false) => self.sample(per_s(acked_bytes, us), false),
            (false, true) => self.at_least(per_s(read_bytes, us), u64::MAX),
            (false, false) => self.at_least(per_s(read_bytes, us), per_s(acked_bytes, busy_us)),
        }
        (self.step_bytes, self.unread_bytes) = (read_bytes, unread_bytes);
        let then = Flow {
            busy_us: flow.busy_us.saturating_sub(silent_us),
            window_limited_us: flow.window_limited_us.saturating_sub(silent_us),
            ..flow
        };
        self.from = Some((now.minus_us(silent_us), then));
        self.at_most(0, silent_us, flow);
    }

    /// The client's window shows that its buffer holds at least this much and has so much room.
    fn widen(&mut self, unread_bytes: u64, flow: Flow) {
        let bytes = unread_bytes.saturating_add(flow.window_bytes).max(1);
        self.buffer_bytes = self.buffer_bytes.max(bytes);
    }

    /// A sample.
    fn sample(&mut self, bytes_per_s: u64, by_itself: bool) {
        let sample = bytes_per_s.clamp(1, RATE_BYTES_PER_S_MAX);
        let counts_whole =
            by_itself || self.is_guess() || self.is_own_pace() || self.congested == Congested::Now;
        let rate = self.bytes_per_s;
        self.bytes_per_s = match counts_whole {
            true => sample,
            // It may have been a burst into the client's buffer.
            false if sample > rate && !self.is_counted() => rate + (sample - rate) / 4,
            false => middle(rate, sample),
        };
        self.source = match by_itself {
            true => RateSource::Itself,
            false => RateSource::Path,
        };
        self.congested = match self.congested {
            Congested::Now => Congested::Lately,
            Congested::Lately | Congested::No => Congested::No,
        };
    }

    /// Bounds from an interval in which the socket was empty for some of the time.
    fn at_least(&mut self, least: u64, most: u64) {
        let (least, rate) = (least.min(RATE_BYTES_PER_S_MAX), self.bytes_per_s);
        let rate = match self.source {
            RateSource::Guess => least,
            // It could have taken more, and took all that was believed: try whether it takes more.
            _ if least >= rate / 10 * 9 => rate + rate / 4 + 1,
            // It may have been believed too fast for long.
            _ if least < rate / 2 => rate - (rate - least) / 4,
            _ => rate,
        };
        self.bytes_per_s = rate.min(most).max(least).clamp(1, RATE_BYTES_PER_S_MAX);
        self.source = match self.source {
            RateSource::Guess | RateSource::Path => RateSource::Path,
            RateSource::Itself | RateSource::AtLeast => RateSource::AtLeast,
        };
    }

    /// The client's window has told of `read_bytes` in this time, and of nothing lately.
    fn at_most(&mut self, read_bytes: u64, us: u64, flow: Flow) {
        if !is_held_up(flow) || us < self.least_us() {
            return;
        }
        let untold_bytes = (self.buffer_bytes / WINDOW_OPENS_PART)
            .max(flow.segment_bytes.saturating_mul(2))
            .max(self.step_bytes);
        let most = per_s(read_bytes.saturating_add(untold_bytes), us).max(1);
        if self.bytes_per_s > most {
            (self.bytes_per_s, self.source) = (most, RateSource::Itself);
        }
    }
}

/// Whether the window has no room for a segment.
fn is_held_up(flow: Flow) -> bool {
    flow.window_bytes < flow.segment_bytes
}

fn middle(a: u64, b: u64) -> u64 {
    a / 2 + b / 2 + (a & b & 1)
}

fn per_s(bytes: u64, us: u64) -> u64 {
    let rate = u128::from(bytes) * u128::from(US_PER_S) / u128::from(us.max(1));
    u64::try_from(rate).map_or(RATE_BYTES_PER_S_MAX, |rate| rate.min(RATE_BYTES_PER_S_MAX))
}

#[cfg(test)]
mod tests;
