//! One response under way: which of its bytes come next, and what has to happen before they can be sent.
//!
//! A response has parts ([`Part`]): texts (its head, and what stands between ranges), ranges of a file, a listing. Bytes of
//! a file lie in the page cache, or in slots: memory into which its disk was read for this stream alone ([`Held`]). The
//! worker must not wait for a disk, so it offers bytes of the page cache only where it believes them to be there
//! ([`crate::cache`]). All others become a [`Want`], which goes to the thread of the disk (`server/src/disk.rs`).
//!
//! | [`Stream::step`] | the stream then has | until |
//! |---|---|---|
//! | `Send` | offered bytes | [`Stream::sent`] says how many the socket took, or [`Stream::missing`] that they are not in memory |
//! | `Probe` | a `probe` at the page cache | [`Stream::probed`], at once; missing bytes become a want |
//! | `Want` | an `outstanding` want, one at most | [`Stream::fetched`]: its bytes are `fetched`; or [`Stream::fetch_failed`]: it is `broken` from there on |
//! | `Slice` | `asked` for a slice of the listing | [`Stream::sliced`] |
//! | `Wait` | nothing to send before its want or its slice is answered | that answer |
//! | `Broken`, `Done` | ended | |
//!
//! While it sends what is fetched, it has the bytes after that read ahead (`stream/wants.rs`).

mod losses;
mod rest;
mod wants;

pub(super) use self::rest::Cursor;
use self::wants::Outstanding;
use super::stall::Stall;
use crate::cache::{ResidencyCache, ResidencyVerdict, rest_of_window, windows};
use crate::congestion::Delay;
use crate::conn::{Held, ObjectId, Part, Plan, ResidencySource, Span, StreamId, Want, WantSeq};
use crate::limits::SEND_BYTES_MAX;
use crate::send::Supply;
use crate::units::Instant;
use crate::why::Why;
use smallvec::SmallVec;

/// The range of a file that a response sends.
struct Body {
    object: ObjectId,
    /// How it can be known which of its bytes are in the page cache.
    residency: ResidencySource,
    span: Span,
}

/// Bytes to offer to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendSpan {
    /// The part of the plan, where to begin in it, and how many bytes.
    pub part: u16,
    pub from_bytes: u64,
    pub len_bytes: u64,
    /// Where the bytes are, if they are a file's.
    pub held: Held,
    /// More bytes of the response follow.
    pub more: bool,
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

/// What other stages still do for this stream and must be told to cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cancellations {
    /// The disk machine has a want for bytes that are no longer needed.
    pub want: bool,
    /// The shell holds slots whose bytes will not be sent.
    pub slots: bool,
}

/// The progress of one response.
pub(super) struct Stream {
    pub plan: Plan,
    /// When its request was read.
    pub started_at: Instant,
    /// Bytes of the whole response, head included, that the kernel took. Never more than its head promises.
    pub sent_bytes: u64,
    /// What the socket has not yet taken of the last offer: the most that [`Stream::sent`] accepts.
    offered_bytes: u64,
    /// The kernel may hold back the end of what it took last, since more was to follow.
    pub held_back: bool,
    /// For how long it was stalled for its disk, and for its client, without the present stall.
    pub waited_disk_us: u64,
    pub waited_net_us: u64,
    /// The part that is being sent: an index into the parts of the plan.
    part: u16,
    /// Offset in the part, or in its current slice.
    at_bytes: u64,
    /// What the page cache is being asked about. The shell answers before it asks for another step.
    probe: Option<PendingProbe>,
    /// The want that the disk machine has not answered yet, if there is one.
    pub outstanding: Outstanding,
    /// To be cancelled before the next order.
    cancellations: Cancellations,
    /// The byte of the file that was missing when it was to be sent: it is wanted, whatever the page cache says of its window.
    missing_at: Option<u64>,
    /// A want failed, and no other was made since.
    broken: Option<BrokenFrom>,
    /// What was fetched for the stream and is not sent yet, in the order of the file from the next byte on.
    fetched: SmallVec<[FetchedPiece; 2]>,
    /// The slice of a listing that is being sent.
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

/// The first byte of the file that can't be read, and why.
#[derive(Clone, Copy)]
struct BrokenFrom {
    from_bytes: u64,
    why: Why,
}

/// Bytes of the file that were fetched: they begin where the piece before them ends, or at the next byte to send.
#[derive(Clone, Copy)]
struct FetchedPiece {
    /// Where the piece ends in the file.
    end_bytes: u64,
    /// What holds its bytes.
    held: Held,
}

/// The slice of a listing that is being sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SliceState {
    /// There is none.
    Empty,
    /// It is being made.
    Asked,
    /// It is there; the `last` one ends the listing.
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
            held_back: false,
            waited_disk_us: now.since_us(started_at),
            waited_net_us: 0,
            part: 0,
            at_bytes: 0,
            probe: None,
            outstanding: Outstanding::new(id, delay),
            cancellations: Cancellations::default(),
            missing_at: None,
            broken: None,
            fetched: SmallVec::new(),
            slice: SliceState::Empty,
            stall: None,
        }
    }

    /// The next step. It counts as asked for at once; only a send advances later, by [`Stream::sent`].
    pub fn step(
        &mut self,
        residency_cache: &ResidencyCache,
        supply: &Supply,
        now: Instant,
    ) -> StreamStep {
        loop {
            let Some(part) = self.plan.parts.get(usize::from(self.part)) else {
                return StreamStep::Done;
            };
            // `parts`: how many parts leave with these bytes.
            let (len_bytes, parts) = match part {
                Part::Bytes(_) => self.texts(),
                &Part::Body {
                    object,
                    residency,
                    span,
                    ..
                } => {
                    let body = Body {
                        object,
                        residency,
                        span,
                    };
                    if self.at_bytes < span.len_bytes {
                        return self.body_step(residency_cache, &body, supply, now);
                    }
                    (span.len_bytes, 1)
                }
                Part::Slices => match self.slice {
                    SliceState::Ready { len_bytes, last } if self.at_bytes < len_bytes || last => {
                        (len_bytes, 1)
                    }
                    SliceState::Asked => return StreamStep::Wait,
                    SliceState::Empty | SliceState::Ready { .. } => {
                        (self.slice, self.at_bytes) = (SliceState::Asked, 0);
                        return StreamStep::Slice;
                    }
                },
            };
            if self.at_bytes < len_bytes {
                let left_bytes = len_bytes - self.at_bytes;
                return self.send(Held::PageCache, left_bytes, left_bytes);
            }
            self.leave_part(parts);
        }
    }

    /// Takes what the shell and the disk machine must cancel before they do anything else for the stream. Call this
    /// after each [`Stream::step`], [`Stream::probed`], [`Stream::missing`] and [`Stream::fetched`].
    pub fn take_cancellations(&mut self) -> Cancellations {
        core::mem::take(&mut self.cancellations)
    }

    /// Whether a stream that waits for the disk will be resumed: by the disk machine, or by whoever makes its listing.
    pub fn is_awaited(&self) -> bool {
        self.outstanding.get().is_some() || self.slice == SliceState::Asked
    }

    /// The socket took `taken_bytes` of what it was offered. Returns how many of them count.
    pub fn sent(&mut self, taken_bytes: u64) -> u64 {
        let taken_bytes = taken_bytes.min(self.offered_bytes);
        self.offered_bytes -= taken_bytes;
        self.at_bytes += taken_bytes;
        self.sent_bytes += taken_bytes;
        taken_bytes
    }

    /// A slice of a listing was made.
    pub fn sliced(&mut self, len_bytes: u64, last: bool) {
        (self.slice, self.at_bytes) = (SliceState::Ready { len_bytes, last }, 0);
    }

    /// The answer to a probe: whether all of the span is in memory. If not, it becomes a want, which is returned.
    pub fn probed(
        &mut self,
        is_resident: bool,
        residency_cache: &mut ResidencyCache,
        supply: &Supply,
        now: Instant,
    ) -> Option<Want> {
        let PendingProbe {
            object,
            span,
            end_bytes,
        } = self.probe.take()?;
        if is_resident {
            residency_cache.seen(object, span, now);
            return None;
        }
        residency_cache.gone(object, span);
        if self.body_at_bytes() == span.offset_bytes {
            self.drop_fetched();
        }
        let rest = to_end(span.offset_bytes, end_bytes);
        Some(self.want(object, rest, supply, now))
    }

    /// The disk machine answered a want: these bytes, from its start, are in memory. Bytes that do not follow what is fetched are
    /// given back ([`Stream::take_cancellations`]). A late answer is void.
    pub fn fetched(
        &mut self,
        seq: WantSeq,
        span: Span,
        held: Held,
        residency_cache: &mut ResidencyCache,
        now: Instant,
    ) {
        let Some(want) = self.outstanding.answered(seq) else {
            return;
        };
        let at_bytes = self.body_at_bytes();
        let last = self.fetched.last();
        let ahead_bytes = last.map_or(at_bytes, |piece| piece.end_bytes);
        let follows = span.offset_bytes <= ahead_bytes.max(at_bytes);
        debug_assert!(
            follows && want.span.covers(span),
            "{span:?} of {:?}",
            want.span
        );
        if !follows || !want.span.covers(span) {
            self.drop_fetched(); // it wants again from where it stands
            self.cancellations.slots |= held.is_own_memory();
            return;
        }
        self.missing_at = None;
        self.add_fetched(span.end_bytes(), held);
        if held.is_evictable() {
            windows(span).for_each(|window| residency_cache.seen(want.object, window, now));
        }
    }

    /// The next step within a file. More is read ahead if it is time to. Then the next bytes are sent, if they are fetched
    /// or believed to be in the page cache. If not, the page cache is asked, or they become a want.
    fn body_step(
        &mut self,
        residency_cache: &ResidencyCache,
        body: &Body,
        supply: &Supply,
        now: Instant,
    ) -> StreamStep {
        let span = body.span;
        let at_bytes = span.offset_bytes + self.at_bytes;
        self.fetched.retain(|piece| piece.end_bytes > at_bytes);
        if let Some(step) = self.read_ahead(residency_cache, body, supply, now) {
            return step;
        }
        let is_fetched = !self.fetched.is_empty();
        if let Some(BrokenFrom { from_bytes, why }) = self.broken {
            if from_bytes <= at_bytes && !is_fetched {
                return StreamStep::Broken(why);
            }
        }
        let left_bytes = span.len_bytes - self.at_bytes;
        // What was not fetched may be in the page cache.
        let unfetched = FetchedPiece {
            end_bytes: span.end_bytes(),
            held: Held::PageCache,
        };
        let FetchedPiece { end_bytes, held } = self.fetched.first().copied().unwrap_or(unfetched);
        if !held.is_evictable() {
            return self.send(held, end_bytes - at_bytes, left_bytes);
        }
        let is_missing = self.missing_at == Some(at_bytes);
        let window = rest_of_window(at_bytes, end_bytes);
        match residency_cache.verdict(body.object, body.residency, window, now) {
            ResidencyVerdict::Resident => {}
            ResidencyVerdict::Probe | ResidencyVerdict::Unknown if self.waits_at(at_bytes) => {
                return StreamStep::Wait;
            }
            ResidencyVerdict::Probe if !is_missing => return self.ask(body, window),
            ResidencyVerdict::Probe | ResidencyVerdict::Unknown => {
                self.drop_fetched();
                let rest = to_end(at_bytes, span.end_bytes());
                return StreamStep::Want(self.want(body.object, rest, supply, now));
            }
        }
        let ready_bytes = resident_bytes(residency_cache, body, window, end_bytes, now);
        self.send(held, ready_bytes, left_bytes)
    }

    /// Asks whether these bytes of the file are in memory.
    fn ask(&mut self, body: &Body, span: Span) -> StreamStep {
        let (object, end_bytes) = (body.object, body.span.end_bytes());
        self.probe = Some(PendingProbe {
            object,
            span,
            end_bytes,
        });
        StreamStep::Probe { object, span }
    }

    /// Makes a want for these bytes.
    fn want(&mut self, object: ObjectId, span: Span, supply: &Supply, now: Instant) -> Want {
        let forecast = self.forecast(span.offset_bytes, supply, now);
        self.broken = None;
        self.cancellations.want = false; // this one replaces it
        self.outstanding.begin(object, span, forecast)
    }

    /// Whether the stream waits for its want: that begins here. One that begins earlier is out of date: other readers'
    /// reads brought its first bytes, which are sent by now.
    fn waits_at(&self, at_bytes: u64) -> bool {
        let here = |want: Want| want.span.offset_bytes == at_bytes;
        self.fetched.is_empty() && self.outstanding.get().is_some_and(here)
    }

    /// The bytes up to here are fetched.
    fn add_fetched(&mut self, end_bytes: u64, held: Held) {
        match self.fetched.last_mut() {
            Some(last) if last.held == held => last.end_bytes = end_bytes,
            _ => self.fetched.push(FetchedPiece { end_bytes, held }),
        }
    }

    /// Goes on after `parts` that are sent: one, or texts that left together. What was asked or fetched for them is void.
    fn leave_part(&mut self, parts: u16) {
        (self.part, self.at_bytes, self.slice) = (self.part + parts, 0, SliceState::Empty);
        self.cancellations.want |= self.outstanding.drop_it();
        self.drop_fetched();
        (self.probe, self.broken, self.missing_at) = (None, None, None);
    }

    /// Offers what is ready of the rest of the part, in pieces short enough to let others have their turn. It never offers
    /// more than the head promises, whatever the parts hold.
    fn send(&mut self, held: Held, ready_bytes: u64, left_bytes: u64) -> StreamStep {
        let len_bytes = ready_bytes
            .min(left_bytes)
            .min(SEND_BYTES_MAX)
            .min(self.owed_bytes().unwrap_or(u64::MAX));
        self.offered_bytes = len_bytes;
        if len_bytes == 0 {
            return StreamStep::Broken(Why::Misframed);
        }
        let more = len_bytes < left_bytes || self.parts_follow();
        self.held_back = more;
        StreamStep::Send(SendSpan {
            part: self.part,
            from_bytes: self.at_bytes,
            len_bytes,
            held,
            more,
        })
    }

    /// The texts from this part on, which leave in one send: their bytes together, and how many parts they are.
    fn texts(&self) -> (u64, u16) {
        let texts = self.plan.texts(self.part);
        texts.fold((0, 0), |(bytes, parts), text| {
            (bytes + text.len() as u64, parts + 1)
        })
    }

    /// Offset of the next byte to send, in the file.
    fn body_at_bytes(&self) -> u64 {
        match self.plan.parts.get(usize::from(self.part)) {
            Some(Part::Body { span, .. }) => span.offset_bytes + self.at_bytes,
            _ => 0,
        }
    }
}

/// How many bytes one send may take from the start of this resident window on: also those of the windows that follow, as
/// long as they are believed resident.
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
