//! Reads of an origin. Its bytes arrive one after the other, so they are handed on before the read is done, and a read for
//! which nobody waits any more can be ended.
//!
//! What arrives in the page cache is there for all who wait. Slots have one owner, so a reader is given whole ones: the first
//! bytes at once, in a slot that stays partly empty, and then slot by slot.

use super::flights::{Flight, Landed, common};
use super::{Disk, Out, ReadError, ReadId, ReaderId};
use crate::conn::{Held, ObjectId, Span, Want};
use crate::limits::SLOT_BYTES;
use crate::prefetch::LengthBound;
use crate::units::{Instant, KIB, US_PER_S};
use crate::why::{Chosen, Reason};

/// A read for which nobody waits is ended if more than this is to come. Less: it costs less than another connection.
const CANCELLED_BYTES_MIN: u64 = 128 * KIB;

/// How long nothing is read into a page cache that had no memory. Then it is tried again.
const NO_MEMORY_US: u64 = US_PER_S;
/// errno(3): there is no memory.
const ENOMEM: i32 = 12;

impl Disk {
    /// Slots of a lease that a read fills: of several, one makes up for the one that stays partly empty.
    pub(super) fn filled(&self, slots: u32) -> u32 {
        match self.settings.arriving {
            true => (slots - 1).max(1),
            false => slots,
        }
    }

    /// Whether the reader's want is answered, and it has no new one.
    pub(super) fn has_answer(&self, id: ReaderId) -> bool {
        let reader = self.readers.get(&id);
        reader.is_some_and(|reader| reader.answered.is_some())
    }

    /// Whether the reader waits for parts of a read. Nobody hears of those for a stream that left.
    fn waits(&self, id: ReaderId) -> bool {
        !id.is_gone() && !self.has_answer(id)
    }

    /// The shell began a read by itself. Who wants its bytes waits for it.
    pub(super) fn begun(&mut self, read: ReadId, object: ObjectId, span: Span, now: Instant) {
        let chosen = Chosen {
            reason: Reason::First,
            bound: LengthBound::First,
            len_bytes: span.len_bytes,
            margin_us: 0,
            target_us: self.target_us(),
            rate_bytes_per_s: 0,
            took_us: 0,
        };
        self.next += 1;
        let idle = self.flights.is_empty();
        let mut flight = Flight {
            read,
            object,
            span,
            held: Held::PageCache,
            urgent: true,
            chosen: (ReaderId::Left(self.next), chosen, now),
            waiters: alloc::vec![],
            came_bytes: 0,
            handed_bytes: 0,
        };
        self.join(&mut flight);
        self.objects.read(object, span.len_bytes, flight.held);
        self.model.begun(idle, now);
        self.flights.push(flight);
    }

    /// The page cache has no memory for a read. Each who waits for it gets a read of its own, into slots.
    pub(super) fn no_memory(&mut self, read: ReadId, now: Instant) {
        let Some(nth) = self.flights.iter().position(|flight| flight.read == read) else {
            return;
        };
        let flight = self.flights.swap_remove(nth);
        self.past_cache_until = now.plus_us(NO_MEMORY_US);
        for id in flight.waiters {
            if id.is_gone() {
                self.leave(id, now);
            } else if !self.has_answer(id) {
                self.past_cache(id);
            }
        }
    }

    /// A reader whose bytes have no place in the page cache wants slots; one that can't use slots is told.
    fn past_cache(&mut self, id: ReaderId) {
        let Some(reader) = self.readers.get_mut(&id).filter(|it| it.want.through_cache) else {
            return self.enqueue(id);
        };
        let Want {
            stream, seq, span, ..
        } = reader.want;
        let error = ReadError {
            errno: ENOMEM,
            offset_bytes: span.offset_bytes,
        };
        reader.answered = Some(span.offset_bytes);
        self.outs.push_back(Out::Failed { stream, seq, error });
    }

    /// So many bytes from the read's start are there.
    pub(super) fn part(&mut self, read: ReadId, len_bytes: u64, now: Instant) {
        let Some(nth) = self.flights.iter().position(|flight| flight.read == read) else {
            return;
        };
        let flight = &mut self.flights[nth];
        flight.came_bytes = flight.came_bytes.max(len_bytes.min(flight.span.len_bytes));
        self.hand_on(nth, None, now);
    }

    /// Gives what has arrived of a flight to those who wait for it, or to this one of them.
    pub(super) fn hand_on(&mut self, nth: usize, to: Option<ReaderId>, now: Instant) {
        let flight = &mut self.flights[nth];
        if flight.came_bytes == 0 {
            return;
        }
        if flight.held.is_own_memory() {
            return self.hand_slots(nth, now);
        }
        let landed = flight.landed_so_far(now);
        let waiters = core::mem::take(&mut flight.waiters);
        for &id in waiters.iter().filter(|id| to.is_none_or(|to| to == **id)) {
            let reader = self.readers.get(&id).filter(|_| self.waits(id));
            let at_bytes = reader.map(|reader| reader.want.span.offset_bytes);
            if at_bytes.is_some_and(|at_bytes| landed.span.contains(at_bytes)) {
                self.answer(id, &landed);
            }
        }
        self.flights[nth].waiters = waiters;
    }

    /// Gives the slots that are full to the one reader of a flight; at first whatever has come.
    fn hand_slots(&mut self, nth: usize, now: Instant) {
        let flight = &self.flights[nth];
        let Some(&id) = flight.waiters.first().filter(|id| self.waits(**id)) else {
            return;
        };
        let new_bytes = flight.came_bytes - flight.handed_bytes;
        let whole_bytes = match flight.handed_bytes {
            0 if flight.span.len_bytes > SLOT_BYTES => new_bytes,
            _ => new_bytes / SLOT_BYTES * SLOT_BYTES,
        };
        let until_bytes = flight.handed_bytes + whole_bytes;
        let Some(want) = self.readers.get(&id).map(|reader| reader.want) else {
            return;
        };
        let mut landed = flight.landed_so_far(now);
        landed.span = Span {
            offset_bytes: flight.span.offset_bytes + flight.handed_bytes,
            len_bytes: whole_bytes,
        };
        if common(want.span, landed.span).is_none() {
            return;
        }
        self.flights[nth].handed_bytes = until_bytes;
        self.answer(id, &landed);
    }

    /// Whether a read that is done holds slots for which its reader has not asked yet.
    pub fn rests(&self, read: ReadId) -> bool {
        self.resting.iter().any(|flight| flight.read == read)
    }

    /// A read is done. If it is one into slots whose reader has had a part of it and has not asked for more, it rests.
    pub(super) fn rest(&mut self, mut flight: Flight, landed: &Landed) -> Option<Flight> {
        let answered = flight
            .waiters
            .first()
            .is_some_and(|id| self.has_answer(*id));
        let rests =
            answered && flight.held.is_own_memory() && landed.span.len_bytes > flight.handed_bytes;
        if !rests {
            return Some(flight);
        }
        flight.span = landed.span;
        self.resting.push(flight);
        None
    }

    /// The rest of a read that is done is the answer to this want of its reader; or the reader does not want it.
    pub(super) fn take_rest(&mut self, id: ReaderId, want: Option<&Want>, now: Instant) -> bool {
        let of = |flight: &Flight| flight.waiters.contains(&id);
        let Some(nth) = self.resting.iter().position(of) else {
            return false;
        };
        let flight = self.resting.swap_remove(nth);
        let brings = want.is_some_and(|want| {
            flight.object == want.object && flight.to_come().contains(want.span.offset_bytes)
        });
        match brings {
            true => self.answer(id, &flight.land(Ok(flight.span.len_bytes), now)),
            false => self.outs.push_back(Out::Cancel(flight.read)),
        }
        brings
    }

    /// Ends reads into slots for which nobody waits any more.
    pub(super) fn cancel_abandoned(&mut self) {
        if !(self.settings.arriving && self.settings.cancel) {
            return;
        }
        for flight in &mut self.flights {
            let left_bytes = flight.span.len_bytes - flight.came_bytes;
            if flight.waiters.is_empty()
                && flight.held.is_own_memory()
                && left_bytes > CANCELLED_BYTES_MIN
            {
                flight.came_bytes = flight.span.len_bytes; // it is ended once
                self.outs.push_back(Out::Cancel(flight.read));
            }
        }
    }
}
