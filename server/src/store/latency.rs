//! How long the reads of a device take, for the question whether a worker may risk one (`core/src/residency.rs`).
//!
//! The device's own reads tell it. A device whose files are all in memory has none, so it is measured once, past the page
//! cache, when a long file of it is first opened.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use ackpace_core::limits::READ_ALIGN_BYTES;
use ackpace_core::residency::{
    LATENCY_FILE_BYTES_MIN, LATENCY_READ_BYTES, Latency, PageWait, Way, places,
};
use rustix::io::pread;

use super::direct::Direct;

/// What is known of one device's reads, for all threads.
#[derive(Debug, Default)]
pub struct DeviceLatency {
    bits: AtomicU32,
    is_measured: AtomicBool,
}

impl DeviceLatency {
    /// What it costs to wait for a page of the device, as far as it is known.
    pub fn wait(&self) -> PageWait {
        self.known().wait()
    }

    pub fn has_read(&self, len_bytes: u64, took_us: u64, way: Way) {
        let latency = self.known().with(len_bytes, took_us, way);
        // Two threads that learn at once may lose a read, of which there are more.
        self.bits.store(latency.to_bits(), Ordering::Relaxed);
    }

    fn known(&self) -> Latency {
        Latency::from_bits(self.bits.load(Ordering::Relaxed))
    }

    /// Whether the caller is to measure the device now, with a file of this length.
    pub fn is_to_be_measured(&self, len_bytes: u64) -> bool {
        len_bytes >= LATENCY_FILE_BYTES_MIN
            && !self.is_measured.load(Ordering::Relaxed)
            && !self.is_measured.swap(true, Ordering::Relaxed)
    }

    /// The file that it was to be measured with can't be read so: another one may be.
    pub fn is_not_measured(&self) {
        self.is_measured.store(false, Ordering::Relaxed);
    }

    /// Measures the device by a few reads of this file, past the page cache. Waits for the disk.
    pub fn measure(&self, file: &Direct, file_bytes: u64) {
        let align = READ_ALIGN_BYTES as usize;
        let mut memory = vec![0; LATENCY_READ_BYTES as usize + align];
        let from = memory.as_ptr().align_offset(align).min(align);
        let into = &mut memory[from..][..LATENCY_READ_BYTES as usize];
        for offset_bytes in places(file_bytes) {
            let began = Instant::now();
            let Ok(1..) = pread(file, &mut *into, offset_bytes) else {
                return;
            };
            let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.has_read(LATENCY_READ_BYTES, took_us, Way::Past);
            if self.known().is_slow() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_measured_once_with_a_long_file() {
        let latency = DeviceLatency::default();
        assert!(!latency.is_to_be_measured(LATENCY_FILE_BYTES_MIN - 1));
        assert!(latency.is_to_be_measured(LATENCY_FILE_BYTES_MIN));
        assert!(!latency.is_to_be_measured(LATENCY_FILE_BYTES_MIN), "once");
        assert_eq!(latency.wait(), PageWait::Long, "nothing is known");
    }
}
