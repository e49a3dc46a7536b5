//! The load of the device: what all streams ask of it together.

use super::Disk;
use crate::prefetch::DeviceLoad;

impl Disk {
    /// The load of the device. Streams of unknown rate count as fast as the mean of the others: a crowd that has just
    /// arrived must not assume that it has the memory to itself.
    pub fn load(&self) -> DeviceLoad {
        let streams = self.readers.len() as u64;
        let all = u128::from(self.rates_bytes_per_s) * u128::from(streams);
        let all = all.checked_div(self.rates_known.into()).unwrap_or(0);
        DeviceLoad {
            streams,
            rates_bytes_per_s: u64::try_from(all).unwrap_or(u64::MAX),
            memory_bytes: self.settings.memory_bytes,
            planned_percent: self.pool_controller.percent(),
        }
    }

    /// A reader has this rate from now on; 0: it is not known.
    pub(super) fn add_rate(&mut self, rate_bytes_per_s: u64) {
        self.rates_bytes_per_s += rate_bytes_per_s;
        self.rates_known += u64::from(rate_bytes_per_s > 0);
    }

    /// It has this rate no longer.
    pub(super) fn remove_rate(&mut self, rate_bytes_per_s: u64) {
        self.rates_bytes_per_s -= rate_bytes_per_s;
        self.rates_known -= u64::from(rate_bytes_per_s > 0);
    }
}
