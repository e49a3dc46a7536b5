//! A worker and clients that each download one long file from memory, at their own rate.
//!
//! The sockets send like those of Linux. TCP_NOTSENT_LOWAT bounds the unsent bytes that a socket takes, and a full
//! socket becomes writable when less is left than the threshold that it was given.

use ackpace_core::Machine;
use ackpace_core::congestion::Delay;
use ackpace_core::conn::{Plan, ResidencySource, TcpEvent, TcpSample};
use ackpace_core::units::Instant;
use ackpace_core::worker::{In, Received, SendOrder, SendPolicy};

use super::response::whole;
use super::shell::{Clients, Given, Shell};
pub use super::socket::{Change, Client, Pace, SOCKET_BYTES};
use super::socket::{Socket, conn_id, one_request};

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
        let sockets = Sockets {
            all: self
                .clients
                .iter()
                .map(|client| Socket::new(*client))
                .collect(),
            eager: self.send == SendPolicy::Eager,
            passed_at: Instant { us: 0 },
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
            },
        };
        let mut shell = Shell::new(self.send, Delay::Off, sockets, self.clients.len(), None);
        loop {
            let events = shell.clients.all.iter().filter_map(Socket::next_at);
            let next = events.chain(shell.worker.deadline()).min();
            let next = next.map(|at| at.max(shell.now));
            let Some(at) = next.filter(|at| *at <= self.ends_at) else {
                break;
            };
            shell.clients.pass(at);
            shell.now = at;
            self.turn(&mut shell);
        }
        let mut sockets = shell.clients;
        sockets.pass(self.ends_at);
        let us = self.ends_at.since_us(self.measured_from).max(1);
        sockets.outcome.queue_mean_bytes = (sockets.queue_byte_us / u128::from(us)) as u64;
        sockets.outcome
    }

    fn turn(&self, shell: &mut Shell<Sockets>) {
        let now = shell.now;
        let mut woken = shell.is_due();
        for nth in 0..self.clients.len() {
            let (conn, address) = (conn_id(nth), None);
            let socket = &mut shell.clients.all[nth];
            if !socket.connected && socket.client.starts_at <= now {
                (socket.connected, woken) = (true, true);
                shell.on(In::Accepted { conn, address });
            } else if socket.full && socket.is_writable(now) {
                (socket.full, woken) = (false, true);
                let event = TcpEvent::Writable;
                shell.on(In::Tcp { conn, event });
            }
        }
        shell.turn(woken);
        if now >= self.measured_from {
            let sockets = &mut shell.clients;
            let queue_bytes = sockets.all.iter().map(|socket| socket.unsent_bytes).sum();
            let outcome = &mut sockets.outcome;
            outcome.wakes += u64::from(woken);
            outcome.queue_max_bytes = outcome.queue_max_bytes.max(queue_bytes);
        }
    }
}

impl Outcome {
    /// Wake-ups per 10^9 bytes.
    pub fn wakes_per_gb(&self) -> f64 {
        self.wakes as f64 / (self.sent_bytes as f64 / 1e9)
    }
}

struct Sockets {
    all: Vec<Socket>,
    eager: bool,
    /// They are drained up to this time.
    passed_at: Instant,
    measured_from: Instant,
    queue_byte_us: u128,
    outcome: Outcome,
}

impl Sockets {
    /// Advances time: the paths carry what the sockets hold.
    fn pass(&mut self, until: Instant) {
        // Counting begins inside this interval: split it there.
        if self.passed_at < self.measured_from && until > self.measured_from {
            self.pass(self.measured_from);
        }
        let counted = until > self.measured_from;
        for socket in &mut self.all {
            let before_bytes = socket.unsent_bytes;
            let (sent_bytes, idle_us) = socket.drain(until);
            if counted {
                self.outcome.sent_bytes += sent_bytes;
                self.outcome.idle_us += idle_us;
                let us = until.since_us(self.passed_at);
                self.queue_byte_us +=
                    u128::from(before_bytes + socket.unsent_bytes) * u128::from(us) / 2;
            }
        }
        self.passed_at = until;
    }
}

impl Clients for Sockets {
    fn receive(&mut self, nth: usize, _now: Instant) -> Received {
        one_request(&mut self.all[nth].asked)
    }

    fn plan(&self, _nth: usize) -> Plan {
        whole(1 << 50, ResidencySource::Always)
    }

    fn give(&mut self, nth: usize, order: &SendOrder, now: Instant) -> Given {
        let socket = &mut self.all[nth];
        let taken_bytes = socket.give(order.span.len_bytes, order.refill);
        if now >= self.measured_from {
            self.outcome.sends += 1;
            self.outcome.refused += u64::from(taken_bytes == 0);
        }
        Given {
            taken_bytes,
            full: socket.full,
            unsent_bytes: (socket.full && !self.eager).then_some(socket.unsent_bytes),
        }
    }

    fn sample(&mut self, nth: usize, _now: Instant) -> TcpSample {
        TcpSample {
            unacked_bytes: self.all[nth].unsent_bytes,
            ..TcpSample::default()
        }
    }
}
