//! A worker and clients whose shares of the send memory bind: how fast are they believed to be?
//!
//! Each client downloads one long file over a link of its own. Its window is open, so all that a socket holds is in flight
//! or in the queue of its link. Sockets become writable like those of Linux: when their buffers, overhead included, take
//! no more than two thirds of SO_SNDBUF. The world is the shell: it does what the server's does.

use std::collections::VecDeque;

use ackpace_core::Machine;
use ackpace_core::addresses::Address;
use ackpace_core::congestion::Delay;
use ackpace_core::conn::{ResidencySource, StreamId, TcpEvent, TcpSample};
use ackpace_core::units::{Instant, US_PER_S};
use ackpace_core::worker::{In, Out, SendPolicy, Worker};
use ackpace_share::bound::{Bound, Grant};

use super::response::whole;
use super::socket::{conn_id, one_request, settings};

/// Payload of a segment.
const SEGMENT_BYTES: u64 = 1_448;
/// Segments in one of the kernel's buffers, once it is in flight on a slow path, and the overhead of a buffer.
const BUFFER_SEGMENTS: u64 = 2;
const BUFFER_COST_BYTES: u64 = 1_280;

/// A client whose socket may hold no more than its share: the share binds, not its window.
#[derive(Clone, Copy, Debug)]
pub struct BoundClient {
    /// Its link's rate.
    pub rate_bytes_per_s: u64,
    /// The round trip without a queue.
    pub rtt_us: u64,
    /// What its socket may hold.
    pub share_bytes: u64,
    /// Time between two batches of ACKs, since links and receivers bundle them; 1: no batches.
    pub acks_each_us: u64,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct World {
    /// Who downloads.
    pub clients: Vec<BoundClient>,
    /// How late the timer fires.
    pub late_us: u64,
    /// When counting begins.
    pub measured_from: Instant,
    /// When it ends.
    pub ends_at: Instant,
}

/// Results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// B_n at the end, over the rate at which the client took bytes: the lowest ratio of all clients.
    pub believed_over_taken: f64,
    /// B_n at the end, over the rate of the client's link: the highest ratio of all clients.
    pub believed_over_link: f64,
}

struct BoundSocket {
    client: BoundClient,
    asked: bool,
    bound: Option<Bound>,
    /// Segments that are not acknowledged: when they will be, and their length.
    in_flight: VecDeque<(Instant, u64)>,
    busy_until: Instant,
    /// It was refused bytes, and the kernel will report it writable.
    awaits_writable: bool,
    given_bytes: u64,
}

impl BoundSocket {
    fn held_bytes(&self) -> u64 {
        self.in_flight.iter().map(|(_, bytes)| bytes).sum()
    }

    fn acknowledge(&mut self, now: Instant) {
        while self.in_flight.front().is_some_and(|(at, _)| *at <= now) {
            self.in_flight.pop_front();
        }
    }

    fn give(&mut self, bytes: u64, now: Instant) {
        self.busy_until = self.busy_until.max(now);
        self.given_bytes += bytes;
        let mut left_bytes = bytes;
        while left_bytes > 0 {
            let segment_bytes = left_bytes.min(SEGMENT_BYTES);
            let us = segment_bytes * US_PER_S / self.client.rate_bytes_per_s;
            self.busy_until = self.busy_until.plus_us(us);
            let acked_at = self.busy_until.plus_us(self.client.rtt_us);
            let phase_us = self.client.rtt_us; // another one for each client
            let us = (acked_at.us + phase_us).next_multiple_of(self.client.acks_each_us) - phase_us;
            self.in_flight.push_back((Instant { us }, segment_bytes));
            left_bytes -= segment_bytes;
        }
    }

    /// When the kernel reports it writable.
    fn writable_at(&self) -> Option<Instant> {
        let bound = self.bound.filter(|_| self.awaits_writable)?;
        let taken = |segments: usize| {
            let segments = segments as u64;
            segments * SEGMENT_BYTES + segments.div_ceil(BUFFER_SEGMENTS) * BUFFER_COST_BYTES
        };
        let all = self.in_flight.len();
        let is_writable = |gone: &usize| {
            let taken_bytes = taken(all - gone);
            taken_bytes + taken_bytes / 2 <= bound.share_bytes()
        };
        let gone = (0..=all).find(is_writable)?;
        let last = gone.checked_sub(1).map(|last| self.in_flight[last].0);
        Some(last.unwrap_or(Instant { us: 0 }))
    }
}

struct Run<'a> {
    world: &'a World,
    worker: Worker,
    sockets: Vec<BoundSocket>,
    now: Instant,
    outcome: Outcome,
}

impl World {
    /// Runs the world until `ends_at`.
    pub fn run(&self) -> Outcome {
        let policy = SendPolicy::Margin {
            budget_bytes: 52 << 20,
        };
        let mut run = Run {
            world: self,
            worker: Worker::new(settings(policy, Delay::Off)),
            sockets: self
                .clients
                .iter()
                .map(|&client| BoundSocket::new(client))
                .collect(),
            now: Instant { us: 0 },
            outcome: Outcome::default(),
        };
        run.begin();
        let mut measuring = false;
        while let Some(at) = run.next_at().filter(|at| *at <= self.ends_at) {
            run.now = at.max(run.now);
            if !measuring && run.now >= self.measured_from {
                measuring = true;
                (run.sockets.iter_mut()).for_each(|socket| socket.given_bytes = 0);
            }
            run.turn();
        }
        run.believed(self.ends_at.since_us(self.measured_from));
        run.outcome
    }
}

impl BoundSocket {
    fn new(client: BoundClient) -> BoundSocket {
        BoundSocket {
            client,
            asked: false,
            bound: None,
            in_flight: VecDeque::new(),
            busy_until: Instant { us: 0 },
            awaits_writable: false,
            given_bytes: 0,
        }
    }
}

impl Run<'_> {
    fn begin(&mut self) {
        let (now, cap_bytes) = (self.now, 14_480);
        self.worker.on(In::StartCap { cap_bytes }, now);
        for index in 0..self.sockets.len() {
            let conn = conn_id(index);
            let address = Some(Address(index as u64 + 1));
            self.worker.on(In::Accepted { conn, address }, now);
        }
        self.turn();
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            let bound = Bound::new(Grant::start(socket.client.share_bytes));
            let (conn, cap_bytes) = (conn_id(index), Some(bound.share_bytes()));
            socket.bound = Some(bound);
            self.worker.on(In::Cap { conn, cap_bytes }, now);
        }
        self.turn();
    }

    /// Compares the estimated rates with what the clients took in this time, and with the rates of their links.
    fn believed(&mut self, us: u64) {
        (
            self.outcome.believed_over_taken,
            self.outcome.believed_over_link,
        ) = (f64::MAX, 0.0);
        for sender in self.worker.senders(0) {
            let socket = &self.sockets[sender.conn.index as usize];
            let believed = sender.rate_bytes_per_s as f64;
            let taken = socket.given_bytes as f64 * US_PER_S as f64 / us as f64;
            let over_link = believed / socket.client.rate_bytes_per_s as f64;
            let outcome = &mut self.outcome;
            outcome.believed_over_taken = outcome.believed_over_taken.min(believed / taken);
            outcome.believed_over_link = outcome.believed_over_link.max(over_link);
        }
    }

    fn next_at(&self) -> Option<Instant> {
        let timer = self.worker.deadline();
        let timer = timer.map(|at| at.plus_us(self.world.late_us));
        let writable = self.sockets.iter().filter_map(BoundSocket::writable_at);
        writable.chain(timer).min()
    }

    fn turn(&mut self) {
        let now = self.now;
        for index in 0..self.sockets.len() {
            let socket = &mut self.sockets[index];
            socket.acknowledge(now);
            if socket.writable_at().is_some_and(|at| at <= now) {
                socket.awaits_writable = false;
                let (conn, event) = (conn_id(index), TcpEvent::Writable);
                self.worker.on(In::Tcp { conn, event }, now);
            }
        }
        while let Some(out) = self.worker.poll(now) {
            self.execute(out);
        }
    }

    fn execute(&mut self, out: Out) {
        let now = self.now;
        match out {
            Out::Receive { conn, .. } => {
                let socket = &mut self.sockets[conn.index as usize];
                let received = one_request(&mut socket.asked);
                self.worker.on(In::Received { conn, received }, now);
            }
            Out::Resolve { stream, .. } => {
                let plan = whole(1 << 50, ResidencySource::Always);
                self.worker.on(In::Resolved { stream, plan }, now);
            }
            Out::Cap { conn, cap_bytes } => {
                let socket = &mut self.sockets[conn.index as usize];
                socket.bound = Some(Bound::new(Grant::start(cap_bytes)));
            }
            Out::Send {
                stream,
                len_bytes,
                refill,
                ..
            } => {
                let most_bytes = refill.map_or(u64::MAX, |refill| refill.bytes);
                self.send(stream, len_bytes, most_bytes);
            }
            Out::Sample(conn) => {
                let socket = &self.sockets[conn.index as usize];
                let event = TcpEvent::Sample(TcpSample {
                    unacked_bytes: socket.held_bytes(),
                    unsent_bytes: Some(0),
                    rtt_us: socket.client.rtt_us,
                    ..TcpSample::default()
                });
                self.worker.on(In::Tcp { conn, event }, now);
            }
            _ => {}
        }
    }

    /// As `server/src/worker/sending.rs` does it.
    fn send(&mut self, stream: StreamId, len_bytes: u64, most_bytes: u64) {
        let now = self.now;
        let socket = &mut self.sockets[stream.conn.index as usize];
        let held_bytes = socket.held_bytes();
        let Some(bound) = &mut socket.bound else {
            return;
        };
        let conn = stream.conn;
        self.worker.on(In::SocketLevel { conn, held_bytes }, now);
        let room_bytes = bound.offer_bytes(held_bytes, now);
        let taken_bytes = len_bytes.min(room_bytes);
        let bounded = len_bytes > room_bytes;
        let full = bounded || taken_bytes >= most_bytes;
        if full {
            bound.stopped(0, now);
            socket.awaits_writable = true;
        }
        socket.give(taken_bytes, now);
        let sent = In::Sent {
            stream,
            taken_bytes,
            full,
            unsent_bytes: Some(0),
        };
        self.worker.on(sent, now);
    }
}
