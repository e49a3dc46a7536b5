//! A worker, a disk machine and a modelled disk, with clients that each download one long file at their own rate.
//!
//! The page cache starts empty. Each file is contiguous, and the files are spread over the whole disk. The laws of
//! `sim/src/worlds/laws.rs` hold in every run, whatever goes wrong (`sim/src/worlds/store/faults.rs`).

mod paths;

use ackpace_core::Machine;
use ackpace_core::disk::{self, Delayed};
use ackpace_core::units::Instant;
use ackpace_core::worker::{In, SendPolicy};

use self::paths::Paths;
pub use super::laws::Ending;
use super::shell::Shell;
use super::socket::{Client, conn_id};
use super::store::Store;
pub use super::store::{Fault, Faults};
use crate::models::disk::profile::Profile;

/// One client's download.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    /// The client: its path and its socket.
    pub client: Client,
    /// Index of the file; several clients may ask for one.
    pub file: u32,
    /// First byte that it asks for.
    pub from_bytes: u64,
    /// When it sends RST, if it does.
    pub resets_at: Option<Instant>,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct World {
    /// The downloads.
    pub downloads: Vec<Download>,
    /// Number of files, spread evenly over the device.
    pub files: u32,
    /// Length of each.
    pub file_bytes: u64,
    /// The device.
    pub profile: Profile,
    /// Size of the page cache.
    pub page_cache_bytes: u64,
    /// Settings of the disk machine.
    pub disk: disk::Settings,
    /// When and how far sockets are filled.
    pub send: SendPolicy,
    /// When counting begins.
    pub measured_from: Instant,
    /// When it ends.
    pub ends_at: Instant,
    /// What goes wrong until then.
    pub faults: Faults,
}

/// Results of a run, from `measured_from` on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Bytes that reached each client.
    pub by_client_bytes: Vec<u64>,
    /// Time from each client's request to the first byte of its body, if one came; counted from the start of the run.
    pub first_byte_us: Vec<Option<u64>>,
    /// Reads submitted to the device.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Bytes of reads submitted for the file that each client downloads.
    pub read_by_client_bytes: Vec<u64>,
    /// Bytes of reads submitted for clients that had left.
    pub dead_read_bytes: u64,
    /// Wants that signs of congestion delayed; counted from the start of the run.
    pub delayed: Delayed,
    /// Peak use of the pool.
    pub pool_max_bytes: u64,
    /// K, the number of reads that the device is given at once, at the end.
    pub depth: usize,
    /// How each download ended.
    pub endings: Vec<Ending>,
    /// What is still held at the end.
    pub kept: Kept,
}

/// What the machines and their shell hold for somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Connections of the worker.
    pub connections: u32,
    /// Streams with a want at the disk.
    pub streams: u64,
    /// Reads in the device.
    pub reads: usize,
    /// Slots of the pool.
    pub slots: u32,
}

impl Outcome {
    /// Mean rate of these clients over `us`, in bytes per second.
    pub fn mean_bytes_per_s(&self, clients: std::ops::Range<usize>, us: u64) -> f64 {
        let count = clients.len().max(1) as f64;
        let bytes: u64 = self.by_client_bytes[clients].iter().sum();
        bytes as f64 * 1e6 / us as f64 / count
    }

    /// Rate of the slowest of these clients over `us`, in bytes per second.
    pub fn min_bytes_per_s(&self, clients: std::ops::Range<usize>, us: u64) -> f64 {
        let bytes = self.by_client_bytes[clients].iter().min().copied();
        bytes.unwrap_or(0) as f64 * 1e6 / us as f64
    }
}

impl World {
    /// Runs the world until `ends_at`.
    pub fn run(&self) -> Outcome {
        let mut store = Store::new(
            self.disk,
            &self.profile,
            self.page_cache_bytes,
            self.files,
            self.file_bytes,
        );
        store.set_faults(self.faults.clone());
        store.counted_from = self.measured_from;
        for download in &self.downloads {
            store.alive[download.file as usize] += 1;
        }
        let paths = Paths::new(self);
        let count = self.downloads.len();
        let mut shell = Shell::new(self.send, self.disk.delay, paths, count, Some(store));
        while self.turn(&mut shell) {}
        self.outcome(shell)
    }

    /// Handles the next events of clients and device, and what the machines order then. Returns `false` if there are
    /// none by `ends_at`.
    fn turn(&self, shell: &mut Shell<Paths>) -> bool {
        let store = shell.store.as_mut().expect("a disk");
        let next = [
            shell.clients.next_at(),
            shell.worker.deadline(),
            store.next_at(),
        ];
        let next = next.into_iter().flatten().min();
        let next = next.map(|at| at.max(shell.now));
        let Some(now) = next.filter(|at| *at <= self.ends_at) else {
            return false;
        };
        shell.now = now;
        store.inject(now);
        let mut woken = shell.is_due();
        while let Some((nth, event)) = shell.clients.next_event(now) {
            woken = true;
            let (conn, address) = (conn_id(nth), None);
            let event = event.map_or(In::Accepted { conn, address }, |event| In::Tcp {
                conn,
                event,
            });
            shell.on(event);
        }
        for nth in shell.clients.left() {
            shell.responses[nth].progress.leaves();
            if let Some(store) = &mut shell.store {
                store.alive[self.downloads[nth].file as usize] -= 1;
            }
        }
        if let Some(store) = &mut shell.store {
            store.reads_done(now);
        }
        shell.turn(woken);
        true
    }

    fn outcome(&self, shell: Shell<Paths>) -> Outcome {
        let store = shell.store.expect("a disk");
        let files = self.downloads.iter().map(|d| d.file as usize);
        let responses = shell.responses.iter();
        Outcome {
            by_client_bytes: shell.clients.finish(self.ends_at),
            first_byte_us: responses.clone().map(|one| one.first_byte_us).collect(),
            reads: store.counted.reads,
            read_bytes: store.counted.read_bytes,
            read_by_client_bytes: files.map(|file| store.read_by_file_bytes[file]).collect(),
            dead_read_bytes: store.counted.dead_read_bytes,
            delayed: store.disk.delayed(),
            pool_max_bytes: store.pool_max_bytes,
            depth: store.disk.reads_max(),
            endings: responses.map(|one| one.progress.ending).collect(),
            kept: Kept {
                connections: shell.worker.connections(),
                streams: store.disk.load().streams,
                reads: store.in_flight.len(),
                slots: store.slots,
            },
        }
    }
}
