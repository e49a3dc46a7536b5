//! The two clocks: monotonic time for the machines, wall-clock time for people.

use std::time::{SystemTime, UNIX_EPOCH};

use ackpace_core::units::{Instant, duration_us};

/// Monotonic time since the clock was made. All copies show the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// A clock that starts at 0.
    pub fn start() -> Clock {
        Clock {
            start: std::time::Instant::now(),
        }
    }

    pub fn now(&self) -> Instant {
        Instant {
            us: duration_us(self.start.elapsed()),
        }
    }
}

/// Wall-clock time in milliseconds since 1970; 0 if the clock is before that.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
