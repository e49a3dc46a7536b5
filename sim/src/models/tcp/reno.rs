//! A reno sender that counts in packets (RFC 5681), for worlds in which packets are lost. It always has more to send,
//! and sends what its window and a bound of its caller allow.
//!
//! Paths do not reorder. An ACK for a packet therefore shows that all earlier packets without an ACK are lost (RACK
//! without a reordering window). A window that is not used does not grow (net/ipv4/tcp.h, `tcp_is_cwnd_limited`). Lost
//! data is sent again in a new packet, so only packets are counted.

use crate::models::rto::LinuxSmoothed;
use std::collections::VecDeque;

/// Congestion window at the start, in packets (RFC 6928).
const FIRST_WINDOW: u64 = 10;
/// Timeout before the first round trip (RFC 6298, 2.1).
const FIRST_TIMEOUT_US: u64 = 1_000_000;

/// A sender. Its windows are in packets.
#[derive(Clone, Debug)]
pub struct RenoSender {
    window: u64,
    threshold: u64,
    /// Packets acknowledged since the window grew by one.
    toward_next: u64,
    /// Packets in flight: number and time sent.
    out: VecDeque<(u64, u64)>,
    sent: u64,
    acked: u64,
    loss_events: u32,
    /// A loss before this packet belongs to a loss event that was counted already.
    recovery_until: u64,
    /// The current round trip ends with this packet's ACK.
    round_until: u64,
    /// The most packets in flight in the current round trip.
    most_out: u64,
    smoothed: Option<LinuxSmoothed>,
    rtt_min_us: u64,
    /// When the last ACK came, or the first packet after silence left.
    heard_at_us: u64,
    /// Timeouts in a row, each of which doubles the next.
    backoff: u32,
}

impl Default for RenoSender {
    fn default() -> RenoSender {
        RenoSender {
            window: FIRST_WINDOW,
            threshold: u64::MAX,
            toward_next: 0,
            out: VecDeque::new(),
            sent: 0,
            acked: 0,
            loss_events: 0,
            recovery_until: 0,
            round_until: 0,
            most_out: 0,
            smoothed: None,
            rtt_min_us: u64::MAX,
            heard_at_us: 0,
            backoff: 0,
        }
    }
}

impl RenoSender {
    /// cwnd, in packets.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Packets that it believes to be in flight.
    pub fn in_flight(&self) -> u64 {
        self.out.len() as u64
    }

    /// Packets sent in all.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Packets acknowledged in all.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Number of times that it cut its window.
    pub fn loss_events(&self) -> u32 {
        self.loss_events
    }

    /// Smoothed round trip; 0: not measured yet.
    pub fn rtt_us(&self) -> u64 {
        self.smoothed.map_or(0, |smoothed| smoothed.srtt_us())
    }

    /// The shortest round trip; 0: not measured yet.
    pub fn rtt_min_us(&self) -> u64 {
        self.smoothed.map_or(0, |_| self.rtt_min_us)
    }

    /// The retransmission timeout, without backoff.
    pub fn rto_us(&self) -> u64 {
        self.smoothed
            .map_or(FIRST_TIMEOUT_US, |smoothed| smoothed.rto_us())
    }

    /// Sends a packet, and returns its number.
    pub fn send(&mut self, now_us: u64) -> u64 {
        if self.out.is_empty() {
            self.heard_at_us = now_us;
        }
        let number = self.sent;
        self.out.push_back((number, now_us));
        self.sent += 1;
        self.most_out = self.most_out.max(self.in_flight());
        number
    }

    /// A packet is acknowledged. An ACK for a packet that was declared lost changes nothing.
    pub fn ack(&mut self, number: u64, now_us: u64) {
        let before = self.in_flight();
        let Some(at) = self.out.iter().position(|&(out, _)| out == number) else {
            return;
        };
        let first_lost = self.out.front().filter(|_| at > 0).map(|&(out, _)| out);
        let sent_at_us = self.out[at].1;
        self.out.drain(..=at);
        if number >= self.round_until {
            (self.round_until, self.most_out) = (self.sent, before);
            self.smoothed.iter_mut().for_each(LinuxSmoothed::round);
        }
        self.measure(now_us - sent_at_us);
        (self.heard_at_us, self.backoff) = (now_us, 0);
        self.acked += 1;
        match first_lost {
            Some(lost) if lost >= self.recovery_until => self.cut((self.window / 2).max(2)),
            _ if number < self.recovery_until => {} // repairing
            _ => self.grow(),
        }
    }

    fn measure(&mut self, rtt_us: u64) {
        self.rtt_min_us = self.rtt_min_us.min(rtt_us);
        match &mut self.smoothed {
            Some(smoothed) => smoothed.sample(rtt_us),
            None => self.smoothed = Some(LinuxSmoothed::first(rtt_us)),
        }
    }

    fn grow(&mut self) {
        if self.window < self.threshold {
            // Slow start: as long as more than half of the window is used.
            self.window += u64::from(2 * self.most_out > self.window);
        } else if self.most_out >= self.window {
            self.toward_next += 1;
            if self.toward_next >= self.window {
                (self.window, self.toward_next) = (self.window + 1, 0);
            }
        }
    }

    fn cut(&mut self, to: u64) {
        (self.window, self.threshold, self.toward_next) = (to, to, 0);
        self.recovery_until = self.sent;
        self.loss_events += 1;
    }

    /// When the retransmission timer expires, if no ACK comes.
    pub fn timeout_at_us(&self) -> Option<u64> {
        let us = self.rto_us() << self.backoff;
        (!self.out.is_empty()).then_some(self.heard_at_us + us)
    }

    /// The retransmission timer expires: all packets in flight are declared lost.
    pub fn time_out(&mut self) {
        self.cut((self.in_flight() / 2).max(2));
        self.window = 1;
        self.out.clear();
        self.backoff = (self.backoff + 1).min(6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round trip of 10 ms for all that the window allows, of which `lost` never arrive.
    fn round(sender: &mut RenoSender, now_us: u64, lost: &[u64]) {
        let numbers: Vec<_> = (sender.in_flight()..sender.window())
            .map(|_| sender.send(now_us))
            .collect();
        for number in numbers.iter().filter(|number| !lost.contains(number)) {
            sender.ack(*number, now_us + 10_000);
        }
    }

    #[test]
    fn it_doubles_then_halves_then_grows_by_one() {
        let mut sender = RenoSender::default();
        round(&mut sender, 0, &[]);
        assert_eq!(sender.window(), 20);
        round(&mut sender, 20_000, &[12, 15]);
        assert_eq!(
            (sender.window(), sender.loss_events()),
            (11, 1),
            "two more, one event"
        );
        round(&mut sender, 40_000, &[]);
        round(&mut sender, 60_000, &[]);
        assert_eq!(sender.window(), 13);
        assert_eq!((sender.rtt_us(), sender.rtt_min_us()), (10_000, 10_000));
    }

    #[test]
    fn silence_leaves_a_window_of_one_and_doubles_the_next_timeout() {
        let mut sender = RenoSender::default();
        round(&mut sender, 0, &[]);
        let number = sender.send(20_000);
        assert_eq!(sender.timeout_at_us(), Some(20_000 + sender.rto_us()));
        sender.time_out();
        assert_eq!(
            (sender.window(), sender.in_flight(), sender.timeout_at_us()),
            (1, 0, None)
        );
        sender.ack(number, 300_000);
        assert_eq!(sender.acked(), 10, "it was given up");
        sender.send(300_000);
        assert_eq!(sender.timeout_at_us(), Some(300_000 + 2 * sender.rto_us()));
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut sender = RenoSender::default();
        for n in 0..100 {
            let number = sender.send(n * 20_000);
            sender.ack(number, n * 20_000 + 10_000);
        }
        assert_eq!(sender.window(), FIRST_WINDOW);
    }
}
