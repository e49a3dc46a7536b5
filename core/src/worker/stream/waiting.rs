//! What a stalled response waits for, and since when.

use super::Stream;
use crate::limits::THIN_BYTES_MAX;
use crate::units::Instant;
use crate::why::Wait;
use crate::worker::counts::Counts;
use crate::worker::stall::Stall;

impl Stream {
    /// The stream is stalled for `wait` from now on; `true` if it was not before. Waiting times add up over the response.
    /// `socket_bytes`: what its socket should hold.
    pub(in crate::worker) fn stall_for(
        &mut self,
        wait: Wait,
        socket_bytes: u64,
        counts: &mut Counts,
        now: Instant,
    ) -> bool {
        if let Some(stall) = self.stall.as_mut().filter(|stall| stall.wait == wait) {
            stall.stays();
            return false;
        }
        self.end_stall(counts, now);
        self.stall = Some(Stall::new(wait, socket_bytes <= THIN_BYTES_MAX, now));
        true
    }

    /// The stream sends again, or ends: what it waited for until now is added up.
    pub(in crate::worker) fn end_stall(&mut self, counts: &mut Counts, now: Instant) {
        let Some(stall) = self.stall.take() else {
            return;
        };
        let (disk_us, net_us) = stall.times_us(now);
        if stall.wait != Wait::Disk {
            counts.waited(stall.wait, net_us);
        } else {
            // Each counts as a wait of its own.
            if disk_us > 0 || net_us == 0 {
                counts.waited(Wait::Disk, disk_us);
            }
            if net_us > 0 {
                counts.waited(Wait::Margin, net_us);
            }
        }
        self.waited_disk_us += disk_us;
        self.waited_net_us += net_us;
    }

    /// Whether a TCP_INFO sample must tell what it waited for, before its stall ends ([`Stall::needs_sample`]); `true` once.
    pub(in crate::worker) fn needs_stall_sample(&mut self) -> bool {
        self.stall.as_mut().is_some_and(Stall::needs_sample)
    }

    /// A TCP_INFO sample arrived: the socket is empty (an `underrun`) or not, and was empty for `idle_us` since the sample before.
    /// `true`: the sample was asked for by [`Stream::needs_stall_sample`] alone.
    pub(in crate::worker) fn heard(
        &mut self,
        underrun: bool,
        idle_us: Option<u64>,
        now: Instant,
    ) -> bool {
        self.stall
            .as_mut()
            .is_some_and(|stall| stall.heard(underrun, idle_us, now))
    }

    /// What it waits for.
    pub(in crate::worker) fn waits_for(&self) -> Wait {
        self.stall.map_or(Wait::Turn, |stall| stall.wait)
    }

    /// What it waits for, and for how long already, in microseconds.
    pub(in crate::worker) fn waits(&self, now: Instant) -> (Wait, u64) {
        match self.stall {
            Some(stall) => (stall.wait, now.since_us(stall.since)),
            None => (Wait::Turn, 0),
        }
    }

    /// The same for operators' views: what it really waits for, as far as is known.
    pub(in crate::worker) fn seen(&self, now: Instant) -> (Wait, u64) {
        self.stall.map_or((Wait::Turn, 0), |stall| stall.seen(now))
    }

    /// The current stall, if any.
    pub(in crate::worker) fn stall(&self) -> Option<Stall> {
        self.stall
    }

    /// Total time stalled until now: for the disk, and for its client.
    pub(in crate::worker) fn waited_us(&self, now: Instant) -> (u64, u64) {
        let (disk_us, net_us) = self.stall.map_or((0, 0), |stall| stall.times_us(now));
        (self.waited_disk_us + disk_us, self.waited_net_us + net_us)
    }
}
