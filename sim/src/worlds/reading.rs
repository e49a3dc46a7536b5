//! A worker and clients of each kind: those that a path limits, those that read at a pace of their own, and those that
//! a disk starves. The worker knows of them what TCP counts: what a client's program reads moves its window. With a
//! modelled disk, all of the chain is there.
//!
//! The world proceeds by milliseconds; reads of the disk end at any microsecond. It records what each client gets, and how
//! fast the worker believes it to be.

mod peer;

use std::ops::Range;

use ackpace_core::congestion::Delay;
use ackpace_core::disk;
use ackpace_core::units::Instant;
use ackpace_core::worker::SendPolicy;

use self::peer::{Peer, Peers};
use super::shell::Shell;
use super::socket::conn_id;
use super::store::Store;
use crate::models::disk::profile::Profile;
use crate::models::tcp::ConnectionProfile;

/// Interval at which the believed rates are recorded, milliseconds.
pub const NOTED_EACH_MS: u64 = 250;
/// Time from the beginning of a response until its client counts, milliseconds: until then its path is being filled.
pub const BEGINNING_MS: u64 = 500;

/// A client that is limited by its program, its path or the disk.
#[derive(Clone, Copy, Debug)]
pub struct ReadingClient {
    /// Its path and its program.
    pub profile: ConnectionProfile,
    /// When it connects and sends its request, milliseconds.
    pub starts_ms: u64,
    /// Where its bytes come from.
    pub supply: Supply,
}

/// Where the bytes of a response come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// From the page cache.
    Cached,
    /// From the modelled disk ([`World::disk`]).
    Disk {
        /// Index of its file. The files lie on the disk in this order, evenly spread.
        file: u32,
    },
    /// From a disk that reads them piece by piece, and too slowly.
    Late {
        /// Length of a piece.
        piece_bytes: u64,
        /// Minimum time from one piece to the next, milliseconds.
        every_ms: u64,
        /// Age of the client from which on a piece comes as soon as it is wanted, milliseconds.
        until_ms: u64,
    },
}

/// Results of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// B_n, each [`NOTED_EACH_MS`] from its beginning on, bytes per second; 0: not known.
    pub believed_bytes_per_s: Vec<u64>,
    /// Bytes that its program had read by each of these times.
    pub read_noted_bytes: Vec<u64>,
    /// How fast it reads while it has something to read, bytes per second: the rate of its program, or what its path
    /// carried from [`BEGINNING_MS`] on.
    pub true_bytes_per_s: u64,
    /// Mean rate at which its program read from [`BEGINNING_MS`] on, bytes per second.
    pub got_bytes_per_s: u64,
    /// Bytes that its program read in all.
    pub read_bytes: u64,
    /// Time in which its program wanted bytes and its socket had none to send, milliseconds. It counts from
    /// [`BEGINNING_MS`] after the beginning of a response, and after the disk was late for the last time.
    pub underrun_ms: u64,
}

/// Results of a run. Sums and maxima over all clients count from [`World::measured_from_ms`] on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Each client, in the order given.
    pub readers: Vec<Reader>,
    /// Wake-ups of the worker.
    pub wakes: u64,
    /// Sockets that were refilled, without the first filling of each response.
    pub top_ups: u64,
    /// Bytes that the programs read.
    pub read_bytes: u64,
    /// Mean over time of the unsent bytes in all sockets together.
    pub queue_mean_bytes: u64,
    /// The maximum of these, from the start of the world.
    pub queue_max_bytes: u64,
    /// Totals from the beginning of the world to each full second.
    pub by_second: Vec<ReadTotals>,
}

/// What clients got, and what it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadTotals {
    /// Bytes that each client's program has read, in the order given.
    pub by_client_bytes: Vec<u64>,
    /// Reads submitted to the device.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
}

/// The modelled disk of a world. Each client has a file of its own, and no file is in the page cache.
#[derive(Clone, Debug)]
pub struct ColdDisk {
    /// Length of each file.
    pub file_bytes: u64,
    /// The device.
    pub profile: Profile,
    /// Settings of the disk machine.
    pub disk: disk::Settings,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct World {
    /// Who downloads.
    pub clients: Vec<ReadingClient>,
    /// When and how far sockets are filled.
    pub send: SendPolicy,
    /// Where the bytes of those are that a disk supplies.
    pub disk: Option<ColdDisk>,
    /// When counting begins.
    pub measured_from_ms: u64,
    /// When it ends.
    pub ends_ms: u64,
}

impl World {
    /// Runs the world until `ends_ms`.
    pub fn run(&self) -> Outcome {
        let store = self.disk.as_ref().map(|cold| {
            let (page_cache_bytes, files) = (0, self.clients.len() as u32);
            let (profile, file_bytes) = (&cold.profile, cold.file_bytes);
            let mut store = Store::new(cold.disk, profile, page_cache_bytes, files, file_bytes);
            store.alive.fill(1);
            store
        });
        let delay = self
            .disk
            .as_ref()
            .map_or(Delay::Rate, |cold| cold.disk.delay);
        let peers = Peers::new(self);
        let count = self.clients.len();
        let mut run = Run {
            world: self,
            shell: Shell::new(self.send, delay, peers, count, store),
            queue_byte_ms: 0,
            before: [0; 2],
            outcome: Outcome {
                readers: Vec::new(),
                wakes: 0,
                top_ups: 0,
                read_bytes: 0,
                queue_mean_bytes: 0,
                queue_max_bytes: 0,
                by_second: Vec::new(),
            },
        };
        for now_ms in 0..self.ends_ms {
            if now_ms == self.measured_from_ms {
                run.before = run.totals();
            }
            run.turn(now_ms);
            run.note(now_ms);
        }
        run.end()
    }
}

/// A run of the world.
struct Run<'a> {
    world: &'a World,
    shell: Shell<Peers>,
    queue_byte_ms: u128,
    /// [`Run::totals`] when counting began.
    before: [u64; 2],
    outcome: Outcome,
}

impl Run<'_> {
    /// Top-ups, and bytes that programs have read.
    fn totals(&self) -> [u64; 2] {
        let peers = self.shell.clients.all.iter();
        let top_ups = self.shell.worker.counts().top_ups.iter().sum();
        [top_ups, peers.map(Peer::read_bytes).sum()]
    }

    /// Ends the reads that are done by now. Then a millisecond passes on all paths.
    fn turn(&mut self, now_ms: u64) {
        let shell = &mut self.shell;
        if now_ms % 1_000 == 0 {
            let counted = shell.store.as_ref().map(|store| store.counted);
            let counted = counted.unwrap_or_default();
            let peers = shell.clients.all.iter();
            self.outcome.by_second.push(ReadTotals {
                by_client_bytes: peers.map(Peer::read_bytes).collect(),
                reads: counted.reads,
                read_bytes: counted.read_bytes,
            });
        }
        while let Some(store) = &mut shell.store {
            let done = store.next_read_done().filter(|at| *at <= instant(now_ms));
            let Some(at) = done else { break };
            shell.now = shell.now.max(at);
            store.reads_done(shell.now);
            shell.turn(false);
        }
        shell.now = instant(now_ms);
        let mut woken = shell.is_due();
        for nth in 0..self.world.clients.len() {
            for event in shell.clients.all[nth].pass(nth, now_ms) {
                woken = true;
                shell.on(event);
            }
        }
        shell.turn(woken);
        let counts = now_ms >= self.world.measured_from_ms;
        self.outcome.wakes += u64::from(woken && counts);
    }

    /// Records what the sockets hold and what is believed.
    fn note(&mut self, now_ms: u64) {
        let mut queue_bytes = 0;
        for (nth, peer) in self.shell.clients.all.iter_mut().enumerate() {
            queue_bytes += peer.unsent_bytes();
            if peer.is_noted(now_ms) {
                let snapshot = self.shell.worker.snapshot_of(conn_id(nth), instant(now_ms));
                peer.note(snapshot.map_or(0, |snapshot| snapshot.believed_bytes_per_s));
            }
        }
        self.outcome.queue_max_bytes = self.outcome.queue_max_bytes.max(queue_bytes);
        if now_ms >= self.world.measured_from_ms {
            self.queue_byte_ms += u128::from(queue_bytes);
        }
    }

    fn end(mut self) -> Outcome {
        let ms = self.world.ends_ms - self.world.measured_from_ms;
        let [top_ups, read_bytes] = self.totals();
        let peers = self.shell.clients.all.into_iter();
        self.outcome.readers = peers.map(|peer| peer.end(self.world.ends_ms)).collect();
        self.outcome.queue_mean_bytes = (self.queue_byte_ms / u128::from(ms.max(1))) as u64;
        self.outcome.top_ups = top_ups - self.before[0];
        self.outcome.read_bytes = read_bytes - self.before[1];
        self.outcome
    }
}

impl ReadingClient {
    /// The rate of its program while it has something to read, bytes per second; `None`: its path decides.
    fn own_bytes_per_s(&self) -> Option<u64> {
        let link_bytes_per_s = self.profile.link_bytes_per_s;
        match (self.profile.program.mean_bytes_per_s(), self.supply) {
            (Some(bytes_per_s), _) => Some(bytes_per_s.min(link_bytes_per_s)),
            (None, Supply::Late { .. }) => Some(link_bytes_per_s),
            (None, Supply::Cached | Supply::Disk { .. }) => None,
        }
    }
}

impl Outcome {
    /// Totals of these seconds alone.
    pub fn between(&self, seconds: Range<u64>) -> ReadTotals {
        let [before, after] =
            [seconds.start, seconds.end].map(|second| &self.by_second[second as usize]);
        let clients = after.by_client_bytes.iter().zip(&before.by_client_bytes);
        ReadTotals {
            by_client_bytes: clients.map(|(after, before)| after - before).collect(),
            reads: after.reads - before.reads,
            read_bytes: after.read_bytes - before.read_bytes,
        }
    }

    /// Wake-ups per 10^9 bytes.
    pub fn wakes_per_gb(&self) -> f64 {
        self.wakes as f64 / (self.read_bytes as f64 / 1e9)
    }

    /// Top-ups per 10^9 bytes.
    pub fn top_ups_per_gb(&self) -> f64 {
        self.top_ups as f64 / (self.read_bytes as f64 / 1e9)
    }
}

fn instant(ms: u64) -> Instant {
    Instant { us: ms * 1_000 }
}
