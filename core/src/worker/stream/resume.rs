//! A response that another machine has begun goes on from the next byte.

use super::Stream;
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
