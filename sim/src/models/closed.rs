//! A closed-loop host: it keeps a fixed number of requests under way, as disk benchmarks do.

use super::array::Device;
use super::disk::request::{Kind, Request};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};
use std::collections::BTreeMap;

const NS_PER_S: f64 = 1e9;

/// A sequence of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Consecutive, from an offset.
    Sequential {
        /// Offset of the first read.
        from_bytes: u64,
    },
    /// Anywhere on the device, at multiples of the length.
    Random {
        /// Equal seeds give equal sequences.
        seed: u64,
    },
}

impl Pattern {
    /// `count` reads of `len_bytes` on a device of `size_bytes`. A sequential pattern wraps round at its end.
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

/// Measurements of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// From the first arrival to the last completion.
    pub elapsed_ns: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Number of requests.
    pub requests: u64,
    /// Longest time from arrival to completion of one piece.
    pub slowest_ns: u64,
}

impl Throughput {
    /// Requests a second.
    pub fn per_s(&self) -> f64 {
        self.requests as f64 * NS_PER_S / self.elapsed_ns.max(1) as f64
    }

    /// Bytes a second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 * NS_PER_S / self.elapsed_ns.max(1) as f64
    }
}

/// How a host submits requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Requests kept under way, at least 1.
    pub depth: usize,
    /// Longest piece. A longer request is split, and its pieces are submitted at once, as by a kernel.
    pub piece_bytes: u64,
}

impl Host {
    /// `depth` requests under way, each in one piece.
    pub fn of_depth(depth: usize) -> Self {
        Self {
            depth,
            piece_bytes: u64::MAX,
        }
    }
}

/// Runs the requests in order, beginning at `now_ns`. The next one is submitted at the instant at which one completes.
pub fn run(device: &mut Device, requests: &[Request], host: Host, now_ns: u64) -> Throughput {
    let mut todo = requests.iter().enumerate();
    let mut under_way = UnderWay::default();
    for (nth, request) in todo.by_ref().take(host.depth) {
        under_way.submit(device, nth, request, host.piece_bytes, now_ns);
    }
    let (mut last_ns, mut slowest_ns) = (now_ns, 0);
    while let Some(due_ns) = device.next_ns() {
        while let Some(done) = device.complete(due_ns) {
            last_ns = done.finished_ns;
            slowest_ns = slowest_ns.max(done.finished_ns - done.arrived_ns);
            if !under_way.is_whole(done.request.id) {
                continue;
            }
            if let Some((nth, request)) = todo.next() {
                under_way.submit(device, nth, request, host.piece_bytes, last_ns);
            }
        }
    }
    Throughput {
        elapsed_ns: last_ns - now_ns,
        bytes: requests.iter().map(|request| request.len_bytes).sum(),
        requests: requests.len() as u64,
        slowest_ns,
    }
}

/// The request of each piece, and the number of pieces that each request still lacks.
#[derive(Default)]
struct UnderWay {
    of_piece: BTreeMap<u64, usize>,
    missing: BTreeMap<usize, usize>,
    next_piece: u64,
}

impl UnderWay {
    fn submit(
        &mut self,
        device: &mut Device,
        nth: usize,
        request: &Request,
        piece_bytes: u64,
        now_ns: u64,
    ) {
        let mut at = request.offset_bytes;
        while at < request.end_bytes() {
            let piece = Request {
                id: self.next_piece,
                offset_bytes: at,
                len_bytes: piece_bytes.min(request.end_bytes() - at),
                kind: request.kind,
            };
            self.next_piece += 1;
            self.of_piece.insert(piece.id, nth);
            *self.missing.entry(nth).or_default() += 1;
            device.submit(now_ns, piece);
            at = piece.end_bytes();
        }
    }

    /// Removes a piece; true if it was the last of its request.
    fn is_whole(&mut self, piece: u64) -> bool {
        let Some(nth) = self.of_piece.remove(&piece) else {
            return false;
        };
        match self.missing.get_mut(&nth) {
            Some(left) if *left > 1 => {
                *left -= 1;
                false
            }
            _ => self.missing.remove(&nth).is_some(),
        }
    }
}
