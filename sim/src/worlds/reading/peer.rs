//! A client that reads at a pace of its own: its requests, its socket, and its want where a disk is late.

use ackpace_core::conn::{Held, Plan, ResidencySource, Span, TcpEvent, TcpSample, Want};
use ackpace_core::units::Instant;
use ackpace_core::worker::{In, Received, SendOrder};

use super::{BEGINNING_MS, NOTED_EACH_MS, Reader, ReadingClient, Supply, World, instant};
use crate::worlds::response::{CHOSEN, plan, whole};
use crate::worlds::shell::{Clients, Given};
use crate::worlds::socket::conn_id;
use crate::worlds::tcp_socket::TcpSocket;

/// Time in which the disk reads a first piece, milliseconds.
const DISK_MS: u64 = 10;
/// A want is due this long before its client would run dry, milliseconds.
const AHEAD_MS: u64 = 1_000;
const FILE_BYTES: u64 = 1 << 50;

/// The state of a client, of its socket, and of its want at the disk.
pub(super) struct Peer {
    client: ReadingClient,
    socket: TcpSocket,
    connected: bool,
    /// A request waits to be received.
    asks: bool,
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

/// All clients.
pub(super) struct Peers {
    pub all: Vec<Peer>,
    /// Length of the files on the modelled disk.
    file_bytes: u64,
}

impl Peers {
    pub fn new(world: &World) -> Peers {
        Peers {
            all: world
                .clients
                .iter()
                .map(|client| Peer::new(*client))
                .collect(),
            file_bytes: world.disk.as_ref().map_or(0, |cold| cold.file_bytes),
        }
    }
}

impl Clients for Peers {
    fn receive(&mut self, nth: usize, _now: Instant) -> Received {
        let (body, more) = (false, false);
        match std::mem::take(&mut self.all[nth].asks) {
            true => Received::Request { body, more },
            false => Received::Nothing,
        }
    }

    fn plan(&self, nth: usize) -> Plan {
        let client = &self.all[nth].client;
        match client.supply {
            Supply::Cached => whole(FILE_BYTES, ResidencySource::Always),
            Supply::Late { .. } => whole(FILE_BYTES, ResidencySource::Ask),
            Supply::Disk { file } => {
                let span = Span {
                    offset_bytes: 0,
                    len_bytes: self.file_bytes,
                };
                plan(file, span, ResidencySource::Ask)
            }
        }
    }

    fn give(&mut self, nth: usize, order: &SendOrder, now: Instant) -> Given {
        let peer = &mut self.all[nth];
        let age_ms = now.us / 1_000 - peer.client.starts_ms;
        let (more, socket) = (order.more, &mut peer.socket);
        let taken_bytes = socket.give(order.span.len_bytes, more, order.refill, age_ms);
        let full = socket.is_full();
        Given {
            taken_bytes,
            full,
            unsent_bytes: (full || more).then_some(socket.tcp.unsent_bytes()),
        }
    }

    fn sample(&mut self, nth: usize, _now: Instant) -> TcpSample {
        self.all[nth].socket.sample()
    }

    fn watch(&mut self, nth: usize, epollout_bytes: u32, _now: Instant) {
        self.all[nth].socket.watch(epollout_bytes);
    }

    fn want(&mut self, want: Want, now: Instant) {
        let peer = &mut self.all[want.stream.conn.index as usize];
        if peer.want.replace(want).is_none() {
            peer.piece_ms = peer.piece_ms.max(now.us / 1_000 + DISK_MS);
        }
    }

    fn forget(&mut self, nth: usize) {
        self.all[nth].want = None;
    }

    fn ended(&mut self, nth: usize) {
        self.all[nth].responding = false;
    }
}

impl Peer {
    fn new(client: ReadingClient) -> Peer {
        Peer {
            client,
            socket: TcpSocket::new(client.profile),
            connected: false,
            asks: false,
            responding: false,
            want: None,
            piece_ms: 0,
            believed_bytes_per_s: Vec::new(),
            read_noted_bytes: Vec::new(),
            begun_bytes: 0,
            underrun_ms: 0,
        }
    }

    pub fn read_bytes(&self) -> u64 {
        self.socket.tcp.receiver().read_bytes()
    }

    pub fn unsent_bytes(&self) -> u64 {
        self.socket.tcp.unsent_bytes()
    }

    /// Whether its rate is to be recorded now.
    pub fn is_noted(&self, now_ms: u64) -> bool {
        let age_ms = now_ms.checked_sub(self.client.starts_ms);
        age_ms.is_some_and(|age_ms| age_ms % NOTED_EACH_MS == 0)
    }

    pub fn note(&mut self, believed_bytes_per_s: u64) {
        self.believed_bytes_per_s.push(believed_bytes_per_s);
        self.read_noted_bytes.push(self.read_bytes());
    }

    /// A millisecond passes. Returns what happened on its connection.
    pub fn pass(&mut self, index: usize, now_ms: u64) -> impl Iterator<Item = In> + use<> {
        let (conn, address) = (conn_id(index), None);
        let age_ms = now_ms.checked_sub(self.client.starts_ms);
        let mut accepted = None;
        if let Some(age_ms) = age_ms {
            if !std::mem::replace(&mut self.connected, true) {
                (self.asks, self.responding) = (true, true);
                accepted = Some(In::Accepted { conn, address });
            }
            self.socket.tcp.pass(age_ms);
            self.judge(age_ms);
        }
        let writable = self.socket.becomes_writable().then(|| {
            let event = TcpEvent::Writable;
            In::Tcp { conn, event }
        });
        [accepted, writable, self.fetched(now_ms)]
            .into_iter()
            .flatten()
    }

    /// Whether it ran dry in the last millisecond: its program wanted bytes, and its socket had none for its path. While
    /// the disk is late, that tells nothing of its path.
    fn judge(&mut self, age_ms: u64) {
        if age_ms == BEGINNING_MS {
            self.begun_bytes = self.socket.tcp.receiver().read_bytes();
        }
        let response_ms = match self.client.supply {
            Supply::Late { until_ms, .. } => age_ms.saturating_sub(until_ms),
            Supply::Cached | Supply::Disk { .. } => age_ms,
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

    pub fn end(self, now_ms: u64) -> Reader {
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
