//! Threads that are on time, and cores that do not sleep: an emulator's answers must not wait for a busy machine.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

/// While it lives, idle cores wait in a loop (PM QoS, /dev/cpu_dma_latency): they wake within a microsecond
/// and without an interrupt. Out of a halt it takes 25 of them and more, on a virtual machine by way of its host.
#[derive(Debug)]
pub struct Awake {
    /// The kernel forgets the wish when this is closed.
    _wish: Option<OwnedFd>,
}

impl Awake {
    /// From now on. Where that is refused, wake-ups take what they take.
    pub fn keep() -> Self {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let wish = rustix::fs::open("/dev/cpu_dma_latency", flags, Mode::empty());
        let tell = |wish: &OwnedFd| rustix::io::write(wish, &0i32.to_ne_bytes()).is_ok();
        Self {
            _wish: wish.ok().filter(tell),
        }
    }
}

/// The calling thread: before all ordinary ones on its core, and before those of a lower `priority`, 1 to 99; woken to the
/// microsecond, as neither a wire nor a clock waits for a busy machine. What is refused costs precision only.
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
