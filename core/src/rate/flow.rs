//! How fast a client's program reads, from TCP's counters: acknowledged bytes minus those in its receive buffer,
//! divided by the time in which it had something to read.
//!
//! A burst into an empty receive buffer shows no rate: its bytes are acknowledged, but the client's window shrinks by
//! as many. The client has something to read while our socket holds bytes, or while its window is still smaller than with
//! an empty receive buffer. At other times it may have nothing to read, so what it reads then gives only a lower bound.
//!
//! Programs read in bursts, so reading shows as steps with silences between them. A rate counts only from the end of one
//! step to the end of another, or when a step lasts so long that it must be steady reading. A silence gives an upper bound.

mod counters;
mod growth;
mod interval;
mod window;

pub use self::counters::{Evidence, Flow};
use self::growth::Growth;
use self::interval::Interval;
use super::per_s;
use crate::limits::{
    FLOW_READ_BYTES_MIN, FLOW_SAMPLE_US_MAX, FLOW_STEPS, FLOW_US_MAX, FLOW_US_MIN, GROWN_US_MAX,
    INTERVAL_US_MIN,
};
use crate::units::Instant;

/// A silence is a pause only if it lasts at least one part in so many of the time measured before it.
const PAUSE_PART: u64 = 2;

/// Adds up what happens between samples of a connection, until it amounts to evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    last: Option<(Instant, Flow)>,
    /// When our socket was given bytes first and last since the last sample.
    given: Option<(Instant, Instant)>,
    /// In how many pieces they were given.
    pieces: u32,
    /// Bytes acknowledged, and not read by the client's program, as far as its window shows.
    unread_bytes: u64,
    /// The client's receive buffer, the largest that was seen; 0: not estimated yet.
    buffer_bytes: u64,
    growth: Growth,
    /// When a sample first showed that the buffer has grown since it was full last.
    grown_from: Option<Instant>,
    /// Its counters have told how fast it reads.
    counted: bool,
    /// The current interval.
    now: Interval,
    /// The interval before it.
    before: Interval,
    /// Bytes read since the last step, too few to count as one.
    crumbs_bytes: u64,
    /// `before` is a regular interval. The first interval is none: the client's buffer still grows in it.
    begun: bool,
    /// The silence under way: the time after `now`, in which nothing was read.
    silent: Interval,
    /// The pause of a client that reads in steps, and then pauses; 0: none was seen.
    pause_us: u64,
    /// The current step.
    step_bytes: u64,
    /// How many samples it has lasted.
    step_samples: u64,
    /// Bytes acknowledged before the first sample.
    burst_bytes: u64,
    /// All time since the last verdict of `at_least`.
    all_us: u64,
    /// The part of it in which the client had something to read.
    fed_us: u64,
    /// What was read in it, at least.
    all_bytes: u64,
}

impl Gauge {
    /// Time of the last sample; `None` before the first one.
    pub fn sampled_at(&self) -> Option<Instant> {
        self.last.map(|(at, _)| at)
    }

    /// Starts over: the connection had nothing to send, or its path has changed.
    pub fn begin_anew(&mut self) {
        *self = Gauge {
            last: self.last,
            unread_bytes: self.unread_bytes,
            buffer_bytes: self.buffer_bytes,
            growth: self.growth,
            counted: self.counted,
            ..Gauge::default()
        };
    }

    /// How long after the last sample the next one says more, microseconds.
    pub fn sample_in_us(&self) -> u64 {
        let us = self.all().and(self.silent).us;
        (us / 8).clamp(INTERVAL_US_MIN / 2, FLOW_SAMPLE_US_MAX)
    }

    /// Our socket was given bytes.
    pub fn given(&mut self, now: Instant) {
        let (first, last) = self.given.unwrap_or((now, now));
        let new = self.given.is_none() || now.since_us(last) >= FLOW_US_MIN;
        self.pieces = self.pieces.saturating_add(new.into());
        self.given = Some((first, now));
    }

    /// Bytes acknowledged, and not read by the client's program, as far as its window shows; 0: it may have read all.
    pub fn surely_unread_bytes(&self) -> u64 {
        match self.has_unread() {
            true => self.unread_bytes,
            false => 0,
        }
    }

    /// Whether the counters prove that the client's receive buffer has grown.
    pub fn is_grown(&self, flow: Flow) -> bool {
        self.growth.is_proven(flow)
    }

    /// The counters between two samples: only the window counts.
    pub fn glance(&mut self, flow: Flow) {
        self.growth.see(flow);
    }

    /// Takes a sample of the counters. It may complete a piece of evidence, over at least `least_us`.
    ///
    /// A socket that the client's window has stopped sent last when that window last opened. So the sample counts as
    /// two: one at that moment, by which all reading was announced, and one now, with none announced since.
    pub fn sample(&mut self, flow: Flow, now: Instant, least_us: u64) -> Option<Evidence> {
        let grown = self.is_grown(flow);
        self.glance(flow);
        if self.growth.full {
            self.grown_from = None;
        }
        if grown {
            self.skip(flow, now);
            return self.at_least(least_us);
        }
        let opened = self.when_opened(flow, now);
        let until_then = opened.and_then(|(then, at)| self.sample_once(then, at, least_us));
        // The later verdict replaces the earlier one, which counted less. After a growth the later bound only caps it.
        match (until_then, self.sample_once(flow, now, least_us)) {
            (Some(sample @ Evidence::Sample { .. }), Some(Evidence::AtMost { bytes_per_s }))
                if self.growth.seen =>
            {
                Some(sample.at_most(bytes_per_s))
            }
            (until_then, since) => since.or(until_then),
        }
    }

    fn sample_once(&mut self, flow: Flow, now: Instant, least_us: u64) -> Option<Evidence> {
        let Some((from, before)) = self.last else {
            (self.last, self.burst_bytes) = (Some((now, flow)), flow.acked_bytes);
            return None;
        };
        let us = now.since_us(from);
        if us < FLOW_US_MIN {
            return None;
        }
        let backwards = flow.acked_bytes < before.acked_bytes || flow.busy_us < before.busy_us;
        if backwards || us > FLOW_US_MAX {
            // The counters of another connection, or too old.
            *self = Gauge {
                last: Some((now, flow)),
                ..Gauge::default()
            };
            return None;
        }
        let at_rest =
            flow.acked_bytes == before.acked_bytes && flow.window_bytes == before.window_bytes;
        if at_rest && flow.busy_us - before.busy_us < us / 2 {
            return None; // nothing is announced yet: what is read now shows in the next ACK
        }
        let fed_from = self.given.take().map_or(from, |(at, _)| at.max(from));
        let fed = self.add(before, flow, (us, now.since_us(fed_from)));
        (self.last, self.pieces) = (Some((now, flow)), 0);
        let evidence = match fed {
            Some(fed) => self.count(fed, flow, least_us),
            None => None,
        };
        evidence.or_else(|| self.at_least(least_us))
    }

    /// Adds what happened between two samples, `us` apart; `given_us` passed since our socket was first given bytes.
    /// Returns what was read while the client had something to read; `None`: it ran out in between.
    fn add(&mut self, before: Flow, flow: Flow, (us, given_us): (u64, u64)) -> Option<Interval> {
        let acked_bytes = flow.acked_bytes - before.acked_bytes;
        let busy_us = (flow.busy_us - before.busy_us).min(us);
        let limited_us = flow
            .window_limited_us
            .saturating_sub(before.window_limited_us);
        let (had_unread, had_unread_bytes) = (self.has_unread(), self.unread_bytes);
        // A window shrinks by what the receiver stores and grows by what its program reads. So the change of the window is that of
        // the unread bytes, and the rest of what was acknowledged was read.
        let had_bytes = self.unread_bytes.saturating_add(acked_bytes);
        let unread_bytes = (self.unread_bytes.saturating_add(before.window_bytes))
            .saturating_sub(flow.window_bytes)
            .min(had_bytes);
        let read_bytes = had_bytes - unread_bytes;
        self.unread_bytes = unread_bytes;
        self.all_us += us;
        self.all_bytes = self.all_bytes.saturating_add(read_bytes);
        let has_unread = self.has_unread_behind(flow);
        // It never ran out if it had more than it read, or if no later piece can have refilled an empty buffer.
        let always = match (had_unread, has_unread) {
            (true, true) => {
                self.pieces == 0 || read_bytes < had_unread_bytes || unread_bytes > acked_bytes
            }
            (false, true) => self.pieces <= 1 || read_bytes < unread_bytes,
            (_, false) => false,
        };
        let long = busy_us >= us / 4 * 3;
        // Only busy time counts. After it the client emptied a full buffer, about as large as its window before: these bytes
        // were not read in busy time.
        let held_up = limited_us > 0 && busy_us < us / 20 * 19;
        let (fed_us, fed_bytes) = match (always, long) {
            (true, _) if had_unread => (us, read_bytes),
            // It may have had nothing until our socket was given bytes: only what it got since then surely counts.
            (true, _) => (
                given_us.max(busy_us),
                acked_bytes.saturating_sub(unread_bytes),
            ),
            (false, true) if held_up && !has_unread => {
                (busy_us, read_bytes.saturating_sub(before.window_bytes))
            }
            (false, true) => (busy_us, read_bytes),
            // It ran out of bytes at some time in between.
            (false, false) => return None,
        };
        self.fed_us += fed_us;
        Some(Interval {
            us: fed_us,
            bytes: fed_bytes,
            unsure_bytes: match always {
                true => read_bytes - fed_bytes,
                false => 0,
            },
            limited_us: match has_unread {
                true => fed_us,
                false => limited_us.min(fed_us),
            },
            ..Interval::default()
        })
    }

    /// Counts what was read while the client had something to read. This may complete a piece of evidence.
    fn count(&mut self, fed: Interval, flow: Flow, least_us: u64) -> Option<Evidence> {
        let segment_bytes = flow.segment_bytes;
        let all = self.all().and(self.silent).and(fed);
        if all.us > 0 && !all.is_by_itself() {
            return self.of_path(fed, segment_bytes, least_us);
        }
        self.crumbs_bytes = self.crumbs_bytes.saturating_add(fed.bytes);
        if self.crumbs_bytes == 0 || self.crumbs_bytes < segment_bytes / 2 {
            return self.silent(fed, flow, least_us);
        }
        if self.silent.us > 0 {
            self.resume();
        }
        let bytes = core::mem::take(&mut self.crumbs_bytes);
        self.read(Interval { bytes, ..fed });
        // No rate is valid within a step, unless it lasts so long that the client must be reading steadily. After a growth the
        // first evidence may be of an unfinished step: the upper bound would be that of a burst.
        let first = self.growth.seen && !self.counted;
        if !first && self.now.uneven && self.step_samples < FLOW_STEPS {
            return None;
        }
        let rate = self.interval_rate(least_us, flow);
        self.turn();
        rate.map(|bytes_per_s| Evidence::Sample {
            bytes_per_s,
            by_itself: true,
        })
    }

    /// A silence ends. Its time joins the interval, with two exceptions.
    ///
    /// One more than [`FLOW_STEPS`] times as long as all before it makes the measurement start over. One more than
    /// twice as long as any before it, and at least half as long as all time measured before it ([`PAUSE_PART`]), is a
    /// pause: the client reads in periods, and one begins here.
    fn resume(&mut self) {
        let mut silent = core::mem::take(&mut self.silent);
        silent.silent_us = silent.us;
        let all = self.all();
        let pauses = silent.us / 2 > all.silent_us && silent.us >= all.us / PAUSE_PART;
        if pauses && all.silent_us > 0 {
            self.pause_us = silent.us;
        }
        if self.begun && silent.us > FLOW_STEPS * all.us {
            (self.now, self.before, self.begun) = <(Interval, Interval, bool)>::default();
        } else if self.begun && pauses {
            (self.now, self.before) = (silent, Interval::default());
        } else if pauses && self.now.bytes > 0 {
            (self.now, self.before) = (silent, all);
        } else {
            self.now = self.now.and(silent);
        }
        (self.step_bytes, self.step_samples) = (0, 0);
    }

    /// The client's receive buffer has grown. How much was read meanwhile is unknown, so neither this step nor the
    /// silence before it counts. If it is the first step, that one has ended.
    fn skip(&mut self, flow: Flow, now: Instant) {
        // It is full again soon, if we have bytes for it. If we have not, a fast client may keep its window wide open for ever.
        let grown_from = *self.grown_from.get_or_insert(now);
        if now.since_us(grown_from) >= GROWN_US_MAX {
            self.growth.settle(flow);
        }
        let Some((from, before)) = self.last.replace((now, flow)) else {
            return;
        };
        // What the window has widened by may be growth. The rest was read at least.
        let widened_bytes = flow.window_bytes.saturating_sub(before.window_bytes);
        let least_bytes = self.all_bytes;
        if flow.acked_bytes >= before.acked_bytes && flow.busy_us >= before.busy_us {
            let us = now.since_us(from);
            self.add(before, flow, (us, us));
        }
        self.all_bytes = (self.all_bytes.saturating_sub(widened_bytes)).max(least_bytes);
        (self.given, self.pieces) = (None, 0);
        (self.silent, self.crumbs_bytes) = (Interval::default(), 0);
        if !self.begun && self.before.us == 0 {
            (self.before, self.now) = (self.now, Interval::default());
        }
        self.now.uneven = true;
        (self.step_bytes, self.step_samples) = (0, 0);
    }

    /// Something was read.
    fn read(&mut self, fed: Interval) {
        // A step shows in several samples if they are close together.
        let goes_on = self.now.uneven && self.step_samples < FLOW_STEPS;
        self.step_bytes = match goes_on {
            true => self.step_bytes.saturating_add(fed.bytes),
            false => fed.bytes,
        };
        self.step_samples = self.step_samples.saturating_add(1);
        self.now = self.now.and(fed);
        self.now.step_bytes = self.now.step_bytes.max(self.step_bytes);
    }

    /// The client had something to read, and nothing was read.
    fn silent(&mut self, fed: Interval, flow: Flow, least_us: u64) -> Option<Evidence> {
        let untold_bytes = self.untold_bytes(flow);
        // Short silences separate the steps of a burst. The burst is over when a silence lasts half a pause.
        let ends_us = (self.pause_us / 2).max(1);
        let (from_us, to_us) = (self.silent.us, self.silent.us.saturating_add(fed.us));
        let ends = self.now.bytes > 0 && (from_us..to_us).contains(&(ends_us - 1));
        self.silent = self.silent.and(Interval {
            bytes: 0,
            uneven: true,
            ..fed
        });
        let rate = ends.then(|| self.interval_rate(least_us, flow)).flatten();
        if ends {
            self.turn();
        }
        let all = self.all().and(self.silent);
        // The first interval begins with an empty buffer, a later one somewhere in a step.
        let begin_bytes = match self.begun {
            true => untold_bytes,
            false => self.burst_bytes,
        };
        // The next step of a client that reads in bursts may be due.
        let knows_steps = all.uneven && self.begun;
        let next_bytes = if knows_steps { all.step_bytes } else { 0 };
        let bytes = (all
            .most_bytes()
            .saturating_add(untold_bytes.max(next_bytes)))
        .saturating_add(begin_bytes);
        let says = all.is_by_itself() && all.us >= least_us && bytes > 0;
        let most_bytes_per_s = says.then(|| per_s(bytes, all.us));
        match (rate, most_bytes_per_s) {
            (Some(bytes_per_s), most) => Some(Evidence::Sample {
                bytes_per_s: bytes_per_s.min(most.unwrap_or(u64::MAX)),
                by_itself: true,
            }),
            (None, most) => most.map(|bytes_per_s| Evidence::AtMost { bytes_per_s }),
        }
    }

    fn all(&self) -> Interval {
        self.before.and(self.now)
    }

    /// What the client reads, bytes per second: known at the end of a step, or at any time if there are no steps.
    fn interval_rate(&mut self, least_us: u64, flow: Flow) -> Option<u64> {
        let untold_bytes = self.untold_bytes(flow);
        let (all, now) = (self.all(), self.now);
        let first = !self.begun && self.before.us == 0;
        let interval = match self.begun || !all.uneven && now.us < least_us {
            true => all,
            false => now,
        };
        // Many programs read once a second, and the ends of their bursts are not dated exactly.
        let least_us = match self.growth.seen {
            true => least_us / 8 * 7,
            false => least_us,
        };
        // The first step may be the one that filled the client's buffer.
        let says =
            interval.is_by_itself() && interval.us >= least_us && !(first && self.silent.us > 0);
        // What it can have read without announcing it must not exceed what it is known to have read.
        let says = says && interval.bytes >= untold_bytes.min(self.unread_bytes);
        self.counted |= says;
        says.then(|| per_s(interval.bytes, interval.us))
    }

    /// Begins the next interval if this one is whole, or is the very first, in which the client's buffer grows.
    fn turn(&mut self) {
        let first = !self.begun && self.before.us == 0;
        if !first && !self.begun && !self.now.uneven && self.silent.us > 0 {
            // The first step lasted until now: it joins the first interval, and the next one begins with this silence.
            (self.before, self.now) = (self.all(), Interval::default());
            self.now.uneven = true;
            return;
        }
        let whole = self.now.is_whole();
        if whole || first && (self.silent.us > 0 || self.now.us >= INTERVAL_US_MIN / 2) {
            (self.before, self.now) = (self.now, Interval::default());
            self.now.uneven = self.silent.us > 0;
            self.begun = !first;
        }
    }

    /// The client's path holds it up.
    fn of_path(&mut self, fed: Interval, segment_bytes: u64, least_us: u64) -> Option<Evidence> {
        self.now = self.now.and(core::mem::take(&mut self.silent)).and(fed);
        let all = self.all();
        let steps_bytes = segment_bytes.saturating_mul(FLOW_STEPS);
        let much_bytes = (FLOW_READ_BYTES_MIN * least_us / INTERVAL_US_MIN).max(steps_bytes);
        let bytes = all.bytes.saturating_add(self.crumbs_bytes);
        let much = bytes >= much_bytes || all.us >= 8 * least_us;
        let evidence = (all.us >= least_us && much).then(|| Evidence::Sample {
            bytes_per_s: per_s(bytes, all.us),
            by_itself: false,
        })?;
        self.begin_anew();
        Some(evidence)
    }

    /// Whether the client had nothing to read most of the time.
    fn at_least(&mut self, least_us: u64) -> Option<Evidence> {
        if self.all_us < 2 * least_us {
            return None;
        }
        let (all_us, all_bytes) = (self.all_us, self.all_bytes);
        let starved = self.fed_us < least_us;
        (self.all_us, self.fed_us, self.all_bytes) = (0, 0, 0);
        starved.then(|| {
            self.begin_anew(); // it was fed for moments only
            Evidence::AtLeast {
                bytes_per_s: per_s(all_bytes, all_us),
            }
        })
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
