//! Keeps the machine's cores from sleeping.

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
