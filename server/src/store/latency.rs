//! How long the reads of a device take, for the question whether a worker may risk one (`core/src/residency/latency.rs`).
//!
//! The device's own reads tell it. A device whose files are all in memory has none, so it is measured once, past the page
//! cache, when a long file of it is first opened.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant as Moment;

use ackpace_core::limits::READ_ALIGN_BYTES;
use ackpace_core::residency::latency::{Latency, PageWait, Way};
use ackpace_core::residency::limits::{
    LATENCY_AGAIN_US, LATENCY_FILE_BYTES_MIN, LATENCY_READ_BYTES, LATENCY_READS,
};
use ackpace_core::units::Instant;
use rustix::io::pread;

use super::file::File;

/// What is known of one device's reads, for all threads.
#[derive(Debug)]
pub struct DeviceLatency {
    /// A [`Latency`].
    bits: AtomicU32,
    /// It is to be measured with the next file that is opened.
    is_due: AtomicBool,
    /// No sooner is it measured again, microseconds of the machines' clock.
    again_at_us: AtomicU64,
}

impl Default for DeviceLatency {
    fn default() -> DeviceLatency {
        DeviceLatency {
            bits: AtomicU32::new(Latency::default().to_bits()),
            is_due: AtomicBool::new(true),
            again_at_us: AtomicU64::new(0),
        }
    }
}

impl DeviceLatency {
    /// What it costs to wait for a page of the device, as far as it is known.
    pub fn wait(&self) -> PageWait {
        Latency::from_bits(self.bits.load(Ordering::Relaxed)).wait()
    }

    /// The device has read so many bytes for us. A device that counts as slow is measured again now and then as long as it
    /// reads; one that rests is not woken.
    pub fn has_read(&self, len_bytes: u64, took_us: u64, way: Way, now: Instant) {
        self.learn(len_bytes, took_us, way);
        let again_at_us = self.again_at_us.load(Ordering::Relaxed);
        if self.wait() == PageWait::Long && now.us >= again_at_us {
            let next_us = now.us + LATENCY_AGAIN_US;
            self.again_at_us.store(next_us, Ordering::Relaxed);
            self.is_due.store(again_at_us > 0, Ordering::Relaxed);
        }
    }

    /// Whether the caller is to measure the device now, with a file of this length.
    pub fn is_to_be_measured(&self, len_bytes: u64) -> bool {
        len_bytes >= LATENCY_FILE_BYTES_MIN
            && self.is_due.load(Ordering::Relaxed)
            && self.is_due.swap(false, Ordering::Relaxed)
    }

    /// Measures the device by reads of this file, past the page cache, until they say enough. Waits for the disk. A file
    /// system that refuses such reads stays unknown.
    pub fn measure(&self, file: &File, file_bytes: u64) {
        let Ok(direct) = file.open_direct() else {
            return;
        };
        self.bits
            .store(Latency::default().to_bits(), Ordering::Relaxed);
        let align = READ_ALIGN_BYTES as usize;
        let mut memory = vec![0; LATENCY_READ_BYTES as usize + align];
        let from = memory.as_ptr().align_offset(align).min(align);
        let into = &mut memory[from..][..LATENCY_READ_BYTES as usize];
        for offset_bytes in places(file_bytes) {
            let began = Moment::now();
            let Ok(1..) = pread(&*direct, &mut *into, offset_bytes) else {
                return;
            };
            let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            if self
                .learn(LATENCY_READ_BYTES, took_us, Way::Past)
                .is_settled()
            {
                return;
            }
        }
    }

    fn learn(&self, len_bytes: u64, took_us: u64, way: Way) -> Latency {
        let before = Latency::from_bits(self.bits.load(Ordering::Relaxed));
        let latency = before.with(len_bytes, took_us, way);
        // Two threads that learn at once may lose a read, of which there are more.
        self.bits.store(latency.to_bits(), Ordering::Relaxed);
        latency
    }
}

/// Where to read a file of this length: all over it, and never where a disk that has just read would go on.
fn places(file_bytes: u64) -> impl Iterator<Item = u64> {
    let count = u64::from(LATENCY_READS);
    let step_bytes = file_bytes / count / READ_ALIGN_BYTES * READ_ALIGN_BYTES;
    (0..count).map(move |nth| nth * 7 % count * step_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant { us: 1 << 42 };

    #[test]
    fn the_places_are_distinct_and_far_from_each_other() {
        let places: Vec<u64> = places(LATENCY_FILE_BYTES_MIN + 5).collect();
        let far = |pair: &[u64]| pair[0].abs_diff(pair[1]) >= 7 << 20;
        assert!(places.windows(2).all(far), "{places:?}");
        let mut sorted = places.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), usize::from(LATENCY_READS));
        let fits = |at: &u64| at + LATENCY_READ_BYTES <= LATENCY_FILE_BYTES_MIN;
        assert!(sorted.iter().all(fits) && sorted.iter().all(|at| at % READ_ALIGN_BYTES == 0));
    }

    #[test]
    fn a_device_is_measured_once_with_a_long_file() {
        let latency = DeviceLatency::default();
        assert!(!latency.is_to_be_measured(LATENCY_FILE_BYTES_MIN - 1));
        assert!(latency.is_to_be_measured(LATENCY_FILE_BYTES_MIN));
        assert!(!latency.is_to_be_measured(LATENCY_FILE_BYTES_MIN), "once");
        assert_eq!(latency.wait(), PageWait::Long, "nothing is known");
    }

    #[test]
    fn a_slow_device_is_measured_again_only_while_it_reads() {
        let latency = DeviceLatency::default();
        let due = || latency.is_to_be_measured(LATENCY_FILE_BYTES_MIN);
        assert!(due());
        latency.has_read(4096, 9_000, Way::Past, NOW);
        assert!(!due(), "it was measured a moment ago");
        latency.has_read(4096, 9_000, Way::Past, NOW.plus_us(LATENCY_AGAIN_US - 1));
        assert!(!due());
        latency.has_read(4096, 9_000, Way::Past, NOW.plus_us(LATENCY_AGAIN_US));
        assert!(due());
        assert!(!due(), "once");
    }

    #[test]
    fn a_fast_device_is_not_measured_again() {
        let latency = DeviceLatency::default();
        assert!(latency.is_to_be_measured(LATENCY_FILE_BYTES_MIN));
        for n in 0..100 {
            latency.has_read(4096, 100, Way::Past, NOW.plus_us(n * LATENCY_AGAIN_US));
        }
        assert_eq!(latency.wait(), PageWait::Short);
        // While nothing was known, it counted as slow.
        latency.is_to_be_measured(LATENCY_FILE_BYTES_MIN);
        latency.has_read(4096, 100, Way::Past, NOW.plus_us(200 * LATENCY_AGAIN_US));
        assert!(!latency.is_to_be_measured(LATENCY_FILE_BYTES_MIN));
    }
}
