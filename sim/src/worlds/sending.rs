//! A worker and clients that each download one long file from memory, at their own rate.
//!
//! The sockets send like those of Linux. TCP_NOTSENT_LOWAT bounds the unsent bytes that a socket takes, and a full
//! socket becomes writable when less is left than the threshold that it was given. The world is the shell: it executes
//! the worker's orders, and counts.

use ackpace_core::Machine;
use ackpace_core::congestion::Delay;
use ackpace_core::conn::{ResidencySource, StreamId, TcpEvent, TcpSample};
use ackpace_core::send::Refill;
use ackpace_core::units::Instant;
use ackpace_core::worker::{In, Out, SendPolicy, Worker};

use super::response::whole;
pub use super::socket::{Change, Client, Pace, SOCKET_BYTES};
use super::socket::{Socket, conn_id, one_request, settings};

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Bytes that left the sockets.
    pub sent_bytes: u64,
    /// Wake-ups of the worker.
    pub wakes: u64,
    /// Attempts to send.
    pub sends: u64,
    /// Attempts to send for which the socket had no room at all.
    pub refused: u64,
    /// Mean over time of the unsent bytes in all sockets together.
    pub queue_mean_bytes: u64,
    /// The maximum of these.
    pub queue_max_bytes: u64,
    /// Time in which paths were idle for lack of bytes, summed over all clients.
    pub idle_us: u64,
    /// Bytes of each client.
    pub by_client_bytes: Vec<u64>,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct World {
    /// Who downloads.
    pub clients: Vec<Client>,
    /// When and how far sockets are filled.
    pub send: SendPolicy,
    /// When counting begins.
    pub measured_from: Instant,
    /// When it ends.
    pub ends_at: Instant,
}

impl World {
    /// Runs the world until `ends_at`.
    pub fn run(&self) -> Outcome {
        let mut run = Run {
            worker: Worker::new(settings(self.send, Delay::Off)),
            sockets: self
                .clients
                .iter()
                .map(|client| Socket::new(*client))
                .collect(),
            eager: self.send == SendPolicy::Eager,
            now: Instant { us: 0 },
            measured_from: self.measured_from,
            queue_byte_us: 0,
            outcome: Outcome {
                sent_bytes: 0,
                wakes: 0,
                sends: 0,
                refused: 0,
                queue_mean_bytes: 0,
                queue_max_bytes: 0,
                idle_us: 0,
                by_client_bytes: vec![0; self.clients.len()],
            },
        };
        while let Some(at) = run.next_at().filter(|at| *at <= self.ends_at) {
            run.pass(at);
            run.turn();
        }
        run.pass(self.ends_at);
        let us = self.ends_at.since_us(self.measured_from).max(1);
        run.outcome.queue_mean_bytes = (run.queue_byte_us / u128::from(us)) as u64;
        run.outcome
    }
}

impl Outcome {
    /// Wake-ups per 10^9 bytes.
    pub fn wakes_per_gb(&self) -> f64 {
        self.wakes as f64 / (self.sent_bytes as f64 / 1e9)
    }

    /// Jain's index of the clients' bytes (Jain, Chiu, Hawe 1984): 1 if all got the same.
    pub fn jain(&self) -> f64 {
        let bytes = || self.by_client_bytes.iter().map(|bytes| *bytes as f64);
        let (sum, squares) = (bytes().sum::<f64>(), bytes().map(|b| b * b).sum::<f64>());
        sum * sum / (self.by_client_bytes.len() as f64 * squares)
    }
}

struct Run {
    worker: Worker,
    sockets: Vec<Socket>,
    eager: bool,
    now: Instant,
    measured_from: Instant,
    queue_byte_us: u128,
    outcome: Outcome,
}

impl Run {
    fn next_at(&self) -> Option<Instant> {
        let events = self.sockets.iter().filter_map(Socket::next_at);
        events
            .chain(self.worker.deadline())
            .min()
            .map(|at| at.max(self.now))
    }

    /// Advances time: the paths carry what the sockets hold.
    fn pass(&mut self, until: Instant) {
        // Counting begins inside this interval: split it there.
        if self.now < self.measured_from && until > self.measured_from {
            self.pass(self.measured_from);
        }
        let counted = until > self.measured_from;
        for (socket, bytes) in self
            .sockets
            .iter_mut()
            .zip(&mut self.outcome.by_client_bytes)
        {
            let before_bytes = socket.unsent_bytes();
            let (sent_bytes, idle_us) = socket.drain(until);
            if counted {
                *bytes += sent_bytes;
                self.outcome.sent_bytes += sent_bytes;
                self.outcome.idle_us += idle_us;
                let us = until.since_us(self.now);
                self.queue_byte_us +=
                    u128::from(before_bytes + socket.unsent_bytes()) * u128::from(us) / 2;
            }
        }
        self.now = until;
    }

    fn turn(&mut self) {
        let now = self.now;
        let mut woken = self.worker.deadline().is_some_and(|at| at <= now);
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            let conn = conn_id(index);
            if !socket.connected && socket.client.starts_at <= now {
                (socket.connected, woken) = (true, true);
                self.worker.on(
                    In::Accepted {
                        conn,
                        address: None,
                    },
                    now,
                );
            } else if socket.full && socket.is_writable(now) {
                (socket.full, woken) = (false, true);
                let event = TcpEvent::Writable;
                self.worker.on(In::Tcp { conn, event }, now);
            }
        }
        if now >= self.measured_from {
            self.outcome.wakes += u64::from(woken);
        }
        while let Some(out) = self.worker.poll(now) {
            self.execute(out);
        }
        let queue_bytes = self
            .sockets
            .iter()
            .map(|socket| socket.unsent_bytes())
            .sum();
        if now >= self.measured_from {
            self.outcome.queue_max_bytes = self.outcome.queue_max_bytes.max(queue_bytes);
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
            Out::Send {
                stream,
                len_bytes,
                refill,
                ..
            } => self.send(stream, len_bytes, refill),
            Out::Sample(conn) => {
                let sample = TcpSample {
                    unacked_bytes: self.sockets[conn.index as usize].unsent_bytes(),
                    ..TcpSample::default()
                };
                let event = TcpEvent::Sample(sample);
                self.worker.on(In::Tcp { conn, event }, now);
            }
            // Downloads never end and need no disk: there is nothing to do.
            Out::Accept(_)
            | Out::Listen(_)
            | Out::Underfed { .. }
            | Out::Pace { .. }
            | Out::Cap { .. }
            | Out::Probe { .. }
            | Out::Want(_)
            | Out::Forget(_)
            | Out::Release(_) => {}
            Out::Ended(_) | Out::Slice(_) | Out::Arrived { .. } | Out::Shutdown(_) => {}
            Out::Close { .. } => {}
            Out::Export { .. } | Out::Keep { .. } => unreachable!("nobody asked for it"),
        }
    }

    fn send(&mut self, stream: StreamId, len_bytes: u64, refill: Option<Refill>) {
        let socket = &mut self.sockets[stream.conn.index as usize];
        let taken_bytes = socket.give(len_bytes, refill);
        let full = socket.full;
        if self.now >= self.measured_from {
            self.outcome.sends += 1;
            self.outcome.refused += u64::from(taken_bytes == 0);
        }
        let unsent_bytes = (full && !self.eager).then_some(socket.unsent_bytes());
        let sent = In::Sent {
            stream,
            taken_bytes,
            full,
            unsent_bytes,
        };
        self.worker.on(sent, self.now);
    }
}
