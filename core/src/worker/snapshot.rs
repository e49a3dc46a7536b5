//! A snapshot of one connection, for `ackpace top` and `ackpace why`.

use super::Worker;
use super::counts::{Census, Counts, PHASES, phase_index};
use super::pace::{RecentArrivals, is_drained};
use super::stall::Stall;
use super::{Conn, ConnPhase};
use crate::conn::{ConnId, StreamId, TcpSample};
use crate::units::Instant;
use crate::why::{Decision, TopUp, Wait, WindowFacts};

/// A snapshot of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The connection.
    pub conn: ConnId,
    /// Its phase, by its name in [`PHASES`].
    pub phase: &'static str,
    /// Rate at which bytes arrived in the last seconds.
    pub rate_bytes_per_s: u64,
    /// B_n; 0: not known yet.
    pub believed_bytes_per_s: u64,
    /// T_n, the time for which its socket should last; `None` while B_n is not known.
    pub margin_us: Option<u64>,
    /// The level up to which its socket is filled; `None` without margins.
    pub fill_bytes: Option<u64>,
    /// Its response under way.
    pub response: Option<Response>,
    /// All bytes ever given to its socket.
    given_bytes: u64,
    /// What arrived lately, and the present stall: for [`Snapshot::seen_with`].
    pace: RecentArrivals,
    stall: Option<Stall>,
}

/// A response under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Its name.
    pub stream: StreamId,
    /// What its next bytes wait for, as far as is known without a fresh TCP_INFO sample ([`Snapshot::seen_with`]).
    pub wait: Wait,
    /// For how long.
    pub wait_us: u64,
    /// What must happen before its socket is given more. If that is the disk, the client may still have bytes in its
    /// socket.
    pub stands_for: Wait,
    /// Why its socket was filled last.
    pub top_up: TopUp,
    /// Bytes of it, head included, that the kernel took.
    pub sent_bytes: u64,
    /// Bytes that the kernel has not taken yet; of a listing, only those of the current slice.
    pub left_bytes: u64,
    /// Time since its request.
    pub took_us: u64,
    /// Time it was stalled for the disk, with nothing in its socket.
    pub waited_disk_us: u64,
    /// Time it was stalled for its client.
    pub waited_net_us: u64,
}

impl Snapshot {
    /// The same snapshot, corrected by a fresh TCP_INFO sample.
    #[must_use]
    pub fn seen_with(mut self, sample: &TcpSample, now: Instant) -> Snapshot {
        let acked_bytes = self.given_bytes.saturating_sub(sample.unacked_bytes);
        let idle_us = self.pace.heard(sample, acked_bytes, now);
        self.rate_bytes_per_s = self.pace.bytes_per_s(now);
        let Some(response) = &mut self.response else {
            return self;
        };
        if let Some(stall) = &mut self.stall {
            response.stands(&stall.times_us(now), |waited, us| waited - us);
            stall.heard(is_drained(sample), idle_us, now);
            response.stands(&stall.times_us(now), |waited, us| waited + us);
            (response.wait, response.wait_us) = stall.seen(now);
        }
        let unsent_bytes = sample.unsent_bytes.unwrap_or(0);
        if let Some(flow) = sample.flow {
            response.wait = response.wait.seen_with(&WindowFacts {
                window_bytes: flow.window_bytes,
                in_flight_bytes: sample.unacked_bytes.saturating_sub(unsent_bytes),
                unsent_bytes,
                segment_bytes: flow.segment_bytes,
            });
        }
        self
    }
}

impl Response {
    /// Adds or subtracts the duration of the current stall.
    fn stands(&mut self, (disk_us, net_us): &(u64, u64), change: impl Fn(u64, u64) -> u64) {
        self.waited_disk_us = change(self.waited_disk_us, *disk_us);
        self.waited_net_us = change(self.waited_net_us, *net_us);
    }
}

impl Worker {
    /// The worker's counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// T, the margin of every connection; `None` without margins.
    pub fn target_us(&self) -> Option<u64> {
        self.send.target().map(|target| target.us)
    }

    /// The last decisions, oldest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter()
    }

    /// Snapshots of the connections that have a response under way, in the order of their slots, from slot `from` on.
    /// It visits every connection, so call it only when somebody asks.
    pub fn snapshots(&self, from: u32, now: Instant) -> impl Iterator<Item = Snapshot> {
        let conns = self.table.from(from);
        conns
            .filter(|conn| conn.stream.is_some())
            .map(move |conn| self.snapshot(conn, now))
    }

    /// The number of connections in each state. Call it only when somebody asks.
    pub fn census(&self, now: Instant) -> Census {
        let mut census = Census::default();
        self.table.iter().for_each(|conn| census.add(conn, now));
        census
    }

    /// A snapshot of one connection; `None` if it is gone.
    pub fn snapshot_of(&self, id: ConnId, now: Instant) -> Option<Snapshot> {
        Some(self.snapshot(self.table.get(id)?, now))
    }

    fn snapshot(&self, conn: &Conn, now: Instant) -> Snapshot {
        let queue = &conn.output.send_queue;
        Snapshot {
            conn: conn.id,
            phase: PHASES[phase_index(conn.phase, conn.timeouts.idle())],
            rate_bytes_per_s: conn.evidence.shown.bytes_per_s(now),
            believed_bytes_per_s: queue.rate_bytes_per_s(),
            margin_us: queue.margin_us(now),
            fill_bytes: self.send.target().map(|target| queue.fill_bytes(target)),
            response: conn.stream.as_ref().map(|stream| {
                let (wait, wait_us) = stream.seen(now);
                let (waited_disk_us, waited_net_us) = stream.waited_us(now);
                Response {
                    stream: conn.stream_id(),
                    wait,
                    wait_us,
                    stands_for: stream.waits_for(),
                    top_up: conn.output.top_up,
                    sent_bytes: stream.sent_bytes,
                    left_bytes: stream.left_bytes(),
                    took_us: now.since_us(stream.started_at),
                    waited_disk_us,
                    waited_net_us,
                }
            }),
            given_bytes: conn.arrivals.given_bytes(),
            pace: conn.evidence.shown,
            stall: conn.stream.as_ref().and_then(|stream| stream.stall()),
        }
    }
}

impl Census {
    /// Counts one more connection.
    fn add(&mut self, conn: &Conn, now: Instant) {
        self.phases[phase_index(conn.phase, conn.timeouts.idle())] += 1;
        if conn.phase != ConnPhase::Sending {
            return;
        }
        let add = |sum: &mut u64, rate| *sum = sum.saturating_add(rate);
        add(
            &mut self.rates_bytes_per_s,
            conn.evidence.shown.bytes_per_s(now),
        );
        add(
            &mut self.believed_bytes_per_s,
            conn.output.send_queue.rate_bytes_per_s(),
        );
        if let Some(stream) = &conn.stream {
            let (wait, _) = stream.seen(now);
            self.waiting[wait as usize] += 1;
            let bytes = &mut self.waiting_bytes[wait as usize];
            *bytes = bytes.saturating_add(stream.left_bytes());
        }
    }
}
