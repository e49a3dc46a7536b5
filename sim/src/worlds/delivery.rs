//! A worker, a disk machine and a modelled disk, and clients that download one long file each at their own pace.
//!
//! Nothing is cached before; each file lies in one piece, and files lie all over the disk. The world is the
//! shell of both machines: it does what they order, and counts.

use std::collections::{BTreeMap, VecDeque};

use ackpace_core::Machine;
use ackpace_core::conn::{
    Held, ObjectId, Oracle, Part, Plan, Span, StreamId, TcpEvent, TcpSample, Version,
};
use ackpace_core::disk::{self, Disk, Extent, Layout, ReadId};
use ackpace_core::limits::SLOT_BYTES;
use ackpace_core::units::Instant;
use ackpace_core::worker::{In, Out, Received, Send, Worker};
use smallvec::smallvec;

use super::socket::{Client, Socket, conn_id, settings};
use crate::models::array::Device;
use crate::models::disk::profile::Profile;
use crate::models::disk::request::{Kind, Request};

const HEAD_BYTES: u64 = 300;

/// One client's download.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    /// Its path.
    pub client: Client,
    /// Which file; several clients may ask for one.
    pub file: u32,
    /// Where in the file it begins.
    pub from_bytes: u64,
    /// When it sends RST.
    pub resets_at: Option<Instant>,
}

/// A world that has not begun.
#[derive(Clone, Debug)]
pub struct World {
    /// Who downloads.
    pub downloads: Vec<Download>,
    /// Number of files, spread evenly over the device.
    pub files: u32,
    /// Length of each.
    pub file_bytes: u64,
    /// The device.
    pub profile: Profile,
    /// How the disk machine works.
    pub disk: disk::Settings,
    /// How bytes are given to sockets.
    pub send: Send,
    /// When counting begins.
    pub measured_from: Instant,
    /// When it ends.
    pub ends_at: Instant,
}

/// What came of a run, from `measured_from` on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Bytes that reached each client.
    pub by_client_bytes: Vec<u64>,
    /// From each client's request to its first byte of the body, if that came.
    pub first_byte_us: Vec<Option<u64>>,
    /// Reads given to the device, and their bytes.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Bytes of reads given to the device for clients that had left.
    pub dead_read_bytes: u64,
    /// Bytes read that had been read before.
    pub reread_bytes: u64,
    /// Most of the pool that was in use at once.
    pub pool_max_bytes: u64,
    /// T_D and t_p at the end.
    pub target_us: u64,
    /// t_p at the end.
    pub positioning_us: u64,
    /// R at the end.
    pub media_bytes_per_s: u64,
}

impl Outcome {
    /// Mean rate of some clients over `us`, bytes per second.
    pub fn mean_bytes_per_s(&self, clients: std::ops::Range<usize>, us: u64) -> f64 {
        let count = clients.len().max(1) as f64;
        let bytes: u64 = self.by_client_bytes[clients].iter().sum();
        bytes as f64 * 1e6 / us as f64 / count
    }

    /// Rate of the slowest of some clients over `us`, bytes per second.
    pub fn min_bytes_per_s(&self, clients: std::ops::Range<usize>, us: u64) -> f64 {
        let bytes = self.by_client_bytes[clients].iter().min().copied();
        bytes.unwrap_or(0) as f64 * 1e6 / us as f64
    }
}

struct Flight {
    object: ObjectId,
    span: Span,
    slots: u32,
}

struct Lease {
    span: Span,
    slots: u32,
}

struct Run<'a> {
    world: &'a World,
    worker: Worker,
    disk: Disk,
    device: Device,
    sockets: Vec<Socket>,
    gone: Vec<bool>,
    asked_at: Vec<Instant>,
    sent_bytes: Vec<u64>,
    news: VecDeque<In>,
    rung: bool,
    flights: BTreeMap<ReadId, Flight>,
    landed: Option<(ReadId, u32)>,
    leases: BTreeMap<u32, Vec<Lease>>,
    slots: u32,
    /// The page cache is never short of memory here.
    cached: BTreeMap<u32, Vec<Span>>,
    now: Instant,
    outcome: Outcome,
}

impl World {
    /// Runs it.
    pub fn run(&self) -> Outcome {
        let count = self.downloads.len();
        let mut run = Run {
            world: self,
            worker: Worker::new(settings(self.send)),
            disk: Disk::new(self.disk),
            device: Device::new(&self.profile),
            sockets: self
                .downloads
                .iter()
                .map(|d| Socket::new(d.client))
                .collect(),
            gone: vec![false; count],
            asked_at: vec![Instant { us: 0 }; count],
            sent_bytes: vec![0; count],
            news: VecDeque::new(),
            rung: false,
            flights: BTreeMap::new(),
            landed: None,
            leases: BTreeMap::new(),
            slots: 0,
            cached: BTreeMap::new(),
            now: Instant { us: 0 },
            outcome: Outcome {
                by_client_bytes: vec![0; count],
                first_byte_us: vec![None; count],
                ..Outcome::default()
            },
        };
        while let Some(at) = run.next_at().filter(|at| *at <= self.ends_at) {
            run.pass(at);
            run.turn();
        }
        run.pass(self.ends_at);
        run.outcome.target_us = run.disk.target_us();
        run.outcome.positioning_us = run.disk.model().positioning_us();
        run.outcome.media_bytes_per_s = run.disk.model().media_bytes_per_s();
        run.outcome
    }
}

impl Run<'_> {
    fn next_at(&self) -> Option<Instant> {
        let calls = self
            .sockets
            .iter()
            .zip(&self.gone)
            .filter(|(_, gone)| !**gone);
        let calls = calls.filter_map(|(socket, _)| socket.next_at());
        let resets = self.world.downloads.iter().zip(&self.gone);
        let resets = resets
            .filter(|(_, gone)| !**gone)
            .filter_map(|(d, _)| d.resets_at);
        let device = self.device.next_ns().map(|ns| Instant {
            us: ns.div_ceil(1000),
        });
        let machines = [self.worker.deadline(), self.disk.deadline(), device];
        let next = calls
            .chain(resets)
            .chain(machines.into_iter().flatten())
            .min();
        next.map(|at| at.max(self.now))
    }

    fn pass(&mut self, until: Instant) {
        let from = self.world.measured_from;
        if self.now < from && until > from {
            self.pass(from);
        }
        for (n, socket) in self.sockets.iter_mut().enumerate() {
            if self.gone[n] {
                continue;
            }
            let (sent_bytes, _) = socket.drain(until);
            if until > from {
                self.outcome.by_client_bytes[n] += sent_bytes;
            }
        }
        self.now = until;
    }

    fn counts(&self) -> bool {
        self.now >= self.world.measured_from
    }

    /// Events of clients and device, and what the machines make of them.
    fn turn(&mut self) {
        let now = self.now;
        let mut woken = self.worker.deadline().is_some_and(|at| at <= now);
        for n in 0..self.sockets.len() {
            woken |= self.client_turn(n);
        }
        while let Some(done) = self.device.complete(now.us * 1000) {
            self.read_done(ReadId(done.request.id));
        }
        self.disk_turn();
        // Between two rings the worker hears its news when it wakes for another reason.
        while woken || std::mem::take(&mut self.rung) {
            woken = false;
            while let Some(news) = self.news.pop_front() {
                self.worker.on(news, now);
            }
            while let Some(out) = self.worker.poll(now) {
                self.execute(out);
            }
            self.disk_turn();
        }
    }

    fn client_turn(&mut self, n: usize) -> bool {
        let (now, conn) = (self.now, conn_id(n));
        if self.gone[n] {
            return false;
        }
        let socket = &mut self.sockets[n];
        let event = if !socket.connected && socket.client.starts_at <= now {
            socket.connected = true;
            let address = None;
            In::Accepted { conn, address }
        } else if self.world.downloads[n]
            .resets_at
            .is_some_and(|at| at <= now)
        {
            self.gone[n] = true;
            let event = TcpEvent::Reset;
            In::Tcp { conn, event }
        } else if socket.full && socket.calls(now) {
            socket.full = false;
            let event = TcpEvent::Writable;
            In::Tcp { conn, event }
        } else {
            return false;
        };
        self.worker.on(event, now);
        true
    }

    fn read_done(&mut self, read: ReadId) {
        let Some(flight) = self.flights.remove(&read) else {
            return;
        };
        if flight.slots > 0 {
            self.landed = Some((read, flight.slots));
        } else {
            let spans = self.cached.entry(flight.object.index).or_default();
            spans.push(flight.span);
        }
        let result = Ok(flight.span.len_bytes);
        self.disk.on(disk::In::Done { read, result }, self.now);
        self.disk_turn();
        if let Some((_, slots)) = self.landed.take() {
            self.free(slots);
        }
    }

    fn free(&mut self, slots: u32) {
        self.slots -= slots;
        self.disk.on(disk::In::Freed(slots), self.now);
    }

    fn disk_turn(&mut self) {
        while let Some(out) = self.disk.poll(self.now) {
            match out {
                disk::Out::Map(object) => {
                    let extent = Extent {
                        file_bytes: 0,
                        device_bytes: self.device_bytes(object),
                        len_bytes: self.world.file_bytes,
                    };
                    let layout = Layout::new(vec![extent]);
                    self.disk.on(disk::In::Mapped { object, layout }, self.now);
                }
                disk::Out::Read {
                    read,
                    object,
                    span,
                    into,
                } => self.read(read, object, span, into),
                disk::Out::Filled {
                    read,
                    stream,
                    span,
                    held,
                    urgent,
                } => {
                    if let Some((_, slots)) = self.landed.take_if(|(of, _)| *of == read) {
                        let leases = self.leases.entry(stream.conn.index).or_default();
                        leases.push(Lease { span, slots });
                    }
                    self.news.push_back(In::Filled { stream, span, held });
                    self.rung |= urgent;
                }
                disk::Out::Failed { .. } => unreachable!("no read fails here"),
                disk::Out::Nudge(_) => self.rung = true,
            }
        }
    }

    fn device_bytes(&self, object: ObjectId) -> u64 {
        let each = self.device.size_bytes() / u64::from(self.world.files.max(1));
        u64::from(object.index) * (each / 4096 * 4096)
    }

    fn read(&mut self, read: ReadId, object: ObjectId, span: Span, into: disk::Into) {
        let slots = match into {
            disk::Into::Slots(slots) => slots,
            disk::Into::PageCache => 0,
        };
        self.slots += slots;
        if self.counts() {
            self.outcome.reads += 1;
            self.outcome.read_bytes += span.len_bytes;
            let readers = self.world.downloads.iter().zip(&self.gone);
            let alive = readers
                .filter(|(d, gone)| d.file == object.index && !**gone)
                .count();
            self.outcome.dead_read_bytes += if alive == 0 { span.len_bytes } else { 0 };
        }
        let pool_bytes = u64::from(self.slots) * SLOT_BYTES;
        self.outcome.pool_max_bytes = self.outcome.pool_max_bytes.max(pool_bytes);
        let request = Request {
            id: read.0,
            offset_bytes: self.device_bytes(object) + span.offset_bytes,
            len_bytes: span.len_bytes,
            kind: Kind::Read,
        };
        self.device.submit(self.now.us * 1000, request);
        let flight = Flight {
            object,
            span,
            slots,
        };
        self.flights.insert(read, flight);
    }

    fn execute(&mut self, out: Out) {
        let now = self.now;
        match out {
            Out::Receive { conn, .. } => {
                let socket = &mut self.sockets[conn.index as usize];
                let (body, more) = (false, false);
                let received = if std::mem::replace(&mut socket.asked, true) {
                    Received::Nothing
                } else {
                    self.asked_at[conn.index as usize] = now;
                    Received::Request { body, more }
                };
                self.worker.on(In::Received { conn, received }, now);
            }
            Out::Resolve { stream, .. } => {
                let download = self.world.downloads[stream.conn.index as usize];
                let plan = plan(&download, self.world.file_bytes);
                self.worker.on(In::Resolved { stream, plan }, now);
            }
            Out::Probe {
                stream,
                object,
                span,
            } => {
                let resident_bytes = self.resident_bytes(object, span);
                self.worker.on(
                    In::Probed {
                        stream,
                        resident_bytes,
                    },
                    now,
                );
            }
            Out::Want(want) => self.disk.on(disk::In::Want(want), now),
            Out::Forget(stream) => self.disk.on(disk::In::Forget(stream), now),
            Out::Release(stream) | Out::Ended(stream) => self.release(stream, u64::MAX),
            Out::Send {
                stream,
                part,
                from_bytes,
                len_bytes,
                held,
                lowat_bytes,
                ..
            } => self.send(stream, (part, from_bytes, len_bytes), held, lowat_bytes),
            Out::Sample(conn) => {
                let sample = TcpSample {
                    unacked_bytes: self.sockets[conn.index as usize].unsent_bytes,
                    ..TcpSample::default()
                };
                let event = TcpEvent::Sample(sample);
                self.worker.on(In::Tcp { conn, event }, now);
            }
            Out::Accept(_) | Out::Listen(_) | Out::Pace { .. } | Out::Slice(_) => {}
            Out::Arrived { .. } | Out::Shutdown(_) | Out::Close { .. } => {}
        }
    }

    fn resident_bytes(&self, object: ObjectId, span: Span) -> u64 {
        let mut at_bytes = span.offset_bytes;
        let spans = self.cached.get(&object.index);
        for known in spans.into_iter().flatten() {
            if known.contains(at_bytes) {
                at_bytes = known.end_bytes();
            }
        }
        (at_bytes - span.offset_bytes).min(span.len_bytes)
    }

    /// Slots come back one by one, as what is in them is sent.
    fn release(&mut self, stream: StreamId, before_bytes: u64) {
        let Some(leases) = self.leases.get_mut(&stream.conn.index) else {
            return;
        };
        let mut freed = 0;
        leases.retain_mut(|lease| {
            let left_bytes = lease.span.end_bytes().saturating_sub(before_bytes);
            let slots = left_bytes.div_ceil(SLOT_BYTES).min(lease.slots.into()) as u32;
            freed += lease.slots - slots;
            lease.slots = slots;
            slots > 0
        });
        if freed > 0 {
            self.free(freed);
        }
    }

    fn send(
        &mut self,
        stream: StreamId,
        (part, from_bytes, len_bytes): (u16, u64, u64),
        held: Held,
        lowat_bytes: Option<u32>,
    ) {
        let n = stream.conn.index as usize;
        let socket = &mut self.sockets[n];
        socket.lowat_bytes = lowat_bytes.map(u64::from).or(socket.lowat_bytes);
        let room_bytes = socket.room_bytes();
        let taken_bytes = len_bytes.min(room_bytes);
        let blocked = taken_bytes < len_bytes;
        socket.unsent_bytes += taken_bytes;
        socket.full = blocked;
        let unsent_bytes = Some(socket.unsent_bytes);
        self.sent_bytes[n] += taken_bytes;
        let download = self.world.downloads[n];
        if part == 1 && taken_bytes > 0 {
            let us = self.now.since_us(self.asked_at[n]);
            self.outcome.first_byte_us[n].get_or_insert(us);
        }
        if part == 1 && held == Held::Slots {
            self.release(stream, download.from_bytes + from_bytes + taken_bytes);
        }
        let sent = In::Sent {
            stream,
            taken_bytes,
            blocked,
            unsent_bytes,
        };
        self.worker.on(sent, self.now);
    }
}

/// A head and a file on the disk.
fn plan(download: &Download, file_bytes: u64) -> Plan {
    const HEAD: &[u8] = &[b'h'; HEAD_BYTES as usize];
    let object = ObjectId {
        device: 0,
        index: download.file,
        generation: 0,
    };
    let version = Version {
        len_bytes: file_bytes,
        mtime_ns: 0,
    };
    let span = Span {
        offset_bytes: download.from_bytes,
        len_bytes: file_bytes - download.from_bytes,
    };
    Plan {
        parts: smallvec![
            Part::Bytes(HEAD.into()),
            Part::Body {
                object,
                version,
                oracle: Oracle::Ask,
                span,
            }
        ],
        head_len_bytes: HEAD_BYTES,
        keep_alive: true,
    }
}
