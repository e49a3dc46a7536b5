//! One response under way: which bytes come next, and what has to happen before they can be sent.

use super::counts::Counts;
use super::redate::is_moved;
use super::stand::Stand;
use crate::cache::{ResidencyCache, Verdict};
use crate::congestion::Delay;
use crate::conn::{Held, ObjectId, Part, Plan, ResidencySource, Span, StreamId, Want};
use crate::limits::{
    FETCHED_MAX, MISSES_MAX, READ_BYTES_MAX, SEND_BYTES_MAX, THIN_BYTES_MAX, UNTAKEN_US,
    WINDOW_BYTES,
};
use crate::send::Supply;
use crate::units::Instant;
use crate::why::{Wait, Why};
use smallvec::SmallVec;

/// The range of a file that is sent.
struct Body {
    object: ObjectId,
    residency: ResidencySource,
    span: Span,
}

/// What a response needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hand these bytes to the socket.
    Send {
        part: u16,
        from_bytes: u64,
        len_bytes: u64,
        held: Held,
        more: bool,
        unconfirmed: bool,
    },
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

    /// What was fetched is not sent from where it is, nor what is wanted behind it: it would not follow what the stream
    /// has.
    fn drop_fetched(&mut self) {
        self.undo.slots |= self.fetched.iter().any(|(_, held)| *held == Held::Slots);
        self.fetched.clear();
        let at_bytes = self.body_at_bytes();
        let behind = |want: &mut Want| want.span.offset_bytes > at_bytes;
        self.undo.want |= self.want.take_if(behind).is_some();
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
        Step::Send {
            part: self.part,
            from_bytes: self.at_bytes,
            len_bytes,
            held,
            more: more || len_bytes < left_bytes || self.parts_follow(),
            unconfirmed: self.missed.1 >= MISSES_MAX,
        }
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

    fn body_step(
        &mut self,
        residency_cache: &ResidencyCache,
        body: &Body,
        supply: &Supply,
        now: Instant,
    ) -> Step {
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
            return Step::Broken(why);
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
            Verdict::Resident => {}
            Verdict::Probe | Verdict::Cold if self.waits_at(at_bytes) => return Step::Wait,
            Verdict::Probe => return self.ask(body, window),
            Verdict::Cold => {
                self.drop_fetched();
                let absent = matches!(self.missed, (missed_bytes, 1..) if missed_bytes == at_bytes);
                let rest = to_end(at_bytes, span.end_bytes());
                return Step::Want(self.want(body.object, rest, absent, supply, now));
            }
        }
        let mut ready = window;
        while ready.len_bytes < SEND_BYTES_MAX && ready.end_bytes() < end_bytes {
            let next = rest_of_window(ready.end_bytes(), end_bytes);
            if residency_cache.verdict(body.object, body.residency, next, now) != Verdict::Resident
            {
                break;
            }
            ready.len_bytes += next.len_bytes;
        }
        self.send(held, ready.len_bytes, left_bytes, false)
    }

    /// A stream that reads from the disk always has a want for what follows that which it has: when it is due is for the
    /// disk machine to say. The want is dated anew when the client has become faster or slower.
    fn look_ahead(
        &mut self,
        residency_cache: &ResidencyCache,
        body: &Body,
        supply: &Supply,
        now: Instant,
    ) -> Option<Step> {
        let at_bytes = body.span.offset_bytes + self.at_bytes;
        let end_bytes = body.span.end_bytes();
        if let Some(told) = self.want {
            return self.redate(told, supply, now).map(Step::Want);
        }
        if self.broken.is_some() {
            return None;
        }
        let &(mut ahead_bytes, held) = self.fetched.last()?;
        if held == Held::Slots && supply.rate_bytes_per_s == 0 && !supply.full {
            return None; // what it has is offered first: whether all of it is taken says what to read
        }
        while ahead_bytes < end_bytes && self.fetched.len() < FETCHED_MAX {
            let next = rest_of_window(ahead_bytes, end_bytes);
            match residency_cache.verdict(body.object, body.residency, next, now) {
                // Somebody else had it read. Far ahead it may be gone again until it is sent.
                Verdict::Resident if ahead_bytes - at_bytes < READ_BYTES_MAX => {
                    ahead_bytes = next.end_bytes();
                    self.fetch(ahead_bytes, Held::PageCache);
                }
                Verdict::Resident => return None,
                Verdict::Probe => return Some(self.ask(body, next)),
                Verdict::Cold => {
                    let rest = to_end(ahead_bytes, end_bytes);
                    let want = self.want(body.object, rest, false, supply, now);
                    return Some(Step::Want(want));
                }
            }
        }
        None
    }

    fn ask(&mut self, body: &Body, span: Span) -> Step {
        let (object, end_bytes) = (body.object, body.span.end_bytes());
        self.probe = Some(Asked {
            object,
            span,
            end_bytes,
        });
        Step::Probe { object, span }
    }

    fn want(
        &mut self,
        object: ObjectId,
        span: Span,
        absent: bool,
        supply: &Supply,
        now: Instant,
    ) -> Want {
        let dry_at = self.dry_at(span.offset_bytes, supply, now);
        self.broken = None;
        self.undo.want = false; // this one replaces it
        self.seq = self.seq.wrapping_add(1).max(1); // 0: there was none
        self.tell(Want {
            stream: self.id,
            object,
            span,
            dry_at,
            rate_bytes_per_s: supply.rate_bytes_per_s,
            seq: self.seq,
            heard: self.heard,
            signals: self.signals,
            absent,
        })
    }

    /// The same want with another date, if the disk machine has to hear of it.
    fn redate(&mut self, told: Want, supply: &Supply, now: Instant) -> Option<Want> {
        let dry_at = self.dry_at(told.span.offset_bytes, supply, now);
        let (heard, signals) = (self.heard, self.signals);
        // As a request that was given away: only the disk machine puts it off, if it does.
        let keeps = self.delay != Delay::Rate && told.rate_bytes_per_s > 0;
        let anew = match keeps && dry_at >= told.dry_at {
            true if self.delay == Delay::Off || told.signals == signals => return None,
            true => told,
            false if is_moved(&told, dry_at, supply.rate_bytes_per_s, now) => Want {
                dry_at,
                rate_bytes_per_s: supply.rate_bytes_per_s,
                ..told
            },
            false => return None,
        };
        Some(self.tell(Want {
            heard,
            signals,
            ..anew
        }))
    }

    fn tell(&mut self, want: Want) -> Want {
        self.want = Some(want);
        want
    }

    /// Its path is congested; `false`: nothing is wanted that this could change.
    pub fn congested(&mut self) -> bool {
        self.signals = self.signals.wrapping_add(1);
        self.want.is_some()
    }

    /// Whether the disk machine has a want of it now.
    pub fn wants(&self) -> bool {
        self.want.is_some()
    }

    /// Whether the disk machine has heard of it.
    pub fn reads_from_disk(&self) -> bool {
        self.seq > 0
    }

    /// Whether an answer to the want of this number is awaited. To all others, late ones, nobody listens.
    pub fn awaits(&self, seq: u32) -> bool {
        self.want.is_some_and(|want| want.seq == seq)
    }

    /// Whether bytes from here on, and no earlier ones, are wanted: a want that others' reads have overtaken is not
    /// waited for.
    fn waits_at(&self, at_bytes: u64) -> bool {
        let here = |want: Want| want.span.offset_bytes == at_bytes;
        self.fetched.is_empty() && self.want.is_some_and(here)
    }

    /// Whether somebody will make it go on while it waits for the disk: the disk machine, or who makes a listing.
    pub fn is_awaited(&self) -> bool {
        self.want.is_some() || self.slice == SliceState::Asked
    }

    /// When the stream runs dry, if it has all before `from_bytes`. A client whose rate nobody knows is not read further
    /// ahead for than a third of what it took: it may take nothing more, and thousands of such clients would fill the pool.
    fn dry_at(&self, from_bytes: u64, supply: &Supply, now: Instant) -> Instant {
        let ahead_bytes = from_bytes.saturating_sub(self.body_at_bytes());
        if supply.rate_bytes_per_s == 0 && supply.full && ahead_bytes >= self.sent_bytes / 3 {
            return now.plus_us(UNTAKEN_US);
        }
        supply.dry_at(ahead_bytes, now)
    }

    /// Where in the file the stream stands.
    fn body_at_bytes(&self) -> u64 {
        match self.plan.parts.get(usize::from(self.part)) {
            Some(Part::Body { span, .. }) => span.offset_bytes + self.at_bytes,
            _ => 0,
        }
    }

    fn fetch(&mut self, end_bytes: u64, held: Held) {
        match self.fetched.last_mut() {
            Some((end, before)) if *before == held => *end = end_bytes,
            _ => self.fetched.push((end_bytes, held)),
        }
    }

    /// The answer to a probe: how many bytes from the start of the asked span are in memory.
    /// Anything less than all makes it a want; returned is that want.
    pub fn probed(
        &mut self,
        resident_bytes: u64,
        residency_cache: &mut ResidencyCache,
        supply: &Supply,
        now: Instant,
    ) -> Option<Want> {
        let Asked {
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
            self.drop_fetched(); // dropped from the page cache before it was sent, if it was there
        }
        let rest = to_end(span.offset_bytes, end_bytes);
        Some(self.want(object, rest, true, supply, now))
    }

    /// The disk machine answered a want: these bytes, from its start, are there. `false`: nobody waits for them.
    pub fn filled(
        &mut self,
        seq: u32,
        span: Span,
        held: Held,
        residency_cache: &mut ResidencyCache,
        now: Instant,
    ) -> bool {
        let Some(want) = self.want.take_if(|want| want.seq == seq) else {
            return false;
        };
        self.heard = self.heard.wrapping_add(1);
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

    /// The disk machine answered: not one byte of the want can be read. `false`: nobody waits for that.
    pub fn unfilled(&mut self, seq: u32, why: Why) -> bool {
        let Some(want) = self.want.take_if(|want| want.seq == seq) else {
            return false;
        };
        self.heard = self.heard.wrapping_add(1);
        self.broken = Some((want.span.offset_bytes, why));
        true
    }

    /// What was to be sent from the page cache is not there any more, or not yet: somebody else reads it now.
    pub fn missing(&mut self, residency_cache: &mut ResidencyCache) {
        let Some(&Part::Body { object, span, .. }) = self.plan.parts.get(usize::from(self.part))
        else {
            return;
        };
        let at_bytes = self.body_at_bytes();
        residency_cache.gone(object, rest_of_window(at_bytes, span.end_bytes()));
        if self
            .fetched
            .first()
            .is_none_or(|(_, held)| *held == Held::PageCache)
        {
            self.drop_fetched();
        }
        self.missed = match self.missed {
            (before_bytes, times) if before_bytes == at_bytes => (at_bytes, times + 1),
            _ => (at_bytes, 1),
        };
    }

    /// Hold nothing and want nothing, since the client does not read; `false` if that was so already.
    pub fn let_go(&mut self) -> bool {
        let held = !self.fetched.is_empty() || self.want.is_some();
        self.fetched.clear();
        (self.want, self.undo) = (None, Undo::default());
        held
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

    /// The stream waits for `wait` from now on; `true` if it did not before. Waiting times add up. `socket_bytes`: what its socket should
    /// hold.
    pub fn stand_still(
        &mut self,
        wait: Wait,
        socket_bytes: u64,
        counts: &mut Counts,
        now: Instant,
    ) -> bool {
        if let Some(stand) = self.stand.as_mut().filter(|stand| stand.wait == wait) {
            stand.stays();
            return false;
        }
        self.go_on(counts, now);
        self.stand = Some(Stand::new(wait, socket_bytes <= THIN_BYTES_MAX, now));
        true
    }

    /// The stream waits no longer.
    pub fn go_on(&mut self, counts: &mut Counts, now: Instant) {
        let Some(stand) = self.stand.take() else {
            return;
        };
        let (disk_us, net_us) = stand.times_us(now);
        if stand.wait != Wait::Disk {
            counts.waited(stand.wait, net_us);
        } else {
            // Each is a wait of its own, if it was one.
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

    /// It goes on, but a sample has to say first for whom it stood; `true` once.
    pub fn asks_for_whom(&mut self) -> bool {
        self.stand.as_mut().is_some_and(Stand::asks)
    }

    /// TCP was asked: its socket is dry, or not, and has held nothing for `idle_us` since it was asked last. `true`: it was asked for this
    /// alone ([`Stream::asks_for_whom`]).
    pub fn heard(&mut self, dry: bool, idle_us: Option<u64>, now: Instant) -> bool {
        self.stand
            .as_mut()
            .is_some_and(|stand| stand.heard(dry, idle_us, now))
    }

    /// What it waits for, and for how long now.
    pub fn waits(&self, now: Instant) -> (Wait, u64) {
        match self.stand {
            Some(stand) => (stand.wait, now.since_us(stand.since)),
            None => (Wait::Turn, 0),
        }
    }

    /// The same for who looks: who is waited for as far as is known.
    pub fn seen(&self, now: Instant) -> (Wait, u64) {
        self.stand.map_or((Wait::Turn, 0), |stand| stand.seen(now))
    }

    /// How it stands now.
    pub fn stand(&self) -> Option<Stand> {
        self.stand
    }

    /// Time that it stood still until now, for the disk and for its client.
    pub fn waited_us(&self, now: Instant) -> (u64, u64) {
        let (disk_us, net_us) = self.stand.map_or((0, 0), |stand| stand.times_us(now));
        (self.waited_disk_us + disk_us, self.waited_net_us + net_us)
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

fn to_end(offset_bytes: u64, end_bytes: u64) -> Span {
    Span {
        offset_bytes,
        len_bytes: end_bytes.saturating_sub(offset_bytes),
    }
}

/// From `offset_bytes` to the end of its window or to `end_bytes`, whichever is nearer.
fn rest_of_window(offset_bytes: u64, end_bytes: u64) -> Span {
    let until_bytes = window_end_bytes(offset_bytes).min(end_bytes);
    Span {
        offset_bytes,
        len_bytes: until_bytes.saturating_sub(offset_bytes),
    }
}

fn window_end_bytes(offset_bytes: u64) -> u64 {
    (offset_bytes / WINDOW_BYTES + 1).saturating_mul(WINDOW_BYTES)
}
