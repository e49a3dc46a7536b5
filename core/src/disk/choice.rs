//! The choice: whose want becomes a read now, how long it is, and where it goes.

use super::scheduler::Position;
use super::{
    Chosen, Destination, DeviceChange, Disk, Flight, Out, ReadId, ReadPath, ReaderId, Reason, first,
};
use crate::conn::{Held, Span, Want};
use crate::limits::{
    BYPASSES_MAX, FIRST_READ_BYTES, READ_ALIGN_BYTES, READ_BYTES_MIN, READS_IN_FLIGHT_MIN,
    SLOT_BYTES, WINDOW_BYTES,
};
use crate::prefetch::{Bound, ReadNeed};
use crate::units::Instant;

impl Disk {
    /// The best want becomes a read, if the device and the pool have room for it.
    pub(super) fn choose(&mut self, now: Instant) -> Option<Out> {
        let waited = core::mem::take(&mut self.slots_lacking) > 0;
        let read = self.choose_candidate(now);
        if self.slots_lacking > 0 && !waited {
            self.pool_controller.short();
        }
        read
    }

    fn choose_candidate(&mut self, now: Instant) -> Option<Out> {
        if !self.has_room() {
            return None;
        }
        let target_us = self.target_us();
        let horizon = now.plus_us(target_us / 2);
        while let Some(id) = self.scheduler.next_due(horizon) {
            let Some(entry) = self.entry(id) else { break };
            let position = self.scheduler.ripen(&entry);
            self.set_position(id, position);
        }
        let holds_back = self.holds_back();
        let candidates = self.scheduler.candidates();
        self.unasked |= candidates[0].is_none() || holds_back;
        let mut passed = false;
        for id in candidates.into_iter().flatten() {
            let position = self.readers.get(&id)?.position?;
            let patient = self.bypassed < BYPASSES_MAX;
            if holds_back && patient && !matches!(position, Position::Urgent(_)) {
                passed = true;
                continue;
            }
            if let Some(read) = self.read_for(id, target_us, now) {
                self.bypassed = if passed { self.bypassed + 1 } else { 0 };
                return Some(read);
            }
            if !patient {
                return None;
            }
            passed = true;
        }
        None
    }

    /// Whether the device takes one more read. Look-ups are its work, too, but never leave it idle.
    pub(super) fn has_room(&self) -> bool {
        let most = self.reads_max();
        let for_reads = most.saturating_sub(self.look_ups as usize);
        self.flights.len() < for_reads.max(self.enough().min(most))
    }

    /// Whether the sweep waits for a first read, or for the look-up before one: a drive takes whatever is near its arm, and
    /// would leave that one until it is old.
    fn holds_back(&self) -> bool {
        let urgent = self.look_ups > 0 || self.flights.iter().any(|flight| flight.urgent);
        self.settings.rotational && urgent && self.flights.len() >= self.enough()
    }

    /// Reads with which the device is not idle.
    fn enough(&self) -> usize {
        READS_IN_FLIGHT_MIN * self.settings.spindles.max(1) as usize
    }

    fn read_for(&mut self, id: ReaderId, target_us: u64, now: Instant) -> Option<Out> {
        let reader = self.readers.get(&id)?;
        let (want, position) = (reader.want, reader.position?);
        let (read_bytes, bound) =
            (self.settings.prefetch).read_bytes(&self.asked(&want, target_us, now));
        let way = self.way(id, &want, now);
        let (span, into, bound) = match way {
            ReadPath::Followed | ReadPath::Popular | ReadPath::Cached => (
                rest_of_window(want.span),
                Destination::PageCache,
                Bound::Window,
            ),
            ReadPath::Direct => {
                let slots = self.slots_for(want.span, read_bytes)?;
                let whole = (read_bytes / SLOT_BYTES).max(1);
                let short = u64::from(slots) < whole;
                let bound = if short { Bound::Memory } else { bound };
                (in_slots(want.span, slots), Destination::Slots(slots), bound)
            }
            ReadPath::Indirect => (first(want.span, read_bytes), Destination::PageCache, bound),
        };
        self.note_way(id, way, now);
        let ends = span.end_bytes() >= want.span.end_bytes();
        let chosen = Chosen {
            reason: match position {
                _ if id.is_gone() => Reason::Left,
                Position::Urgent(_) => Reason::First,
                _ if is_dry(&want, now) => Reason::Late,
                _ => Reason::Due,
            },
            bound: if ends { Bound::End } else { bound },
            len_bytes: span.len_bytes,
            margin_us: want.dry_at.since_us(now),
            target_us,
            rate_bytes_per_s: want.rate_bytes_per_s,
            took_us: 0,
        };
        Some(self.read(id, (position, chosen), span, into, now))
    }

    /// A stream whose reads take another way than before is told of; its first way goes without saying.
    fn note_way(&mut self, id: ReaderId, to: ReadPath, now: Instant) {
        let Some(reader) = self.readers.get_mut(&id) else {
            return;
        };
        let Want { stream, object, .. } = reader.want;
        let before = reader.way.replace(to);
        if before.is_some_and(|before| before != to) && !id.is_gone() {
            let change = DeviceChange::Way { stream, object, to };
            self.journal.record(change, now);
        }
    }

    /// What the length of a read for a want follows from.
    pub(super) fn asked(&self, want: &Want, target_us: u64, now: Instant) -> ReadNeed {
        let free = self.slots_max().saturating_sub(self.slots_used);
        ReadNeed {
            target_us,
            margin_us: want.dry_at.since_us(now),
            rate_bytes_per_s: self.rate_for(want, now),
            nth: want.answers,
            rest_bytes: want.span.len_bytes,
            most_bytes: self.model.read_bytes_max(),
            free_bytes: u64::from(free) * SLOT_BYTES,
            rates_bytes_per_s: self.load().rates_bytes_per_s,
        }
    }

    /// B_n for a read. Of a stream that stands still nobody knows more than that it is at least so fast: it is
    /// read as much as the others, or it would stay as slow as it was read for.
    pub(super) fn rate_for(&self, want: &Want, now: Instant) -> u64 {
        let mean = self.rates_bytes_per_s.checked_div(self.rates_known);
        let least = mean.filter(|_| is_dry(want, now)).unwrap_or(0);
        want.rate_bytes_per_s.max(least)
    }

    /// Slots for a read of about this length. If memory is short it waits for them, but never with an idle device.
    fn slots_for(&mut self, wanted: Span, read_bytes: u64) -> Option<u32> {
        let ahead_bytes = wanted.offset_bytes % READ_ALIGN_BYTES;
        let slots = |bytes: u64| {
            let slots = bytes.saturating_add(ahead_bytes).div_ceil(SLOT_BYTES);
            u32::try_from(slots).unwrap_or(u32::MAX)
        };
        // Whole slots, rounded down: what is not filled would wait in vain for its last byte.
        let whole = u32::try_from((read_bytes / SLOT_BYTES).max(1)).unwrap_or(u32::MAX);
        let most = (self.slots_max() / 4).max(1);
        let want = whole.min(slots(wanted.len_bytes)).min(most);
        let free = self.slots_max().saturating_sub(self.slots_used);
        if want <= free {
            return Some(want);
        }
        let least = slots(READ_BYTES_MIN.min(wanted.len_bytes));
        if self.flights.is_empty() && least <= free {
            return Some(free);
        }
        let lacking = if self.flights.is_empty() { least } else { want };
        // The first that comes free lets one of the candidates go on.
        self.slots_lacking = match self.slots_lacking {
            0 => lacking - free,
            before => before.min(lacking - free),
        };
        None
    }

    fn read(
        &mut self,
        id: ReaderId,
        (position, chosen): (Position, Chosen),
        span: Span,
        into: Destination,
        now: Instant,
    ) -> Out {
        self.next += 1;
        let (read, idle) = (ReadId(self.next), self.flights.is_empty());
        let object = self.readers[&id].want.object;
        let end_bytes = self.objects.device_bytes(object, span.end_bytes());
        let sweep = self.scheduler.take(id, position, end_bytes);
        if let Some(reader) = self.readers.get_mut(&id) {
            (reader.position, reader.served) = (None, Some(sweep));
        }
        let mut flight = Flight {
            read,
            object,
            span,
            held: Held::PageCache,
            urgent: matches!(position, Position::Urgent(_)),
            chosen: (id, chosen, now),
            waiters: alloc::vec![id],
        };
        match into {
            Destination::Slots(slots) => {
                self.slots_used += slots;
                self.fill_or_not(id, now);
                flight.held = Held::Slots;
            }
            Destination::PageCache => self.join(&mut flight),
        }
        if let Some(reader) = self.readers.get_mut(&id) {
            reader.fills = into == Destination::PageCache;
        }
        self.refill(id);
        self.objects.read(object, span);
        let want = self.readers.get(&id).map(|reader| reader.want);
        if let Some(want) = want.filter(|want| want.rate_bytes_per_s > 0) {
            self.depth.turn(is_dry(&want, now));
        }
        self.model.begun(idle, now);
        self.flights.push(flight);
        Out::Read {
            read,
            object,
            span,
            into,
        }
    }

    /// Where memory bounds the length of reads, it shall be used.
    fn fill_or_not(&mut self, id: ReaderId, now: Instant) {
        let (load, want) = (self.load(), self.readers[&id].want);
        if self.settings.prefetch.lacks_memory(&load, &self.model) {
            let (used, max) = (self.slots_used, self.slots_max());
            self.pool_controller
                .turn(is_dry(&want, now), used, max, load.streams);
        }
    }

    /// All whose next bytes are in the window join its read.
    fn join(&mut self, flight: &mut Flight) {
        for id in self.objects.readers(flight.object) {
            let Some(reader) = self.readers.get_mut(&id) else {
                continue;
            };
            if !flight.span.contains(reader.want.span.offset_bytes) {
                continue;
            }
            if let Some(position) = reader.position.take() {
                reader.fills = false;
                self.scheduler.remove(id, position);
                flight.waiters.push(id);
            }
        }
        let joined = flight.waiters.iter().skip(1);
        joined.for_each(|id| self.refill(*id));
    }
}

/// Whether a stream whose rate is known has nothing left.
fn is_dry(want: &Want, now: Instant) -> bool {
    want.rate_bytes_per_s > 0 && want.dry_at <= now
}

/// From the start of what is wanted to the end of its window.
fn rest_of_window(wanted: Span) -> Span {
    first(wanted, WINDOW_BYTES - wanted.offset_bytes % WINDOW_BYTES)
}

/// What is read into so many slots: from the start of what is wanted, rounded down, as far as they reach or it goes, rounded up.
fn in_slots(wanted: Span, slots: u32) -> Span {
    let offset_bytes = wanted.offset_bytes / READ_ALIGN_BYTES * READ_ALIGN_BYTES;
    let room_bytes = u64::from(slots) * SLOT_BYTES;
    let need_bytes = wanted.end_bytes() - offset_bytes;
    let len_bytes = room_bytes.min(need_bytes.next_multiple_of(READ_ALIGN_BYTES));
    Span {
        offset_bytes,
        len_bytes,
    }
}

const _: () = assert!(FIRST_READ_BYTES % SLOT_BYTES == 0 && SLOT_BYTES % READ_ALIGN_BYTES == 0);
