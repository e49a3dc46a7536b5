//! What a device's thread counts, and the log line about lost wakeups.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ackpace_core::disk::ReadError;

/// The counters of a device's thread.
#[derive(Debug, Default)]
pub struct DeviceTally {
    /// Reads that ended, failed ones too.
    pub reads: AtomicU64,
    pub failed: AtomicU64,
    /// Bytes of the reads that did not fail.
    pub bytes: AtomicU64,
    /// The service time of all reads.
    pub service_us: AtomicU64,
    /// Reads that went past the page cache.
    pub direct: AtomicU64,
    /// Streams that read from the device now (N).
    pub streams: AtomicU64,
    /// The rate of all these together (B_net), bytes per second.
    pub rates_bytes_per_s: AtomicU64,
    /// Wants that were due and that signs of congestion deferred.
    pub delayed: AtomicU64,
    /// The bytes that would have been read for them.
    pub delayed_bytes: AtomicU64,
    /// T_D, the time for which a stream's bytes are to last after a read.
    pub target_us: AtomicU64,
    /// t_p, the time of positioning at the present load.
    pub positioning_us: AtomicU64,
    /// R, the rate of the medium.
    pub media_bytes_per_s: AtomicU64,
    /// K, reads given to the device at once.
    pub reads_max: AtomicU64,
    pub in_flight: AtomicU64,
    /// Memory of the pool in use, bytes.
    pub memory_used_bytes: AtomicU64,
    pub memory_bytes: AtomicU64,
    /// Turns after which the next read waited for memory.
    pub memory_waits: AtomicU64,
}

impl DeviceTally {
    pub(crate) fn count(&self, result: Result<u64, ReadError>, service_us: u64, direct: bool) {
        self.reads.fetch_add(1, Relaxed);
        self.failed.fetch_add(result.is_err().into(), Relaxed);
        self.bytes.fetch_add(result.unwrap_or(0), Relaxed);
        self.service_us.fetch_add(service_us, Relaxed);
        self.direct.fetch_add(direct.into(), Relaxed);
    }
}
