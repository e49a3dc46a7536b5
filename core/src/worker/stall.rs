//! A stalled response: since when, and what it waits for ([`Wait`]): the disk, its socket, or its client's window.
//!
//! Whether it waits for the disk is not known at once. While its next bytes are read, its socket may still hold
//! megabytes for its client; then it waits for the client. Only a TCP_INFO sample tells: time with an empty socket counts
//! as waiting for the disk, the time before as waiting for the client.

use crate::limits::CORKED_US;
use crate::units::Instant;
use crate::why::Wait;

/// One stalled response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stall {
    /// What must happen before its socket is offered more.
    pub wait: Wait,
    /// When it began.
    pub since: Instant,
    /// Until when the cause of the stall is known.
    known_until: Instant,
    /// How much of that time the client still had bytes in the socket.
    fed_us: u64,
    /// The socket was empty at `known_until`.
    underrun: bool,
    /// When the stall began, its socket should have held next to nothing, at most a corked head.
    thin: bool,
    /// [`Stall::needs_sample`] has had a sample ordered.
    asked: bool,
    /// That sample has not arrived yet.
    awaited: bool,
}

impl Stall {
    /// The response is stalled from now on. `thin`: as far as is known, its socket holds next to nothing.
    pub fn new(wait: Wait, thin: bool, now: Instant) -> Stall {
        Stall {
            wait,
            since: now,
            known_until: now,
            fed_us: 0,
            underrun: false,
            thin,
            asked: false,
            awaited: false,
        }
    }

    /// Whether a sample is needed to tell what it waited for, before the stall ends. If so, the caller orders one: `true` once.
    pub fn needs_sample(&mut self) -> bool {
        let needs = self.wait == Wait::Disk && !self.asked;
        (self.asked, self.awaited) = (true, self.awaited || needs);
        needs
    }

    /// It is stalled for the same again, without having sent anything: the next end needs a sample of its own.
    pub fn stays(&mut self) {
        self.asked = false;
    }

    /// A sample arrived: the socket is empty (an `underrun`) or not, and was empty for `idle_us` since the sample before, if that is
    /// known. `true`: [`Stall::needs_sample`] asked for this sample.
    pub fn heard(&mut self, underrun: bool, idle_us: Option<u64>, now: Instant) -> bool {
        if self.wait != Wait::Disk {
            return false;
        }
        let us = now.since_us(self.known_until);
        let slack_us = if self.thin { CORKED_US } else { 0 };
        let underrun_us = match (underrun, self.underrun) {
            (false, _) => 0,
            (true, true) => us, // nothing was given to it since
            (true, false) => idle_us.map_or(us, |idle_us| us.min(idle_us + slack_us)),
        };
        self.fed_us += us - underrun_us;
        (self.known_until, self.underrun) = (now, underrun);
        core::mem::take(&mut self.awaited)
    }

    /// How long it has been stalled, for the disk and for its client, if it goes on now.
    pub fn times_us(&self, now: Instant) -> (u64, u64) {
        let us = now.since_us(self.since);
        if self.wait != Wait::Disk {
            return (0, us);
        }
        // No sample was taken: assume what the socket should hold.
        let rest_us = match self.underrun || self.thin {
            true => 0,
            false => now.since_us(self.known_until),
        };
        let fed_us = (self.fed_us + rest_us).min(us);
        (us - fed_us, fed_us)
    }

    /// What it waits for, as far as is known, and for how long.
    pub fn seen(&self, now: Instant) -> (Wait, u64) {
        let (disk_us, net_us) = self.times_us(now);
        match self.wait {
            Wait::Disk if self.underrun || self.thin => (Wait::Disk, disk_us),
            Wait::Disk => (Wait::Margin, net_us),
            wait => (wait, net_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1000;

    fn at(ms: u64) -> Instant {
        Instant { us: ms * MS }
    }

    #[test]
    fn a_client_with_bytes_in_its_socket_does_not_wait_for_the_disk() {
        let mut stall = Stall::new(Wait::Disk, false, at(0));
        assert!(stall.needs_sample() && !stall.needs_sample());
        assert!(stall.heard(false, Some(0), at(500)), "asked for");
        assert_eq!(stall.times_us(at(500)), (0, 500 * MS));
        assert_eq!(stall.seen(at(500)), (Wait::Margin, 500 * MS));
        // It ran dry 200 ms later, and stays so.
        assert!(!stall.heard(true, Some(300 * MS), at(1000)), "by itself");
        assert_eq!(stall.times_us(at(1000)), (300 * MS, 700 * MS));
        stall.heard(true, Some(1), at(2000));
        assert_eq!(stall.times_us(at(2500)), (1_800 * MS, 700 * MS));
        assert_eq!(stall.seen(at(2500)), (Wait::Disk, 1_800 * MS));
    }

    #[test]
    fn a_corked_head_keeps_nobody_busy() {
        let mut stall = Stall::new(Wait::Disk, true, at(0));
        stall.heard(true, Some(0), at(150));
        assert_eq!(stall.times_us(at(150)), (150 * MS, 0));
        // The cork opens after 200 ms by itself.
        let mut stall = Stall::new(Wait::Disk, true, at(0));
        stall.heard(true, Some(100 * MS), at(300));
        assert_eq!(stall.times_us(at(300)), (300 * MS, 0));
    }

    #[test]
    fn where_nobody_counts_the_last_sample_tells() {
        let mut stall = Stall::new(Wait::Disk, false, at(0));
        stall.heard(false, None, at(400));
        stall.heard(true, None, at(1000));
        assert_eq!(stall.times_us(at(1000)), (600 * MS, 400 * MS));
        let net = Stall::new(Wait::Window, true, at(0));
        assert_eq!(net.times_us(at(10)), (0, 10 * MS));
    }

    proptest! {
        #[test]
        fn times_add_up_whatever_is_said(
            thin in any::<bool>(),
            samples in proptest::collection::vec((0u64..1 << 40, any::<bool>(), proptest::option::of(0u64..1 << 50)), 0..20),
            rest_us in 0u64..1 << 40,
        ) {
            let mut stall = Stall::new(Wait::Disk, thin, at(7));
            let mut now = at(7);
            for (us, underrun, idle_us) in samples {
                now = now.plus_us(us);
                stall.heard(underrun, idle_us, now);
            }
            now = now.plus_us(rest_us);
            let (disk_us, net_us) = stall.times_us(now);
            prop_assert_eq!(disk_us + net_us, now.since_us(at(7)));
        }
    }
}
