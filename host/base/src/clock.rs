//! Time since the start of the process.

use std::time;

use ackpace_core::units::{Instant, duration_us};

/// The one clock of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock(time::Instant);

impl Clock {
    /// Starts at 0.
    pub fn start() -> Clock {
        Clock(time::Instant::now())
    }

    /// The time.
    pub fn now(self) -> Instant {
        Instant {
            us: duration_us(self.0.elapsed()),
        }
    }
}

/// CPU time of this thread so far, in nanoseconds, that in the kernel included.
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's monotonic clock (`bpf_ktime_get_ns`), in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
