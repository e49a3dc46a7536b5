//! The shell of both machines: it executes the worker's orders, and counts. The disk's side is in `disk_thread.rs`.

use std::collections::{BTreeMap, VecDeque};

use ackpace_core::Machine;
use ackpace_core::conn::{Held, ResidencySource, Span, StreamId, TcpEvent};
use ackpace_core::disk::{self, Disk, ReadId};
use ackpace_core::send::Refill;
use ackpace_core::units::Instant;
use ackpace_core::worker::{In, Out, Received, Worker};

use super::{ClientChange, ColdClient, Outcome, ReadTotals, World, instant};
use crate::models::array::Device;
use crate::worlds::laws::{Leases, Progress};
use crate::worlds::reads::ReadInFlight;
use crate::worlds::response::{HEAD_BYTES, plan};
use crate::worlds::socket::{conn_id, settings};
use crate::worlds::tcp_socket::TcpSocket;

const MS_PER_S: u64 = 1_000;

/// How far a client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has not connected.
    Absent,
    /// Its request waits to be received.
    Asking,
    /// It has its response, or a part of it.
    Answered,
}

/// A client, its socket and its response.
struct ColdPeer {
    client: ColdClient,
    stage: Stage,
    socket: TcpSocket,
    response: Progress,
}

/// One run of a world.
pub(super) struct Run<'a> {
    pub world: &'a World,
    worker: Worker,
    peers: Vec<ColdPeer>,
    pub disk: Disk,
    pub device: Device,
    pub reads: BTreeMap<ReadId, ReadInFlight>,
    /// The slots of the read that has just ended, as long as nobody has them.
    pub landed: Option<(ReadId, u32)>,
    pub leases: Leases,
    /// Slots of the pool that are taken.
    pub slots: u32,
    /// What the disk thread has told the worker.
    pub answers: VecDeque<In>,
    pub worker_woken: bool,
    pub now: Instant,
    /// Reads submitted to the device so far, and their bytes.
    pub reads_submitted: u64,
    pub bytes_submitted: u64,
    by_second: Vec<ReadTotals>,
}

impl<'a> Run<'a> {
    /// A run at its start.
    pub fn new(world: &'a World) -> Run<'a> {
        let peers = world.clients.iter();
        Run {
            world,
            worker: Worker::new(settings(world.send, world.disk.delay)),
            peers: peers
                .map(|client| ColdPeer::new(*client, world.file_bytes))
                .collect(),
            disk: Disk::new(world.disk),
            device: Device::new(&world.profile),
            reads: BTreeMap::new(),
            landed: None,
            leases: Leases::default(),
            slots: 0,
            answers: VecDeque::new(),
            worker_woken: false,
            now: Instant { us: 0 },
            reads_submitted: 0,
            bytes_submitted: 0,
            by_second: Vec::new(),
        }
    }

    /// Runs until the world ends.
    pub fn run(mut self) -> Outcome {
        for ms in 0..=self.world.ends_s * MS_PER_S {
            if ms % MS_PER_S == 0 {
                self.note();
            }
            while let Some(at) = self.next_read_done().filter(|at| *at <= instant(ms)) {
                self.now = self.now.max(at);
                self.reads_done();
                self.worker_turns();
            }
            self.now = instant(ms);
            self.clients_turn(ms);
            self.disk_turn();
            self.worker_turns();
        }
        Outcome {
            by_second: self.by_second,
        }
    }

    /// Notes what clients have got by now, and what it has taken.
    fn note(&mut self) {
        let peers = self.peers.iter();
        let read = peers.map(|peer| peer.socket.tcp.receiver().read_bytes());
        self.by_second.push(ReadTotals {
            by_client_bytes: read.collect(),
            reads: self.reads_submitted,
            read_bytes: self.bytes_submitted,
        });
    }

    pub fn free(&mut self, slots: u32) {
        if slots > 0 {
            self.slots -= slots;
            self.disk.on(disk::In::Freed(slots), self.now);
        }
    }

    /// A millisecond passes on all paths.
    fn clients_turn(&mut self, ms: u64) {
        self.worker_woken |= self.worker.deadline().is_some_and(|at| at <= self.now);
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if let Some(event) = peer.pass(index, ms) {
                self.worker_woken = true;
                self.worker.on(event, self.now);
            }
        }
    }

    /// Turns of the worker, as long as something wakes it.
    fn worker_turns(&mut self) {
        while std::mem::take(&mut self.worker_woken) {
            while let Some(answer) = self.answers.pop_front() {
                self.worker.on(answer, self.now);
            }
            while let Some(out) = self.worker.poll(self.now) {
                self.execute(out);
            }
            self.disk_turn();
        }
    }

    fn execute(&mut self, out: Out) {
        let now = self.now;
        match out {
            Out::Receive { conn, .. } => {
                let received = self.peers[conn.index as usize].receive();
                self.worker.on(In::Received { conn, received }, now);
            }
            Out::Resolve { stream, .. } => {
                let file = self.peers[stream.conn.index as usize].client.file;
                let span = Span {
                    offset_bytes: 0,
                    len_bytes: self.world.file_bytes,
                };
                let plan = plan(file, span, ResidencySource::Ask);
                self.worker.on(In::Resolved { stream, plan }, now);
            }
            Out::Probe { stream, .. } => {
                let is_resident = false;
                let probed = In::Probed {
                    stream,
                    is_resident,
                };
                self.worker.on(probed, now);
            }
            Out::Want(want) => self.disk.on(disk::In::Want(want), self.now),
            Out::Forget(stream) => self.disk.on(disk::In::Forget(stream), now),
            Out::Release(stream) => self.release(stream, u64::MAX),
            Out::Ended(stream) => {
                self.peers[stream.conn.index as usize].response.ends(false);
                self.release(stream, u64::MAX);
            }
            Out::Send {
                stream,
                part,
                from_bytes,
                len_bytes,
                more,
                held,
                refill,
                ..
            } => self.send(stream, (part, from_bytes, len_bytes), held, more, refill),
            Out::Sample(conn) => {
                let sample = self.peers[conn.index as usize].socket.sample();
                let event = TcpEvent::Sample(sample);
                self.worker.on(In::Tcp { conn, event }, now);
            }
            Out::Underfed {
                conn,
                epollout_bytes,
            } => self.peers[conn.index as usize].socket.watch(epollout_bytes),
            // Nobody is accepted, listed, logged or paced, and nobody leaves.
            Out::Accept(_)
            | Out::Listen(_)
            | Out::Pace { .. }
            | Out::Cap { .. }
            | Out::Slice(_) => {}
            Out::Arrived { .. } | Out::Shutdown(_) => {}
            Out::Export { .. } | Out::Keep { .. } => unreachable!("nobody asked for it"),
            Out::Close { conn, why, .. } => panic!("{conn:?} was closed: {why:?}"),
        }
    }

    fn release(&mut self, stream: StreamId, before_bytes: u64) {
        let slots = self.leases.take_back(stream, before_bytes);
        self.free(slots);
    }

    fn send(
        &mut self,
        stream: StreamId,
        (part, from_bytes, len_bytes): (u16, u64, u64),
        held: Held,
        more: bool,
        refill: Option<Refill>,
    ) {
        let peer = &mut self.peers[stream.conn.index as usize];
        peer.response.check(part, from_bytes, len_bytes);
        let body = part == 1;
        if body {
            assert_eq!(held, Held::Slots, "nothing is in the page cache");
            let span = Span {
                offset_bytes: from_bytes,
                len_bytes,
            };
            self.leases.check(stream, span);
        }
        let age_ms = self.now.us / 1_000 - peer.client.starts_ms;
        let taken_bytes = peer.socket.give(len_bytes, more, refill, age_ms);
        peer.response.sent(taken_bytes);
        let full = peer.socket.is_full();
        let unsent_bytes = (full || more).then_some(peer.socket.tcp.unsent_bytes());
        if body {
            self.release(stream, from_bytes + taken_bytes);
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

impl ColdPeer {
    fn new(client: ColdClient, file_bytes: u64) -> ColdPeer {
        ColdPeer {
            client,
            stage: Stage::Absent,
            socket: TcpSocket::new(client.profile),
            response: Progress::new(HEAD_BYTES, file_bytes),
        }
    }

    /// A millisecond passes. Returns what happens on its connection.
    fn pass(&mut self, index: usize, now_ms: u64) -> Option<In> {
        let age_ms = now_ms.checked_sub(self.client.starts_ms)?;
        self.changes(now_ms);
        self.socket.tcp.pass(age_ms);
        let (conn, address) = (conn_id(index), None);
        if self.stage == Stage::Absent {
            self.stage = Stage::Asking;
            return Some(In::Accepted { conn, address });
        }
        self.socket.becomes_writable().then(|| {
            let event = TcpEvent::Writable;
            In::Tcp { conn, event }
        })
    }

    fn changes(&mut self, now_ms: u64) {
        let receiver = self.socket.tcp.receiver_mut();
        match self.client.change {
            Some(ClientChange::Buffer { at_ms, bytes }) if at_ms == now_ms => {
                receiver.set_buffer(bytes);
            }
            Some(ClientChange::Program { at_ms, program }) if at_ms == now_ms => {
                receiver.set_program(program);
            }
            _ => {}
        }
    }

    fn receive(&mut self) -> Received {
        let (body, more) = (false, false);
        match std::mem::replace(&mut self.stage, Stage::Answered) {
            Stage::Asking => Received::Request { body, more },
            Stage::Absent | Stage::Answered => Received::Nothing,
        }
    }
}
