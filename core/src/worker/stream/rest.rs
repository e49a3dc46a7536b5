//! How far a response has come, by its plan and by what its head promises; and one that another machine has begun goes on.

use super::{SliceState, Stream};
use crate::congestion::Delay;
use crate::conn::{Part, Plan, StreamId};
use crate::units::Instant;

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

    /// Whether a non-empty part follows. Otherwise the kernel must not hold back the last byte to wait for more.
    pub(super) fn parts_follow(&self) -> bool {
        let texts = self.plan.texts(self.part).count().max(1);
        let mut behind = self.plan.parts.iter().skip(usize::from(self.part) + texts);
        behind.any(|part| match part {
            Part::Bytes(bytes) => !bytes.is_empty(),
            Part::Body { span, .. } => span.len_bytes > 0,
            Part::Slices => true,
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
}
