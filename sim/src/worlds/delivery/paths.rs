//! The client side of all connections: their events in the order of time.
//!
//! A socket is visited only when something happens on it, so an event costs no more among ten thousand clients than
//! among ten.

use std::collections::BTreeSet;

use ackpace_core::send::Refill;
use ackpace_core::units::Instant;

use super::Download;
use crate::worlds::socket::Socket;

/// What a client does.
pub(super) enum ClientEvent {
    Connects,
    Resets,
    /// Its socket becomes writable.
    Writable,
}

/// The sockets of all clients, and when something happens on each.
pub(super) struct Paths {
    sockets: Vec<Socket>,
    resets_at: Vec<Option<Instant>>,
    gone: Vec<bool>,
    /// The next event of each connection, by time and by connection.
    events: BTreeSet<(Instant, usize)>,
    next_at: Vec<Option<Instant>>,
    counted_from: Instant,
    counted_bytes: Vec<u64>,
}

impl Paths {
    /// No client has connected yet. Bytes that arrive count from `counted_from` on.
    pub fn new(downloads: &[Download], counted_from: Instant) -> Paths {
        let count = downloads.len();
        let sockets = downloads.iter().map(|d| Socket::new(d.client));
        let mut paths = Paths {
            sockets: sockets.collect(),
            resets_at: downloads.iter().map(|d| d.resets_at).collect(),
            gone: vec![false; count],
            events: BTreeSet::new(),
            next_at: vec![None; count],
            counted_from,
            counted_bytes: vec![0; count],
        };
        (0..count).for_each(|n| paths.renew(n));
        paths
    }

    /// Time of the next event.
    pub fn next_at(&self) -> Option<Instant> {
        self.events.first().map(|(at, _)| *at)
    }

    /// Returns the next event that is due by `now`.
    pub fn next_event(&mut self, now: Instant) -> Option<(usize, ClientEvent)> {
        while let Some((_, n)) = self.events.first().copied().filter(|(at, _)| *at <= now) {
            let event = self.event_of(n, now);
            self.renew(n);
            if let Some(event) = event {
                return Some((n, event));
            }
        }
        None
    }

    fn event_of(&mut self, n: usize, now: Instant) -> Option<ClientEvent> {
        let reset = self.resets_at[n].is_some_and(|at| at <= now);
        let socket = self.drained(n, now);
        if !socket.connected {
            socket.connected = true;
            return Some(ClientEvent::Connects);
        }
        if reset {
            self.gone[n] = true;
            return Some(ClientEvent::Resets);
        }
        (socket.full && socket.is_writable(now)).then(|| {
            socket.full = false;
            ClientEvent::Writable
        })
    }

    /// A socket, drained up to now. The caller may change it in ways that do not move its next event.
    pub fn drained(&mut self, n: usize, now: Instant) -> &mut Socket {
        if !self.gone[n] {
            self.drain(n, now);
        }
        &mut self.sockets[n]
    }

    /// Gives bytes to a socket. Returns how many it takes, and whether it is full now.
    pub fn give(
        &mut self,
        n: usize,
        len_bytes: u64,
        refill: Option<Refill>,
        now: Instant,
    ) -> (u64, bool) {
        let socket = self.drained(n, now);
        let taken_bytes = socket.give(len_bytes, refill);
        let full = socket.full;
        self.renew(n);
        (taken_bytes, full)
    }

    /// A socket is given nothing for a while, and becomes writable when less than this is left in it.
    pub fn watch(&mut self, n: usize, epollout_bytes: u32, now: Instant) {
        self.drained(n, now).watch(epollout_bytes);
        self.renew(n);
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
        let reset = self.resets_at[n].filter(|_| socket.connected);
        let next = [socket.next_at(), reset].into_iter().flatten().min();
        let next = next.filter(|_| !self.gone[n]);
        let before = std::mem::replace(&mut self.next_at[n], next);
        if before != next {
            before.map(|at| self.events.remove(&(at, n)));
            next.map(|at| self.events.insert((at, n)));
        }
    }
}
