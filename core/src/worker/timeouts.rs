//! Every time limit of a connection: what it waits for, and how long that may take.
//!
//! A paused player is not dead: a closed window with answered probes may last `pause_timeout`. A client that neither
//! reads nor answers gets `send_timeout`. One that reads drop by drop has to keep `rate_min`. While we owe the client
//! bytes from the disk, no limit runs.

use super::ConnPhase;
use super::Settings;
use crate::conn::TcpSample;
use crate::limits::{
    LINGER_QUIET_US, LINGER_US, PROBES_UNANSWERED_MAX, RATE_MIN_WINDOW_US, SAMPLE_QUIET_US,
};
use crate::units::{Instant, US_PER_S};
use crate::why::Why;

/// What to do about a connection now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeoutVerdict {
    /// Nothing.
    Patient,
    /// Take a TCP_INFO sample, then decide.
    Measure,
    /// Receive what has arrived, then decide.
    Look,
    /// A limit has run out.
    End(Why),
}

/// The clocks of one connection.
pub(super) struct Timeouts {
    /// Since when the connection is in its current phase.
    since: Instant,
    /// The client owes us a request head: it has begun one, or the connection is new.
    owes_head: bool,
    /// No byte has arrived yet.
    silent: bool,
    /// Last progress in what the current phase waits for.
    moved_at: Instant,
    /// Last sign of life: progress, or a closed window whose probes are answered.
    alive_at: Instant,
    /// The last TCP_INFO sample.
    measured_at: Instant,
    /// When input was last discarded. That is no sign of progress: a client that keeps sending without reading the
    /// answer gets no more time for it.
    skipped_at: Instant,
    /// When a receive last left no input behind.
    emptied_at: Instant,
    /// When everything was acknowledged while lingering.
    delivered_at: Option<Instant>,
    /// All bytes that were ever given to the socket, and those of them that its client has acknowledged.
    sent_bytes: u64,
    acked_bytes: u64,
    /// Start of the current interval of `RATE_MIN_WINDOW_US`, and what was acknowledged before it.
    interval: (Instant, u64),
    /// When it was last judged how fast a client takes that closes its window again and again, and what was
    /// acknowledged by then.
    judged: (Instant, u64),
    /// It was too slow then. That may have been the rest of what it took before a pause.
    trickles: bool,
    /// The limits that the operator has set.
    settings: Limits,
}

/// The limits that a TCP_INFO sample is compared with.
#[derive(Clone, Copy)]
struct Limits {
    send_timeout_us: u64,
    pause_timeout_us: u64,
    rate_min_bytes_per_s: u64,
}

impl Timeouts {
    pub fn new(settings: &Settings, now: Instant) -> Timeouts {
        Timeouts {
            since: now,
            owes_head: true,
            silent: true,
            moved_at: now,
            alive_at: now,
            measured_at: now,
            skipped_at: now,
            emptied_at: Instant::default(),
            delivered_at: None,
            sent_bytes: 0,
            acked_bytes: 0,
            interval: (now, 0),
            judged: (now, 0),
            trickles: false,
            settings: Limits {
                send_timeout_us: settings.send_timeout_us,
                pause_timeout_us: settings.pause_timeout_us,
                rate_min_bytes_per_s: settings.rate_min_bytes_per_s,
            },
        }
    }

    /// A connection that another machine gave away. Being handed over counts as progress.
    pub fn adopted(
        settings: &Settings,
        sent_bytes: u64,
        acked_bytes: u64,
        now: Instant,
    ) -> Timeouts {
        Timeouts {
            sent_bytes,
            acked_bytes,
            interval: (now, acked_bytes),
            ..Timeouts::new(settings, now)
        }
    }

    /// What the client of an adopted connection owed already, and for how long.
    pub fn was(&mut self, silent: bool, owes_head: bool, for_us: u64, now: Instant) {
        (self.silent, self.owes_head) = (silent, owes_head);
        self.since = now.minus_us(for_us);
    }

    /// How long the connection has been in its phase.
    pub fn for_us(&self, now: Instant) -> u64 {
        now.since_us(self.since)
    }

    /// The first bytes of a head have arrived. On a new connection the clock runs on.
    pub fn head_begun(&mut self, now: Instant) {
        self.silent = false;
        if !self.owes_head {
            (self.owes_head, self.since) = (true, now);
        }
    }

    /// A whole request head has arrived.
    pub fn head_ended(&mut self) {
        (self.owes_head, self.silent) = (false, false);
    }

    /// A response begins: the client has its time anew.
    pub fn response_begun(&mut self, now: Instant) {
        (self.since, self.measured_at) = (now, now);
        self.moved(now);
        self.interval = (now, self.acked_bytes);
        self.judge(false, now);
    }

    /// A response has ended.
    pub fn response_ended(&mut self, now: Instant) {
        self.since = now;
        self.moved(now);
    }

    /// The socket took bytes.
    pub fn sent(&mut self, taken_bytes: u64, now: Instant) {
        self.sent_bytes += taken_bytes;
        if taken_bytes > 0 {
            self.moved(now);
        }
    }

    /// Input was discarded.
    pub fn skipped(&mut self, now: Instant) {
        self.skipped_at = now;
    }

    /// A receive has left no input behind.
    pub fn emptied(&mut self, now: Instant) {
        self.emptied_at = now;
    }

    /// There is progress.
    fn moved(&mut self, now: Instant) {
        (self.moved_at, self.alive_at) = (now, now);
    }

    /// Our FIN is out: from now on the connection lingers.
    pub fn linger(&mut self, now: Instant) {
        (self.since, self.delivered_at) = (now, None);
        self.moved(now);
        self.interval = (now, self.acked_bytes);
        self.judge(false, now);
    }

    /// Whether the client owes us nothing: it is between two requests.
    pub fn idle(&self) -> bool {
        !self.owes_head
    }

    /// Since when no byte has arrived on a new connection: a browser that connects in advance, or a balancer's health
    /// check. `None`: one has.
    pub fn silent_since(&self) -> Option<Instant> {
        self.silent.then_some(self.since)
    }

    /// When [`Timeouts::verdict`] may differ from [`TimeoutVerdict::Patient`]; `None` while no limit runs.
    pub fn check_at(&self, phase: ConnPhase, settings: &Settings) -> Option<Instant> {
        let at = match phase {
            ConnPhase::Open if self.owes_head => self.since.plus_us(settings.header_timeout_us),
            ConnPhase::Open => self.since.plus_us(settings.idle_timeout_us),
            ConnPhase::Resolving => return None,
            ConnPhase::Skipping { .. } => self.since.plus_us(settings.header_timeout_us),
            ConnPhase::Sending => {
                let quiet_at = self.moved_at.max(self.measured_at).plus_us(SAMPLE_QUIET_US);
                let limit_us = (self.settings.send_timeout_us).min(self.settings.pause_timeout_us);
                let interval_ends_at = self.interval.0.plus_us(RATE_MIN_WINDOW_US);
                quiet_at
                    .min(self.moved_at.plus_us(limit_us))
                    .min(interval_ends_at)
            }
            ConnPhase::Lingering { .. } => match self.delivered_at {
                None => self.since,
                Some(at) => {
                    let quiet_at = at.max(self.skipped_at).plus_us(LINGER_QUIET_US);
                    quiet_at.min(at.plus_us(LINGER_US))
                }
            },
        };
        Some(at)
    }

    /// Has this connection been in its phase for too long?
    pub fn verdict(&self, phase: ConnPhase, settings: &Settings, now: Instant) -> TimeoutVerdict {
        let Some(at) = self.check_at(phase, settings).filter(|at| *at <= now) else {
            return TimeoutVerdict::Patient;
        };
        match phase {
            ConnPhase::Open if self.owes_head => self.ended(Why::HeaderTimeout, at),
            ConnPhase::Open => self.ended(Why::Idle, at),
            ConnPhase::Skipping { .. } => self.ended(Why::Done, at), // the answer is out
            ConnPhase::Lingering { .. } if self.delivered_at.is_some() => self.ended(Why::Done, at),
            ConnPhase::Sending | ConnPhase::Lingering { .. } => TimeoutVerdict::Measure,
            ConnPhase::Resolving => TimeoutVerdict::Patient,
        }
    }

    /// A limit ran out at this time. What had arrived by then counts, however late we are to look: the limit ends the
    /// connection once a receive has found no more of it since.
    pub fn ended(&self, why: Why, at: Instant) -> TimeoutVerdict {
        match self.emptied_at < at {
            true => TimeoutVerdict::Look,
            false => TimeoutVerdict::End(why),
        }
    }

    /// The verdict by a TCP_INFO sample. Only for a connection that lingers or has a response under way.
    pub fn sampled(&mut self, phase: ConnPhase, sample: TcpSample, now: Instant) -> TimeoutVerdict {
        self.measured_at = now;
        let acked_bytes = self
            .acked_bytes
            .max(self.sent_bytes.saturating_sub(sample.unacked_bytes));
        let took = acked_bytes > self.acked_bytes;
        let moved = took || sample.unacked_bytes == 0;
        self.acked_bytes = acked_bytes;
        match phase {
            ConnPhase::Sending => {}
            ConnPhase::Lingering { .. } if sample.unacked_bytes > 0 => {}
            ConnPhase::Lingering { .. } => {
                self.delivered_at.get_or_insert(now);
                return TimeoutVerdict::Patient;
            }
            ConnPhase::Open | ConnPhase::Resolving | ConnPhase::Skipping { .. } => {
                return TimeoutVerdict::Patient;
            }
        }
        if moved {
            self.moved(now);
        }
        if sample.unacked_bytes == 0 {
            self.interval = (now, acked_bytes); // it waits for us: not the client's fault
            self.judge(false, now);
            return TimeoutVerdict::Patient;
        }
        if sample.window_closed && sample.probes_unanswered <= PROBES_UNANSWERED_MAX {
            self.alive_at = now;
            if now.since_us(self.moved_at) >= self.settings.pause_timeout_us {
                return TimeoutVerdict::End(Why::PauseTimeout);
            }
            return self.pause_kept(took, now);
        }
        if now.since_us(self.alive_at) >= self.settings.send_timeout_us {
            return TimeoutVerdict::End(Why::SendTimeout);
        }
        self.rate_kept(now)
    }

    /// The client's window is closed. A pause is excused; a client that reads drop by drop, and closes its window between
    /// two drops, is not. It is judged when it has just taken something, over all the time since it was judged last.
    fn pause_kept(&mut self, took: bool, now: Instant) -> TimeoutVerdict {
        self.interval = (now, self.acked_bytes);
        let (from, before_bytes) = self.judged;
        let took_us = now.since_us(from);
        if !took || took_us < RATE_MIN_WINDOW_US {
            return TimeoutVerdict::Patient;
        }
        let slow = self.is_slow(self.acked_bytes - before_bytes, took_us);
        let before = self.judge(slow, now);
        match slow && before {
            true => TimeoutVerdict::End(Why::TooSlow),
            false => TimeoutVerdict::Patient,
        }
    }

    /// Notes that the client was too slow, or was not. Returns what was noted before.
    fn judge(&mut self, slow: bool, now: Instant) -> bool {
        self.judged = (now, self.acked_bytes);
        core::mem::replace(&mut self.trickles, slow)
    }

    /// Whether a client that took so much in this time is below the least rate.
    fn is_slow(&self, acked_bytes: u64, us: u64) -> bool {
        let got = u128::from(acked_bytes) * u128::from(US_PER_S);
        got < u128::from(self.settings.rate_min_bytes_per_s) * u128::from(us)
    }

    /// At the end of an interval: was the client fast enough?
    fn rate_kept(&mut self, now: Instant) -> TimeoutVerdict {
        let (from, before_bytes) = self.interval;
        let took_us = now.since_us(from);
        if took_us < RATE_MIN_WINDOW_US {
            return TimeoutVerdict::Patient;
        }
        self.interval = (now, self.acked_bytes);
        if self.is_slow(self.acked_bytes - before_bytes, took_us) {
            return TimeoutVerdict::End(Why::TooSlow);
        }
        self.judge(false, now);
        TimeoutVerdict::Patient
    }
}
