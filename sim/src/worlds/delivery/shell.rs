//! The shell of both machines: it executes their orders, and counts. The disk's side is in `device.rs`.

use std::collections::{BTreeMap, VecDeque};

use ackpace_core::Machine;
use ackpace_core::conn::{
    ConnId, Held, Plan, ResidencySource, Span, StreamId, TcpEvent, TcpSample,
};
use ackpace_core::disk::{self, Disk, ReadId};
use ackpace_core::send::Refill;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{In, Out, Received, Worker};

use super::cache::PageCache;
use super::faults::{Fault, Files};
use super::paths::{ClientEvent, Paths};
use super::{Kept, Outcome, World};
use crate::models::array::Device;
use crate::worlds::laws::{Leases, Progress};
use crate::worlds::reads::ReadInFlight;
use crate::worlds::response::{HEAD_BYTES, plan};
use crate::worlds::socket::{conn_id, settings};

/// One run of a world.
pub(super) struct Run<'a> {
    pub world: &'a World,
    worker: Worker,
    pub disk: Disk,
    pub device: Device,
    paths: Paths,
    /// Number of clients of each file that have not left.
    pub alive: Vec<u32>,
    pub read_by_file_bytes: Vec<u64>,
    asked_at: Vec<Instant>,
    pub answers: VecDeque<In>,
    pub reads: BTreeMap<ReadId, ReadInFlight>,
    pub landed: Option<(ReadId, u32)>,
    pub leases: Leases,
    pub slots: u32,
    /// Size of the pool now.
    pub memory_bytes: u64,
    pub cached: PageCache,
    pub files: Files,
    /// Faults to come, in the order of time.
    timed: VecDeque<(Instant, Fault)>,
    responses: Vec<Progress>,
    pub now: Instant,
    pub outcome: Outcome,
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
            answers: VecDeque::new(),
            reads: BTreeMap::new(),
            landed: None,
            leases: Leases::default(),
            slots: 0,
            memory_bytes: world.disk.memory_bytes,
            cached: PageCache::new(world.page_cache_bytes),
            files: Files::new(world.files, world.file_bytes),
            timed: world.faults.timed.iter().copied().collect(),
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
            reads: self.reads.len(),
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
            self.timed.front().map(|(at, _)| *at),
        ];
        let next = next.into_iter().flatten().min().map(|at| at.max(self.now));
        let Some(now) = next.filter(|at| *at <= ends_at) else {
            return false;
        };
        self.now = now;
        while let Some((_, fault)) = self.timed.front().copied().filter(|(at, _)| *at <= now) {
            self.timed.pop_front();
            self.inject(fault);
        }
        let mut woken = self.worker.deadline().is_some_and(|at| at <= now);
        while let Some((n, event)) = self.paths.next_event(now) {
            woken = true;
            self.client_turn(n, event);
        }
        while let Some(done) = self.device.complete(now.us * 1000) {
            self.read_done(ReadId(done.request.id), done.failed);
        }
        self.disk_turn();
        while woken || !self.answers.is_empty() {
            woken = false;
            while let Some(answers) = self.answers.pop_front() {
                self.worker.on(answers, now);
            }
            while let Some(out) = self.worker.poll(now) {
                self.execute(out);
            }
            self.disk_turn();
        }
        true
    }

    pub fn counts(&self) -> bool {
        self.now >= self.world.measured_from
    }

    fn client_turn(&mut self, n: usize, client_event: ClientEvent) {
        let conn = conn_id(n);
        let event = match client_event {
            ClientEvent::Connects => In::Accepted {
                conn,
                address: None,
            },
            ClientEvent::Resets => {
                self.alive[self.world.downloads[n].file as usize] -= 1;
                self.responses[n].leaves();
                let event = TcpEvent::Reset;
                In::Tcp { conn, event }
            }
            ClientEvent::Writable => {
                let event = TcpEvent::Writable;
                In::Tcp { conn, event }
            }
        };
        self.worker.on(event, self.now);
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Hangs => self.device.hang(self.now.us * 1000),
            Fault::Resumes => self.device.resume(self.now.us * 1000),
            Fault::Truncated { file, len_bytes } => self.files.change(file, Some(len_bytes)),
            Fault::Written { file } => self.files.change(file, None),
            Fault::Evicted => self.cached.clear(),
            Fault::Pool { memory_bytes } => {
                self.memory_bytes = memory_bytes;
                self.disk.on(disk::In::Budget { memory_bytes }, self.now);
            }
        }
    }

    pub fn free(&mut self, slots: u32) {
        self.slots -= slots;
        self.disk.on(disk::In::Freed(slots), self.now);
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
                let plan = self.plan(stream);
                self.worker.on(In::Resolved { stream, plan }, now);
            }
            Out::Probe {
                stream,
                object,
                span,
                ..
            } => {
                let is_resident = self.cached.resident_bytes(object.index, span) == span.len_bytes;
                self.worker.on(
                    In::Probed {
                        stream,
                        is_resident,
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
            Out::Underfed {
                conn,
                epollout_bytes,
            } => self
                .paths
                .watch(conn.index as usize, epollout_bytes, self.now),
            Out::Sample(conn) => self.sample(conn),
            Out::Accept(_)
            | Out::Listen(_)
            | Out::Pace { .. }
            | Out::Cap { .. }
            | Out::Slice(_) => {}
            Out::Close { conn, why, .. } => self.responses[conn.index as usize].closes(why),
            Out::Arrived { .. } | Out::Shutdown(_) => {}
            Out::Export { .. } | Out::Keep { .. } => unreachable!("nobody asked for it"),
        }
    }

    /// A head and the rest of a file on the disk.
    fn plan(&self, stream: StreamId) -> Plan {
        let download = self.world.downloads[stream.conn.index as usize];
        let rest = Span {
            offset_bytes: download.from_bytes,
            len_bytes: self.world.file_bytes - download.from_bytes,
        };
        plan(download.file, rest, ResidencySource::Ask)
    }

    /// Tells the machine what TCP_INFO would.
    fn sample(&mut self, conn: ConnId) {
        let now = self.now;
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

    /// Returns slots to the pool one by one, as their bytes are sent.
    fn release(&mut self, stream: StreamId, before_bytes: u64) {
        let freed = self.leases.take_back(stream, before_bytes);
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
            self.leases.check(stream, offered);
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
