//! How far a response has come, by its plan and by what its head promises; what it waits for; and one that another machine
//! has begun goes on.

use super::{SliceState, Stream};
use crate::congestion::Delay;
use crate::conn::{Part, Plan, StreamId};
use crate::limits::THIN_BYTES_MAX;
use crate::units::Instant;
use crate::why::Wait;
use crate::worker::counts::Counts;
use crate::worker::stall::Stall;

/// How far a response has come.
#[derive(Clone, Copy)]
pub(in crate::worker) struct Cursor {
    /// Bytes of the response that the other machine has sent, head included.
    pub sent_bytes: u64,
    /// Time since its request was read.
    pub took_us: u64,
    /// For how long it was stalled for the disk, and for its client.
    pub waited_disk_us: u64,
    pub waited_net_us: u64,
}

impl Stream {
    /// Bytes that the head promises and the kernel has not taken; `None`: only the end of the response tells its
    /// length.
    pub(super) fn owed_bytes(&self) -> Option<u64> {
        let promised_bytes = self.plan.promised_bytes()?;
        Some(promised_bytes.saturating_sub(self.sent_bytes))
    }

    /// Whether a non-empty part follows that is there soon. Otherwise the kernel must not hold back the last byte to wait for
    /// more: whoever makes slices may take long over the next one.
    pub(super) fn parts_follow(&self) -> bool {
        let texts = self.plan.texts(self.part).count().max(1);
        let mut behind = self.plan.parts.iter().skip(usize::from(self.part) + texts);
        behind.any(|part| match part {
            Part::Bytes(bytes) => !bytes.is_empty(),
            Part::Body { span, .. } => span.len_bytes > 0,
            Part::Slices => false,
        })
    }

    /// The last check: whether exactly what the head promised was sent, so that another response may follow on the
    /// connection.
    pub(in crate::worker) fn is_whole(&self) -> bool {
        match self.owed_bytes() {
            Some(owed_bytes) => owed_bytes == 0,
            None => usize::from(self.part) >= self.plan.parts.len(),
        }
    }

    /// Bytes that the kernel has not taken yet; of a listing, only those of the current slice.
    pub(in crate::worker) fn left_bytes(&self) -> u64 {
        if let Some(owed_bytes) = self.owed_bytes() {
            return owed_bytes; // its parts, of which there may be thousands
        }
        let parts = self.plan.parts.iter().skip(usize::from(self.part));
        let len_bytes = parts.map(|part| match part {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Body { span, .. } => span.len_bytes,
            Part::Slices => match self.slice {
                SliceState::Ready { len_bytes, .. } => len_bytes,
                SliceState::Empty | SliceState::Asked => 0,
            },
        });
        let len_bytes = len_bytes.fold(0, u64::saturating_add);
        len_bytes.saturating_sub(self.at_bytes)
    }

    /// A response that another machine has begun.
    pub(in crate::worker) fn resumed(
        id: StreamId,
        plan: Plan,
        cursor: &Cursor,
        delay: Delay,
        now: Instant,
    ) -> Stream {
        let started_at = now.minus_us(cursor.took_us);
        let mut stream = Stream {
            waited_disk_us: cursor.waited_disk_us,
            waited_net_us: cursor.waited_net_us,
            ..Stream::new(id, plan, started_at, delay, now)
        };
        stream.seek(cursor.sent_bytes);
        stream
    }

    /// Goes to the byte after `sent_bytes`.
    fn seek(&mut self, sent_bytes: u64) {
        (self.sent_bytes, self.at_bytes) = (sent_bytes, sent_bytes);
        while let Some(part) = self.plan.parts.get(usize::from(self.part)) {
            let (len_bytes, parts) = match part {
                Part::Bytes(_) => self.texts(),
                Part::Body { span, .. } => (span.len_bytes, 1),
                Part::Slices => return,
            };
            if self.at_bytes < len_bytes {
                return;
            }
            (self.part, self.at_bytes) = (self.part + parts, self.at_bytes - len_bytes);
        }
    }

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
