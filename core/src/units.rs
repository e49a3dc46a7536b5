//! Time, bytes and rates as integers. The unit stands last in every name.

use core::time::Duration;

/// Microseconds in a second.
pub const US_PER_S: u64 = 1_000_000;
/// 2^10 bytes.
pub const KIB: u64 = 1 << 10;
/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;

/// Monotonic time since the start of the process (or of the simulation), in microseconds.
///
/// Ours, since std's cannot be made from a number: a test writes `Instant { us: 10_000 }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    /// Microseconds.
    pub us: u64,
}

impl Instant {
    /// This instant and `us` microseconds more; stays at the end of time instead of wrapping.
    #[must_use]
    pub fn plus_us(self, us: u64) -> Instant {
        Instant {
            us: self.us.saturating_add(us),
        }
    }

    /// Microseconds from `earlier` until this instant; 0 if `earlier` is later.
    pub fn since_us(self, earlier: Instant) -> u64 {
        self.us.saturating_sub(earlier.us)
    }
}

/// A duration in whole microseconds, saturating: how configuration reaches the machines.
pub fn duration_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_neither_wraps_nor_goes_below_zero() {
        let (early, late) = (Instant { us: 1 }, Instant { us: u64::MAX });
        assert_eq!(late.plus_us(5), late);
        assert_eq!(early.since_us(late), 0);
        assert_eq!(late.since_us(early), u64::MAX - 1);
        assert_eq!(duration_us(Duration::from_millis(3)), 3_000);
        assert_eq!(duration_us(Duration::MAX), u64::MAX);
    }
}
