//! A worker, a disk machine and a modelled disk, with clients that read at a pace of their own. All of the chain is there:
//! what a client's program reads moves its window, the worker estimates from that how fast it is, and the disk machine
//! sizes reads by it.
//!
//! Each client downloads a file of its own, and no file is in the page cache. The world proceeds by milliseconds; reads end
//! at any microsecond. It checks the laws of `sim/src/worlds/laws.rs`.

mod disk_thread;
mod shell;

use std::ops::Range;

use ackpace_core::disk;
use ackpace_core::units::Instant;
use ackpace_core::worker::SendPolicy;

use crate::models::disk::profile::Profile;
use crate::models::tcp::ConnectionProfile;
use crate::models::tcp::receiver::Program;

/// A client and its download.
#[derive(Clone, Copy, Debug)]
pub struct ColdClient {
    /// Its path and its program.
    pub profile: ConnectionProfile,
    /// When it connects and sends its request, milliseconds.
    pub starts_ms: u64,
    /// Index of its file. The files lie on the disk in this order, evenly spread.
    pub file: u32,
    /// What becomes different at it later, if anything does.
    pub change: Option<ClientChange>,
}

/// A change at a client in the middle of its download. Its time counts from the beginning of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientChange {
    /// Its program sets the size of its receive buffer (SO_RCVBUF).
    Buffer {
        /// When, milliseconds.
        at_ms: u64,
        /// The new size.
        bytes: u64,
    },
    /// Its program reads in another way.
    Program {
        /// When, milliseconds.
        at_ms: u64,
        /// The new way.
        program: Program,
    },
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct World {
    /// Who downloads.
    pub clients: Vec<ColdClient>,
    /// Length of each file.
    pub file_bytes: u64,
    /// The device.
    pub profile: Profile,
    /// Settings of the disk machine.
    pub disk: disk::Settings,
    /// When and how far sockets are filled.
    pub send: SendPolicy,
    /// How long it lasts, seconds.
    pub ends_s: u64,
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

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Totals from the beginning of the world to each full second, 0 and [`World::ends_s`] included.
    pub by_second: Vec<ReadTotals>,
}

impl World {
    /// Runs the world until `ends_s`.
    pub fn run(&self) -> Outcome {
        shell::Run::new(self).run()
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
}

fn instant(ms: u64) -> Instant {
    Instant { us: ms * 1_000 }
}
