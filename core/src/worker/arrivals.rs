//! What reached the client: a response is settled when its last byte is acknowledged, or when the
//! connection ends before that. The kernel taking the bytes says nothing yet.

use alloc::collections::VecDeque;

use super::stream::Stream;
use super::{Out, Outcome};
use crate::conn::StreamId;
use crate::limits::ARRIVALS_MAX;
use crate::units::Instant;
use crate::why::Why;

/// The responses of one connection that wait for their last ACK. Offsets count all bytes ever
/// given to the connection's socket.
#[derive(Default)]
pub(super) struct Arrivals {
    sent_bytes: u64,
    acked_bytes: u64,
    body_from_bytes: u64,
    waiting: VecDeque<Arrival>,
}

struct Arrival {
    stream: StreamId,
    body_from_bytes: u64,
    end_bytes: u64,
    outcome: Outcome,
}

impl Arrivals {
    /// A response with a head of this length starts.
    pub fn begin(&mut self, head_len_bytes: u64) {
        self.body_from_bytes = self.sent_bytes + head_len_bytes;
    }

    /// The kernel took bytes.
    pub fn sent(&mut self, taken_bytes: u64) {
        self.sent_bytes += taken_bytes;
    }

    /// The response that began last has ended. If too many wait, the oldest is settled as it is.
    pub fn ended(&mut self, id: StreamId, stream: &Stream, why: Why, now: Instant) -> Option<Out> {
        let outcome = Outcome {
            sent_bytes: self.sent_bytes.saturating_sub(self.body_from_bytes),
            acked_bytes: 0,
            whole: false,
            why,
            waited_disk_us: stream.waited_disk_us,
            waited_net_us: stream.waited_net_us,
            took_us: now.since_us(stream.started_at),
        };
        let (body_from_bytes, end_bytes) = (self.body_from_bytes, self.sent_bytes);
        self.waiting.push_back(Arrival {
            stream: id,
            body_from_bytes,
            end_bytes,
            outcome,
        });
        if self.waiting.len() > ARRIVALS_MAX {
            self.give_up()
        } else {
            None
        }
    }

    /// The socket holds so many bytes without an ACK. What was acknowledged never becomes less.
    pub fn measured(&mut self, unacked_bytes: u64) {
        self.acked_bytes = self
            .acked_bytes
            .max(self.sent_bytes.saturating_sub(unacked_bytes));
    }

    /// The oldest response whose last byte is acknowledged.
    pub fn settled(&mut self) -> Option<Out> {
        if self.waiting.front()?.end_bytes <= self.acked_bytes {
            self.give_up()
        } else {
            None
        }
    }

    /// The oldest response as it is: nothing more will be known.
    pub fn give_up(&mut self) -> Option<Out> {
        let Arrival {
            stream,
            body_from_bytes,
            end_bytes,
            mut outcome,
        } = self.waiting.pop_front()?;
        let acked_bytes = self.acked_bytes.min(end_bytes);
        outcome.acked_bytes = acked_bytes.saturating_sub(body_from_bytes);
        outcome.whole = outcome.why == Why::Done && acked_bytes == end_bytes;
        Some(Out::Arrived { stream, outcome })
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
