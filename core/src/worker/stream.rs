//! One response under way: which bytes come next, and what has to happen before they can be sent.

mod body;
mod waiting;

use super::stand::Stand;
use crate::cache::ResidencyCache;
use crate::congestion::Delay;
use crate::conn::{Held, ObjectId, Part, Plan, ResidencySource, Span, StreamId, Want};
use crate::limits::{MISSES_MAX, SEND_BYTES_MAX};
use crate::send::Supply;
use crate::units::Instant;
use crate::why::Why;
use smallvec::SmallVec;

/// The range of a file that is sent.
struct Body {
    object: ObjectId,
    residency: ResidencySource,
    span: Span,
}

/// Bytes for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub part: u16,
    pub from_bytes: u64,
    pub len_bytes: u64,
    pub held: Held,
    /// Others of the response follow.
    pub more: bool,
    /// They were missing again and again just after they were read: reading them without waiting decides, not what the kernel tells of them.
    pub unconfirmed: bool,
}

/// What a response needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hand these bytes to the socket.
    Send(Piece),
    /// Ask whether these bytes of the file are in memory.
    Probe { object: ObjectId, span: Span },
    /// Have more of the file read, from the start of its span.
    Want(Want),
    /// Have the next slice of a listing made.
    Slice,
    /// Something asked for is under way.
    Wait,
    /// The next byte can't be read.
    Broken(Why),
    /// All bytes are with the kernel.
    Done,
}

/// What others still do for a stream in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Undo {
    /// The disk machine has a want for bytes that are not needed any more.
    pub want: bool,
    /// The shell holds slots that will not be sent.
    pub slots: bool,
}

/// Where a response stands.
pub(super) struct Stream {
    id: StreamId,
    pub plan: Plan,
    pub started_at: Instant,
    /// Bytes of the whole response, head included, that the kernel took. Never more than its head promises.
    pub sent_bytes: u64,
    /// What the socket is being offered: it can't take more.
    offered_bytes: u64,
    pub waited_disk_us: u64,
    pub waited_net_us: u64,
    part: u16,
    /// Offset in the part, or in its present slice.
    at_bytes: u64,
    /// A question to the page cache, answered at once.
    probe: Option<Asked>,
    /// What the disk machine was told last, and has not answered.
    want: Option<Want>,
    /// Number of the last want; 0: there was none.
    seq: u32,
    undo: Undo,
    /// Where bytes were not in memory when they were to be sent, and how often in a row.
    missed: (u64, u32),
    /// From this byte of the file on nothing can be read: a want for it failed, and none was made since.
    broken: Option<(u64, Why)>,
    /// Answers had from the disk machine.
    heard: u32,
    /// Signs that its path is congested, and what they mean for a want.
    signals: u32,
    delay: Delay,
    /// What was fetched for the stream and is not sent yet, from where it stands on, in order: where each piece ends
    /// in the file, and where it is.
    fetched: SmallVec<[(u64, Held); 2]>,
    slice: SliceState,
    stand: Option<Stand>,
}

/// A question to the page cache.
#[derive(Clone, Copy)]
struct Asked {
    object: ObjectId,
    span: Span,
    /// To the end of what is sent of the file.
    end_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SliceState {
    Empty,
    Asked,
    Ready { len_bytes: u64, last: bool },
}

impl Stream {
    /// The response to a request of `started_at`; what it took to find the file is a wait for the disk.
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
            seq: 0,
            undo: Undo::default(),
            missed: (0, 0),
            broken: None,
            heard: 0,
            signals: 0,
            delay,
            fetched: SmallVec::new(),
            slice: SliceState::Empty,
            stand: None,
        }
    }

    /// What the shell and the disk machine have to undo, before anything else is done for the stream: call this behind
    /// each [`Stream::step`], [`Stream::probed`] and [`Stream::missing`].
    pub fn undo(&mut self) -> Undo {
        core::mem::take(&mut self.undo)
    }

    /// The next step. Asking for something marks it as asked; sending changes nothing until [`Stream::sent`].
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

    /// The part, and the texts behind it that were sent with it, are sent: whatever was asked or fetched for it is void.
    fn leave_part(&mut self, parts: u16) {
        (self.part, self.at_bytes, self.slice) = (self.part + parts, 0, SliceState::Empty);
        self.undo.want |= self.want.take().is_some();
        self.drop_fetched();
        (self.probe, self.broken, self.missed) = (None, None, (0, 0));
    }

    /// Send what is ready of what is left of the part, in pieces that let others have their turn. No more than is promised leaves,
    /// whatever the parts hold.
    fn send(&mut self, held: Held, ready_bytes: u64, left_bytes: u64, more: bool) -> Step {
        let len_bytes = ready_bytes
            .min(left_bytes)
            .min(SEND_BYTES_MAX)
            .min(self.owed_bytes().unwrap_or(u64::MAX));
        self.offered_bytes = len_bytes;
        if len_bytes == 0 {
            return Step::Broken(Why::Misframed);
        }
        Step::Send(Piece {
            part: self.part,
            from_bytes: self.at_bytes,
            len_bytes,
            held,
            more: more || len_bytes < left_bytes || self.parts_follow(),
            unconfirmed: self.missed.1 >= MISSES_MAX,
        })
    }

    /// Bytes that the head promises and the kernel has not; `None`: only the end of the response tells.
    fn owed_bytes(&self) -> Option<u64> {
        let promised_bytes = self.plan.promised_bytes()?;
        Some(promised_bytes.saturating_sub(self.sent_bytes))
    }

    /// Whether a part with something in it follows: the kernel must not hold the last byte back to
    /// wait for an empty one.
    fn parts_follow(&self) -> bool {
        let texts = self.plan.texts(self.part).count().max(1);
        let mut behind = self.plan.parts.iter().skip(usize::from(self.part) + texts);
        behind.any(|part| match part {
            Part::Bytes(bytes) => !bytes.is_empty(),
            Part::Body { span, .. } => span.len_bytes > 0,
            Part::Slices => true,
        })
    }

    /// Whether somebody will make it go on while it waits for the disk: the disk machine, or who makes a listing.
    pub fn is_awaited(&self) -> bool {
        self.want.is_some() || self.slice == SliceState::Asked
    }

    /// Where in the file the stream stands.
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

    /// The socket took `taken_bytes` of what it was offered; returned is how many of them count.
    pub fn sent(&mut self, taken_bytes: u64) -> u64 {
        let taken_bytes = taken_bytes.min(self.offered_bytes);
        self.offered_bytes -= taken_bytes;
        self.at_bytes += taken_bytes;
        self.sent_bytes += taken_bytes;
        taken_bytes
    }

    /// The last door: whether what left is what the head promised, so that another response may follow on the connection.
    pub fn is_whole(&self) -> bool {
        match self.owed_bytes() {
            Some(owed_bytes) => owed_bytes == 0,
            None => usize::from(self.part) >= self.plan.parts.len(),
        }
    }

    /// Bytes that are still to be given to the kernel; of a listing, those that are made.
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
