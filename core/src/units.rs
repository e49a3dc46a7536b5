//! Time, bytes and rates as integers. The unit stands last in every name.

use core::fmt;
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

    /// This instant less `us` microseconds; stays at the start of time instead of wrapping.
    #[must_use]
    pub fn minus_us(self, us: u64) -> Instant {
        Instant {
            us: self.us.saturating_sub(us),
        }
    }

    /// Microseconds from `earlier` until this instant; 0 if `earlier` is later.
    pub fn since_us(self, earlier: Instant) -> u64 {
        self.us.saturating_sub(earlier.us)
    }
}

/// Bytes that are taken in `us` microseconds at a rate.
pub fn bytes_in(us: u64, rate_bytes_per_s: u64) -> u64 {
    let bytes = u128::from(rate_bytes_per_s) * u128::from(us) / u128::from(US_PER_S);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// A duration in whole microseconds, saturating: how configuration reaches the machines.
pub fn duration_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Bytes as people read them: `999 B`, `12 KB`, `4.1 MB`, in powers of 1000.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &["B", "KB", "MB", "GB", "TB", "PB", "EB"])
    }
}

/// Microseconds as people read them: `999 us`, `12 ms`, `4.1 s`.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 100 * US_PER_S {
            return write!(f, "{} s", self.0 / US_PER_S);
        }
        scaled(f, self.0, &["us", "ms", "s"])
    }
}

/// Two digits at least, in the largest unit that leaves one before the point.
fn scaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[&str]) -> fmt::Result {
    let (mut whole, mut tenth, mut at) = (value, 0, 0);
    while whole >= 1000 && at + 1 < units.len() {
        (whole, tenth, at) = (whole / 1000, whole % 1000 / 100, at + 1);
    }
    match at {
        0 => write!(f, "{whole} {}", units[0]),
        _ if whole >= 10 => write!(f, "{whole} {}", units[at]),
        _ => write!(f, "{whole}.{tenth} {}", units[at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn people_read_two_digits_and_a_unit() {
        assert_eq!(Bytes(999).to_string(), "999 B");
        assert_eq!(Bytes(u64::MAX).to_string(), "18 EB");
        assert_eq!(Time(12_300).to_string(), "12 ms");
        assert_eq!(Time(1_300_000).to_string(), "1.3 s");
        assert_eq!(Time(604_000_000).to_string(), "604 s");
    }

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
