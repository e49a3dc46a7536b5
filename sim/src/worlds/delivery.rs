//! A worker, a disk machine and a modelled disk, and clients that download one long file each at their own pace.
//!
//! Nothing is cached before; each file lies in one piece, and files lie all over the disk. The world is the
//! shell of both machines: it does what they order, and counts.

mod cache;
mod paths;
mod shell;

use ackpace_core::disk::{self, Delayed};
use ackpace_core::units::Instant;
use ackpace_core::worker::Policy;

use self::shell::Run;
use super::socket::Client;
use crate::models::disk::profile::Profile;

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
    /// Memory of the page cache.
    pub page_cache_bytes: u64,
    /// How the disk machine works.
    pub disk: disk::Settings,
    /// How bytes are given to sockets.
    pub send: Policy,
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
    /// From each client's request to its first byte of the body, if that came; counted from the start.
    pub first_byte_us: Vec<Option<u64>>,
    /// Reads given to the device, and their bytes.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Bytes of reads given to the device of the file that each client wants.
    pub read_by_client_bytes: Vec<u64>,
    /// Bytes of reads given to the device for clients that had left.
    pub dead_read_bytes: u64,
    /// Wishes that signs of congestion put off; counted from the start.
    pub delayed: Delayed,
    /// Most of the pool that was in use at once.
    pub pool_max_bytes: u64,
    /// T_D and t_p at the end.
    pub target_us: u64,
    /// t_p at the end.
    pub positioning_us: u64,
    /// R at the end.
    pub media_bytes_per_s: u64,
    /// K at the end.
    pub depth: usize,
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

impl World {
    /// Runs it.
    pub fn run(&self) -> Outcome {
        let mut run = Run::new(self);
        while run.turn(self.ends_at) {}
        run.finish(self.ends_at)
    }
}
