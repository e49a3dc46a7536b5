//! The disk machine: which read goes to the device next, and how long it is. All data of files is read through it.
//!
//! There is no queue of requests, so TPF's EDRC has nothing to remove: each stream has one want, for the bytes that follow
//! those it has. A want becomes a read when it is due ([`crate::prefetch`]), in the order of the device
//! (`disk/scheduler.rs`), as soon as memory and the queue depth allow it (`disk/room.rs`). Its length is computed at that
//! moment. Until then a stream that ends costs nothing, and one that slows down is simply due later.
//!
//! Bytes for one reader are read past the page cache into slots of a pool of fixed size: a one-time download displaces
//! nothing. Where a file is popular, or several read at one place, they are read through the page cache, window by window,
//! once for all (`disk/flights.rs`).

mod arriving;
mod decisions;
mod delay;
mod flights;
mod messages;
mod objects;
mod reading;
mod room;
mod scheduler;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use self::decisions::Journal;
pub use self::decisions::{DeviceState, JOURNAL_BYTES};
pub use self::delay::Delayed;
use self::flights::{Flight, Landed, common};
pub use self::messages::{Destination, In, Out, ReadError, ReadId, Settings};
use self::objects::Objects;
pub use self::objects::{Extent, Layout};
use self::reading::Reader;
pub use self::reading::STREAM_BYTES;
use self::room::has_underrun;
pub use self::scheduler::Order;
use self::scheduler::{Position, ReaderId, Scheduler};
use crate::conn::{Held, Span, StreamId, Want};
use crate::limits::{BYPASSES_MAX, RATE_BYTES_PER_S_MAX};
use crate::machine::Machine;
use crate::model::Model;
use crate::prefetch::PoolController;
use crate::units::Instant;
use crate::why::{Chosen, Reason};

/// Chooses reads for one device.
pub struct Disk {
    settings: Settings,
    /// How fast the device is, as measured.
    model: Model,
    /// How full the pool of slots is to be.
    pool_controller: PoolController,
    /// The streams that read from the device.
    readers: BTreeMap<ReaderId, Reader>,
    /// What those take together whose rate is known, and how many these are.
    rates_bytes_per_s: u64,
    rates_known: u64,
    /// The files that are read.
    objects: Objects,
    /// The wants that are queued.
    scheduler: Scheduler,
    /// The reads in the device.
    flights: Vec<Flight>,
    /// Reads that are done, and hold slots for which their reader has not asked yet (`disk/arriving.rs`).
    resting: Vec<Flight>,
    /// Look-ups of names that need the device now.
    look_ups: u32,
    /// Slots of the pool that are taken.
    slots_used: u32,
    /// Slots that the next read lacks.
    slots_lacking: u32,
    /// Bypass count: reads in a row that went before a want whose turn it was. It lacked slots, or waited for a first
    /// read (`holds_back`).
    bypassed: u32,
    /// Orders that go before the next read.
    outs: VecDeque<Out>,
    /// The number of the last read, or of a reader that left.
    next: u64,
    /// How congestion has put wants off.
    delayed: Delayed,
    /// Until then nothing is read into the page cache, which lacked memory.
    past_cache_until: Instant,
    /// When the levels were last compared with those of the last decisions.
    observed_at: Instant,
    /// The last decisions, for operators.
    journal: Journal,
}

impl Disk {
    /// A device that nobody reads from.
    pub fn new(settings: Settings) -> Disk {
        let mut disk = Disk {
            settings,
            model: Model::new(settings.rotational),
            pool_controller: PoolController::default(),
            readers: BTreeMap::new(),
            rates_bytes_per_s: 0,
            rates_known: 0,
            objects: Objects::new(settings.memory_bytes, settings.page_cache_bytes),
            scheduler: Scheduler::new(settings.order),
            flights: Vec::new(),
            resting: Vec::new(),
            look_ups: 0,
            slots_used: 0,
            slots_lacking: 0,
            bypassed: 0,
            outs: VecDeque::new(),
            next: 0,
            delayed: Delayed::default(),
            past_cache_until: Instant { us: 0 },
            observed_at: Instant { us: 0 },
            journal: Journal::new(0, 0, settings.memory_bytes),
        };
        let (target_us, (reads, _)) = (disk.target_us(), disk.depth());
        disk.journal = Journal::new(target_us, reads, settings.memory_bytes);
        disk
    }

    /// Whether nothing is queued, read or to be ordered. A stream that waits for its file's layout does not count.
    pub fn idle(&self) -> bool {
        self.flights.is_empty() && self.outs.is_empty() && self.scheduler.is_empty()
    }

    /// Streams whose want is neither answered nor at work in a read, a layout or the scheduler: lost wakeups, which never occur.
    /// For asserts.
    pub fn forgotten(&self) -> Vec<StreamId> {
        let forgotten = self.readers.iter().filter(|(id, reader)| {
            let flies = |flight: &Flight| flight.waiters.contains(id);
            let at_work = reader.answered.is_some()
                || reader.position.is_some()
                || self.flights.iter().any(flies);
            !at_work && !self.objects.waits_for_layout(reader.want.object, **id)
        });
        forgotten.map(|(_, reader)| reader.want.stream).collect()
    }

    /// What is known of the device.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// T_D now.
    pub fn target_us(&self) -> u64 {
        self.settings.prefetch.target_us(&self.load(), &self.model)
    }

    /// Queues a want, or lets it join a read under way. Ignores one that is older than the present one, or that was sent before
    /// the worker took our answer. A want with the same number has only a new deadline.
    fn want(&mut self, mut want: Want, now: Instant) {
        want.rate_bytes_per_s = want.rate_bytes_per_s.min(RATE_BYTES_PER_S_MAX);
        let id = ReaderId::of(want.stream);
        match self.readers.get(&id) {
            Some(reader) if want.stream.is_before(reader.want.stream) => return,
            Some(reader) if reader.want.stream == want.stream => {
                let before = reader.want.seq;
                if want.seq.is_before(before) {
                    return;
                }
                if want.seq == before && reader.answered.is_some() {
                    return;
                }
                if reader.want.object != want.object {
                    self.objects.leave(reader.want.object, id);
                    self.objects.enter(id, &want, now);
                }
            }
            _ => {
                self.leave(id, now);
                self.enter(id, want, now);
            }
        }
        let congested = self.congested(id, &want, now);
        self.renew(id, want);
        if let Some(standing) = congested {
            self.delay(id, &standing, now);
        }
        if self.take_rest(id, Some(&want), now) {
            return;
        }
        match self.join_flight(id, &want) {
            Some(nth) => self.hand_on(nth, Some(id), now),
            None => self.enqueue(id),
        }
    }

    /// A stream is gone, and those before it in its slot. One that came after it stays.
    fn forget(&mut self, stream: StreamId, now: Instant) {
        let id = ReaderId::of(stream);
        let stays = |reader: &Reader| stream.is_before(reader.want.stream);
        if !self.readers.get(&id).is_some_and(stays) {
            self.leave(id, now);
        }
    }

    /// This reader is gone, if there is one.
    fn leave(&mut self, id: ReaderId, now: Instant) {
        let Some(reader) = self.readers.remove(&id) else {
            return;
        };
        self.remove_rate(reader.want.rate_bytes_per_s);
        self.objects.leave(reader.want.object, id);
        if let Some(position) = reader.position {
            self.scheduler.remove(id, position);
        }
        for flight in &mut self.flights {
            flight.waiters.retain(|waiter| *waiter != id);
        }
        self.take_rest(id, None, now);
        self.cancel_abandoned();
        let due = matches!(
            reader.position,
            Some(Position::Due(_) | Position::DueRest(..) | Position::Urgent(_))
        );
        if due && !self.settings.cancel {
            self.read_uncancelled(reader.want, now);
        }
    }

    /// Queues a want, once it is known where its file lies.
    fn enqueue(&mut self, id: ReaderId) {
        let Some(object) = self.readers.get(&id).map(|reader| reader.want.object) else {
            return;
        };
        let mut ask = false;
        if !self.objects.is_mapped(object, id, &mut ask) {
            if ask {
                self.outs.push_back(Out::Map(object));
            }
            return;
        }
        if let Some(entry) = self.entry(id) {
            let position = self.scheduler.add(&entry);
            self.set_position(id, position);
        }
    }

    /// The best want becomes a read, if the device and the pool have room for it.
    fn choose(&mut self, now: Instant) -> Option<Out> {
        let waited = core::mem::take(&mut self.slots_lacking) > 0;
        let read = self.choose_candidate(now);
        if self.slots_lacking > 0 && !waited {
            self.pool_controller.short();
        }
        read
    }

    /// Makes wants due, and tries the two that are first ([`Scheduler::candidates`]).
    fn choose_candidate(&mut self, now: Instant) -> Option<Out> {
        if !self.has_room() {
            return None;
        }
        let target_us = self.target_us();
        // A stream is due when its bytes last for less than half of T_D ([`crate::prefetch`]).
        let horizon = now.plus_us(target_us / 2);
        while let Some(id) = self.scheduler.next_due(horizon, now) {
            let from = self.readers.get(&id).and_then(|reader| reader.position);
            let (Some(entry), Some(from)) = (self.entry(id), from) else {
                break;
            };
            let position = self.scheduler.make_due(&entry, from, now);
            self.set_position(id, position);
        }
        let holds_back = self.holds_back();
        let candidates = self.scheduler.candidates();
        let mut passed = false;
        for id in candidates.into_iter().flatten() {
            let reader = self.readers.get(&id)?;
            let (position, is_first) = (reader.position?, reader.nth() == 0);
            // The first candidate may be passed over so often: while its slots are lacking, or while a first read in the device
            // holds it back.
            let patient = self.bypassed < BYPASSES_MAX;
            if holds_back && patient && !matches!(position, Position::Urgent(_)) {
                passed = true;
                continue;
            }
            if passed && holds_back && !is_first {
                return None; // a first read goes before one whose turn it is, a short rest does not
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

    /// The want of this reader becomes a read, unless its slots are lacking.
    fn read_for(&mut self, id: ReaderId, target_us: u64, now: Instant) -> Option<Out> {
        let reader = self.readers.get(&id)?;
        let (want, nth, position) = (reader.want, reader.nth(), reader.position?);
        let path = self.read_path(id, &want, now);
        let (span, into, bound) = self.length(&want, nth, path, target_us, now)?;
        let chosen = Chosen {
            reason: match position {
                _ if id.is_gone() => Reason::Left,
                Position::Urgent(_) if nth > 0 => Reason::Rest,
                Position::Urgent(_) => Reason::First,
                _ if has_underrun(&want, now) => Reason::Late,
                _ => Reason::Due,
            },
            bound,
            len_bytes: span.len_bytes,
            margin_us: want.underrun_at.since_us(now),
            target_us,
            rate_bytes_per_s: want.rate_bytes_per_s,
            took_us: 0,
        };
        Some(self.read(id, (position, chosen), span, into, now))
    }

    /// Orders this read for this reader: its want leaves the scheduler, and readers whose next bytes it brings join.
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
            urgent: matches!(chosen.reason, Reason::First),
            chosen: (id, chosen, now),
            waiters: alloc::vec![id],
            came_bytes: 0,
            handed_bytes: 0,
        };
        match into {
            Destination::Slots(slots) => {
                self.slots_used += slots;
                self.adjust_pool(id, now);
                flight.held = Held::Slots;
            }
            Destination::PageCache => self.join(&mut flight),
        }

        self.objects.read(object, span.len_bytes, flight.held);
        self.model.begun(idle, now);
        self.flights.push(flight);
        Out::Read {
            read,
            object,
            span,
            into,
        }
    }

    /// A read completed. An unknown number is void.
    fn done(&mut self, read: ReadId, result: Result<u64, ReadError>, now: Instant) {
        let Some(nth) = self.flights.iter().position(|flight| flight.read == read) else {
            return;
        };
        let flight = self.flights.swap_remove(nth);
        self.model.done(flight.span.len_bytes, now);
        let landed = flight.land(result, now);
        let Some(flight) = self.rest(flight, &landed) else {
            return;
        };
        for id in flight.waiters {
            if self.has_answer(id) {
                continue; // a part of the read was its answer
            }
            if id.is_gone() {
                self.leave(id, now);
            } else {
                self.answer(id, &landed);
            }
        }
    }

    /// A stream that waited for the read gets its bytes, or the error. If the bytes that it wants were not tried, it is
    /// scheduled for a read of its own.
    fn answer(&mut self, id: ReaderId, landed: &Landed) {
        let Some(reader) = self.readers.get_mut(&id) else {
            return;
        };
        let want = reader.want;
        let Some(out) = landed.answer(id, &want) else {
            return self.enqueue(id);
        };
        let there = common(want.span, landed.span);
        reader.answered = Some(there.map_or(want.span.offset_bytes, |span| span.end_bytes()));
        self.outs.push_back(out);
    }
}

impl Machine for Disk {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        match event {
            In::Want(want) => self.want(want, now),
            In::Forget(stream) => self.forget(stream, now),
            In::Mapped {
                object,
                layout,
                direct,
            } => self.mapped(object, layout, direct),
            In::Begun { read, object, span } => self.begun(read, object, span, now),
            In::Part { read, len_bytes } => self.part(read, len_bytes, now),
            In::Done { read, result } => self.done(read, result, now),
            In::NoMemory(read) => self.no_memory(read, now),
            In::Freed(slots) => self.slots_used = self.slots_used.saturating_sub(slots),
            In::LookUps(look_ups) => self.look_ups = look_ups,
            In::Budget { memory_bytes } => self.settings.memory_bytes = memory_bytes,
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        self.observe(now);
        self.outs.pop_front().or_else(|| self.choose(now))
    }

    /// When the next want becomes due, if the device has room for it.
    fn deadline(&self) -> Option<Instant> {
        if !self.outs.is_empty() {
            return Some(Instant { us: 0 });
        }
        let look_at = (!self.readers.is_empty()).then(|| self.observes_at());
        let has_room = self.has_room() && self.slots_lacking == 0;
        let due_at = has_room
            .then(|| self.scheduler.next_at(self.target_us() / 2))
            .flatten();
        [due_at, look_at].into_iter().flatten().min()
    }
}
