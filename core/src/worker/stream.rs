//! One response under way: which bytes come next, head, file or listing, and what has to happen before they can be
//! sent. Of a file, what the worker believes of the page cache ([`crate::cache`]) decides: send, ask, want or wait.
//! A want goes to the thread of its disk (`server/src/disk.rs`).

mod losses;
mod outstanding;
mod rest;
mod resume;
mod waiting;

use self::outstanding::Outstanding;
pub(super) use self::resume::Cursor;
use super::stall::Stall;
use crate::cache::{ResidencyCache, ResidencyVerdict, rest_of_window};
use crate::congestion::Delay;
use crate::conn::{Held, ObjectId, Part, Plan, ResidencySource, Span, StreamId, Want, WantSeq};
use crate::limits::{FETCHED_MAX, READ_BYTES_MAX, SEND_BYTES_MAX, UNTAKEN_US};
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
    /// These bytes were found missing [`MISSES_MAX`](crate::limits::MISSES_MAX) times in a row right after they were
    /// read: copy them with a non-blocking read, whatever cachestat reports.
    pub unconfirmed: bool,
}

/// What a response needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamStep {
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
    pub plan: Plan,
    pub started_at: Instant,
    /// Bytes of the whole response, head included, that the kernel took. Never more than its head promises.
    pub sent_bytes: u64,
    /// What the socket has not yet taken of the last offer; caps what [`Stream::sent`] accepts.
    offered_bytes: u64,
    pub waited_disk_us: u64,
    pub waited_net_us: u64,
    part: u16,
    /// Offset in the part, or in its current slice.
    at_bytes: u64,
    /// The page cache is being asked about this. No step is asked for before the answer.
    probe: Option<PendingProbe>,
    pub outstanding: Outstanding,
    undo: Undo,
    /// Where bytes were last found missing when they were to be sent, and how often in a row.
    missed: (u64, u32),
    /// Nothing can be read from this byte of the file on: a want for it failed, and no other was made since.
    broken: Option<(u64, Why)>,
    /// Pieces fetched for the stream and not sent yet, in order from the next byte on: where each ends in the file, and
    /// what holds it.
    fetched: SmallVec<[(u64, Held); 2]>,
    slice: SliceState,
    /// Set while the response is stalled.
    stall: Option<Stall>,
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
            plan,
            started_at,
            sent_bytes: 0,
            offered_bytes: 0,
            waited_disk_us: now.since_us(started_at),
            waited_net_us: 0,
            part: 0,
            at_bytes: 0,
            probe: None,
            outstanding: Outstanding::new(id, delay),
            undo: Undo::default(),
            missed: (0, 0),
            broken: None,
            fetched: SmallVec::new(),
            slice: SliceState::Empty,
            stall: None,
        }
    }

    /// Takes what the shell and the disk machine must cancel before they do anything else for the stream. Call this
    /// after each [`Stream::step`], [`Stream::probed`], [`Stream::missing`] and [`Stream::filled`].
    pub fn take_undo(&mut self) -> Undo {
        core::mem::take(&mut self.undo)
    }

    /// The next step. A question is marked as asked at once; a send does not advance until [`Stream::sent`].
    pub fn step(
        &mut self,
        residency_cache: &ResidencyCache,
        supply: &Supply,
        now: Instant,
    ) -> StreamStep {
        loop {
            let mut parts = 1;
            let len_bytes = match self.plan.parts.get(usize::from(self.part)) {
                None => return StreamStep::Done,
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
                    SliceState::Asked => return StreamStep::Wait,
                    SliceState::Empty | SliceState::Ready { .. } => {
                        (self.slice, self.at_bytes) = (SliceState::Asked, 0);
                        return StreamStep::Slice;
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

    /// The part is sent, with the `parts - 1` texts that follow it and went out in the same send. Whatever was asked or fetched
    /// for it is void.
    fn leave_part(&mut self, parts: u16) {
        (self.part, self.at_bytes, self.slice) = (self.part + parts, 0, SliceState::Empty);
        self.undo.want |= self.outstanding.drop_it();
        self.drop_fetched();
        (self.probe, self.broken, self.missed) = (None, None, (0, 0));
    }

    /// Offer what is ready of the rest of the part, in pieces short enough to let others have their turn. Never more
    /// than the head promises, whatever the parts hold.
    fn send(&mut self, held: Held, ready_bytes: u64, left_bytes: u64, more: bool) -> StreamStep {
        let len_bytes = ready_bytes
            .min(left_bytes)
            .min(SEND_BYTES_MAX)
            .min(self.owed_bytes().unwrap_or(u64::MAX));
        self.offered_bytes = len_bytes;
        if len_bytes == 0 {
            return StreamStep::Broken(Why::Misframed);
        }
        StreamStep::Send(SendSpan {
            part: self.part,
            from_bytes: self.at_bytes,
            len_bytes,
            held,
            more: more || len_bytes < left_bytes || self.parts_follow(),
            unconfirmed: self.is_unconfirmed(self.body_at_bytes()),
        })
    }

    /// Whether a stream that waits for the disk will be resumed: by the disk machine, or by whoever makes its listing.
    pub fn is_awaited(&self) -> bool {
        self.outstanding.get().is_some() || self.slice == SliceState::Asked
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

    /// The next step within a file. What is fetched is sent, and what is believed to be in the page cache; of the rest
    /// the page cache is asked, or the disk.
    fn body_step(
        &mut self,
        residency_cache: &ResidencyCache,
        body: &Body,
        supply: &Supply,
        now: Instant,
    ) -> StreamStep {
        let span = body.span;
        let at_bytes = span.offset_bytes + self.at_bytes;
        self.fetched.retain(|(end_bytes, _)| *end_bytes > at_bytes);
        if let Some(step) = self.look_ahead(residency_cache, body, supply, now) {
            return step;
        }
        let broken = self
            .broken
            .filter(|(from_bytes, _)| *from_bytes <= at_bytes);
        if let Some((_, why)) = broken.filter(|_| self.fetched.is_empty()) {
            return StreamStep::Broken(why);
        }
        let left_bytes = span.len_bytes - self.at_bytes;
        let (end_bytes, held) = self
            .fetched
            .first()
            .copied()
            .unwrap_or((span.end_bytes(), Held::PageCache));
        if held == Held::Slots {
            return self.send(held, end_bytes - at_bytes, left_bytes, false);
        }
        let window = rest_of_window(at_bytes, end_bytes);
        match residency_cache.verdict(body.object, body.residency, window, now) {
            ResidencyVerdict::Resident => {}
            _ if self.is_unconfirmed(at_bytes) && !self.fetched.is_empty() => {} // the copy, which never waits, finds out
            ResidencyVerdict::Probe | ResidencyVerdict::Unknown if self.waits_at(at_bytes) => {
                return StreamStep::Wait;
            }
            ResidencyVerdict::Probe => return self.ask(body, window),
            ResidencyVerdict::Unknown => {
                let absent = matches!(self.missed, (missed_bytes, 1..) if missed_bytes == at_bytes);
                self.lose_fetched();
                let rest = to_end(at_bytes, span.end_bytes());
                return StreamStep::Want(self.want(body.object, rest, absent, supply, now));
            }
        }
        let ready_bytes = resident_bytes(residency_cache, body, window, end_bytes, now);
        self.send(held, ready_bytes, left_bytes, false)
    }

    /// Reads ahead: a stream with fetched pieces keeps one want for the bytes after them, and the want's deadline
    /// follows the client's rate. No want is made while enough is fetched, or after a failed read. Nor is one made
    /// while slots wait for a client of unknown rate whose socket is not full: whether it takes them all decides.
    fn look_ahead(
        &mut self,
        residency_cache: &ResidencyCache,
        body: &Body,
        supply: &Supply,
        now: Instant,
    ) -> Option<StreamStep> {
        let at_bytes = body.span.offset_bytes + self.at_bytes;
        let end_bytes = body.span.end_bytes();
        if let Some(told) = self.outstanding.get() {
            let underrun_at = self.underrun_at(told.span.offset_bytes, supply, now);
            let rate_bytes_per_s = supply.rate_bytes_per_s;
            let anew = self.outstanding.redate(underrun_at, rate_bytes_per_s, now);
            return anew.map(StreamStep::Want);
        }
        if self.broken.is_some() {
            return None;
        }
        let &(mut ahead_bytes, held) = self.fetched.last()?;
        if held == Held::Slots && supply.rate_bytes_per_s == 0 && !supply.full {
            return None; // unknown rate, socket not full: whether it takes all slots decides the next read
        }
        while ahead_bytes < end_bytes && self.fetched.len() < FETCHED_MAX {
            let next = rest_of_window(ahead_bytes, end_bytes);
            match residency_cache.verdict(body.object, body.residency, next, now) {
                // Read for somebody else. Far ahead it may be evicted before it is sent.
                ResidencyVerdict::Resident if ahead_bytes - at_bytes < READ_BYTES_MAX => {
                    ahead_bytes = next.end_bytes();
                    self.fetch(ahead_bytes, Held::PageCache);
                }
                ResidencyVerdict::Resident => return None,
                ResidencyVerdict::Probe => return Some(self.ask(body, next)),
                ResidencyVerdict::Unknown => {
                    let rest = to_end(ahead_bytes, end_bytes);
                    let want = self.want(body.object, rest, false, supply, now);
                    return Some(StreamStep::Want(want));
                }
            }
        }
        None
    }

    fn ask(&mut self, body: &Body, span: Span) -> StreamStep {
        let (object, end_bytes) = (body.object, body.span.end_bytes());
        self.probe = Some(PendingProbe {
            object,
            span,
            end_bytes,
        });
        StreamStep::Probe { object, span }
    }

    fn want(
        &mut self,
        object: ObjectId,
        span: Span,
        absent: bool,
        supply: &Supply,
        now: Instant,
    ) -> Want {
        let underrun_at = self.underrun_at(span.offset_bytes, supply, now);
        self.broken = None;
        self.undo.want = false; // this one replaces it
        let rate_bytes_per_s = supply.rate_bytes_per_s;
        (self.outstanding).begin(object, span, absent, underrun_at, rate_bytes_per_s)
    }

    /// Whether the current want begins exactly here. If others' reads brought bytes beyond its start, it is not waited for.
    fn waits_at(&self, at_bytes: u64) -> bool {
        let here = |want: Want| want.span.offset_bytes == at_bytes;
        self.fetched.is_empty() && self.outstanding.get().is_some_and(here)
    }

    /// When the stream runs dry, if it has all bytes before `from_bytes`. A client of unknown rate may never take more, and
    /// thousands of them would fill the pool. So once its socket is full, and a third as much as it has taken is read ahead, its
    /// want is dated [`UNTAKEN_US`] ahead: nothing more is read until it takes some.
    fn underrun_at(&self, from_bytes: u64, supply: &Supply, now: Instant) -> Instant {
        let ahead_bytes = from_bytes.saturating_sub(self.body_at_bytes());
        if supply.rate_bytes_per_s == 0 && supply.full && ahead_bytes >= self.sent_bytes / 3 {
            return now.plus_us(UNTAKEN_US);
        }
        supply.underrun_at(ahead_bytes, now)
    }

    fn fetch(&mut self, end_bytes: u64, held: Held) {
        match self.fetched.last_mut() {
            Some((end, before)) if *before == held => *end = end_bytes,
            _ => self.fetched.push((end_bytes, held)),
        }
    }

    /// The answer to a probe: how many bytes from the start of the span are in memory. If that is not all of them, the
    /// rest becomes a want, which is returned.
    pub fn probed(
        &mut self,
        resident_bytes: u64,
        residency_cache: &mut ResidencyCache,
        supply: &Supply,
        now: Instant,
    ) -> Option<Want> {
        let PendingProbe {
            object,
            span,
            end_bytes,
        } = self.probe.take()?;
        if resident_bytes >= span.len_bytes {
            residency_cache.seen(object, span, now);
            return None;
        }
        residency_cache.gone(object, span);
        if self.body_at_bytes() == span.offset_bytes {
            self.lose_fetched();
        }
        let rest = to_end(span.offset_bytes, end_bytes);
        Some(self.want(object, rest, true, supply, now))
    }

    /// The disk machine answered a want: these bytes, from its start, are in memory. Returns whether that want still stood. Bytes
    /// that do not follow what is fetched are given back ([`Stream::take_undo`]).
    pub fn filled(
        &mut self,
        seq: WantSeq,
        span: Span,
        held: Held,
        residency_cache: &mut ResidencyCache,
        now: Instant,
    ) -> bool {
        let Some(want) = self.outstanding.answered(seq) else {
            return false;
        };
        let at_bytes = self.body_at_bytes();
        let ahead_bytes = self.fetched.last().map_or(at_bytes, |(end, _)| *end);
        let follows = span.offset_bytes <= ahead_bytes.max(at_bytes);
        debug_assert!(
            follows && want.span.covers(span),
            "{span:?} of {:?}",
            want.span
        );
        if !follows || !want.span.covers(span) {
            self.drop_fetched(); // it wants again from where it stands
            self.undo.slots |= held == Held::Slots;
            return true;
        }
        self.fetch(span.end_bytes(), held);
        let mut from_bytes = span.offset_bytes;
        while held == Held::PageCache && from_bytes < span.end_bytes() {
            let piece = rest_of_window(from_bytes, span.end_bytes());
            residency_cache.seen(want.object, piece, now);
            from_bytes = piece.end_bytes();
        }
        true
    }
}

/// How many bytes from the start of this resident window on one send may take: those of the windows that follow, too,
/// as long as they are believed resident.
fn resident_bytes(
    residency_cache: &ResidencyCache,
    body: &Body,
    window: Span,
    end_bytes: u64,
    now: Instant,
) -> u64 {
    let mut ready = window;
    while ready.len_bytes < SEND_BYTES_MAX && ready.end_bytes() < end_bytes {
        let next = rest_of_window(ready.end_bytes(), end_bytes);
        if residency_cache.verdict(body.object, body.residency, next, now)
            != ResidencyVerdict::Resident
        {
            break;
        }
        ready.len_bytes += next.len_bytes;
    }
    ready.len_bytes
}

fn to_end(offset_bytes: u64, end_bytes: u64) -> Span {
    Span {
        offset_bytes,
        len_bytes: end_bytes.saturating_sub(offset_bytes),
    }
}
