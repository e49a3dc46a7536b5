//! The shell of the world: sockets, a disk that is late, and the worker's orders.

use ackpace_core::Machine;
use ackpace_core::congestion::Delay;
use ackpace_core::conn::{Held, ResidencySource, Span, StreamId, TcpEvent, Want};
use ackpace_core::send::Refill;
use ackpace_core::worker::{In, Out, Received, Worker};

use super::{
    Asks, BEGINNING_MS, NOTED_EACH_MS, Outcome, Reader, ReadingClient, Supply, World, instant,
};
use crate::worlds::reads::CHOSEN;
use crate::worlds::response::whole;
use crate::worlds::socket::{conn_id, settings};
use crate::worlds::tcp_socket::TcpSocket;

/// Time in which the disk reads a first piece, milliseconds.
const DISK_MS: u64 = 10;
/// A want is due this long before its client would run dry, milliseconds.
const AHEAD_MS: u64 = 1_000;
const FILE_BYTES: u64 = 1 << 50;

/// The state of a client, of its socket, and of its want at the disk.
struct Peer {
    client: ReadingClient,
    socket: TcpSocket,
    connected: bool,
    /// A request waits to be received.
    asks: bool,
    /// Requests so far.
    requests: u64,
    /// A response to it is under way.
    responding: bool,
    want: Option<Want>,
    piece_ms: u64,
    believed_bytes_per_s: Vec<u64>,
    read_noted_bytes: Vec<u64>,
    /// Bytes that it had read at the age of [`BEGINNING_MS`].
    begun_bytes: u64,
    underrun_ms: u64,
}

/// A run of the world: its sockets, its disk and the worker.
pub(super) struct Run<'a> {
    world: &'a World,
    worker: Worker,
    peers: Vec<Peer>,
    now_ms: u64,
    queue_byte_ms: u128,
    top_ups_before: u64,
    read_before_bytes: u64,
    outcome: Outcome,
}

impl Run<'_> {
    pub fn new(world: &World) -> Run<'_> {
        Run {
            world,
            worker: Worker::new(settings(world.send, Delay::Rate)),
            peers: world
                .clients
                .iter()
                .map(|client| Peer::new(*client))
                .collect(),
            now_ms: 0,
            queue_byte_ms: 0,
            top_ups_before: 0,
            read_before_bytes: 0,
            outcome: Outcome {
                readers: Vec::new(),
                wakes: 0,
                top_ups: 0,
                read_bytes: 0,
                queue_mean_bytes: 0,
                queue_max_bytes: 0,
                socket_max_bytes: 0,
            },
        }
    }

    pub fn run(mut self) -> Outcome {
        while self.now_ms < self.world.ends_ms {
            if self.now_ms == self.world.measured_from_ms {
                self.top_ups_before = self.top_ups();
                self.read_before_bytes = self.read_bytes();
            }
            self.turn();
            self.note();
            self.now_ms += 1;
        }
        let ms = self.world.ends_ms - self.world.measured_from_ms;
        let mut outcome = self.outcome.clone();
        outcome.queue_mean_bytes = (self.queue_byte_ms / u128::from(ms.max(1))) as u64;
        outcome.top_ups = self.top_ups() - self.top_ups_before;
        outcome.read_bytes = self.read_bytes() - self.read_before_bytes;
        let now_ms = self.now_ms;
        outcome.readers = self
            .peers
            .into_iter()
            .map(|peer| peer.end(now_ms))
            .collect();
        outcome
    }

    fn counts(&self) -> bool {
        self.now_ms >= self.world.measured_from_ms
    }

    fn top_ups(&self) -> u64 {
        self.worker.counts().top_ups.iter().sum()
    }

    fn read_bytes(&self) -> u64 {
        let peers = self.peers.iter();
        peers
            .map(|peer| peer.socket.tcp.receiver().read_bytes())
            .sum()
    }

    /// A millisecond passes on all paths, and the worker takes its turn if something happened.
    fn turn(&mut self) {
        let now = instant(self.now_ms);
        let mut woken = self.worker.deadline().is_some_and(|at| at <= now);
        for (index, peer) in self.peers.iter_mut().enumerate() {
            for event in peer.pass(index, self.now_ms) {
                woken = true;
                self.worker.on(event, now);
            }
        }
        self.outcome.wakes += u64::from(woken && self.counts());
        while let Some(out) = self.worker.poll(now) {
            self.execute(out);
        }
    }

    /// Records what the sockets hold and what is believed.
    fn note(&mut self) {
        let mut queue_bytes = 0;
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let unsent_bytes = peer.socket.tcp.unsent_bytes();
            queue_bytes += unsent_bytes;
            self.outcome.socket_max_bytes = self.outcome.socket_max_bytes.max(unsent_bytes);
            let Some(age_ms) = self.now_ms.checked_sub(peer.client.starts_ms) else {
                continue;
            };
            if age_ms % NOTED_EACH_MS == 0 {
                let snapshot = self
                    .worker
                    .snapshot_of(conn_id(index), instant(self.now_ms));
                let believed = snapshot.map(|snapshot| snapshot.believed_bytes_per_s);
                peer.believed_bytes_per_s.push(believed.unwrap_or(0));
                peer.read_noted_bytes
                    .push(peer.socket.tcp.receiver().read_bytes());
            }
        }
        self.outcome.queue_max_bytes = self.outcome.queue_max_bytes.max(queue_bytes);
        if self.counts() {
            self.queue_byte_ms += u128::from(queue_bytes);
        }
    }

    fn execute(&mut self, out: Out) {
        let now = instant(self.now_ms);
        match out {
            Out::Receive { conn, .. } => {
                let peer = &mut self.peers[conn.index as usize];
                let (body, more) = (false, false);
                let received = match std::mem::take(&mut peer.asks) {
                    true => Received::Request { body, more },
                    false => Received::Nothing,
                };
                self.worker.on(In::Received { conn, received }, now);
            }
            Out::Resolve { stream, .. } => {
                let plan = self.peers[stream.conn.index as usize].plan();
                self.worker.on(In::Resolved { stream, plan }, now);
            }
            Out::Send {
                stream,
                len_bytes,
                more,
                refill,
                ..
            } => self.send(stream, len_bytes, more, refill),
            Out::Sample(conn) => {
                let sample = self.peers[conn.index as usize].socket.sample();
                let event = TcpEvent::Sample(sample);
                self.worker.on(In::Tcp { conn, event }, now);
            }
            Out::Probe { stream, .. } => {
                let is_resident = false;
                let probed = In::Probed {
                    stream,
                    is_resident,
                };
                self.worker.on(probed, now);
            }
            Out::Want(want) => {
                let peer = &mut self.peers[want.stream.conn.index as usize];
                let new = peer.want.replace(want).is_none();
                if new {
                    peer.piece_ms = peer.piece_ms.max(self.now_ms + DISK_MS);
                }
            }
            Out::Underfed {
                conn,
                epollout_bytes,
            } => self.peers[conn.index as usize].socket.watch(epollout_bytes),
            Out::Forget(stream) => self.peers[stream.conn.index as usize].want = None,
            Out::Ended(stream) => self.peers[stream.conn.index as usize].responding = false,
            // Nobody is accepted, listed, logged or paced, and nobody leaves.
            Out::Accept(_)
            | Out::Listen(_)
            | Out::Pace { .. }
            | Out::Cap { .. }
            | Out::Release(_) => {}
            Out::Slice(_) | Out::Arrived { .. } | Out::Shutdown(_) => {}
            Out::Export { .. } | Out::Keep { .. } => unreachable!("nobody asked for it"),
            Out::Close { conn, why, .. } => panic!("{conn:?} was closed: {why:?}"),
        }
    }

    fn send(&mut self, stream: StreamId, len_bytes: u64, more: bool, refill: Option<Refill>) {
        let peer = &mut self.peers[stream.conn.index as usize];
        let age_ms = self.now_ms - peer.client.starts_ms;
        let taken_bytes = peer.socket.give(len_bytes, more, refill, age_ms);
        let full = peer.socket.is_full();
        let unsent_bytes = (full || more).then_some(peer.socket.tcp.unsent_bytes());
        let sent = In::Sent {
            stream,
            taken_bytes,
            full,
            unsent_bytes,
        };
        self.worker.on(sent, instant(self.now_ms));
    }
}

impl Peer {
    fn new(client: ReadingClient) -> Peer {
        Peer {
            client,
            socket: TcpSocket::new(client.profile),
            connected: false,
            asks: false,
            requests: 0,
            responding: false,
            want: None,
            piece_ms: 0,
            believed_bytes_per_s: Vec::new(),
            read_noted_bytes: Vec::new(),
            begun_bytes: 0,
            underrun_ms: 0,
        }
    }

    /// A millisecond passes. Returns what happened on its connection.
    fn pass(&mut self, index: usize, now_ms: u64) -> impl Iterator<Item = In> + use<> {
        let (conn, address) = (conn_id(index), None);
        let age_ms = now_ms.checked_sub(self.client.starts_ms);
        let mut asked = None;
        let mut accepted = None;
        if let Some(age_ms) = age_ms {
            if !std::mem::replace(&mut self.connected, true) {
                accepted = Some(In::Accepted { conn, address });
            }
            if self.asks_now(age_ms) {
                (self.asks, self.responding) = (true, true);
                self.requests += 1;
                let event = TcpEvent::Readable;
                asked = Some(In::Tcp { conn, event }).filter(|_| accepted.is_none());
            }
            self.socket.tcp.pass(age_ms);
            self.judge(age_ms);
        }
        let writable = self.socket.becomes_writable().then(|| {
            let event = TcpEvent::Writable;
            In::Tcp { conn, event }
        });
        [accepted, asked, writable, self.fetched(now_ms)]
            .into_iter()
            .flatten()
    }

    /// Whether it sends a request now. A player whose segment is late waits for it.
    fn asks_now(&self, age_ms: u64) -> bool {
        match self.client.asks {
            Asks::File => self.requests == 0,
            Asks::Segments { every_ms, .. } => {
                !self.responding && !self.asks && age_ms >= self.requests * every_ms
            }
        }
    }

    /// Whether it ran dry in the last millisecond: its program wanted bytes, and its socket had none for its path. While
    /// the disk is late, that tells nothing of its path.
    fn judge(&mut self, age_ms: u64) {
        if age_ms == BEGINNING_MS {
            self.begun_bytes = self.socket.tcp.receiver().read_bytes();
        }
        let response_ms = match (self.client.asks, self.client.supply) {
            (Asks::Segments { every_ms, .. }, _) => age_ms % every_ms,
            (Asks::File, Supply::Late { until_ms, .. }) => age_ms.saturating_sub(until_ms),
            (Asks::File, Supply::Cached) => age_ms,
        };
        let begun = self.responding && response_ms >= BEGINNING_MS;
        let dry = self.socket.tcp.unsent_bytes() < self.socket.tcp.profile().segment_bytes;
        self.underrun_ms += u64::from(begun && dry && self.socket.tcp.receiver().is_hungry());
    }

    fn fetched(&mut self, now_ms: u64) -> Option<In> {
        let Supply::Late {
            piece_bytes,
            every_ms,
            until_ms,
        } = self.client.supply
        else {
            return None;
        };
        let fed = now_ms >= self.client.starts_ms + until_ms;
        let due = |want: &Want| want.underrun_at <= instant(now_ms + AHEAD_MS);
        let want = self
            .want
            .take_if(|want| due(want) && (fed || now_ms >= self.piece_ms))?;
        self.piece_ms = now_ms + every_ms;
        Some(In::Fetched {
            stream: want.stream,
            seq: want.seq,
            span: Span {
                len_bytes: piece_bytes.min(want.span.len_bytes),
                ..want.span
            },
            held: Held::Slots,
            chosen: CHOSEN,
        })
    }

    fn plan(&self) -> ackpace_core::conn::Plan {
        let len_bytes = match self.client.asks {
            Asks::File => FILE_BYTES,
            Asks::Segments { len_bytes, .. } => len_bytes,
        };
        let residency = match self.client.supply {
            Supply::Cached => ResidencySource::Always,
            Supply::Late { .. } => ResidencySource::Ask,
        };
        whole(len_bytes, residency)
    }

    fn end(self, now_ms: u64) -> Reader {
        let ms = now_ms.saturating_sub(self.client.starts_ms + BEGINNING_MS);
        let read_bytes = self.socket.tcp.receiver().read_bytes();
        let bytes = read_bytes - self.begun_bytes;
        let got_bytes_per_s = bytes * 1_000 / ms.max(1);
        Reader {
            believed_bytes_per_s: self.believed_bytes_per_s,
            read_noted_bytes: self.read_noted_bytes,
            true_bytes_per_s: self.client.own_bytes_per_s().unwrap_or(got_bytes_per_s),
            got_bytes_per_s,
            read_bytes,
            underrun_ms: self.underrun_ms,
        }
    }
}
