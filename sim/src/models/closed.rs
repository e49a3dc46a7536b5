//! A host that keeps a number of requests under way: what benchmarks of disks do.

use super::array::Device;
use super::disk::request::{Kind, Request};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

const NS_PER_S: f64 = 1e9;

/// A row of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One after the other from an offset.
    Sequential {
        /// Where the first begins.
        from_bytes: u64,
    },
    /// Anywhere on the device, at multiples of the length.
    Random {
        /// The same seed gives the same row.
        seed: u64,
    },
}

impl Pattern {
    /// `count` reads of `len_bytes` on a device of `size_bytes`; a sequential row begins anew at its end.
    pub fn reads(self, size_bytes: u64, len_bytes: u64, count: u64) -> Vec<Request> {
        let places = (size_bytes / len_bytes).max(1);
        let read = |id, place| Request {
            id,
            offset_bytes: place % places * len_bytes,
            len_bytes,
            kind: Kind::Read,
        };
        match self {
            Pattern::Sequential { from_bytes } => {
                let first = from_bytes / len_bytes;
                (0..count).map(|nth| read(nth, first + nth)).collect()
            }
            Pattern::Random { seed } => {
                let mut chance = Pcg64Mcg::seed_from_u64(seed);
                (0..count)
                    .map(|nth| read(nth, chance.next_u64() % places))
                    .collect()
            }
        }
    }
}

/// What a row of requests took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// From the first arrival to the last completion.
    pub elapsed_ns: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Number of requests.
    pub requests: u64,
    /// The longest time from arrival to completion.
    pub slowest_ns: u64,
}

impl Outcome {
    /// Requests a second.
    pub fn per_s(&self) -> f64 {
        self.requests as f64 * NS_PER_S / self.elapsed_ns.max(1) as f64
    }

    /// Bytes a second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 * NS_PER_S / self.elapsed_ns.max(1) as f64
    }
}

/// Runs the requests in their order, `depth` (at least 1) of them under way, beginning at `now_ns`:
/// the next is submitted at the very time at which one completes.
pub fn run(device: &mut Device, requests: &[Request], depth: usize, now_ns: u64) -> Outcome {
    let mut todo = requests.iter();
    for request in todo.by_ref().take(depth) {
        device.submit(now_ns, *request);
    }
    let (mut last_ns, mut slowest_ns) = (now_ns, 0);
    while let Some(due_ns) = device.next_ns() {
        while let Some(done) = device.complete(due_ns) {
            last_ns = done.finished_ns;
            slowest_ns = slowest_ns.max(done.finished_ns - done.arrived_ns);
            if let Some(request) = todo.next() {
                device.submit(done.finished_ns, *request);
            }
        }
    }
    Outcome {
        elapsed_ns: last_ns - now_ns,
        bytes: requests.iter().map(|request| request.len_bytes).sum(),
        requests: requests.len() as u64,
        slowest_ns,
    }
}
