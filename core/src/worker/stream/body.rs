//! The file part of a response: which of its bytes can be sent now, and what to ask of the page cache and the disk for
//! the rest.

use super::{Body, PendingProbe, Step, Stream, Undo};
use crate::cache::{ResidencyCache, Verdict};
use crate::congestion::Delay;
use crate::conn::{Held, ObjectId, Part, Span, Want, WantSeq};
use crate::limits::{FETCHED_MAX, READ_BYTES_MAX, SEND_BYTES_MAX, UNTAKEN_US, WINDOW_BYTES};
use crate::send::Supply;
use crate::units::Instant;
use crate::why::Why;
use crate::worker::redate::is_moved;

impl Stream {
    /// Drops the fetched pieces: they will not be sent from where they are. A want behind them is dropped, too, since
    /// it would leave a gap.
    pub(super) fn drop_fetched(&mut self) {
        self.undo.slots |= self.fetched.iter().any(|(_, held)| *held == Held::Slots);
        self.fetched.clear();
        let at_bytes = self.body_at_bytes();
        let behind = |want: &mut Want| want.span.offset_bytes > at_bytes;
        self.undo.want |= self.want.take_if(behind).is_some();
    }

    pub(super) fn body_step(
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

    /// A stream that reads from the disk always has a want for the bytes after those that it has; the disk machine
    /// decides when it is due. The want gets a new deadline when the client becomes faster or slower.
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
                // Read for somebody else. Far ahead it may be evicted before it is sent.
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
        self.probe = Some(PendingProbe {
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
        self.seq = self.seq.next();
        self.tell(Want {
            stream: self.id,
            object,
            span,
            dry_at,
            rate_bytes_per_s: supply.rate_bytes_per_s,
            seq: self.seq,
            answers: self.answers,
            signals: self.signals,
            absent,
        })
    }

    /// The same want with a new deadline, if the change is worth telling the disk machine.
    fn redate(&mut self, told: Want, supply: &Supply, now: Instant) -> Option<Want> {
        let dry_at = self.dry_at(told.span.offset_bytes, supply, now);
        let (answers, signals) = (self.answers, self.signals);
        // Like a request already given to the kernel: the worker never postpones it, only the disk machine may.
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
            answers,
            signals,
            ..anew
        }))
    }

    fn tell(&mut self, want: Want) -> Want {
        self.want = Some(want);
        want
    }

    /// Its path is congested. `false`: it has no want that this could change.
    pub(in crate::worker) fn congested(&mut self) -> bool {
        self.signals = self.signals.wrapping_add(1);
        self.want.is_some()
    }

    /// Whether the disk machine has a want of this stream now.
    pub(in crate::worker) fn wants(&self) -> bool {
        self.want.is_some()
    }

    /// Whether the stream has ever had a want.
    pub(in crate::worker) fn reads_from_disk(&self) -> bool {
        self.seq != WantSeq::default()
    }

    /// Whether an answer to the want of this number is awaited. Late answers, to any other number, are void.
    pub(in crate::worker) fn awaits(&self, seq: WantSeq) -> bool {
        self.want.is_some_and(|want| want.seq == seq)
    }

    /// Whether the current want begins exactly here. A want that others' reads have overtaken is not waited for.
    fn waits_at(&self, at_bytes: u64) -> bool {
        let here = |want: Want| want.span.offset_bytes == at_bytes;
        self.fetched.is_empty() && self.want.is_some_and(here)
    }

    /// When the stream runs dry, if it has all bytes before `from_bytes`. While a client's rate is unknown, read ahead
    /// for it no more than a third of what it has taken: it may take nothing more, and thousands of such clients would
    /// fill the pool.
    fn dry_at(&self, from_bytes: u64, supply: &Supply, now: Instant) -> Instant {
        let ahead_bytes = from_bytes.saturating_sub(self.body_at_bytes());
        if supply.rate_bytes_per_s == 0 && supply.full && ahead_bytes >= self.sent_bytes / 3 {
            return now.plus_us(UNTAKEN_US);
        }
        supply.dry_at(ahead_bytes, now)
    }

    fn fetch(&mut self, end_bytes: u64, held: Held) {
        match self.fetched.last_mut() {
            Some((end, before)) if *before == held => *end = end_bytes,
            _ => self.fetched.push((end_bytes, held)),
        }
    }

    /// The answer to a probe: how many bytes from the start of the span are in memory. If that is not all of them, the
    /// rest becomes a want, which is returned.
    pub(in crate::worker) fn probed(
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
            self.drop_fetched(); // dropped from the page cache before it was sent, if it was there
        }
        let rest = to_end(span.offset_bytes, end_bytes);
        Some(self.want(object, rest, true, supply, now))
    }

    /// The disk machine answered a want: these bytes, from its start, are in memory. `false`: nobody waits for them.
    pub(in crate::worker) fn filled(
        &mut self,
        seq: WantSeq,
        span: Span,
        held: Held,
        residency_cache: &mut ResidencyCache,
        now: Instant,
    ) -> bool {
        let Some(want) = self.want.take_if(|want| want.seq == seq) else {
            return false;
        };
        self.answers = self.answers.wrapping_add(1);
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

    /// The disk machine answered: not even the first byte of the want can be read. `false`: nobody waits for the
    /// answer.
    pub(in crate::worker) fn unfilled(&mut self, seq: WantSeq, why: Why) -> bool {
        let Some(want) = self.want.take_if(|want| want.seq == seq) else {
            return false;
        };
        self.answers = self.answers.wrapping_add(1);
        self.broken = Some((want.span.offset_bytes, why));
        true
    }

    /// Bytes that were to be sent from the page cache are not in memory: evicted, or somebody else is still reading
    /// them.
    pub(in crate::worker) fn missing(&mut self, residency_cache: &mut ResidencyCache) {
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

    /// Drop all fetched pieces and the want, since the client does not read. `false` if there were none.
    pub(in crate::worker) fn let_go(&mut self) -> bool {
        let held = !self.fetched.is_empty() || self.want.is_some();
        self.fetched.clear();
        (self.want, self.undo) = (None, Undo::default());
        held
    }
}

fn to_end(offset_bytes: u64, end_bytes: u64) -> Span {
    Span {
        offset_bytes,
        len_bytes: end_bytes.saturating_sub(offset_bytes),
    }
}

/// From `offset_bytes` to the end of its window or to `end_bytes`, whichever comes first.
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
