//! The shell of both machines: it executes their orders, and counts.

use std::collections::{BTreeMap, VecDeque};

use ackpace_core::Machine;
use ackpace_core::conn::{
    Held, ObjectId, Part, Plan, Promise, ResidencySource, Span, StreamId, TcpEvent, TcpSample,
    Version,
};
use ackpace_core::disk::{self, Disk, Extent, Layout, ReadError, ReadId};
use ackpace_core::limits::SLOT_BYTES;
use ackpace_core::send::Refill;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{In, Out, Received, Worker};
use smallvec::smallvec;

use super::cache::PageCache;
use super::faults::{Files, Mishap};
use super::laws::{Progress, check_slots};
use super::paths::{Deed, Paths};
use super::{Download, Kept, Outcome, World};
use crate::models::array::Device;
use crate::models::disk::request::{Kind, Request};
use crate::worlds::socket::{conn_id, settings};

const HEAD_BYTES: u64 = 300;

struct Flight {
    object: ObjectId,
    span: Span,
    slots: u32,
}

/// Slots of one read, lent to one response.
pub(super) struct Lease {
    /// The bytes that it was answered with.
    pub span: Span,
    slots: u32,
}

/// One run of a world.
pub(super) struct Run<'a> {
    world: &'a World,
    worker: Worker,
    disk: Disk,
    device: Device,
    paths: Paths,
    /// Number of clients that still want each file.
    alive: Vec<u32>,
    read_by_file_bytes: Vec<u64>,
    asked_at: Vec<Instant>,
    news: VecDeque<In>,
    rung: bool,
    flights: BTreeMap<ReadId, Flight>,
    landed: Option<(ReadId, u32)>,
    leases: BTreeMap<u32, Vec<Lease>>,
    slots: u32,
    /// Size of the pool now.
    memory_bytes: u64,
    cached: PageCache,
    files: Files,
    /// What will go wrong.
    mishaps: VecDeque<(Instant, Mishap)>,
    responses: Vec<Progress>,
    now: Instant,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    /// A run at its start.
    pub fn new(world: &'a World) -> Run<'a> {
        let count = world.downloads.len();
        let mut alive = vec![0; world.files as usize];
        for download in &world.downloads {
            alive[download.file as usize] += 1;
        }
        let mut device = Device::new(&world.profile);
        device.set_bad(&world.faults.bad);
        let bodies = world
            .downloads
            .iter()
            .map(|d| world.file_bytes - d.from_bytes);
        Run {
            world,
            worker: Worker::new(settings(world.send, world.disk.delay)),
            disk: Disk::new(world.disk),
            device,
            paths: Paths::new(&world.downloads, world.measured_from),
            read_by_file_bytes: vec![0; alive.len()],
            alive,
            asked_at: vec![Instant { us: 0 }; count],
            news: VecDeque::new(),
            rung: false,
            flights: BTreeMap::new(),
            landed: None,
            leases: BTreeMap::new(),
            slots: 0,
            memory_bytes: world.disk.memory_bytes,
            cached: PageCache::new(world.page_cache_bytes),
            files: Files::new(world.files, world.file_bytes),
            mishaps: world.faults.mishaps.iter().copied().collect(),
            responses: bodies
                .map(|bytes| Progress::new(HEAD_BYTES, bytes))
                .collect(),
            now: Instant { us: 0 },
            outcome: Outcome {
                first_byte_us: vec![None; count],
                ..Outcome::default()
            },
        }
    }

    /// Ends the run at `now` and returns its results.
    pub fn finish(mut self, now: Instant) -> Outcome {
        self.outcome.by_client_bytes = self.paths.finish(now);
        let files = self.world.downloads.iter().map(|d| d.file as usize);
        let read_bytes = files.map(|file| self.read_by_file_bytes[file]);
        self.outcome.read_by_client_bytes = read_bytes.collect();
        self.outcome.delayed = self.disk.delayed();
        self.outcome.target_us = self.disk.target_us();
        self.outcome.positioning_us = self.disk.model().positioning_us();
        self.outcome.media_bytes_per_s = self.disk.model().media_bytes_per_s();
        self.outcome.depth = self.disk.reads_max();
        self.outcome.endings = self.responses.iter().map(|r| r.ending).collect();
        self.outcome.kept = Kept {
            connections: self.worker.connections(),
            streams: self.disk.load().streams,
            reads: self.flights.len(),
            slots: self.slots,
        };
        self.outcome
    }

    /// Handles the next events of clients and device, and what the machines order then. Returns `false` if there are
    /// none by `ends_at`.
    pub fn turn(&mut self, ends_at: Instant) -> bool {
        let device = self.device.next_ns().map(|ns| Instant {
            us: ns.div_ceil(1000),
        });
        let next = [
            self.paths.next_at(),
            self.worker.deadline(),
            self.disk.deadline(),
            device,
            self.mishaps.front().map(|(at, _)| *at),
        ];
        let next = next.into_iter().flatten().min().map(|at| at.max(self.now));
        let Some(now) = next.filter(|at| *at <= ends_at) else {
            return false;
        };
        self.now = now;
        while self.mishaps.front().is_some_and(|(at, _)| *at <= now) {
            let mishap = self.mishaps.pop_front();
            mishap.map(|(_, mishap)| self.suffer(mishap));
        }
        let mut woken = self.worker.deadline().is_some_and(|at| at <= now);
        while let Some((n, deed)) = self.paths.next_deed(now) {
            woken = true;
            self.client_turn(n, deed);
        }
        while let Some(done) = self.device.complete(now.us * 1000) {
            self.read_done(ReadId(done.request.id), done.failed);
        }
        self.disk_turn();
        // Messages that do not wake the worker wait until it wakes for another reason.
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
        true
    }

    fn counts(&self) -> bool {
        self.now >= self.world.measured_from
    }

    fn client_turn(&mut self, n: usize, deed: Deed) {
        let conn = conn_id(n);
        let event = match deed {
            Deed::Connects => In::Accepted {
                conn,
                address: None,
            },
            Deed::Resets => {
                self.alive[self.world.downloads[n].file as usize] -= 1;
                self.responses[n].leaves();
                let event = TcpEvent::Reset;
                In::Tcp { conn, event }
            }
            Deed::Calls => {
                let event = TcpEvent::Writable;
                In::Tcp { conn, event }
            }
        };
        self.worker.on(event, self.now);
    }

    /// Something goes wrong.
    fn suffer(&mut self, mishap: Mishap) {
        match mishap {
            Mishap::Hangs => self.device.hang(self.now.us * 1000),
            Mishap::Resumes => self.device.resume(self.now.us * 1000),
            Mishap::Truncated { file, len_bytes } => self.files.change(file, Some(len_bytes)),
            Mishap::Written { file } => self.files.change(file, None),
            Mishap::Evicted => self.cached.clear(),
            Mishap::Pool { memory_bytes } => {
                self.memory_bytes = memory_bytes;
                self.disk.on(disk::In::Budget { memory_bytes }, self.now);
            }
        }
    }

    fn read_done(&mut self, read: ReadId, failed: bool) {
        let Some(flight) = self.flights.remove(&read) else {
            return;
        };
        let (file, span) = (flight.object.index, flight.span);
        // What is behind the end of the file is not asked of the device.
        let there_bytes = self
            .files
            .there_bytes(file, span.offset_bytes, span.len_bytes);
        let bad_bytes = failed.then(|| self.first_bad_bytes(flight.object, span));
        let bad_bytes = bad_bytes.filter(|bad| *bad < span.offset_bytes + there_bytes);
        let good_bytes = bad_bytes.map_or(there_bytes, |bad| bad - span.offset_bytes);
        if flight.slots > 0 {
            self.landed = Some((read, flight.slots));
        } else {
            let len_bytes = good_bytes;
            self.cached.fill(file, Span { len_bytes, ..span });
        }
        let result = match bad_bytes {
            Some(offset_bytes) => {
                self.files.fail(file);
                let errno = 5;
                Err(ReadError {
                    errno,
                    offset_bytes,
                })
            }
            None => Ok(there_bytes),
        };
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
                    seq,
                    span,
                    held,
                    chosen,
                    urgent,
                } => {
                    if let Some((_, slots)) = self.landed.take_if(|(of, _)| *of == read) {
                        let leases = self.leases.entry(stream.conn.index).or_default();
                        leases.push(Lease { span, slots });
                    }
                    self.news.push_back(In::Filled {
                        stream,
                        seq,
                        span,
                        held,
                        chosen,
                    });
                    self.rung |= urgent;
                }
                disk::Out::Failed { stream, seq, error } => {
                    let why = match error.errno {
                        0 => Why::FileChanged,
                        _ => Why::ReadFailed,
                    };
                    self.news.push_back(In::Unfilled { stream, seq, why });
                    self.rung = true;
                }
                disk::Out::Nudge(_) => self.rung = true,
            }
        }
    }

    /// The first byte of a file's range that can't be read: its offset in the file. The range's end if all can.
    fn first_bad_bytes(&self, object: ObjectId, span: Span) -> u64 {
        let start_bytes = self.device_bytes(object) + span.offset_bytes;
        let end_bytes = start_bytes + span.len_bytes;
        let bad = self.world.faults.bad.iter();
        let bad = bad.filter(|bad| bad.end > start_bytes && bad.start < end_bytes);
        let first = bad.map(|bad| bad.start.max(start_bytes)).min();
        first.unwrap_or(end_bytes) - start_bytes + span.offset_bytes
    }

    fn device_bytes(&self, object: ObjectId) -> u64 {
        let each = self.device.size_bytes() / u64::from(self.world.files.max(1));
        u64::from(object.index) * (each / 4096 * 4096)
    }

    fn read(&mut self, read: ReadId, object: ObjectId, span: Span, into: disk::Destination) {
        let slots = match into {
            disk::Destination::Slots(slots) => slots,
            disk::Destination::PageCache => 0,
        };
        self.slots += slots;
        if self.counts() {
            self.outcome.reads += 1;
            self.outcome.read_bytes += span.len_bytes;
            self.read_by_file_bytes[object.index as usize] += span.len_bytes;
            let alive = self.alive[object.index as usize];
            self.outcome.dead_read_bytes += if alive == 0 { span.len_bytes } else { 0 };
        }
        let pool_bytes = u64::from(self.slots) * SLOT_BYTES;
        assert!(
            slots == 0 || pool_bytes <= self.memory_bytes,
            "more slots than the pool has"
        );
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
                let socket = self.paths.drained(conn.index as usize, now);
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
                let resident_bytes = self.cached.resident_bytes(object.index, span);
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
            Out::Release(stream) => self.release(stream, u64::MAX),
            Out::Ended(stream) => {
                let n = stream.conn.index as usize;
                let excused = self.files.excuses(self.world.downloads[n].file);
                self.responses[n].ends(excused);
                self.release(stream, u64::MAX);
            }
            Out::Send {
                stream,
                part,
                from_bytes,
                len_bytes,
                held,
                refill,
                ..
            } => self.send(stream, (part, from_bytes, len_bytes), held, refill),
            Out::Sample(conn) => {
                let socket = self.paths.drained(conn.index as usize, now);
                let sample = TcpSample {
                    unacked_bytes: socket.unsent_bytes(),
                    unsent_bytes: Some(socket.unsent_bytes()),
                    path: socket.path(now),
                    ..TcpSample::default()
                };
                let event = TcpEvent::Sample(sample);
                self.worker.on(In::Tcp { conn, event }, now);
            }
            Out::Accept(_) | Out::Listen(_) | Out::Pace { .. } | Out::Slice(_) => {}
            Out::Close { conn, why, .. } => self.responses[conn.index as usize].closes(why),
            Out::Arrived { .. } | Out::Shutdown(_) => {}
            Out::Export { .. } | Out::Keep { .. } => unreachable!("nobody asked for it"),
        }
    }

    /// Returns slots to the pool one by one, as their bytes are sent.
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
        refill: Option<Refill>,
    ) {
        let n = stream.conn.index as usize;
        let download = self.world.downloads[n];
        let mut offered = Span {
            offset_bytes: download.from_bytes + from_bytes,
            len_bytes,
        };
        self.responses[n].check(part, from_bytes, len_bytes);
        let cached = part == 1 && held == Held::PageCache;
        if part == 1 && self.files.is_changed(download.file) {
            let why = Why::FileChanged;
            return self.worker.on(In::Failed { stream, why }, self.now);
        }
        if part == 1 && held == Held::Slots {
            let leases = self.leases.get(&stream.conn.index);
            check_slots(leases.map_or(&[], Vec::as_slice), offered);
        }
        if cached {
            offered.len_bytes = self.cached.resident_bytes(download.file, offered);
            if offered.len_bytes == 0 {
                return self.worker.on(In::Missing { stream }, self.now);
            }
        }
        let (taken_bytes, full) = self.paths.give(n, offered.len_bytes, refill, self.now);
        if cached {
            offered.len_bytes = taken_bytes;
            self.cached.send(download.file, offered);
        }
        self.responses[n].sent(taken_bytes);
        let unsent_bytes = Some(self.paths.drained(n, self.now).unsent_bytes());
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
            full,
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
        ..Version::default()
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
                promise: Promise::OneVersion,
                residency: ResidencySource::Ask,
                span,
            }
        ],
        head_len_bytes: HEAD_BYTES,
        body_len_bytes: Some(span.len_bytes),
        keep_alive: true,
    }
}
