//! One response under way: which bytes come next, and what has to happen before they can be sent.

use super::counts::Counts;
use crate::cache::{Beliefs, Verdict};
use crate::conn::{ObjectId, Oracle, Part, Plan, Span};
use crate::limits::{SEND_BYTES_MAX, WINDOW_BYTES};
use crate::units::{Instant, US_PER_S};
use crate::why::Wait;

/// What a response needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hand these bytes to the socket.
    Send {
        part: u16,
        from_bytes: u64,
        len_bytes: u64,
        more: bool,
    },
    /// Ask whether these bytes of the file are in memory.
    Probe { object: ObjectId, span: Span },
    /// Have them read.
    Want {
        object: ObjectId,
        span: Span,
        dry_at: Instant,
    },
    /// Have the next slice of a listing made.
    Slice,
    /// Something asked for is under way.
    Wait,
    /// All bytes are with the kernel.
    Done,
}

/// Where a response stands.
pub(super) struct Stream {
    pub plan: Plan,
    pub started_at: Instant,
    /// Bytes of the whole response, head included, that the kernel took.
    pub sent_bytes: u64,
    pub waited_disk_us: u64,
    pub waited_net_us: u64,
    part: u16,
    /// Offset in the part, or in its present slice.
    at_bytes: u64,
    /// A question to the page cache, answered at once.
    probe: Option<Asked>,
    /// The wish that the disk machine has of this stream.
    wish: Option<Asked>,
    /// That wish was repeated: the disk machine may answer twice.
    repeated: bool,
    /// End of the file range known to be wanted or resident, for a stream that reads from the disk:
    /// one window is fetched ahead of the one that is sent.
    ahead_bytes: Option<u64>,
    slice: SliceState,
    stalled: Option<(Wait, Instant)>,
}

/// A question or wish that is under way.
#[derive(Clone, Copy)]
struct Asked {
    object: ObjectId,
    span: Span,
    /// The stream stands still until it is answered, and the disk machine knows.
    dry: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SliceState {
    Empty,
    Asked,
    Ready { len_bytes: u64, last: bool },
}

impl Stream {
    /// The response to a request of `started_at`; what it took to find the file is a wait for the disk.
    pub fn new(plan: Plan, started_at: Instant, now: Instant) -> Stream {
        Stream {
            plan,
            started_at,
            sent_bytes: 0,
            waited_disk_us: now.since_us(started_at),
            waited_net_us: 0,
            part: 0,
            at_bytes: 0,
            probe: None,
            wish: None,
            repeated: false,
            ahead_bytes: None,
            slice: SliceState::Empty,
            stalled: None,
        }
    }

    /// The next step. Asking for something marks it as asked; sending changes nothing until [`Stream::sent`].
    pub fn step(&mut self, beliefs: &Beliefs, now: Instant) -> Step {
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
                (self.part, self.at_bytes, self.slice) = (self.part + parts, 0, SliceState::Empty);
                continue;
            }
            if let Some(&Part::Body {
                object,
                oracle,
                span,
                ..
            }) = self.plan.parts.get(usize::from(self.part))
            {
                return self.body_step(beliefs, object, oracle, span, now);
            }
            let left_bytes = len_bytes - self.at_bytes;
            let more = matches!(self.slice, SliceState::Ready { last: false, .. });
            return self.send(left_bytes, left_bytes, more);
        }
    }

    /// Send what is ready of what is left of the part, in pieces that let others have their turn.
    fn send(&self, ready_bytes: u64, left_bytes: u64, more: bool) -> Step {
        let len_bytes = ready_bytes.min(SEND_BYTES_MAX);
        Step::Send {
            part: self.part,
            from_bytes: self.at_bytes,
            len_bytes,
            more: more || len_bytes < left_bytes || self.parts_follow(),
        }
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

    fn body_step(
        &mut self,
        beliefs: &Beliefs,
        object: ObjectId,
        oracle: Oracle,
        span: Span,
        now: Instant,
    ) -> Step {
        let offset_bytes = span.offset_bytes + self.at_bytes;
        let window = rest_of_window(offset_bytes, span.end_bytes());
        match beliefs.verdict(object, oracle, window, now) {
            Verdict::Resident => {}
            verdict => return self.ask(object, window, verdict, now, now),
        }
        if let Some(ahead_bytes) = self
            .ahead_bytes
            .filter(|&a| a == window.end_bytes() && a < span.end_bytes())
        {
            let next = rest_of_window(ahead_bytes, span.end_bytes());
            let verdict = beliefs.verdict(object, oracle, next, now);
            if verdict == Verdict::Resident {
                self.ahead_bytes = None;
            } else if self.wish.is_none() {
                let dry_at = now.plus_us(self.us_to_send(window.len_bytes, now));
                return self.ask(object, next, verdict, dry_at, now);
            }
        }
        let mut ready = window;
        while ready.len_bytes < SEND_BYTES_MAX && ready.end_bytes() < span.end_bytes() {
            let next = rest_of_window(ready.end_bytes(), span.end_bytes());
            if beliefs.verdict(object, oracle, next, now) != Verdict::Resident {
                break;
            }
            ready.len_bytes += next.len_bytes;
        }
        self.send(ready.len_bytes, span.len_bytes - self.at_bytes, false)
    }

    /// Probe or want `span`, once; a wish is repeated when the stream has meanwhile run dry. What
    /// is needed now goes before what was wished for ahead.
    fn ask(
        &mut self,
        object: ObjectId,
        span: Span,
        verdict: Verdict,
        dry_at: Instant,
        now: Instant,
    ) -> Step {
        let dry = dry_at <= now;
        let wished = self.wish.filter(|wish| same_window(wish.span, span));
        if wished.is_some_and(|wish| wish.dry || !dry) {
            return Step::Wait;
        }
        if wished.is_some() || verdict == Verdict::Cold {
            return self.want(Asked { object, span, dry }, dry_at);
        }
        self.probe = Some(Asked { object, span, dry });
        Step::Probe { object, span }
    }

    fn want(&mut self, asked: Asked, dry_at: Instant) -> Step {
        let Asked { object, span, .. } = asked;
        let before = self.wish.replace(asked);
        self.repeated = before.is_some_and(|wish| same_window(wish.span, span));
        Step::Want {
            object,
            span,
            dry_at,
        }
    }

    /// How long the stream needs for `len_bytes` at its mean rate so far.
    fn us_to_send(&self, len_bytes: u64, now: Instant) -> u64 {
        let us = now
            .since_us(self.started_at)
            .saturating_sub(self.waited_disk_us)
            .max(1);
        let rate_bytes_per_s =
            u128::from(self.sent_bytes.max(1)) * u128::from(US_PER_S) / u128::from(us);
        let us = u128::from(len_bytes) * u128::from(US_PER_S) / rate_bytes_per_s.max(1);
        u64::try_from(us).unwrap_or(u64::MAX)
    }

    /// The answer to a probe: how many bytes from the start of the asked span are in memory.
    /// Anything less than all makes it a wish; returned is that wish.
    pub fn probed(
        &mut self,
        resident_bytes: u64,
        beliefs: &mut Beliefs,
        now: Instant,
    ) -> Option<Step> {
        let asked = self.probe.take()?;
        if resident_bytes >= asked.span.len_bytes {
            beliefs.seen(asked.object, asked.span, now);
            return None;
        }
        beliefs.gone(asked.object, asked.span);
        let dry_at = if asked.dry {
            now
        } else {
            now.plus_us(self.us_to_send(WINDOW_BYTES, now))
        };
        Some(self.want(asked, dry_at))
    }

    /// The disk delivered `span`: it counts as seen, and the next window is fetched ahead.
    pub fn filled(&mut self, span: Span, beliefs: &mut Beliefs, now: Instant) {
        if let Some(wish) = self.wish.take_if(|wish| same_window(wish.span, span)) {
            beliefs.seen(wish.object, span, now);
            self.ahead_bytes = Some(window_end_bytes(span.offset_bytes));
        }
    }

    /// A slice of a listing was made.
    pub fn sliced(&mut self, len_bytes: u64, last: bool) {
        (self.slice, self.at_bytes) = (SliceState::Ready { len_bytes, last }, 0);
    }

    /// The socket took `taken_bytes` of what was last to be sent.
    pub fn sent(&mut self, taken_bytes: u64) {
        self.at_bytes += taken_bytes;
        self.sent_bytes += taken_bytes;
    }

    /// The stream waits for `wait` from now on; `true` if it did not before. Waiting times add up.
    pub fn stand_still(&mut self, wait: Wait, counts: &mut Counts, now: Instant) -> bool {
        if self.stalled.is_some_and(|(before, _)| before == wait) {
            return false;
        }
        self.go_on(counts, now);
        self.stalled = Some((wait, now));
        true
    }

    /// The stream waits no longer.
    pub fn go_on(&mut self, counts: &mut Counts, now: Instant) {
        if let Some((wait, since)) = self.stalled.take() {
            let us = now.since_us(since);
            counts.waited(wait, us);
            *self.waited(wait) += us;
        }
    }

    fn waited(&mut self, wait: Wait) -> &mut u64 {
        if wait.is_net() {
            &mut self.waited_net_us
        } else {
            &mut self.waited_disk_us
        }
    }

    /// What it waits for, and for how long now.
    pub fn waits(&self, now: Instant) -> (Wait, u64) {
        match self.stalled {
            Some((wait, since)) => (wait, now.since_us(since)),
            None => (Wait::Turn, 0),
        }
    }

    /// Time that it stood still until now, for the disk and for its socket.
    pub fn waited_us(&self, now: Instant) -> (u64, u64) {
        let (disk_us, net_us) = (self.waited_disk_us, self.waited_net_us);
        match self.waits(now) {
            (Wait::Turn, _) => (disk_us, net_us),
            (wait, us) if wait.is_net() => (disk_us, net_us + us),
            (_, us) => (disk_us + us, net_us),
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

    /// Whether the disk may still owe the stream something.
    pub fn wants(&self) -> bool {
        self.wish.is_some() || self.repeated
    }
}

/// From `offset_bytes` to the end of its window or to `end_bytes`, whichever is nearer.
fn rest_of_window(offset_bytes: u64, end_bytes: u64) -> Span {
    Span {
        offset_bytes,
        len_bytes: window_end_bytes(offset_bytes).min(end_bytes) - offset_bytes,
    }
}

fn window_end_bytes(offset_bytes: u64) -> u64 {
    (offset_bytes / WINDOW_BYTES + 1).saturating_mul(WINDOW_BYTES)
}

fn same_window(a: Span, b: Span) -> bool {
    a.offset_bytes / WINDOW_BYTES == b.offset_bytes / WINDOW_BYTES
}
