//! One response under way: which bytes come next, and what has to happen before they can be sent.

mod body;
mod waiting;

use super::stall::Stall;
use crate::cache::ResidencyCache;
use crate::congestion::Delay;
use crate::conn::{Held, ObjectId, Part, Plan, ResidencySource, Span, StreamId, Want, WantSeq};
use crate::limits::{MISSES_MAX, SEND_BYTES_MAX};
use crate::send::Supply;
use crate::units::Instant;
use crate::why::Why;
use smallvec::SmallVec;

/// The range of a file that a response sends.
struct Body {
    object: ObjectId,
    residency: ResidencySource,
    span: Span,
}

/// Bytes to offer to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendSpan {
    pub part: u16,
    pub from_bytes: u64,
    pub len_bytes: u64,
    pub held: Held,
    /// More bytes of the response follow.
    pub more: bool,
    /// These bytes were found missing [`MISSES_MAX`] times in a row right after they were read: copy them with a
    /// non-blocking read, whatever cachestat reports.
    pub unconfirmed: bool,
}

/// What a response needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hand these bytes to the socket.
    Send(SendSpan),
    /// Ask whether these bytes of the file are in memory.
    Probe { object: ObjectId, span: Span },
    /// Have more of the file read, from the start of the want's span.
    Want(Want),
    /// Have the next slice of a listing made.
    Slice,
    /// Wait for something that was asked for.
    Wait,
    /// The next byte can't be read: the response ends here.
    Broken(Why),
    /// The kernel has taken all bytes.
    Done,
}

/// Work that other stages still do for this stream and must cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Undo {
    /// The disk machine has a want for bytes that are no longer needed.
    pub want: bool,
    /// The shell holds slots that will not be sent.
    pub slots: bool,
}

/// The progress of one response.
pub(super) struct Stream {
    id: StreamId,
    pub plan: Plan,
    pub started_at: Instant,
    /// Bytes of the whole response, head included, that the kernel took. Never more than its head promises.
    pub sent_bytes: u64,
    /// Length of the piece offered last; caps what [`Stream::sent`] accepts.
    offered_bytes: u64,
    pub waited_disk_us: u64,
    pub waited_net_us: u64,
    part: u16,
    /// Offset in the part, or in its current slice.
    at_bytes: u64,
    /// The page cache is being asked about this; the answer comes at once.
    probe: Option<PendingProbe>,
    /// The want that the disk machine has and has not answered yet.
    want: Option<Want>,
    /// The number of the last want.
    seq: WantSeq,
    undo: Undo,
    /// Where bytes were last found missing when they were to be sent, and how often in a row.
    missed: (u64, u32),
    /// Nothing can be read from this byte of the file on: a want for it failed, and no other was made since.
    broken: Option<(u64, Why)>,
    /// Number of answers from the disk machine so far.
    answers: u32,
    /// Number of congestion signals so far.
    signals: u32,
    /// What congestion does to the want.
    delay: Delay,
    /// Pieces fetched for the stream and not sent yet, in order from the next byte on: where each ends in the file, and
    /// what holds it.
    fetched: SmallVec<[(u64, Held); 2]>,
    slice: SliceState,
    /// Set while the response is stalled.
    stall: Option<Stall>,
}

/// How far a response has come.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    pub sent_bytes: u64,
    pub took_us: u64,
    pub waited_disk_us: u64,
    pub waited_net_us: u64,
}

/// A question to the page cache: is `span` in memory?
#[derive(Clone, Copy)]
struct PendingProbe {
    object: ObjectId,
    span: Span,
    /// End of the range of the file that the response sends.
    end_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SliceState {
    Empty,
    Asked,
    Ready { len_bytes: u64, last: bool },
}

impl Stream {
    /// The response to a request that was read at `started_at`. Looking up the file counts as waiting for the disk.
    pub fn new(
        id: StreamId,
        plan: Plan,
        started_at: Instant,
        delay: Delay,
        now: Instant,
    ) -> Stream {
        Stream {
            id,
            plan,
            started_at,
            sent_bytes: 0,
            offered_bytes: 0,
            waited_disk_us: now.since_us(started_at),
            waited_net_us: 0,
            part: 0,
            at_bytes: 0,
            probe: None,
            want: None,
            seq: WantSeq::default(),
            undo: Undo::default(),
            missed: (0, 0),
            broken: None,
            answers: 0,
            signals: 0,
            delay,
            fetched: SmallVec::new(),
            slice: SliceState::Empty,
            stall: None,
        }
    }

    /// A response that another machine has begun.
    pub fn resumed(
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
            let texts = self.plan.texts(self.part);
            let (len_bytes, parts) = match part {
                Part::Bytes(_) => texts.fold((0, 0), |(bytes, texts), text| {
                    (bytes + text.len() as u64, texts + 1)
                }),
                Part::Body { span, .. } => (span.len_bytes, 1),
                Part::Slices => return,
            };
            if self.at_bytes < len_bytes {
                return;
            }
            (self.part, self.at_bytes) = (self.part + parts, self.at_bytes - len_bytes);
        }
    }

    /// Takes what the shell and the disk machine must cancel before they do anything else for the stream. Call this
    /// after each [`Stream::step`], [`Stream::probed`] and [`Stream::missing`].
    pub fn undo(&mut self) -> Undo {
        core::mem::take(&mut self.undo)
    }

    /// The next step. A question is marked as asked at once; a send changes nothing until [`Stream::sent`].
    pub fn step(
        &mut self,
        residency_cache: &ResidencyCache,
        supply: &Supply,
        now: Instant,
    ) -> Step {
        loop {
            let mut parts = 1;
            let len_bytes = match self.plan.parts.get(usize::from(self.part)) {
                None => return Step::Done,
                Some(Part::Bytes(_)) => {
                    parts = self.plan.texts(self.part).count() as u16;
                    self.plan
                        .texts(self.part)
                        .map(|text| text.len() as u64)
                        .sum()
                }
                Some(Part::Body { span, .. }) => span.len_bytes,
                Some(Part::Slices) => match self.slice {
                    SliceState::Ready { len_bytes, last } if self.at_bytes < len_bytes || last => {
                        len_bytes
                    }
                    SliceState::Asked => return Step::Wait,
                    SliceState::Empty | SliceState::Ready { .. } => {
                        (self.slice, self.at_bytes) = (SliceState::Asked, 0);
                        return Step::Slice;
                    }
                },
            };
            if self.at_bytes >= len_bytes {
                self.leave_part(parts);
                continue;
            }
            if let Some(&Part::Body {
                object,
                residency,
                span,
                ..
            }) = self.plan.parts.get(usize::from(self.part))
            {
                return self.body_step(
                    residency_cache,
                    &Body {
                        object,
                        residency,
                        span,
                    },
                    supply,
                    now,
                );
            }
            let left_bytes = len_bytes - self.at_bytes;
            let more = matches!(self.slice, SliceState::Ready { last: false, .. });
            return self.send(Held::PageCache, left_bytes, left_bytes, more);
        }
    }

    /// The part is sent, with the `parts - 1` texts that went out with it. Whatever was asked or fetched for it is
    /// void.
    fn leave_part(&mut self, parts: u16) {
        (self.part, self.at_bytes, self.slice) = (self.part + parts, 0, SliceState::Empty);
        self.undo.want |= self.want.take().is_some();
        self.drop_fetched();
        (self.probe, self.broken, self.missed) = (None, None, (0, 0));
    }

    /// Offer what is ready of the rest of the part, in pieces short enough to let others have their turn. Never more
    /// than the head promises, whatever the parts hold.
    fn send(&mut self, held: Held, ready_bytes: u64, left_bytes: u64, more: bool) -> Step {
        let len_bytes = ready_bytes
            .min(left_bytes)
            .min(SEND_BYTES_MAX)
            .min(self.owed_bytes().unwrap_or(u64::MAX));
        self.offered_bytes = len_bytes;
        if len_bytes == 0 {
            return Step::Broken(Why::Misframed);
        }
        Step::Send(SendSpan {
            part: self.part,
            from_bytes: self.at_bytes,
            len_bytes,
            held,
            more: more || len_bytes < left_bytes || self.parts_follow(),
            unconfirmed: self.missed.1 >= MISSES_MAX,
        })
    }

    /// Bytes that the head promises and the kernel has not taken; `None`: only the end of the response tells its
    /// length.
    fn owed_bytes(&self) -> Option<u64> {
        let promised_bytes = self.plan.promised_bytes()?;
        Some(promised_bytes.saturating_sub(self.sent_bytes))
    }

    /// Whether a non-empty part follows. Otherwise the kernel must not hold back the last byte to wait for more.
    fn parts_follow(&self) -> bool {
        let texts = self.plan.texts(self.part).count().max(1);
        let mut behind = self.plan.parts.iter().skip(usize::from(self.part) + texts);
        behind.any(|part| match part {
            Part::Bytes(bytes) => !bytes.is_empty(),
            Part::Body { span, .. } => span.len_bytes > 0,
            Part::Slices => true,
        })
    }

    /// Whether a stream that waits for the disk will be resumed: by the disk machine, or by whoever makes its listing.
    pub fn is_awaited(&self) -> bool {
        self.want.is_some() || self.slice == SliceState::Asked
    }

    /// Offset of the next byte to send, in the file.
    fn body_at_bytes(&self) -> u64 {
        match self.plan.parts.get(usize::from(self.part)) {
            Some(Part::Body { span, .. }) => span.offset_bytes + self.at_bytes,
            _ => 0,
        }
    }

    /// A slice of a listing was made.
    pub fn sliced(&mut self, len_bytes: u64, last: bool) {
        (self.slice, self.at_bytes) = (SliceState::Ready { len_bytes, last }, 0);
    }

    /// The socket took `taken_bytes` of what it was offered. Returns how many of them count.
    pub fn sent(&mut self, taken_bytes: u64) -> u64 {
        let taken_bytes = taken_bytes.min(self.offered_bytes);
        self.offered_bytes -= taken_bytes;
        self.at_bytes += taken_bytes;
        self.sent_bytes += taken_bytes;
        taken_bytes
    }

    /// The last check: whether exactly what the head promised was sent, so that another response may follow on the
    /// connection.
    pub fn is_whole(&self) -> bool {
        match self.owed_bytes() {
            Some(owed_bytes) => owed_bytes == 0,
            None => usize::from(self.part) >= self.plan.parts.len(),
        }
    }

    /// Bytes that the kernel has not taken yet; of a listing, only those of the current slice.
    pub fn left_bytes(&self) -> u64 {
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
}
