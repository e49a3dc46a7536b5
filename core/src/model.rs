//! A model of a device, learned from its completions: the time to position and the rate of the medium.
//!
//! A read of X bytes takes t_p + X/R (the lab's emulated disk, and every disk with an arm). Both are fitted to the
//! times between completions while the device is busy. So t_p is the one at the current number of streams, with
//! whatever the drive's own queue saves. Old reads fade.

use crate::limits::{READ_BYTES_LONG_MAX, READ_BYTES_MAX, READ_US_MAX};
use crate::units::{Instant, KIB, MIB, US_PER_S};

/// Each read leaves this weight to those before it: some 100 reads count.
const FADE: f64 = 0.99;
/// The medium's rate is fitted only to reads whose sizes vary by at least this part of their mean.
const SPREAD_MIN: f64 = 0.15;
/// Bounds of the medium's rate, bytes per microsecond.
const RATE_BOUNDS: (f64, f64) = (0.5, 50_000.0);

/// Learns t_p and R of one device.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    rotational: bool,
    busy_from: Option<Instant>,
    /// Sums over the reads, faded: their number, X (bytes), their times (microseconds), X squared, X times time.
    count: f64,
    sum_x: f64,
    sum_t: f64,
    sum_xx: f64,
    sum_xt: f64,
    /// R, bytes per microsecond.
    media: f64,
    /// t_p, microseconds.
    positioning: f64,
}

impl Model {
    /// A device about which nothing is known but whether it has an arm.
    pub fn new(rotational: bool) -> Model {
        let (positioning, media) = if rotational {
            (6_000.0, 60.0)
        } else {
            (100.0, 500.0)
        };
        let mut model = Model {
            rotational,
            busy_from: None,
            count: 0.0,
            sum_x: 0.0,
            sum_t: 0.0,
            sum_xx: 0.0,
            sum_xt: 0.0,
            media,
            positioning,
        };
        // The initial assumption counts as a few reads, which fade like others.
        for _ in 0..8 {
            for x in [64 * KIB, MIB].map(|len| len as f64) {
                model.learn(x, positioning + x / media);
            }
        }
        model
    }

    /// A read goes to the device; `idle`: the device had nothing to do.
    pub fn begun(&mut self, idle: bool, now: Instant) {
        if idle {
            self.busy_from = Some(now);
        }
    }

    /// A read of `len_bytes` completed: the device took the time since the completion before.
    pub fn done(&mut self, len_bytes: u64, now: Instant) {
        if let Some(from) = self.busy_from.replace(now) {
            self.learn(len_bytes as f64, now.since_us(from) as f64);
        }
    }

    /// A read of `x` bytes took `t` microseconds.
    fn learn(&mut self, x: f64, t: f64) {
        let sums = [
            (&mut self.count, 1.0),
            (&mut self.sum_x, x),
            (&mut self.sum_t, t),
            (&mut self.sum_xx, x * x),
            (&mut self.sum_xt, x * t),
        ];
        for (sum, value) in sums {
            *sum = *sum * FADE + value;
        }
        let (mean_x, mean_t) = (self.sum_x / self.count, self.sum_t / self.count);
        let variance = self.sum_xx / self.count - mean_x * mean_x;
        let covariance = self.sum_xt / self.count - mean_x * mean_t;
        // Reads of one size say nothing about the medium: keep what is known.
        if variance > mean_x * mean_x * SPREAD_MIN * SPREAD_MIN && covariance > 0.0 {
            self.media = (variance / covariance).clamp(RATE_BOUNDS.0, RATE_BOUNDS.1);
        }
        // The medium alone can't take longer than the whole read.
        self.media = self.media.max(mean_x / mean_t.max(1.0));
        self.positioning = (mean_t - mean_x / self.media).max(1.0);
    }

    /// The mean length of the last reads.
    pub fn mean_read_bytes(&self) -> u64 {
        (self.sum_x / self.count) as u64
    }

    /// The mean time between the completions of the last reads.
    pub fn mean_read_us(&self) -> u64 {
        (self.sum_t / self.count) as u64
    }

    /// t_p, the time from one read's last byte to the next one's first.
    pub fn positioning_us(&self) -> u64 {
        self.positioning as u64
    }

    /// R, the rate of the medium without positioning.
    pub fn media_bytes_per_s(&self) -> u64 {
        (self.media * US_PER_S as f64) as u64
    }

    /// H_max (TPF eq. 7): no read is longer. A device with an arm may read for [`READ_US_MAX`] at its measured rate:
    /// several disks side by side bring more in that time.
    pub fn read_bytes_max(&self) -> u64 {
        let rate = self.sum_x / self.sum_t.max(1.0);
        let bytes = (rate * READ_US_MAX as f64) as u64;
        let most = if self.rotational { bytes } else { 0 };
        most.clamp(READ_BYTES_MAX, READ_BYTES_LONG_MAX)
    }

    /// How long a read takes in the device.
    pub fn service_us(&self, len_bytes: u64) -> u64 {
        (self.positioning + len_bytes as f64 / self.media) as u64
    }

    /// B(X): what the device delivers in reads of this length.
    pub fn throughput_bytes_per_s(&self, len_bytes: u64) -> u64 {
        (len_bytes as f64 * US_PER_S as f64 / self.service_us(len_bytes).max(1) as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads of these lengths, one after the other, on a device with t_p and R.
    fn learned(lens: impl Iterator<Item = u64>, positioning_us: u64, media: u64) -> Model {
        let mut model = Model::new(true);
        let mut now = Instant { us: 1 };
        model.begun(true, now);
        for len_bytes in lens {
            now = now.plus_us(positioning_us + len_bytes * US_PER_S / media);
            model.done(len_bytes, now);
        }
        model
    }

    proptest! {
        #[test]
        fn a_device_is_learned_from_reads_of_different_sizes(positioning_us in 50u64..20_000, media in 5_000_000u64..2_000_000_000) {
            let lens = (0..3_000u64).map(|n| 65_536 + n * 7_919 % 2_000_000);
            let model = learned(lens, positioning_us, media);
            prop_assert!(model.media_bytes_per_s().abs_diff(media) <= media / 50, "{model:?}");
            // On a slow medium, the time for positioning is a small difference of large times.
            let leeway_us = positioning_us / 50 + 20 + 1_000_000 * US_PER_S / media / 50;
            prop_assert!(model.positioning_us().abs_diff(positioning_us) <= leeway_us, "{model:?}");
        }
    }

    #[test]
    fn reads_of_one_size_leave_the_medium_and_move_the_positioning() {
        let mixed = (0..500u64).map(|n| 65_536 + n * 7_919 % 2_000_000);
        let model = learned(
            mixed.chain((0..2_000).map(|_| 1_000_000)),
            4_000,
            50_000_000,
        );
        assert!(
            model.media_bytes_per_s().abs_diff(50_000_000) < 1_500_000,
            "{model:?}"
        );
        assert!(model.positioning_us().abs_diff(4_000) < 400, "{model:?}");
        assert!(model.throughput_bytes_per_s(1_000_000).abs_diff(41_666_666) < 1_000_000);
    }

    #[test]
    fn time_without_work_is_not_the_devices() {
        let mut model = learned(
            (0..500u64).map(|n| 65_536 + n * 7_919 % 2_000_000),
            4_000,
            50_000_000,
        );
        let before = model.positioning_us();
        let later = Instant { us: 1_000_000_000 };
        model.begun(true, later);
        model.done(1_000_000, later.plus_us(24_000));
        assert!(model.positioning_us().abs_diff(before) < 100);
    }
}
