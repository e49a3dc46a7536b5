//! Which socket is given bytes to send, and when: TPF's IDSR, clocked by the kernel's ACK path.
//!
//! A socket is filled with what its client takes in T ([`rounds::Target`]) plus [`EPOLLOUT_US`]. Then the kernel is told to
//! make it writable again when only that rest is left ([`Refill`]). This needs no timer, and works whatever the rate has
//! become. One such notification tops up *every* socket that would become writable before the next round. So a worker
//! wakes about once in T, however many connections it has.
//!
//! This file follows one socket. [`rounds`] sets the target for all of them, and [`control`] decides for all of this:
//! everything else goes through it.
//!
//! To *fill* a socket means to give it bytes up to its target, [`SendQueue::fill_bytes`].

pub mod control;
pub mod rounds;
mod supply;

use self::rounds::Target;
pub use self::supply::Supply;
use crate::conn::TcpSample;
use crate::limits::{
    EPOLLOUT_BYTES_MIN, EPOLLOUT_US, FLOW_SAMPLE_US_MAX, INTERVAL_US_MIN, LOWAT_BYTES_MAX,
    LOWAT_BYTES_START, ROOM_BYTES_MIN, STEADY_BYTES_MAX,
};
use crate::prefetch::us_for;
use crate::rate::{BelievedRate, Rate};
use crate::units::{Instant, KIB, bytes_in};

/// The least cap: two segments of an Ethernet. With less each segment waits for a delayed ACK, and the kernel takes a
/// TCP_NOTSENT_LOWAT of 0 as no bound. A smaller one counts as this.
pub const CAP_BYTES_MIN: u64 = 2 * 1_448;

/// An empty socket says something about its client only if more than this should still be in it.
const UNBELIEVED_BYTES_MIN: u64 = 4 * KIB;

/// The unsent bytes in the socket of one connection (D1, its send margin), and how fast its client takes them (B_n).
#[derive(Clone, Copy, Debug)]
pub struct SendQueue {
    rate: Rate,
    /// All bytes given to the socket.
    given_bytes: u64,
    /// Those of them that had left it at the last sample. The others are D1.
    gone_bytes: u64,
    /// Those of them that its client had acknowledged when it was last offered more under a cap; `None`: it never was.
    acked_bytes: Option<u64>,
    sampled_at: Instant,
    /// Those that were given by the last sample, or until it was last full.
    given_before_bytes: u64,
    /// The most that it may hold, unsent and in flight; `u64::MAX`: the kernel decides.
    cap_bytes: u64,
    /// What it may hold unsent while its rate is a guess: as much as is in flight, one congestion window, or its part of the budget.
    most_bytes: u64,
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
            given_bytes: 0,
            gone_bytes: 0,
            acked_bytes: None,
            sampled_at: now,
            given_before_bytes: 0,
            cap_bytes: u64::MAX,
            most_bytes: u64::MAX,
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

    /// What it may hold, unsent and in flight, at least [`CAP_BYTES_MIN`]; `None`: as much as the kernel lets it.
    pub fn cap(&mut self, cap_bytes: Option<u64>) {
        let cap_bytes = cap_bytes.map_or(u64::MAX, |bytes| bytes.max(CAP_BYTES_MIN));
        if (cap_bytes < u64::MAX) != (self.cap_bytes < u64::MAX) {
            self.acked_bytes = None;
            self.rate.begin_anew(); // other bytes count from now on
        }
        self.cap_bytes = cap_bytes;
    }

    /// The level of the socket before it is offered more: it holds `held_bytes`, unsent and in flight.
    pub fn socket_level(&mut self, held_bytes: u64) {
        self.given_bytes = self.given_bytes.max(held_bytes);
        self.acked_bytes = Some(self.given_bytes - held_bytes);
    }

    /// What it holds, if a cap bounds that and it was looked at.
    fn held_bytes(&self) -> Option<u64> {
        let acked_bytes = self.acked_bytes.filter(|_| self.cap_bytes < u64::MAX)?;
        Some(self.given_bytes - acked_bytes)
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
        self.rate.bytes_per_s()
    }

    /// What the connection has and takes, for the stage that fetches its bytes. `full`: its socket takes no more.
    pub fn supply(&self, full: bool, now: Instant) -> Supply {
        let rate_bytes_per_s = match self.rate.is_guess() {
            true => 0,
            false => self.rate.bytes_per_s(),
        };
        let level_bytes = self.level_at(rate_bytes_per_s, now);
        Supply {
            socket_bytes: self.at_most_told(level_bytes),
            rate_bytes_per_s,
            full,
        }
    }

    /// The socket took all of the `taken_bytes` that it was offered, and holds `unsent_bytes` now.
    ///
    /// If it was empty although half of what it held should have been left, its client is at least twice as fast as was
    /// believed; how much faster is unknown, since it had nothing to take. (Less than half may be the client's own
    /// buffer, which takes some at once.)
    pub fn taken(&mut self, taken_bytes: u64, unsent_bytes: u64, now: Instant) {
        let half_bytes = (self.given_bytes - self.gone_bytes) / 2;
        let unbelieved = self.level_bytes(now) >= half_bytes.max(UNBELIEVED_BYTES_MIN);
        // All that a cap allows is in flight, whatever the rate.
        let in_flight = 2 * half_bytes >= self.cap_bytes / 2;
        self.given(taken_bytes);
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
        self.given_bytes = self.given_bytes.max(unsent_bytes);
        self.gone_bytes = self.given_bytes - unsent_bytes;
        self.given_before_bytes = self.given_bytes;
        (self.sampled_at, self.writable) = (now, false);
        // Under a cap bytes go in flight as they are given, however slow the client is. What it acknowledges counts.
        match self.acked_bytes {
            _ if self.cap_bytes == u64::MAX => self.rate.look(self.gone_bytes, underrun, now),
            Some(acked_bytes) => self.rate.look(acked_bytes, false, now),
            None => {}
        }
    }

    /// A sample of TCP's counters. While its rate is a guess, the socket holds `guess_bytes` at most.
    pub fn counted(&mut self, sample: &TcpSample, guess_bytes: u64, now: Instant) {
        if let Some(flow) = sample.flow {
            let most_bytes = guess_bytes.min(sample.path.cwnd_bytes);
            self.most_bytes = most_bytes.max(LOWAT_BYTES_START.into());
            self.rate.count(flow, now);
        }
    }

    /// Whether a sample of TCP's counters is wanted as soon as the socket is full: there was none yet, or its rate is a guess and
    /// its level bounded by what the last one told.
    pub fn wants_counters(&self) -> bool {
        let is_bounded = self.given_bytes - self.gone_bytes >= self.most_bytes / 2;
        !self.rate.is_counted() || !self.rate.is_sampled() && is_bounded
    }

    /// Whether another sample of TCP's counters says more than the level of the socket does.
    pub fn is_of_interest(&self) -> bool {
        self.rate.is_counted() && !self.rate.is_of_path()
    }

    /// When to sample a socket that does not become writable: before its level is a guess from an old rate, and while its client
    /// reads without telling. `watched_at`: when TCP was asked last.
    pub fn sample_at(&self, watched_at: Instant) -> Option<Instant> {
        let holds = self.given_bytes > self.gone_bytes;
        let us = match self.rate.is_own_pace() && self.rate.is_sampled() {
            true => FLOW_SAMPLE_US_MAX,
            false => INTERVAL_US_MIN,
        };
        let at = match self.is_of_interest() {
            true => watched_at,
            false => self.sampled_at,
        };
        holds.then(|| at.plus_us(us))
    }

    /// The path is congested, and carries at most `most_bytes_per_s` if that is known.
    pub fn congest(&mut self, most_bytes_per_s: Option<u64>) {
        self.rate.congest(most_bytes_per_s);
    }

    /// The socket has become writable: less is left in it than the level that the kernel was told.
    pub fn became_writable(&mut self) {
        self.writable = true;
    }

    /// The level up to which the socket is filled.
    pub fn fill_bytes(&self, target: Target) -> u64 {
        match self.rate.bytes_per_s() {
            0 => u64::from(LOWAT_BYTES_START).min(self.cap_bytes),
            rate => bytes_in(target.us + EPOLLOUT_US, rate)
                .max(self.epollout_bytes() + target.least_bytes)
                .max(self.steady_bytes(target))
                .min(LOWAT_BYTES_MAX.into())
                .min(self.guess_bytes())
                .min(self.cap_bytes),
        }
    }

    /// What it may hold while its rate is a guess.
    fn guess_bytes(&self) -> u64 {
        match self.rate.is_sampled() {
            true => u64::MAX,
            false => self.most_bytes,
        }
    }

    fn steady_bytes(&self, target: Target) -> u64 {
        match self.is_steady() {
            true => target.steady_bytes(self.rate.bytes_per_s()),
            false => 0,
        }
    }

    /// A full socket becomes writable when less than this is left.
    fn epollout_bytes(&self) -> u64 {
        bytes_in(EPOLLOUT_US, self.rate.bytes_per_s())
            .clamp(EPOLLOUT_BYTES_MIN, u64::from(LOWAT_BYTES_MAX) / 2)
            .min(self.guess_bytes() / 2)
            .min(self.cap_bytes / 2)
    }

    /// How long a full socket lasts until it becomes writable; `None` while B_n is not known.
    fn lasts_us(&self, target: Target) -> Option<u64> {
        let rate = self.rate.bytes_per_s();
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
        let fill_bytes = self.fill_bytes(target);
        let room_bytes = fill_bytes.saturating_sub(self.level_bytes(now));
        let known = self.rate.bytes_per_s() > 0;
        let (up_to_bytes, epollout_bytes) = match own_bytes.filter(|_| known) {
            Some(own_bytes) => {
                let bytes = own_bytes.min(self.cap_bytes).max(fill_bytes);
                (Some(bytes), bytes / 2)
            }
            None if !known => (Some(fill_bytes), fill_bytes / 2),
            // A prediction by a guess says nothing, so the kernel is asked.
            None if room_bytes < ROOM_BYTES_MIN || fill_bytes == self.guess_bytes() => {
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

    /// D1 as predicted for now.
    pub fn level_bytes(&self, now: Instant) -> u64 {
        self.at_most_told(self.level_at(self.rate.bytes_per_s(), now))
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
        (self.given_bytes - self.gone_bytes).saturating_sub(taken_bytes)
    }

    /// T_n, the time for which the socket has bytes; `None` while B_n is not known.
    pub fn margin_us(&self, now: Instant) -> Option<u64> {
        let rate = self.rate.bytes_per_s();
        (rate > 0).then(|| us_for(self.level_bytes(now), rate))
    }

    /// A response begins. Time with nothing to take counts for no rate.
    pub fn begin(&mut self, now: Instant) {
        if self.level_bytes(now) == 0 {
            (self.gone_bytes, self.sampled_at) = (self.given_bytes, now);
            self.given_before_bytes = self.given_bytes;
            self.rate.begin_anew();
            self.rate.look(self.given_bytes, false, now);
        }
    }

    /// The socket took bytes.
    pub fn given(&mut self, bytes: u64) {
        self.given_bytes += bytes;
        self.writable = false;
    }

    /// What the socket took since the last sample, or since it was last full, if that is later.
    pub fn given_since_bytes(&self) -> u64 {
        self.given_bytes - self.given_before_bytes
    }

    /// The socket is full, and nobody knows what it holds: it is a unix socket.
    pub fn full_unknown(&mut self) {
        self.given_before_bytes = self.given_bytes;
    }

    /// The socket is full and holds `unsent_bytes` (SIOCOUTQNSD) now: the rate is measured. `true` if by the new rate
    /// its fill is more than a quarter higher.
    pub fn full(&mut self, unsent_bytes: u64, target: Target, now: Instant) -> bool {
        let before_bytes = self.fill_bytes(target);
        let underrun = unsent_bytes <= self.given_since_bytes();
        self.sampled(unsent_bytes, underrun, now);
        self.fill_bytes(target) * 4 > before_bytes * 5
    }

    /// Whether to top up the connection along with another: it would become writable before `until`. One that holds nearly
    /// its cap has no room for more until its client acknowledges, and nothing predicts when EPOLLOUT fires for it.
    pub fn joins(&self, until: Instant) -> bool {
        let cap_is_reached =
            (self.held_bytes()).is_some_and(|bytes| bytes >= self.cap_bytes / 4 * 3);
        let known = self.rate.bytes_per_s() > 0;
        known && !cap_is_reached && self.level_bytes(until) <= self.epollout_bytes()
    }
}

#[cfg(test)]
mod tests;
