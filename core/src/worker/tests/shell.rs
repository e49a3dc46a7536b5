//! A shell without a kernel: clients, page cache and device are numbers. It obeys each order and
//! checks what no order may ever break.

mod away;
mod clients;
mod device;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use alloc::sync::Arc;

use self::away::Away;
pub(super) use self::clients::Request;
use self::clients::{Client, Response};
use super::*;
use crate::addresses::{Address, AddressCounts};
use crate::conn::Want;
use crate::disk::{self, Disk, ReadId};

/// More orders than one event can ever cause: beyond, the machine turns in circles.
const OUTS_MAX: u32 = 5_000;

pub(super) const DISK: disk::Settings = disk::Settings {
    memory_bytes: 16 * WINDOW,
    page_cache_bytes: 16 * WINDOW,
    ..disk::Settings::ONE_DISK
};

/// Numbers that look random, the same for the same seed (splitmix64).
pub(super) struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

pub(super) struct Shell {
    pub worker: Worker,
    pub disk: Disk,
    pub now: Instant,
    pub dice: Dice,
    pub clients: BTreeMap<ConnId, Client>,
    pub backlog: VecDeque<Option<Address>>,
    pub resolving: BTreeMap<StreamId, Request>,
    pub reading: BTreeMap<ReadId, (ObjectId, Span, disk::Destination)>,
    /// Slots that are read, and those that streams hold, each with the bytes that are in them.
    landed: BTreeMap<ReadId, u32>,
    leases: BTreeMap<StreamId, Vec<(Span, u32)>>,
    slots: u32,
    listings: BTreeSet<StreamId>,
    wants: BTreeSet<StreamId>,
    mailbox: Vec<In>,
    responses: BTreeMap<StreamId, Response>,
    /// Ended, not yet told to the log: where they end among the client's bytes, and how.
    untold: BTreeMap<StreamId, Response>,
    pub resident: BTreeSet<(u32, u64)>,
    evicted_at: BTreeMap<(u32, u64), Instant>,
    generations: BTreeMap<u32, u32>,
    listening: bool,
    arrivals: bool,
    send: SendPolicy,
    connections_max: usize,
    /// Whether anything may fail, be cut short or come late.
    pub mishaps: bool,
    /// Responses that the kernel has all of.
    pub wholes: u32,
    /// Connections that were given away and not adopted yet.
    pub away: Vec<Away>,
}

impl Shell {
    pub fn new(settings: Settings, seed: u64) -> Shell {
        let mut worker = Worker::new(settings);
        worker.count_addresses_in(Arc::new(AddressCounts::new(64, seed)));
        Shell {
            worker,
            disk: Disk::new(DISK),
            now: Instant { us: 1 },
            dice: Dice(seed),
            clients: BTreeMap::new(),
            backlog: VecDeque::new(),
            resolving: BTreeMap::new(),
            reading: BTreeMap::new(),
            landed: BTreeMap::new(),
            leases: BTreeMap::new(),
            slots: 0,
            listings: BTreeSet::new(),
            wants: BTreeSet::new(),
            mailbox: Vec::new(),
            responses: BTreeMap::new(),
            untold: BTreeMap::new(),
            resident: BTreeSet::new(),
            evicted_at: BTreeMap::new(),
            generations: BTreeMap::new(),
            listening: true,
            arrivals: settings.arrivals,
            send: settings.send,
            connections_max: settings.connections_max as usize,
            mishaps: true,
            wholes: 0,
            away: Vec::new(),
        }
    }

    /// One time in `rarity`.
    fn mishap(&mut self, rarity: u64) -> bool {
        self.mishaps && self.dice.below(rarity) == 0
    }

    pub fn on(&mut self, event: In) {
        if let In::Fetched {
            stream, seq, span, ..
        } = event
        {
            if !self.worker.awaits(stream, seq) {
                self.drop_late(stream, span);
            }
        }
        self.worker.on(event, self.now);
    }

    pub fn tcp(&mut self, conn: ConnId, event: TcpEvent) {
        self.on(In::Tcp { conn, event });
    }

    /// Obey until neither machine has an order left.
    pub fn turn(&mut self) {
        for event in std::mem::take(&mut self.mailbox) {
            self.on(event);
        }
        let mut outs = 0;
        loop {
            if self.listening && !self.backlog.is_empty() {
                self.on(In::Incoming);
            }
            while let Some(out) = self.worker.poll(self.now) {
                outs += 1;
                assert!(outs < OUTS_MAX, "the worker turns in circles: {out:?}");
                self.obey(out);
            }
            let waiting = self.listening && !self.backlog.is_empty();
            if !self.disk_turn() && !waiting {
                break;
            }
        }
        self.check();
    }

    fn alive(&self, stream: StreamId) -> bool {
        let conn = self.worker.table.get(stream.conn);
        conn.is_some_and(|conn| conn.nth == stream.nth)
    }

    /// What holds whenever all is quiet.
    fn check(&self) {
        let alive = |stream: &StreamId| self.alive(*stream);
        assert!(self.wants.iter().all(alive), "a want outlives its stream");
        assert!(self.leases.keys().all(alive), "a lease does");
        assert!(self.listings.iter().all(alive), "a listing does");
        assert!(self.resolving.keys().all(alive), "a request does");
        assert!(self.responses.keys().all(alive), "a response does");
        let owners = self.wants.iter().map(|s| s.conn).collect::<BTreeSet<_>>();
        assert_eq!(owners.len(), self.wants.len(), "two wants at once");
        assert_eq!(self.worker.connections() as usize, self.clients.len());
        assert!(self.clients.len() <= self.connections_max);
        assert_eq!(self.disk.forgotten(), [], "nobody is at work for a want");
        assert_eq!(self.worker.counts().mended, 0);
        assert!(self.reading.len() <= crate::limits::READS_IN_FLIGHT_MAX);
        assert!(
            self.clients.is_empty() || self.worker.deadline().is_some(),
            "somebody is waited for without a deadline"
        );
    }

    fn client(&mut self, conn: ConnId, out: &Out) -> &mut Client {
        let client = self.clients.get_mut(&conn);
        client.unwrap_or_else(|| panic!("an order for the dead: {out:?}"))
    }

    fn obey(&mut self, out: Out) {
        match out {
            Out::Accept(room) => self.accept(room),
            Out::Listen(on) => assert_ne!(std::mem::replace(&mut self.listening, on), on),
            Out::Receive { conn, expect } => {
                self.client(conn, &out);
                let received = self.receive(conn, expect);
                self.on(In::Received { conn, received });
            }
            Out::Resolve { stream, .. } => {
                self.client(stream.conn, &out);
                if !self.mishap(2) {
                    self.resolve(stream);
                }
            }
            Out::Probe { stream, .. } | Out::Want(Want { stream, .. }) | Out::Forget(stream) => {
                self.client(stream.conn, &out);
                self.obey_about_reads(out);
            }
            Out::Release(stream) => self.release(stream, u64::MAX),
            Out::Ended(stream) => {
                let ended = self.responses.remove(&stream).expect("ended twice");
                self.release(stream, u64::MAX);
                self.listings.remove(&stream);
                self.wholes += u32::from(ended.whole());
                if self.arrivals {
                    self.untold.insert(stream, ended);
                }
            }
            Out::Slice(stream) => {
                self.client(stream.conn, &out);
                self.slice(stream);
            }
            Out::Send {
                stream,
                part,
                from_bytes,
                len_bytes,
                held,
                refill,
                ..
            } => {
                self.client(stream.conn, &out);
                self.send(stream, (part, from_bytes, len_bytes), held, refill);
            }
            Out::Underfed { conn, .. }
            | Out::Pace { conn, .. }
            | Out::Cap { conn, .. }
            | Out::Keep { conn, .. } => drop(self.client(conn, &out)),
            Out::Sample(conn) => {
                let client = self.client(conn, &out);
                let sample = unacked(client.unacked_bytes);
                self.tcp(conn, TcpEvent::Sample(sample));
            }
            Out::Arrived { stream, outcome } => self.arrived(stream, outcome),
            Out::Shutdown(conn) => {
                let client = self.client(conn, &out);
                assert!(!client.shut, "our FIN twice");
                client.shut = true;
            }
            Out::Export { conn, exported } => self.exported(conn, exported),
            Out::Close { conn, .. } => {
                self.client(conn, &out);
                self.clients.remove(&conn);
                let told = |s: &StreamId| s.conn != conn;
                assert!(self.untold.keys().all(told), "never told to the log");
            }
        }
    }

    fn accept(&mut self, room: u32) {
        for _ in 0..room {
            let Some(address) = self.backlog.pop_front() else {
                return;
            };
            if self.mishap(50) {
                self.backlog.push_front(address);
                return self.on(In::AcceptFailed);
            }
            let conn = self.place();
            self.clients.insert(conn, Client::default());
            self.on(In::Accepted { conn, address });
        }
    }

    fn place(&mut self) -> ConnId {
        let used = |index: &u32| self.clients.keys().any(|conn| conn.index == *index);
        let index = (0..).find(|index| !used(index)).expect("a free place");
        let generation = self.generations.entry(index).or_insert(0);
        *generation += 1;
        let generation = *generation;
        ConnId { index, generation }
    }

    /// Time passes; the worker is called whenever it asked for that.
    pub fn wait_us(&mut self, us: u64) {
        let (end, mut turns) = (self.now.plus_us(us), 0);
        while let Some(at) = self.worker.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.turn();
            turns += 1;
            assert!(turns < 1_000 + us / 100_000, "woken for nothing");
        }
        self.now = end;
    }

    /// Nobody is left: is nothing kept?
    pub fn check_empty(&self) {
        assert!(self.worker.turns.is_empty() && self.worker.outs.is_empty());
        assert!(self.worker.door.is_empty());
        assert_eq!(self.worker.table.iter().count(), 0);
        assert!(self.responses.is_empty() && self.untold.is_empty() && self.away.is_empty());
        assert!(self.wants.is_empty() && self.reading.is_empty());
        assert!(self.leases.is_empty() && self.slots == 0, "slots are lost");
        assert!(self.disk.idle(), "the disk machine keeps something");
    }
}
