//! What TCP's counters tell of a client that reads at its own pace, and when they are wanted.

use super::SendQueue;
use crate::conn::TcpSample;
use crate::limits::{GUESS_SAMPLE_US, INTERVAL_US_MIN};
use crate::units::Instant;

impl SendQueue {
    /// Whether TCP's counters were ever sampled.
    pub fn is_counted(&self) -> bool {
        self.gauge.sampled_at().is_some()
    }

    /// Whether another sample of TCP's counters says more than the level of the socket does.
    pub fn is_of_interest(&self) -> bool {
        self.is_counted() && !self.rate.is_of_path()
    }

    /// Whether a sample of TCP's counters is wanted as soon as the socket is full: there was none yet, or what the socket
    /// holds was bounded by what the last one told.
    pub fn wants_counters(&self) -> bool {
        !self.is_counted() || self.is_bounded(self.level_bytes + self.given_bytes)
    }

    /// A sample of TCP's counters that was wanted for the client's window alone. `false`: it is to be counted, since it
    /// was wanted for more, or tells more.
    pub fn glanced(&mut self, sample: &TcpSample) -> bool {
        let flow = sample
            .flow
            .filter(|_| core::mem::take(&mut self.awaits_glance));
        let flow = flow.filter(|flow| !self.gauge.is_grown(*flow));
        flow.map(|flow| self.gauge.glance(flow)).is_some()
    }

    /// A sample of TCP's counters.
    pub fn counted(&mut self, sample: &TcpSample, now: Instant) {
        self.burst.sampled(sample);
        // Each filling of a bounded socket asks. Samples that are close together show the steps in which a window opens,
        // and no rate.
        let soon = |at: Instant| now.since_us(at) < GUESS_SAMPLE_US;
        let soon = self.wants_counters() && self.gauge.sampled_at().is_some_and(soon);
        let Some(flow) = sample.flow else {
            return;
        };
        if soon && !self.gauge.is_grown(flow) {
            return self.gauge.glance(flow);
        }
        if let Some(evidence) = self.gauge.sample(flow, now, self.rate.least_us()) {
            self.rate.learn(evidence);
        }
        self.unsettled = self.gauge.has_unread();
        let rate_bytes_per_s = self.rate.most_bytes_per_s();
        let unread_bytes = self.gauge.surely_unread_bytes();
        (self.unread).sampled(unread_bytes, sample.unacked_bytes, rate_bytes_per_s, now);
    }

    /// When to sample a socket that does not become writable: before its level is a guess from an old rate, and while
    /// its client may have something to read.
    pub fn sample_at(&self) -> Option<Instant> {
        let holds = self.level_bytes + self.given_bytes > 0 || self.unsettled;
        let at = match self.is_of_interest() {
            true => self.gauge.sampled_at()?.plus_us(self.gauge.sample_in_us()),
            false => self.sampled_at.plus_us(INTERVAL_US_MIN),
        };
        holds.then_some(at)
    }

    /// Whether TCP's counters are wanted before the socket is filled, since its client's window is widest then.
    pub fn awaits_glance(&self) -> bool {
        self.awaits_glance
    }
}
