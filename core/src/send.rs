//! Which socket is given bytes to send, and when: TPF's IDSR, clocked by the kernel's ACK path.
//!
//! A socket is filled with what its client takes in T ([`rounds::Target`]) plus [`EPOLLOUT_US`]. Then the kernel is told to
//! make it writable again when only that rest is left ([`Refill`]). This needs no timer, and works whatever the rate has
//! become. One such notification tops up *every* socket that would become writable before the next round. So a worker
//! wakes about once in T, however many connections it has.
//!
//! This file estimates one socket, with what TCP counts (`send/counters.rs`). [`rounds`] sets the target for all of them,
//! [`refill_timers`] says when those are filled whose shares of the send memory are full, and [`control`] decides for all of
//! this: everything else goes through it.
//!
//! To *fill* a socket means to give it bytes up to its target, [`SendQueue::fill_bytes`].

pub mod burst;
pub mod control;
mod counters;
pub mod refill_timers;
pub mod rounds;
mod supply;
mod unread;

use self::burst::Burst;
use self::rounds::Target;
pub use self::supply::Supply;
use self::unread::Unread;
use crate::limits::{
    EPOLLOUT_BYTES_MIN, EPOLLOUT_US, FIRST_SAMPLE_BYTES_MIN, LOWAT_BYTES_MAX, LOWAT_BYTES_START,
    ROOM_BYTES_MIN, STEADY_BYTES_MAX,
};
use crate::prefetch::us_for;
use crate::rate::acked::{Acked, AckedFor};
use crate::rate::flow::Gauge;
use crate::rate::{BelievedRate, Rate};
use crate::sndbuf::bound::{Grant, counted_bytes};
use crate::units::{Instant, KIB, bytes_in};

/// An empty socket says something about its client only if more than this should still be in it.
const UNBELIEVED_BYTES_MIN: u64 = 4 * KIB;

/// The unsent bytes in the socket of one connection (D1, its send margin), and how fast its client takes them (B_n).
#[derive(Clone, Copy, Debug)]
pub struct SendQueue {
    rate: Rate,
    /// D1 at the last sample.
    level_bytes: u64,
    sampled_at: Instant,
    /// Bytes given to the socket since then.
    given_bytes: u64,
    /// Those of them that were told ([`SendQueue::tell_given_bytes`]).
    told_given_bytes: u64,
    /// The rate is measured from here, over several samples if they follow each other too closely.
    measured_from: Instant,
    /// What was in the socket then, plus what was given since.
    measured_bytes: u64,
    /// The same over a longer sampling interval: its start.
    interval_from: Instant,
    /// Bytes taken in the interval.
    interval_bytes: u64,
    /// Whether the socket ran empty at some time in it (an underrun).
    interval_underrun: bool,
    /// What its client acknowledges, where its share bounds what it holds.
    acked: Acked,
    /// The evidence from TCP's counters.
    gauge: Gauge,
    /// What its client's window takes.
    burst: Burst,
    /// What its client's program has not read.
    unread: Unread,
    /// Its share of the send memory, unsent and in flight; `u64::MAX` where that is not divided.
    share_bytes: u64,
    /// The shortest round trip of its path, where that is told with a share; 0: it is not known.
    rtt_us: u64,
    /// What it may hold while its rate is a guess, as of the last refill; `u64::MAX`: there is no such bound.
    most_bytes: u64,
    /// It was given bytes that its client may not have read yet.
    unsettled: bool,
    /// The next sample of TCP's counters is for the client's window alone (a *glance*).
    awaits_glance: bool,
    /// The level below which it becomes writable, as the kernel was last told.
    told_bytes: u64,
    /// It has become writable since the last sample, and was given nothing.
    writable: bool,
    /// It gets no long margin now: the bytes that fill it wait in memory for it alone, or its response ends soon. Bytes
    /// in a socket can't be taken back if their file changes, so the last ones go in late.
    short: bool,
}

/// How much a socket should take now, and when it becomes writable again. TCP_NOTSENT_LOWAT (tcp(7)) sets both: how
/// much the socket takes, and, at half of that, when it becomes writable. So it has one value while the socket is being
/// filled and another one afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Having taken this much, it counts as full, as when it takes no more.
    pub bytes: u64,
    /// TCP_NOTSENT_LOWAT while it is being filled.
    pub lowat_bytes: u32,
    /// Once full, it becomes writable (EPOLLOUT) when less than this is left.
    pub epollout_bytes: u32,
}

impl SendQueue {
    /// A connection that holds nothing.
    pub fn new(now: Instant) -> SendQueue {
        SendQueue {
            rate: Rate::default(),
            level_bytes: 0,
            sampled_at: now,
            given_bytes: 0,
            told_given_bytes: 0,
            measured_from: now,
            measured_bytes: 0,
            interval_from: now,
            interval_bytes: 0,
            interval_underrun: false,
            acked: Acked::default(),
            gauge: Gauge::default(),
            burst: Burst::default(),
            unread: Unread::default(),
            share_bytes: u64::MAX,
            rtt_us: 0,
            most_bytes: u64::MAX,
            unsettled: false,
            awaits_glance: false,
            told_bytes: 0,
            writable: false,
            short: false,
        }
    }

    /// A connection that another machine gave away, of which this rate is believed.
    pub fn adopted(rate: BelievedRate, now: Instant) -> SendQueue {
        SendQueue {
            rate: Rate::believed(rate),
            ..SendQueue::new(now)
        }
    }

    /// What is believed of its rate, for another machine.
    pub fn believed(&self) -> BelievedRate {
        self.rate.belief()
    }

    /// What it may hold, unsent and in flight; `None`: send memory is not divided.
    pub fn share(&mut self, grant: Option<Grant>) {
        self.share_bytes = grant.map_or(u64::MAX, |grant| counted_bytes(grant.share_bytes));
        self.rtt_us = grant.map_or(0, |grant| grant.rtt_us);
    }

    /// The level of the socket before it is offered more: it holds `held_bytes`, unsent and in flight.
    pub fn socket_level(&mut self, held_bytes: u64, now: Instant) {
        self.acked.socket_level(held_bytes, now);
    }

    /// What it holds, if its share bounds that and it was looked at.
    fn held_bytes(&self) -> Option<u64> {
        let held_bytes = self.acked.held_bytes();
        held_bytes.filter(|_| self.share_bytes < u64::MAX)
    }

    /// Whether its client reads at a pace of its own.
    pub fn is_own_pace(&self) -> bool {
        self.rate.is_own_pace()
    }

    /// Whether it is worth a long margin: its client reads at its own pace, and the bytes come from memory that it does
    /// not use up.
    pub fn is_steady(&self) -> bool {
        self.rate.is_own_pace() && !self.short
    }

    /// Whether the path limits the client, by TCP's counters.
    pub fn is_of_path(&self) -> bool {
        self.rate.is_of_path()
    }

    /// B_n, bytes per second; 0: not known yet.
    pub fn rate_bytes_per_s(&self) -> u64 {
        self.rate.send_bytes_per_s()
    }

    /// What the connection has and takes, for the stage that fetches its bytes. `full`: its socket takes no more.
    pub fn supply(&self, full: bool, now: Instant) -> Supply {
        let rate_bytes_per_s = self.rate.prefetch_bytes_per_s();
        let level_bytes = self.level_at(rate_bytes_per_s, now);
        Supply {
            socket_bytes: self.at_most_told(level_bytes),
            rate_bytes_per_s,
            unread_us: self.unread.lasts_us(self.rate.most_bytes_per_s(), now),
            full,
        }
    }

    /// The socket took all of the `taken_bytes` that it was offered, and holds `unsent_bytes` now.
    ///
    /// If it was empty although half of what it held should have been left, its client is at least twice as fast as was
    /// believed; how much faster is unknown, since it had nothing to take. (Less than half may be the client's own
    /// buffer, which takes some at once.)
    pub fn taken(&mut self, taken_bytes: u64, unsent_bytes: u64, now: Instant) {
        let half_bytes = (self.level_bytes + self.given_bytes) / 2;
        let unbelieved = self.level_bytes(now) >= half_bytes.max(UNBELIEVED_BYTES_MIN);
        // All that a share allows is in flight, whatever the rate.
        let in_flight = 2 * half_bytes >= self.share_bytes / 2;
        self.given(taken_bytes, now);
        let underrun = unsent_bytes <= taken_bytes;
        self.sampled(unsent_bytes, underrun, now);
        if underrun && unbelieved && !in_flight {
            self.rate.raise();
        }
    }

    /// The socket holds `unsent_bytes` now and was given nothing: the rate is measured.
    pub fn seen(&mut self, unsent_bytes: u64, now: Instant) {
        self.sampled(unsent_bytes, unsent_bytes == 0, now);
    }

    /// A sample: the socket holds `unsent_bytes` now. `underrun`: it held nothing at some time since the last sample.
    fn sampled(&mut self, unsent_bytes: u64, underrun: bool, now: Instant) {
        match self.held_bytes() {
            Some(_) => self.acked.looked(underrun, self.rtt_us, &mut self.rate),
            None => self.measure_unsent(unsent_bytes, underrun, now),
        }
        (self.level_bytes, self.given_bytes, self.sampled_at) = (unsent_bytes, 0, now);
        self.told_given_bytes = 0;
        self.writable = false;
    }

    /// The rate by what left the unsent queue.
    fn measure_unsent(&mut self, unsent_bytes: u64, underrun: bool, now: Instant) {
        let had_bytes = self.level_bytes + self.given_bytes;
        self.interval_bytes += had_bytes.saturating_sub(unsent_bytes);
        self.interval_underrun |= underrun;
        let unknown = self.rate.prefetch_bytes_per_s() == 0;
        if underrun && unknown && self.interval_bytes < FIRST_SAMPLE_BYTES_MIN {
            // A first rate is measured from the moment when there is something to take.
            (
                self.interval_from,
                self.interval_bytes,
                self.interval_underrun,
            ) = (now, 0, false);
        }
        let us = now.since_us(self.interval_from);
        if self
            .rate
            .interval(self.interval_bytes, us, self.interval_underrun)
        {
            (
                self.interval_from,
                self.interval_bytes,
                self.interval_underrun,
            ) = (now, 0, false);
        }
        let us = now.since_us(self.measured_from);
        let taken_bytes = self.measured_bytes.saturating_sub(unsent_bytes);
        if self.rate.sample(taken_bytes, us, underrun) {
            (self.measured_from, self.measured_bytes) = (now, unsent_bytes);
        }
    }

    /// The path is congested. For prefetch, the rate is measured anew from the last sample on, and is at most
    /// `most_bytes_per_s` if that is known.
    pub fn congest(&mut self, most_bytes_per_s: Option<u64>) {
        if self.rate.congest(most_bytes_per_s) {
            self.gauge.begin_anew();
            self.acked.turn(AckedFor::Prefetch);
            (
                self.interval_from,
                self.interval_bytes,
                self.interval_underrun,
            ) = (self.sampled_at, 0, false);
        }
    }

    /// The socket has become writable: less is left in it than the level that the kernel was told.
    pub fn became_writable(&mut self) {
        self.writable = true;
        self.awaits_glance = self.is_of_interest();
    }

    /// The level up to which the socket is filled.
    pub fn fill_bytes(&self, target: Target) -> u64 {
        match self.rate.send_bytes_per_s() {
            0 => u64::from(LOWAT_BYTES_START).min(self.share_bytes),
            rate => bytes_in(target.us + EPOLLOUT_US, rate)
                .max(self.epollout_bytes() + target.least_bytes)
                .max(self.steady_bytes(target))
                .min(LOWAT_BYTES_MAX.into())
                .min(self.most_bytes)
                .min(self.share_bytes),
        }
    }

    /// Whether a level is as high as the socket may be filled while its rate is a guess.
    fn is_bounded(&self, level_bytes: u64) -> bool {
        level_bytes >= self.most_bytes / 2
    }

    fn steady_bytes(&self, target: Target) -> u64 {
        match self.is_steady() {
            true => target.steady_bytes(self.rate.send_bytes_per_s()),
            false => 0,
        }
    }

    /// A full socket becomes writable when less than this is left.
    fn epollout_bytes(&self) -> u64 {
        bytes_in(EPOLLOUT_US, self.rate.send_bytes_per_s())
            .clamp(EPOLLOUT_BYTES_MIN, u64::from(LOWAT_BYTES_MAX) / 2)
            .min(self.most_bytes / 2)
            .min(self.share_bytes / 2)
    }

    /// How long a full socket lasts until it becomes writable; `None` while B_n is not known.
    fn lasts_us(&self, target: Target) -> Option<u64> {
        let rate = self.rate.send_bytes_per_s();
        let least_bytes = target.least_bytes.max(self.steady_bytes(target));
        (rate > 0).then(|| target.us.max(us_for(least_bytes, rate)))
    }

    /// How much the socket should take now.
    ///
    /// `own_bytes`: the bytes were read for this connection alone, and the socket takes at least this many. They go in
    /// as soon as possible, and the socket becomes writable when half of them are left, since others wait for their
    /// memory. `rest_bytes`: what is left of the response.
    pub fn refill(
        &mut self,
        own_bytes: Option<u64>,
        rest_bytes: u64,
        target: Target,
        now: Instant,
    ) -> Refill {
        self.short = own_bytes.is_some() || rest_bytes <= STEADY_BYTES_MAX;
        self.burst.share(target.beyond_bytes);
        self.most_bytes = self.most_bytes(self.level_bytes(now));
        let fill_bytes = self.fill_bytes(target);
        let room_bytes = fill_bytes.saturating_sub(self.level_bytes(now));
        let known = self.rate.send_bytes_per_s() > 0;
        let (up_to_bytes, epollout_bytes) = match own_bytes.filter(|_| known) {
            Some(own_bytes) => {
                let bytes = own_bytes.min(self.share_bytes).max(fill_bytes);
                (Some(bytes), bytes / 2)
            }
            None if !known => (Some(fill_bytes), fill_bytes / 2),
            // A prediction by a guess says nothing, so the kernel is asked.
            None if room_bytes < ROOM_BYTES_MIN || fill_bytes == self.most_bytes => {
                (Some(fill_bytes), self.epollout_bytes())
            }
            None => (None, self.epollout_bytes()),
        };
        self.told_bytes = epollout_bytes;
        Refill {
            bytes: up_to_bytes.map_or(room_bytes, |_| u64::MAX),
            lowat_bytes: up_to_bytes.map_or(LOWAT_BYTES_MAX, |bytes| bytes as u32),
            epollout_bytes: epollout_bytes as u32, // both at most LOWAT_BYTES_MAX
        }
    }

    /// What it may hold while its rate is a guess.
    fn most_bytes(&self, level_bytes: u64) -> u64 {
        let guess = !self.rate.is_counted();
        let most_bytes = guess.then(|| self.burst.most_bytes(level_bytes)).flatten();
        most_bytes.unwrap_or(u64::MAX)
    }

    /// D1 as predicted for now.
    pub fn level_bytes(&self, now: Instant) -> u64 {
        self.at_most_told(self.level_at(self.rate.send_bytes_per_s(), now))
    }

    /// A predicted level, bounded by what the kernel has reported since.
    fn at_most_told(&self, level_bytes: u64) -> u64 {
        match self.writable {
            true => level_bytes.min(self.told_bytes),
            false => level_bytes,
        }
    }

    fn level_at(&self, rate_bytes_per_s: u64, now: Instant) -> u64 {
        let taken_bytes = bytes_in(now.since_us(self.sampled_at), rate_bytes_per_s);
        (self.level_bytes + self.given_bytes).saturating_sub(taken_bytes)
    }

    /// T_n, the time for which the socket has bytes; `None` while B_n is not known.
    pub fn margin_us(&self, now: Instant) -> Option<u64> {
        let rate = self.rate.send_bytes_per_s();
        (rate > 0).then(|| us_for(self.level_bytes(now), rate))
    }

    /// A response begins. Time with nothing to take counts for no rate.
    pub fn begin(&mut self, now: Instant) {
        if self.level_bytes(now) == 0 {
            (self.level_bytes, self.given_bytes, self.sampled_at) = (0, 0, now);
            self.told_given_bytes = 0;
            (self.measured_from, self.measured_bytes) = (now, 0);
            (
                self.interval_from,
                self.interval_bytes,
                self.interval_underrun,
            ) = (now, 0, false);
            self.gauge.begin_anew();
            self.acked.begin_anew();
            self.unread = Unread::default();
        }
    }

    /// The socket took bytes.
    pub fn given(&mut self, bytes: u64, now: Instant) {
        if bytes > 0 {
            self.gauge.given(now);
            self.unsettled = true;
        }
        self.burst.given(bytes);
        self.unread.given(bytes);
        self.acked.given(bytes);
        self.given_bytes += bytes;
        self.measured_bytes += bytes;
        self.writable = false;
    }

    /// What the socket took since the last sample, or since this was last asked, if that is later: a unix socket has no
    /// samples.
    pub fn tell_given_bytes(&mut self) -> u64 {
        let bytes = self.given_bytes - self.told_given_bytes;
        self.told_given_bytes = self.given_bytes;
        bytes
    }

    /// The socket is full and holds `unsent_bytes` (SIOCOUTQNSD) now: the rate is measured. `true` if by the new rate
    /// its fill is more than a quarter higher.
    pub fn full(&mut self, unsent_bytes: u64, target: Target, now: Instant) -> bool {
        let before_bytes = self.fill_bytes(target);
        self.sampled(unsent_bytes, unsent_bytes <= self.given_bytes, now);
        self.fill_bytes(target) * 4 > before_bytes * 5
    }

    /// Whether to top up the connection along with another: it would become writable before `until`. One whose share is nearly
    /// full has no room for more until its client acknowledges, and nothing predicts when EPOLLOUT fires for it.
    pub fn joins(&self, until: Instant) -> bool {
        let share_is_full =
            (self.held_bytes()).is_some_and(|bytes| bytes >= self.share_bytes / 4 * 3);
        let known = self.rate.send_bytes_per_s() > 0;
        known && !share_is_full && self.level_bytes(until) <= self.epollout_bytes()
    }
}

#[cfg(test)]
mod tests;
