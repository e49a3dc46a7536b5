//! Threads that wake on time, and cores that never sleep: an emulator must answer on time on a busy machine,
//! too.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

/// While it exists, idle cores poll (PM QoS, /dev/cpu_dma_latency): they wake within a microsecond and without
/// an interrupt. A wake-up from a halt takes 25 us or more, on a virtual machine by way of its host.
#[derive(Debug)]
pub struct Awake {
    /// The kernel drops the request when this file is closed.
    _latency: Option<OwnedFd>,
}

impl Awake {
    /// Takes effect at once. Where the kernel refuses, wake-ups are just slower.
    pub fn keep() -> Self {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let latency = rustix::fs::open("/dev/cpu_dma_latency", flags, Mode::empty());
        let tell = |latency: &OwnedFd| rustix::io::write(latency, &0i32.to_ne_bytes()).is_ok();
        Self {
            _latency: latency.ok().filter(tell),
        }
    }
}

/// Gives the calling thread a real-time priority (1 to 99): it runs before all ordinary threads on its core,
/// and before those of a lower `priority`. It also gets wake-ups precise to the microsecond. Where the kernel
/// refuses, only precision suffers.
pub fn be_punctual(priority: i32) {
    let realtime = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: all concern the calling thread only; the parameter lives until the call returns.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        if libc::sched_setscheduler(0, libc::SCHED_FIFO, &realtime) != 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
    }
}
