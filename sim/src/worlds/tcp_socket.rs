//! A socket on a modelled TCP connection: how many bytes it takes, when it becomes writable, and what the kernel tells of
//! it. Unlike [`super::socket`], it has a receiver with a buffer, and the counters from which the worker learns of that.

use ackpace_core::congestion::Path;
use ackpace_core::conn::TcpSample;
use ackpace_core::rate::Flow;
use ackpace_core::send::Refill;

use crate::models::tcp::{Connection, ConnectionProfile};

/// Most bytes that a socket holds, sent or not (tcp_wmem).
const SOCKET_BYTES: u64 = 4 << 20;
/// Size of the kernel's send buffers (skbs).
const SKB_BYTES: u64 = 64 << 10;

/// A connection, and what the worker has set at its socket.
pub(super) struct TcpSocket {
    pub tcp: Connection,
    refill: Option<Refill>,
    /// It is full and will become writable.
    full: bool,
}

impl TcpSocket {
    /// An empty one.
    pub fn new(profile: ConnectionProfile) -> TcpSocket {
        TcpSocket {
            tcp: Connection::new(profile),
            refill: None,
            full: false,
        }
    }

    /// Gives it bytes; returns how many it takes. With a lowat, it takes whole kernel buffers until the lowat is reached.
    /// `more` follow at once; `age_ms`: since the connection began.
    pub fn give(&mut self, len_bytes: u64, more: bool, refill: Option<Refill>, age_ms: u64) -> u64 {
        self.refill = refill.or(self.refill);
        let unsent_bytes = self.tcp.unsent_bytes();
        let memory_bytes = SOCKET_BYTES.saturating_sub(self.tcp.unacked_bytes());
        let room_bytes = match self.refill.map(|refill| u64::from(refill.lowat_bytes)) {
            Some(lowat) if unsent_bytes >= lowat => 0,
            Some(lowat) => (lowat - unsent_bytes).div_ceil(SKB_BYTES) * SKB_BYTES,
            None => memory_bytes,
        };
        let taken_bytes = len_bytes.min(room_bytes).min(memory_bytes);
        let filled = refill.is_some_and(|refill| taken_bytes >= refill.bytes);
        self.full = filled || taken_bytes < len_bytes;
        self.tcp.give(taken_bytes, more && !self.full, age_ms);
        taken_bytes
    }

    /// Whether it took less than it was given, or a whole refill.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// It is given nothing for a while: it becomes writable when less than this is left in it.
    pub fn watch(&mut self, epollout_bytes: u32) {
        self.refill = Some(Refill {
            bytes: u64::MAX,
            lowat_bytes: epollout_bytes.saturating_mul(2),
            epollout_bytes,
        });
        self.full = true;
    }

    /// Whether it was full and becomes writable now (tcp(7), sk_stream_write_space).
    pub fn becomes_writable(&mut self) -> bool {
        let below_bytes = self
            .refill
            .map_or(SOCKET_BYTES * 2 / 3, |refill| refill.epollout_bytes.into());
        let writable = self.full
            && self.tcp.unsent_bytes() < below_bytes
            && self.tcp.unacked_bytes() <= SOCKET_BYTES * 2 / 3;
        self.full &= !writable;
        writable
    }

    /// A sample, as by TCP_INFO and two ioctls (`server/src/tcp.rs`).
    pub fn sample(&self) -> TcpSample {
        let (counters, profile) = (self.tcp.counters(), self.tcp.profile());
        TcpSample {
            unacked_bytes: self.tcp.unacked_bytes(),
            unsent_bytes: Some(self.tcp.unsent_bytes()),
            window_closed: counters.window_bytes == 0,
            probes_unanswered: 0,
            rtt_us: profile.rtt_ms * 1_000,
            path: Path {
                cwnd_bytes: self.tcp.congestion_window_bytes(),
                rtt_min_us: profile.rtt_ms * 1_000,
                ..Path::default()
            },
            flow: Some(Flow {
                acked_bytes: counters.acked_bytes,
                busy_us: counters.busy_us,
                window_limited_us: counters.window_limited_us,
                window_bytes: counters.window_bytes,
                segment_bytes: profile.segment_bytes,
                quiet_us: counters.quiet_us,
            }),
        }
    }
}
