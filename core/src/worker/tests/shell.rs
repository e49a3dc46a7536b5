//! A shell without a kernel: clients, page cache and device are numbers. It obeys each order and
//! checks what no order may ever break.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use alloc::sync::Arc;

use super::*;
use crate::addresses::{Address, AddressCounts};
use crate::congestion::Delay;
use crate::conn::Held;
use crate::disk::{self, Disk, ReadError, ReadId};
use crate::limits::SLOT_BYTES;
use crate::prefetch::Prefetch;
use crate::residency::limits::RESIDENCY_TRUST_US;
use crate::send::Refill;

/// Residency is kept in quarters of a window, so that half-known windows occur.
const CHUNK: u64 = WINDOW / 4;
/// What the kernel holds for one client.
const SOCKET_BYTES: u64 = WINDOW + WINDOW / 2;
/// More orders than one event can ever cause: beyond, the machine turns in circles.
const OUTS_MAX: u32 = 5_000;

pub(super) const DISK: disk::Settings = disk::Settings {
    prefetch: Prefetch::Tdap,
    order: disk::Order::CLook,
    cancel: true,
    delay: Delay::Rate,
    direct: true,
    memory_bytes: 16 * WINDOW,
    page_cache_bytes: 16 * WINDOW,
    rotational: true,
    spindles: 1,
    reads: None,
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

/// A request that lies in a client's input.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub plan: Plan,
    pub slices: Vec<u64>,
    pub body_bytes: u64,
}

#[derive(Default)]
pub(super) struct Client {
    pub input: VecDeque<Request>,
    pub body_bytes: u64,
    pub fin: bool,
    pub unacked_bytes: u64,
    /// Bytes ever given to the kernel for this client.
    pub taken_bytes: u64,
    full: bool,
    shut: bool,
}

/// A response under way as the client sees it.
struct Response {
    parts: Vec<Part>,
    slices: VecDeque<u64>,
    slice: Option<(u64, bool)>,
    head_bytes: u64,
    at: (u16, u64),
    start_bytes: u64,
    sent_bytes: u64,
}

impl Response {
    /// Go past what is finished: parts, and slices.
    fn settle(&mut self) {
        while let Some(part) = self.parts.get(usize::from(self.at.0)) {
            let mut parts = 1;
            let len_bytes = match part {
                Part::Bytes(_) => {
                    let behind = &self.parts[usize::from(self.at.0)..];
                    let texts = behind.iter().map_while(|part| match part {
                        Part::Bytes(bytes) => Some(bytes.len() as u64),
                        _ => None,
                    });
                    parts = texts.clone().count() as u16;
                    texts.sum()
                }
                Part::Body { span, .. } => span.len_bytes,
                Part::Slices => match self.slice {
                    Some((len_bytes, true)) => len_bytes,
                    _ => return,
                },
            };
            if self.at.1 < len_bytes {
                return;
            }
            self.at = (self.at.0 + parts, 0);
        }
    }

    fn whole(&self) -> bool {
        usize::from(self.at.0) == self.parts.len()
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

/// A connection without a machine: what its shells send each other.
pub(super) struct Away {
    client: Client,
    response: Option<Response>,
    exported: Box<Exported<LocalFile>>,
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
        if let In::Filled {
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

    /// Whether the disk machine has a completion that wakes the worker.
    fn disk_turn(&mut self) -> bool {
        let mut woken = false;
        while let Some(out) = self.disk.poll(self.now) {
            match out {
                disk::Out::Map(object) => {
                    let layout = disk::Layout::default();
                    let mapped = disk::In::Mapped { object, layout };
                    self.disk.on(mapped, self.now);
                }
                disk::Out::Read {
                    read,
                    object,
                    span,
                    into,
                } => {
                    if let disk::Destination::Slots(slots) = into {
                        self.slots += slots;
                        assert!(u64::from(self.slots) * SLOT_BYTES <= DISK.memory_bytes);
                    }
                    self.reading.insert(read, (object, span, into));
                }
                disk::Out::Filled {
                    read,
                    stream,
                    seq,
                    span,
                    held,
                    chosen,
                    urgent,
                } => {
                    self.wants.remove(&stream);
                    if let Some(slots) = self.landed.remove(&read) {
                        assert_eq!(held, Held::Slots);
                        self.leases.entry(stream).or_default().push((span, slots));
                    }
                    self.mailbox.push(In::Filled {
                        stream,
                        seq,
                        span,
                        held,
                        chosen,
                    });
                    woken |= urgent;
                }
                disk::Out::Nudge(stream) => {
                    assert!(self.alive(stream), "a nudge for the dead");
                    woken = true;
                }
                disk::Out::Failed { stream, seq, .. } => {
                    self.wants.remove(&stream);
                    self.mailbox.push(In::Unfilled {
                        stream,
                        seq,
                        why: Why::ReadFailed,
                    });
                    woken = true;
                }
            }
        }
        let lost = std::mem::take(&mut self.landed).into_values().sum();
        self.free(lost); // read for a stream that is gone
        if woken {
            for event in std::mem::take(&mut self.mailbox) {
                self.on(event);
            }
        }
        woken
    }

    fn free(&mut self, slots: u32) {
        self.slots -= slots;
        self.disk.on(disk::In::Freed(slots), self.now);
    }

    /// Give back what a stream holds of the pool before this byte of its file.
    fn release(&mut self, stream: StreamId, before_bytes: u64) {
        let leases = self.leases.remove(&stream).unwrap_or_default();
        let (sent, held): (Vec<_>, Vec<_>) = leases
            .into_iter()
            .partition(|(span, _)| span.end_bytes() <= before_bytes);
        self.free(sent.iter().map(|(_, slots)| slots).sum());
        if !held.is_empty() {
            self.leases.insert(stream, held);
        }
    }

    /// Nobody waits for what was read: its slots are free.
    fn drop_late(&mut self, stream: StreamId, late: Span) {
        let leases = self.leases.remove(&stream).unwrap_or_default();
        let (free, held): (Vec<_>, Vec<_>) =
            leases.into_iter().partition(|(span, _)| *span == late);
        self.free(free.iter().map(|(_, slots)| slots).sum());
        if !held.is_empty() {
            self.leases.insert(stream, held);
        }
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
        assert_eq!(self.disk.mended() + self.worker.counts().mended, 0);
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
            Out::Listen(on) => {
                assert_ne!(self.listening, on);
                self.listening = on;
            }
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
            Out::Probe {
                stream,
                object,
                span,
                ..
            } => {
                self.client(stream.conn, &out);
                let resident_bytes = self.resident_bytes(object, span);
                self.on(In::Probed {
                    stream,
                    resident_bytes,
                });
            }
            Out::Want(want) => {
                self.client(want.stream.conn, &out);
                self.wants.insert(want.stream);
                self.disk.on(disk::In::Want(want), self.now);
            }
            Out::Forget(stream) => {
                self.client(stream.conn, &out);
                self.wants.remove(&stream);
                self.listings.remove(&stream);
                self.resolving.remove(&stream);
                self.disk.on(disk::In::Forget(stream), self.now);
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
            Out::Pace { conn, .. } | Out::Share { conn, .. } => {
                self.client(conn, &out);
            }
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
            Out::Keep { conn, .. } => {
                self.client(conn, &out);
            }
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

    /// Somebody wants this connection. The kernel may know what its client has acknowledged.
    pub fn export(&mut self, conn: ConnId) {
        let unacked_bytes = self.clients[&conn].unacked_bytes;
        let unacked_bytes = (self.dice.below(2) == 0).then_some(unacked_bytes);
        self.on(In::Export {
            conn,
            unacked_bytes,
        });
    }

    /// Nothing is left of it here but what goes along.
    fn exported(&mut self, conn: ConnId, exported: Box<Exported<LocalFile>>) {
        let client = self.clients.remove(&conn).expect("an export of the living");
        assert!(!client.fin || self.mishaps, "a half-closed one");
        let other = |stream: &StreamId| stream.conn != conn;
        assert!(self.untold.keys().all(other), "never told to the log");
        assert!(self.wants.iter().all(other) && self.leases.keys().all(other));
        assert!(self.resolving.keys().all(other) && self.listings.iter().all(other));
        let nth = exported.nth;
        let response = self.responses.remove(&stream_id(conn, nth));
        assert_eq!(exported.given_bytes, client.taken_bytes);
        assert!(exported.acked_bytes <= client.taken_bytes - client.unacked_bytes);
        match (&exported.stage, &response) {
            (Stage::Response(cursor), Some(response)) => {
                assert_eq!(cursor.sent_bytes, response.sent_bytes);
            }
            (Stage::Response(_), None) | (_, Some(_)) => panic!("{exported:?}"),
            _ => {}
        }
        self.away.push(Away {
            client,
            response,
            exported,
        });
    }

    /// A connection that is away comes (back) to this machine.
    pub fn adopt(&mut self) {
        if self.worker.room() == 0 {
            return;
        }
        let Some(away) = self.away.pop() else {
            return;
        };
        let (conn, nth) = (self.place(), away.exported.nth);
        let client = Client {
            full: false, // as far as the machine knows
            ..away.client
        };
        self.clients.insert(conn, client);
        if let Some(response) = away.response {
            self.responses.insert(stream_id(conn, nth), response);
        }
        self.on(In::Adopt {
            conn,
            address: None,
            exported: away.exported,
        });
    }

    fn receive(&mut self, conn: ConnId, expect: Expect) -> Received {
        let (part, broken) = (self.mishap(8), self.mishap(20));
        let client = self.clients.get_mut(&conn).expect("checked");
        let bytes = client.body_bytes.min(1 + self.dice.below(WINDOW));
        match expect {
            Expect::Head if part && !client.input.is_empty() => Received::HeadPart,
            Expect::Head => match client.input.pop_front() {
                Some(request) => {
                    let more = !client.input.is_empty() || client.fin;
                    let body = request.body_bytes > 0;
                    client.body_bytes = request.body_bytes;
                    let nth = self.worker.table.get(conn).expect("it asked").nth;
                    self.resolving.insert(stream_id(conn, nth), request);
                    Received::Request { body, more }
                }
                None if client.fin => Received::End,
                None => Received::Nothing,
            },
            Expect::Body if broken => Received::Broken,
            _ if bytes > 0 => {
                client.body_bytes -= bytes;
                let done = client.body_bytes == 0;
                Received::Skipped { bytes, done }
            }
            Expect::Rest if client.input.pop_front().is_some() => {
                let (bytes, done) = (HEAD_BYTES, false);
                Received::Skipped { bytes, done }
            }
            _ if client.fin => Received::End,
            _ => Received::Nothing,
        }
    }

    pub fn resolve(&mut self, stream: StreamId) {
        let Some(Request { plan, slices, .. }) = self.resolving.remove(&stream) else {
            return;
        };
        let client = self.clients.get(&stream.conn).expect("else forgotten");
        let mut response = Response {
            parts: plan.parts.to_vec(),
            slices: slices.into(),
            slice: None,
            head_bytes: plan.head_len_bytes,
            at: (0, 0),
            start_bytes: client.taken_bytes,
            sent_bytes: 0,
        };
        response.settle();
        if response.parts.iter().any(|p| matches!(p, Part::Slices)) {
            self.listings.insert(stream);
        }
        self.responses.insert(stream, response);
        self.on(In::Resolved { stream, plan });
    }

    fn slice(&mut self, stream: StreamId) {
        assert!(self.listings.contains(&stream), "no listing is open");
        let fails = self.mishap(20);
        let response = self.responses.get_mut(&stream).expect("a response");
        if let Some((len_bytes, last)) = response.slice {
            assert!(response.at.1 == len_bytes && !last, "a slice is lost");
        }
        if fails {
            let why = Why::ListingFailed;
            return self.on(In::Failed { stream, why });
        }
        let len_bytes = response.slices.pop_front().unwrap_or(0);
        let last = response.slices.is_empty();
        (response.slice, response.at.1) = (Some((len_bytes, last)), 0);
        response.settle();
        self.on(In::Sliced {
            stream,
            len_bytes,
            last,
        });
    }

    fn send(
        &mut self,
        stream: StreamId,
        (part, from_bytes, len_bytes): (u16, u64, u64),
        held: Held,
        refill: Option<Refill>,
    ) {
        let room_bytes = refill.map_or(u64::MAX, |refill| refill.bytes);
        assert!(len_bytes <= room_bytes, "more than the socket is to take");
        let response = self.responses.get_mut(&stream).expect("a response");
        assert_eq!(response.at, (part, from_bytes), "a byte twice or never");
        assert!(len_bytes > 0 && len_bytes <= SEND_BYTES_MAX);
        let body = match response.parts[usize::from(part)] {
            Part::Body {
                object,
                residency,
                span,
                ..
            } => (residency != ResidencySource::Always).then_some((object, span)),
            _ => None,
        };
        if let Some((object, span)) = body {
            let offset_bytes = span.offset_bytes + from_bytes;
            let span = Span {
                offset_bytes,
                len_bytes,
            };
            match held {
                Held::PageCache => self.check_resident(object, span),
                Held::Slots => self.check_slots(stream, span),
            }
            if self.mishap(60) {
                let why = Why::FileChanged;
                return self.on(In::Failed { stream, why });
            }
        }
        let cut = self.mishap(4);
        let client = self.clients.get_mut(&stream.conn).expect("checked");
        let eager = self.send == SendPolicy::Eager; // with margins, a full socket is also asked whether it took more
        assert!(!(client.full && eager), "the socket is full");
        assert!(!client.shut, "bytes behind our FIN");
        let kernel_bytes = SOCKET_BYTES - client.unacked_bytes;
        let want_bytes = if cut {
            len_bytes.div_ceil(3)
        } else {
            len_bytes
        };
        let taken_bytes = want_bytes.min(kernel_bytes);
        let full = taken_bytes == kernel_bytes || taken_bytes >= room_bytes;
        client.full = full;
        client.unacked_bytes += taken_bytes;
        client.taken_bytes += taken_bytes;
        let unsent_bytes = client.unacked_bytes / 2;
        let response = self.responses.get_mut(&stream).expect("as above");
        response.sent_bytes += taken_bytes;
        response.at.1 += taken_bytes;
        response.settle();
        if let Some((_, span)) = body {
            self.release(stream, span.offset_bytes + from_bytes + taken_bytes);
        }
        self.on(In::Sent {
            stream,
            taken_bytes,
            full,
            unsent_bytes: Some(unsent_bytes),
        });
    }

    fn arrived(&mut self, stream: StreamId, outcome: Outcome) {
        let response = self.untold.remove(&stream).expect("told once, when ended");
        let client = &self.clients[&stream.conn];
        let end_bytes = response.start_bytes + response.sent_bytes;
        let acked_bytes = (client.taken_bytes - client.unacked_bytes).min(end_bytes);
        let body_from_bytes = response.start_bytes + response.head_bytes;
        let sent_bytes = end_bytes.saturating_sub(body_from_bytes);
        assert_eq!(outcome.sent_bytes, sent_bytes);
        assert!(outcome.acked_bytes <= acked_bytes.saturating_sub(body_from_bytes));
        assert_eq!(outcome.why == Why::Done, response.whole(), "{outcome:?}");
        assert!(!outcome.whole || acked_bytes == end_bytes);
    }

    /// The client acknowledges one in `share` of what it has not yet.
    pub fn acknowledge(&mut self, conn: ConnId, share: u64) {
        let client = self.clients.get_mut(&conn).expect("a client");
        client.unacked_bytes -= client.unacked_bytes.div_ceil(share);
        if client.full && client.unacked_bytes < SOCKET_BYTES * 2 / 3 {
            client.full = false;
            self.tcp(conn, TcpEvent::Writable);
        }
    }

    pub fn read_done(&mut self, fails: bool) {
        let Some((read, (object, span, into))) = self.reading.pop_first() else {
            return;
        };
        // Some of it was read before the bad block.
        let bad_bytes = self.dice.below(span.len_bytes) / CHUNK * CHUNK;
        let (errno, offset_bytes) = (5, span.offset_bytes + bad_bytes);
        let good = Span {
            len_bytes: if fails { bad_bytes } else { span.len_bytes },
            ..span
        };
        let result = match fails {
            true => Err(ReadError {
                errno,
                offset_bytes,
            }),
            false => Ok(span.len_bytes),
        };
        match into {
            disk::Destination::Slots(slots) => drop(self.landed.insert(read, slots)),
            disk::Destination::PageCache => self.resident.extend(chunks(object, good)),
        }
        self.disk.on(disk::In::Done { read, result }, self.now);
    }

    /// The kernel needs memory for something else.
    pub fn evict(&mut self) {
        let nth = self.dice.below(self.resident.len() as u64) as usize;
        if let Some(chunk) = self.resident.iter().nth(nth).copied() {
            self.resident.remove(&chunk);
            self.evicted_at.insert(chunk, self.now);
        }
    }

    fn resident_bytes(&self, object: ObjectId, span: Span) -> u64 {
        let cold = chunks(object, span).find(|chunk| !self.resident.contains(chunk));
        cold.map_or(span.len_bytes, |(_, chunk)| {
            (chunk * CHUNK).saturating_sub(span.offset_bytes)
        })
    }

    fn check_slots(&self, stream: StreamId, span: Span) {
        let mut at_bytes = span.offset_bytes;
        for (held, _) in self.leases.get(&stream).into_iter().flatten() {
            if held.contains(at_bytes) {
                at_bytes = held.end_bytes();
            }
        }
        assert!(
            at_bytes >= span.end_bytes(),
            "{stream:?} does not hold {span:?}"
        );
    }

    /// A worker never reads: what it sends is in memory, or was a moment ago.
    fn check_resident(&self, object: ObjectId, span: Span) {
        for chunk in chunks(object, span) {
            let lost_at = self.evicted_at.get(&chunk);
            let just_lost = lost_at.is_some_and(|at| self.now.since_us(*at) < RESIDENCY_TRUST_US);
            assert!(
                self.resident.contains(&chunk) || just_lost,
                "a worker reads from the disk: {object:?} {span:?}"
            );
        }
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

fn chunks(object: ObjectId, span: Span) -> impl Iterator<Item = (u32, u64)> {
    let last = span.end_bytes().div_ceil(CHUNK);
    (span.offset_bytes / CHUNK..last).map(move |chunk| (object.index, chunk))
}
