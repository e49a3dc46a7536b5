//! Clients and their sockets, which send like those of Linux. TCP_NOTSENT_LOWAT bounds the unsent bytes that a socket
//! takes, and a full socket becomes writable when less is left than the threshold that it was given.

use ackpace_core::congestion::{CaState, Delay, Path};
use ackpace_core::conn::ConnId;
use ackpace_core::limits::LOWAT_BYTES_START;
use ackpace_core::send::Refill;
use ackpace_core::units::{Instant, US_PER_S};
use ackpace_core::worker::{Received, SendPolicy, Settings};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::RngCore;

/// Size to which SO_SNDBUF grows.
pub const SOCKET_BYTES: u64 = 2 << 20;
/// Round trip time of all paths.
const RTT_US: u64 = 100_000;
/// How long an unsteady path keeps one rate.
const STEP_US: u64 = 100_000;
/// Size of the kernel's send buffers (skbs).
const SKB_BYTES: u64 = 64 << 10;

/// What the worker receives of a client that makes one request. `asked`: it has made it.
pub(super) fn one_request(asked: &mut bool) -> Received {
    let (body, more) = (false, false);
    match std::mem::replace(asked, true) {
        true => Received::Nothing,
        false => Received::Request { body, more },
    }
}

/// One client.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Rate of its path.
    pub rate_bytes_per_s: u64,
    /// When it connects and sends its request.
    pub starts_at: Instant,
    /// A change of its path's rate, if there is one.
    pub change: Option<Change>,
    /// How its path varies around that rate.
    pub pace: Pace,
    /// SO_SNDBUF: room for unsent bytes where no lowat bounds them.
    pub socket_bytes: u64,
}

/// A change of a path's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When it happens.
    pub at: Instant,
    /// New rate in percent of the old one; above 0.
    pub percent: u64,
}

/// How a path's rate varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Not at all.
    Steady,
    /// Drawn anew each tenth of a second from 0.5 to 1.5 times the rate, by this seed. That varies more than a
    /// congestion window under loss.
    Unsteady(u64),
    /// A hundredth of the rate in every second second.
    Swings,
}

pub(super) struct Socket {
    pub client: Client,
    pub asked: bool,
    pub connected: bool,
    /// D1: bytes given to it that its path has not carried yet.
    pub unsent_bytes: u64,
    /// Drained up to this time; the fraction of a byte is carried along.
    pub drained_at: Instant,
    pub carry: u64,
    /// Refill and thresholds that it was given with the last bytes.
    pub refill: Option<Refill>,
    /// It is full and will become writable.
    pub full: bool,
}

impl Socket {
    pub fn new(client: Client) -> Socket {
        Socket {
            client,
            asked: false,
            connected: false,
            unsent_bytes: 0,
            drained_at: Instant { us: 0 },
            carry: 0,
            refill: None,
            full: false,
        }
    }

    pub fn rate_bytes_per_s(&self, at: Instant) -> u64 {
        let change = self.client.change.filter(|change| change.at <= at);
        let rate = self.client.rate_bytes_per_s * change.map_or(100, |change| change.percent) / 100;
        let step = at.us / STEP_US;
        let percent = match self.client.pace {
            Pace::Steady => 100,
            Pace::Unsteady(seed) => {
                let mut dice = Pcg64Mcg::new((u128::from(seed) << 64) | u128::from(step));
                50 + dice.next_u64() % 101
            }
            Pace::Swings if step / 10 % 2 == 0 => 100,
            Pace::Swings => 1,
        };
        rate * percent / 100
    }

    /// What TCP says of the path. Where its rate has fallen, marks have cut the window to what fits into it.
    pub fn path(&self, at: Instant) -> Path {
        let change = self.client.change.filter(|change| change.at <= at);
        let cut = change.filter(|change| change.percent < 100);
        let rate = self.client.rate_bytes_per_s * change.map_or(100, |change| change.percent) / 100;
        let cwnd_bytes = rate * RTT_US / US_PER_S;
        Path {
            state: CaState::Open,
            cwnd_bytes,
            threshold_bytes: cut.map(|_| cwnd_bytes),
            rtt_min_us: RTT_US,
            marked_segments: cut.map_or(0, |_| 1),
            resent_segments: 0,
        }
    }

    /// When its rate changes next, if it does.
    pub fn changes_at(&self) -> Option<Instant> {
        let change = self.client.change.map(|change| change.at);
        let change = change.filter(|at| *at > self.drained_at);
        let step = self.drained_at.us / STEP_US + 1;
        let next = Instant { us: step * STEP_US };
        let next = (self.client.pace != Pace::Steady).then_some(next);
        [change, next].into_iter().flatten().min()
    }

    /// Bytes that it takes now. With a lowat, it takes whole kernel buffers until the lowat is reached.
    pub fn room_bytes(&self) -> u64 {
        let unsent_bytes = self.unsent_bytes;
        match self.refill.map(|refill| u64::from(refill.lowat_bytes)) {
            Some(lowat) if unsent_bytes >= lowat => 0,
            Some(lowat) => (lowat - unsent_bytes).div_ceil(SKB_BYTES) * SKB_BYTES,
            None => self.client.socket_bytes.saturating_sub(unsent_bytes),
        }
    }

    /// Gives it bytes; returns how many it takes.
    pub fn give(&mut self, len_bytes: u64, refill: Option<Refill>) -> u64 {
        self.refill = refill.or(self.refill);
        let taken_bytes = len_bytes.min(self.room_bytes());
        self.unsent_bytes += taken_bytes;
        let filled = refill.is_some_and(|refill| taken_bytes >= refill.bytes);
        self.full = filled || taken_bytes < len_bytes;
        taken_bytes
    }

    /// It is given nothing for a while, and becomes writable when less than this is left in it.
    pub fn watch(&mut self, epollout_bytes: u32) {
        let lowat_bytes = epollout_bytes.saturating_mul(2);
        self.refill = Some(Refill {
            bytes: u64::MAX,
            lowat_bytes,
            epollout_bytes,
        });
        self.full = true;
    }

    /// Unsent bytes below which a full socket becomes writable: tcp(7), sk_stream_write_space.
    pub fn writable_below_bytes(&self) -> u64 {
        match self.refill {
            Some(refill) => refill.epollout_bytes.into(),
            None => self.client.socket_bytes * 2 / 3,
        }
    }

    pub fn is_writable(&self, now: Instant) -> bool {
        now >= self.drained_at && self.unsent_bytes < self.writable_below_bytes()
    }

    /// When it connects or becomes writable, if nothing happens before.
    pub fn next_at(&self) -> Option<Instant> {
        if !self.connected {
            return Some(self.client.starts_at);
        }
        if !self.full {
            return None;
        }
        let bytes = (self.unsent_bytes + 1).saturating_sub(self.writable_below_bytes());
        let rate = self.rate_bytes_per_s(self.drained_at);
        let at = self.drained_at.plus_us((bytes * US_PER_S).div_ceil(rate));
        Some(self.changes_at().map_or(at, |change| at.min(change)))
    }

    /// Drains it up to `until`. Returns the bytes that left and the idle time in microseconds.
    pub fn drain(&mut self, until: Instant) -> (u64, u64) {
        let us = until.since_us(self.drained_at);
        let rate = self.rate_bytes_per_s(self.drained_at);
        self.drained_at = until;
        if !self.asked || us == 0 {
            return (0, 0);
        }
        let could = us * rate + self.carry;
        let sent_bytes = (could / US_PER_S).min(self.unsent_bytes);
        let lacking = could / US_PER_S - sent_bytes;
        self.carry = if lacking == 0 { could % US_PER_S } else { 0 };
        self.unsent_bytes -= sent_bytes;
        (sent_bytes, lacking * US_PER_S / rate)
    }
}

pub(super) fn conn_id(index: usize) -> ConnId {
    ConnId {
        index: index as u32,
        generation: 0,
    }
}

pub(super) fn settings(send: SendPolicy, delay: Delay) -> Settings {
    Settings {
        worker: 0,
        connections_max: 16_384,
        connections_per_address: 0,
        header_timeout_us: 10 * US_PER_S,
        idle_timeout_us: 75 * US_PER_S,
        send_timeout_us: 60 * US_PER_S,
        pause_timeout_us: 600 * US_PER_S,
        rate_min_bytes_per_s: 100,
        drain_timeout_us: 30 * US_PER_S,
        arrivals: false,
        arrivals_bytes_max: 0,
        send,
        pacing: false,
        delay,
    }
}

const _: () = assert!(LOWAT_BYTES_START as u64 <= SOCKET_BYTES);
