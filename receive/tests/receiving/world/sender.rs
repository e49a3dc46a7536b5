//! The sending end: reno with SACK and timestamps, in whole packets, and limited by the receiver's window. The
//! retransmission timer is that of Linux 2.6.14 (without F-RTO, which was off by default).
//!
//! After a timeout it begins again with the first packet that is not acknowledged (go back N). It can't tell whether
//! that was lost or only waits at the receiver.

use ackpace_sim::models::rto::LinuxSmoothed;
use std::collections::{BTreeSet, VecDeque};

const FIRST_WINDOW: u64 = 3; // RFC 3390 for an MSS of 1,448
const FIRST_TIMEOUT_NS: u64 = 3_000_000_000; // RFC 2988, and Linux 2.6
const BACKOFF_SHIFT_MOST: u32 = 9; // beyond 120 s anyway
const TIMEOUT_NS_MOST: u64 = 120_000_000_000;
const DUPLICATES: usize = 3;

/// A packet on its way to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Counted from 0; each carries the same number of bytes.
    pub number: u64,
    /// The timestamp option.
    pub sent_ns: u64,
    /// A window probe: it carries no data.
    pub is_probe: bool,
}

/// An ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AckPacket {
    /// All before this one have been processed.
    pub next: u64,
    /// Right edge of the window, as the number of a packet.
    pub edge: u64,
    /// This one arrived out of order.
    pub sacked: Option<u64>,
    /// The timestamp of the packet that it answers.
    pub echo_ns: u64,
}

/// What the sender counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub sent: u64,
    pub retransmitted: u64,
    pub timeouts: u64,
    pub recoveries: u64,
    pub zero_windows: u64,
}

/// The sender of one connection.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    /// The first that is not acknowledged, the next to send, and the first that was never sent.
    una: u64,
    next: u64,
    fresh: u64,
    window: u64,
    threshold: u64,
    toward_next: u64,
    edge: u64,
    sacked: BTreeSet<u64>,
    /// Lost, to be sent again.
    lost: VecDeque<u64>,
    /// All packets before this one are known to be sacked, lost or sent again.
    scanned: u64,
    /// Recovery lasts until this packet is acknowledged.
    repaired_at: u64,
    is_recovering: bool,
    smoothed: Option<LinuxSmoothed>,
    round_until: u64,
    backoff: u32,
    timer_ns: Option<u64>,
    /// The last ACK closed the window.
    is_closed: bool,
    pub counts: Counts,
}

impl Sender {
    pub fn new(edge: u64) -> Sender {
        Sender {
            una: 0,
            next: 0,
            fresh: 0,
            window: FIRST_WINDOW,
            threshold: u64::MAX,
            toward_next: 0,
            edge,
            sacked: BTreeSet::new(),
            lost: VecDeque::new(),
            scanned: 0,
            repaired_at: 0,
            is_recovering: false,
            smoothed: None,
            round_until: 0,
            backoff: 0,
            timer_ns: None,
            is_closed: false,
            counts: Counts::default(),
        }
    }

    /// All packets before this one are acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.una
    }

    /// RTO without backoff.
    pub fn rto_ns(&self) -> u64 {
        self.smoothed
            .map_or(FIRST_TIMEOUT_NS, |of| of.rto_us() * 1_000)
    }

    fn in_flight(&self) -> u64 {
        self.next - self.una - (self.sacked.len() + self.lost.len()) as u64
    }

    /// When [`Sender::time_out`] is due.
    pub fn timer_ns(&self) -> Option<u64> {
        self.timer_ns
    }

    fn restart(&mut self, now_ns: u64) {
        let after_ns = self.rto_ns() << self.backoff.min(BACKOFF_SHIFT_MOST);
        self.timer_ns = Some(now_ns + after_ns.min(TIMEOUT_NS_MOST));
    }

    /// The next packet that the windows allow.
    pub fn send(&mut self, now_ns: u64) -> Option<Packet> {
        if self.in_flight() >= self.window {
            return None;
        }
        let number = match self.lost.pop_front() {
            Some(number) => {
                self.counts.retransmitted += 1;
                number
            }
            None if self.next >= self.edge => return None,
            None => {
                let number = self.next;
                self.next += 1;
                self.counts.retransmitted += u64::from(number < self.fresh);
                self.fresh = self.fresh.max(self.next);
                number
            }
        };
        if self.timer_ns.is_none() {
            self.restart(now_ns);
        }
        self.counts.sent += 1;
        Some(Packet {
            number,
            sent_ns: now_ns,
            is_probe: false,
        })
    }

    pub fn hear(&mut self, ack: AckPacket, now_ns: u64) {
        let was_limited = self.in_flight() >= self.window;
        let was_closed = std::mem::replace(&mut self.is_closed, ack.edge == ack.next);
        self.counts.zero_windows += u64::from(self.is_closed && !was_closed);
        self.edge = self.edge.max(ack.edge);
        if ack.next > self.una {
            self.advance(ack, was_limited, now_ns);
        } else if let Some(number) = ack
            .sacked
            .filter(|&number| number >= self.una && number < self.next)
        {
            self.sacked.insert(number);
        }
        self.mark();
        if self.next == self.una {
            let opens = self.edge > self.next;
            self.backoff = if opens { 0 } else { self.backoff };
            match (opens, self.timer_ns) {
                (true, _) => self.timer_ns = None,
                (false, None) => self.restart(now_ns), // to ask for the window
                (false, Some(_)) => {}
            }
        }
    }

    fn advance(&mut self, ack: AckPacket, was_limited: bool, now_ns: u64) {
        self.measure(now_ns - ack.echo_ns, ack.next);
        (self.una, self.next) = (ack.next, self.next.max(ack.next));
        self.backoff = 0;
        self.sacked = self.sacked.split_off(&ack.next);
        while self.lost.front().is_some_and(|&number| number < ack.next) {
            self.lost.pop_front();
        }
        if self.is_recovering {
            self.is_recovering = self.una < self.repaired_at;
        } else if was_limited {
            self.grow();
        }
        self.timer_ns = None;
        if self.next > self.una || self.edge <= self.next {
            self.restart(now_ns);
        }
    }

    fn measure(&mut self, rtt_ns: u64, next: u64) {
        let rtt_us = rtt_ns / 1_000;
        match &mut self.smoothed {
            Some(smoothed) => smoothed.sample(rtt_us),
            None => self.smoothed = Some(LinuxSmoothed::first(rtt_us)),
        }
        if next > self.round_until {
            self.round_until = self.next;
            self.smoothed.iter_mut().for_each(LinuxSmoothed::round);
        }
    }

    /// Slow start grows by one packet for each ACK, as Linux did before it counted bytes.
    fn grow(&mut self) {
        if self.window < self.threshold {
            self.window += 1;
            return;
        }
        self.toward_next += 1;
        if self.toward_next >= self.window {
            (self.window, self.toward_next) = (self.window + 1, 0);
        }
    }

    /// Paths do not reorder: a packet before three sacked ones is lost.
    fn mark(&mut self) {
        let Some(&last) = self
            .sacked
            .last()
            .filter(|_| self.sacked.len() >= DUPLICATES)
        else {
            return;
        };
        if self.una >= self.repaired_at && !self.is_recovering {
            self.threshold = (self.window / 2).max(2);
            (self.window, self.toward_next) = (self.threshold, 0);
            (self.is_recovering, self.repaired_at) = (true, self.next);
            self.scanned = self.una;
            self.counts.recoveries += 1;
        }
        if self.is_recovering {
            let holes =
                (self.scanned.max(self.una)..last).filter(|number| !self.sacked.contains(number));
            self.lost.extend(holes);
            self.scanned = self.scanned.max(last);
        }
    }

    /// The timer expired: a probe of a closed window, or the first packet again.
    pub fn time_out(&mut self, now_ns: u64) -> Option<Packet> {
        self.backoff += 1;
        let is_probe = self.next == self.una;
        if is_probe {
            self.restart(now_ns);
            return Some(Packet {
                number: self.una,
                sent_ns: now_ns,
                is_probe,
            });
        }
        if self.una >= self.repaired_at || self.is_recovering {
            self.threshold = (self.window / 2).max(2);
        }
        self.counts.timeouts += 1;
        (self.window, self.toward_next, self.is_recovering) = (1, 0, false);
        (self.repaired_at, self.next) = (self.fresh, self.una);
        self.sacked.clear();
        self.lost.clear();
        self.timer_ns = None;
        self.send(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ack(next: u64, sacked: Option<u64>, echo_ns: u64) -> AckPacket {
        AckPacket {
            next,
            edge: 1_000,
            sacked,
            echo_ns,
        }
    }

    fn all(sender: &mut Sender, now_ns: u64) -> Vec<u64> {
        std::iter::from_fn(|| sender.send(now_ns).map(|packet| packet.number)).collect()
    }

    #[test]
    fn a_silent_receiver_costs_the_window_and_go_back_n() {
        let mut sender = Sender::new(1_000);
        assert_eq!(all(&mut sender, 0), [0, 1, 2]);
        let numbers = (1..=3).flat_map(|next| {
            sender.hear(ack(next, None, 0), MS);
            all(&mut sender, MS)
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8]);
        let due_ns = sender.timer_ns().expect("a timer");
        assert_eq!(due_ns, 202 * MS, "1 ms and 201 by Linux");
        assert_eq!(sender.time_out(due_ns).map(|packet| packet.number), Some(3));
        assert_eq!((sender.window, sender.send(due_ns)), (1, None));
        assert_eq!(sender.timer_ns(), Some(due_ns + 402 * MS), "twice as long");
        // They only waited: all are acknowledged at once, and nothing of it is sent again.
        sender.hear(ack(9, None, MS), 500 * MS);
        assert_eq!(all(&mut sender, 500 * MS), [9, 10]);
        assert_eq!(sender.counts.retransmitted, 1);
        assert!(
            sender.rto_ns() > 250 * MS,
            "and the timeout learns of it (eqs. 9 to 11)"
        );
    }

    #[test]
    fn a_hole_is_filled_and_halves_the_window_once() {
        let mut sender = Sender::new(1_000);
        sender.window = 10;
        assert_eq!(all(&mut sender, 0).len(), 10);
        for number in [1, 2, 4, 5] {
            sender.hear(ack(0, Some(number), 0), MS);
        }
        assert_eq!(sender.window, 5);
        assert_eq!(
            all(&mut sender, MS),
            [0],
            "10 less 4 sacked and 2 lost, one is back"
        );
        sender.hear(ack(0, Some(6), 0), MS);
        assert_eq!(all(&mut sender, MS), [3]);
        sender.hear(ack(10, None, MS), 2 * MS);
        assert_eq!(sender.counts.recoveries, 1);
        assert_eq!(all(&mut sender, 2 * MS).len(), 5);
    }

    #[test]
    fn a_closed_window_is_probed_and_no_loss() {
        let mut sender = Sender::new(3);
        assert_eq!(all(&mut sender, 0), [0, 1, 2]);
        let closed = AckPacket {
            edge: 3,
            ..ack(3, None, 0)
        };
        sender.hear(closed, MS);
        let due_ns = sender.timer_ns().expect("a probe is due");
        assert!(
            sender
                .time_out(due_ns)
                .is_some_and(|packet| packet.is_probe)
        );
        assert_eq!((sender.window, sender.counts.timeouts), (4, 0));
        sender.hear(ack(3, None, due_ns), due_ns + MS);
        assert_eq!(all(&mut sender, due_ns + MS), [3, 4, 5, 6]);
    }
}
