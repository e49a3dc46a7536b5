//! One direction of a TCP connection without loss: the sender's socket with its counters, a path, and a receiver that
//! may limit itself ([`receiver`]). It proceeds in steps of a millisecond. [`reno`] is a sender that loses packets.
//!
//! The counters are Linux's (tcp(7), `struct tcp_info`): `tcpi_busy_time` runs while the socket holds bytes, sent or
//! not, and `tcpi_rwnd_limited` while the window is what stops them (net/ipv4/tcp_output.c, `tcp_chrono`).

pub mod receiver;
pub mod reno;

use self::receiver::{Ack, Program, Receiver};
use std::collections::VecDeque;

const US_PER_MS: u64 = 1_000;
/// Congestion window at the start, in segments (RFC 6928).
const FIRST_WINDOW_SEGMENTS: u64 = 10;
/// How long TCP_CORK holds a partial segment back at most (tcp(7)).
const CORKED_MS: u64 = 200;
/// How long the kernel waits, beside a round trip, until it probes a window that stops it (TCP_RTO_MIN).
const PROBE_MS: u64 = 200;

/// The receiver of a connection, and its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionProfile {
    /// When the receiving program reads, and how much.
    pub program: Program,
    /// Size of the receive buffer.
    pub buffer_bytes: u64,
    /// Rate of the path.
    pub link_bytes_per_s: u64,
    /// Round trip time, at least one millisecond.
    pub rtt_ms: u64,
    /// Payload of a full segment. TCP sends none larger than half of the largest window.
    pub segment_bytes: u64,
}

/// What the sender's TCP has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `tcpi_bytes_acked`.
    pub acked_bytes: u64,
    /// `tcpi_busy_time`.
    pub busy_us: u64,
    /// `tcpi_rwnd_limited`.
    pub window_limited_us: u64,
    /// `tcpi_snd_wnd`: the window, from the last byte that is acknowledged.
    pub window_bytes: u64,
    /// `tcpi_last_data_sent`: the time since bytes were sent last.
    pub quiet_us: u64,
}

/// How much of the congestion window was in use. A window that is not used does not grow (net/ipv4/tcp_output.c,
/// `tcp_cwnd_validate`).
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// The most in flight in this round trip.
    most_bytes: u64,
    /// The round trip ends when this many bytes since the beginning are acknowledged.
    until_bytes: u64,
}

/// A connection, from the sender's socket to the program that reads.
#[derive(Clone, Debug)]
pub struct Connection {
    profile: ConnectionProfile,
    receiver: Receiver,
    /// Bytes given to the socket and not sent.
    unsent_bytes: u64,
    sent_bytes: u64,
    heard: Ack,
    congestion_window_bytes: u64,
    usage: Usage,
    counters: Counters,
    /// Until when a segment that is not full waits for more.
    corked_until_ms: u64,
    /// When the rest of a window is sent that is smaller than a segment, if that stops it now.
    probe_at_ms: Option<u64>,
    /// What the path may still carry in this millisecond, in thousandths of a byte.
    credit: u64,
    /// Segments on the path: the time of arrival, and bytes.
    data: VecDeque<(u64, u64)>,
    acks: VecDeque<(u64, Ack)>,
}

impl Connection {
    /// A connection that carries nothing yet.
    pub fn new(profile: ConnectionProfile) -> Connection {
        let segment_bytes = profile.segment_bytes.min(profile.buffer_bytes / 2);
        let profile = ConnectionProfile {
            segment_bytes,
            ..profile
        };
        let receiver = Receiver::new(profile.program, profile.buffer_bytes, segment_bytes);
        Connection {
            profile,
            receiver,
            unsent_bytes: 0,
            sent_bytes: 0,
            heard: receiver.told(),
            congestion_window_bytes: FIRST_WINDOW_SEGMENTS * segment_bytes,
            usage: Usage::default(),
            counters: Counters::default(),
            corked_until_ms: 0,
            probe_at_ms: None,
            credit: 0,
            data: VecDeque::new(),
            acks: VecDeque::new(),
        }
    }

    /// Its parameters, with the segment length in use.
    pub fn profile(&self) -> &ConnectionProfile {
        &self.profile
    }

    /// Its receiver.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Bytes given to the socket and not sent (SIOCOUTQNSD).
    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Bytes given to the socket and not acknowledged (SIOCOUTQ).
    pub fn unacked_bytes(&self) -> u64 {
        self.unsent_bytes + self.in_flight_bytes()
    }

    /// Congestion window.
    pub fn congestion_window_bytes(&self) -> u64 {
        self.congestion_window_bytes
    }

    /// The counters now.
    pub fn counters(&self) -> Counters {
        Counters {
            acked_bytes: self.heard.acked_bytes,
            window_bytes: self.heard.edge_bytes - self.heard.acked_bytes,
            ..self.counters
        }
    }

    /// Gives the socket bytes. `corked`: a partial segment waits for more (tcp(7), TCP_CORK).
    pub fn give(&mut self, bytes: u64, corked: bool, now_ms: u64) {
        self.unsent_bytes += bytes;
        self.corked_until_ms = now_ms + if corked { CORKED_MS } else { 0 };
    }

    /// Advances by the millisecond that ends at `now_ms`.
    pub fn pass(&mut self, now_ms: u64) {
        let mut arrived_bytes = 0;
        while let Some(bytes) = arrival(&mut self.data, now_ms) {
            arrived_bytes += bytes;
        }
        let back_ms = self.profile.rtt_ms / 2;
        if let Some(ack) = self.receiver.pass(arrived_bytes, now_ms) {
            self.acks.push_back((now_ms + back_ms, ack));
        }
        while let Some(ack) = arrival(&mut self.acks, now_ms) {
            // Slow start, which nothing ends here.
            if self.congestion_window_bytes < 2 * self.usage.most_bytes {
                self.congestion_window_bytes += ack.acked_bytes - self.heard.acked_bytes;
            }
            self.heard = ack;
        }
        let busy = self.unacked_bytes() > 0;
        self.counters.quiet_us += US_PER_MS;
        let limited = self.send(now_ms);
        self.use_window();
        self.counters.busy_us += if busy { US_PER_MS } else { 0 };
        self.counters.window_limited_us += if busy && limited { US_PER_MS } else { 0 };
    }

    fn use_window(&mut self) {
        let in_flight_bytes = self.in_flight_bytes();
        if self.heard.acked_bytes >= self.usage.until_bytes {
            self.usage = Usage {
                most_bytes: in_flight_bytes,
                until_bytes: self.sent_bytes,
            };
        }
        self.usage.most_bytes = self.usage.most_bytes.max(in_flight_bytes);
    }

    fn in_flight_bytes(&self) -> u64 {
        self.sent_bytes - self.heard.acked_bytes
    }

    /// Sends what path and windows allow. Returns whether the receiver's window stopped it.
    fn send(&mut self, now_ms: u64) -> bool {
        let segment_bytes = self.profile.segment_bytes;
        // An idle path saves up no credit, except for a partial segment.
        let carried = self.profile.link_bytes_per_s;
        self.credit = (self.credit + carried).min(carried.max(segment_bytes * 1000) + carried);
        if self.unsent_bytes == 0 {
            self.probe_at_ms = None;
            return false;
        }
        let congestion_bytes = self
            .congestion_window_bytes
            .saturating_sub(self.in_flight_bytes());
        let path_bytes = (self.credit / 1000).min(congestion_bytes);
        let window_bytes = self.heard.edge_bytes.saturating_sub(self.sent_bytes);
        let corked = now_ms < self.corked_until_ms;
        let whole = |bytes: u64| bytes - bytes % segment_bytes;
        // Without a cork, the rest is sent although it is no full segment, and so is the rest of a window.
        let could_bytes = match self.unsent_bytes <= path_bytes && !corked {
            true => self.unsent_bytes,
            false => whole(self.unsent_bytes.min(path_bytes)),
        };
        let bytes = match window_bytes {
            _ if could_bytes <= window_bytes => could_bytes,
            _ if window_bytes < segment_bytes => 0,
            _ if corked => whole(window_bytes),
            _ => window_bytes,
        };
        let bytes = match bytes {
            0 => self.probe(window_bytes, now_ms),
            _ => bytes,
        };
        if bytes > 0 {
            self.probe_at_ms = None;
            self.unsent_bytes -= bytes;
            self.sent_bytes += bytes;
            self.credit -= bytes * 1000;
            let there_ms = self.profile.rtt_ms - self.profile.rtt_ms / 2;
            self.data.push_back((now_ms + there_ms, bytes));
            self.counters.quiet_us = 0;
        }
        let window_bytes = window_bytes - bytes;
        self.unsent_bytes > window_bytes && window_bytes < segment_bytes
    }

    /// What a probe sends now. Nothing is in flight, so no ACK will move the window: a timer sends what is left of it
    /// (net/ipv4/tcp_output.c, `tcp_check_probe_timer` and `tcp_write_wakeup`). Then it is closed, not only too small.
    fn probe(&mut self, window_bytes: u64, now_ms: u64) -> u64 {
        let is_small = window_bytes > 0 && window_bytes < self.profile.segment_bytes;
        if !is_small || self.unsent_bytes <= window_bytes || self.in_flight_bytes() > 0 {
            self.probe_at_ms = None;
            return 0;
        }
        let due_ms = now_ms + self.profile.rtt_ms + PROBE_MS;
        let at_ms = *self.probe_at_ms.get_or_insert(due_ms);
        match now_ms >= at_ms && self.credit >= window_bytes * 1000 {
            true => window_bytes,
            false => 0,
        }
    }
}

/// The next item on the path, if it has arrived by now.
fn arrival<T>(path: &mut VecDeque<(u64, T)>, now_ms: u64) -> Option<T> {
    let due = path.front().is_some_and(|(at_ms, _)| *at_ms <= now_ms);
    due.then(|| path.pop_front().map(|(_, what)| what))
        .flatten()
}

#[cfg(test)]
mod tests;
