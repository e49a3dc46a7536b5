//! The client side of all connections: their events in the order of time.
//!
//! A socket is visited only when something happens on it, so an event costs no more among ten thousand clients than
//! among ten.

use std::collections::BTreeSet;

use ackpace_core::conn::{Plan, ResidencySource, Span, TcpEvent, TcpSample};
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{Received, SendOrder};

use super::{Download, World};
use crate::worlds::response::plan;
use crate::worlds::shell::{Clients, Given};
use crate::worlds::socket::{Socket, one_request};

/// The sockets of all clients, and when something happens on each.
pub(super) struct Paths {
    downloads: Vec<Download>,
    file_bytes: u64,
    sockets: Vec<Socket>,
    /// Who has sent RST since [`Paths::left`] was called last.
    left: Vec<usize>,
    gone: Vec<bool>,
    /// The next event of each connection, by time and by connection.
    events: BTreeSet<(Instant, usize)>,
    next_at: Vec<Option<Instant>>,
    counted_from: Instant,
    counted_bytes: Vec<u64>,
}

impl Paths {
    /// No client has connected yet. Bytes that arrive count from `measured_from` on.
    pub fn new(world: &World) -> Paths {
        let downloads = &world.downloads;
        let count = downloads.len();
        let sockets = downloads.iter().map(|d| Socket::new(d.client));
        let mut paths = Paths {
            downloads: downloads.clone(),
            file_bytes: world.file_bytes,
            sockets: sockets.collect(),
            left: Vec::new(),
            gone: vec![false; count],
            events: BTreeSet::new(),
            next_at: vec![None; count],
            counted_from: world.measured_from,
            counted_bytes: vec![0; count],
        };
        (0..count).for_each(|n| paths.renew(n));
        paths
    }

    /// Time of the next event.
    pub fn next_at(&self) -> Option<Instant> {
        self.events.first().map(|(at, _)| *at)
    }

    /// Returns the next event that is due by `now`; `None` in it: the client connects.
    pub fn next_event(&mut self, now: Instant) -> Option<(usize, Option<TcpEvent>)> {
        while let Some((_, n)) = self.events.first().copied().filter(|(at, _)| *at <= now) {
            let event = self.event_of(n, now);
            self.renew(n);
            if let Some(event) = event {
                return Some((n, event));
            }
        }
        None
    }

    fn event_of(&mut self, n: usize, now: Instant) -> Option<Option<TcpEvent>> {
        let reset = self.downloads[n].resets_at.is_some_and(|at| at <= now);
        let socket = self.drained(n, now);
        if !socket.connected {
            socket.connected = true;
            return Some(None);
        }
        if reset {
            self.gone[n] = true;
            self.left.push(n);
            return Some(Some(TcpEvent::Reset));
        }
        (socket.full && socket.is_writable(now)).then(|| {
            socket.full = false;
            Some(TcpEvent::Writable)
        })
    }

    /// A socket, drained up to now. The caller may change it in ways that do not move its next event.
    pub fn drained(&mut self, n: usize, now: Instant) -> &mut Socket {
        if !self.gone[n] {
            self.drain(n, now);
        }
        &mut self.sockets[n]
    }

    /// Who has sent RST since the last call.
    pub fn left(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.left)
    }

    /// Bytes that arrived at each client when the run ends at `now`.
    pub fn finish(mut self, now: Instant) -> Vec<u64> {
        (0..self.sockets.len()).for_each(|n| {
            self.drained(n, now);
        });
        self.counted_bytes
    }

    /// Drains a socket in steps, split where counting begins and where its rate changes.
    fn drain(&mut self, n: usize, until: Instant) {
        let socket = &mut self.sockets[n];
        while socket.drained_at < until {
            let from = socket.drained_at;
            let cuts = [socket.changes_at(), Some(self.counted_from)];
            let cuts = cuts.into_iter().flatten().filter(|cut| *cut > from);
            let (sent_bytes, _) = socket.drain(cuts.min().map_or(until, |cut| cut.min(until)));
            if from >= self.counted_from {
                self.counted_bytes[n] += sent_bytes;
            }
        }
    }

    fn renew(&mut self, n: usize) {
        let socket = &self.sockets[n];
        let reset = self.downloads[n].resets_at.filter(|_| socket.connected);
        let next = [socket.next_at(), reset].into_iter().flatten().min();
        let next = next.filter(|_| !self.gone[n]);
        let before = std::mem::replace(&mut self.next_at[n], next);
        if before != next {
            before.map(|at| self.events.remove(&(at, n)));
            next.map(|at| self.events.insert((at, n)));
        }
    }
}

impl Clients for Paths {
    fn receive(&mut self, nth: usize, now: Instant) -> Received {
        one_request(&mut self.drained(nth, now).asked)
    }

    /// The rest of its file, which is on the disk.
    fn plan(&self, nth: usize) -> Plan {
        let download = self.downloads[nth];
        let rest = Span {
            offset_bytes: download.from_bytes,
            len_bytes: self.file_bytes - download.from_bytes,
        };
        plan(download.file, rest, ResidencySource::Ask)
    }

    fn give(&mut self, nth: usize, order: &SendOrder, now: Instant) -> Given {
        let socket = self.drained(nth, now);
        let taken_bytes = socket.give(order.span.len_bytes, order.refill);
        let (full, unsent_bytes) = (socket.full, Some(socket.unsent_bytes));
        self.renew(nth);
        Given {
            taken_bytes,
            full,
            unsent_bytes,
        }
    }

    fn sample(&mut self, nth: usize, now: Instant) -> TcpSample {
        let socket = self.drained(nth, now);
        TcpSample {
            unacked_bytes: socket.unsent_bytes,
            unsent_bytes: Some(socket.unsent_bytes),
            path: socket.path(now),
            ..TcpSample::default()
        }
    }

    fn watch(&mut self, nth: usize, epollout_bytes: u32, now: Instant) {
        self.drained(nth, now).watch(epollout_bytes);
        self.renew(nth);
    }

    fn closed(&mut self, _nth: usize, _why: Why) {}
}
