//! A worker, a disk machine and a modelled disk, with clients that each download one long file at their own rate.
//!
//! The page cache starts empty. Each file is contiguous, and the files are spread over the whole disk. The world is the
//! shell of both machines: it executes their orders, counts, and checks the laws that hold in every run (`sim/src/worlds/laws.rs`),
//! whatever goes wrong (`faults.rs`).

mod cache;
mod device;
mod faults;
mod paths;
mod shell;

use ackpace_core::disk::{self, Delayed};
use ackpace_core::units::Instant;
use ackpace_core::worker::SendPolicy;

pub use self::faults::{Fault, Faults};
use self::shell::Run;
pub use super::laws::Ending;
use super::socket::Client;
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
    /// T_D, the time for which reads shall last, at the end.
    pub target_us: u64,
    /// t_p, the time from one read's last byte to the next one's first, at the end.
    pub positioning_us: u64,
    /// R, the device's rate within a read, at the end.
    pub media_bytes_per_s: u64,
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
        let mut run = Run::new(self);
        while run.turn(self.ends_at) {}
        run.finish(self.ends_at)
    }
}
