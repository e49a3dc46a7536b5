//! The disk machine: which read goes to the device next, and how long it is. All data of files is read through it.
//!
//! There is no queue of requests, so TPF's EDRC has nothing to remove: each stream has one want, for the bytes that follow
//! those it has. A want becomes a read (`disk/choice.rs`) when it is due ([`crate::prefetch`]), in the order of the device
//! (`disk/scheduler.rs`), as soon as memory and the queue depth allow it. Its length is computed at that moment. Until
//! then a stream that ends costs nothing, and one that slows down is simply due later.
//!
//! Bytes that nobody else will come for soon are read past the page cache into slots of a pool of fixed size: a one-time
//! download displaces nothing. Where another reader follows near by, or a file is popular, they are read through the page
//! cache, window by window, once for all (`disk/sharing.rs`, by what the page cache holds: `disk/page_cache.rs`).

mod choice;
mod chosen;
mod completion;
mod decisions;
mod delay;
mod layout;
mod load;
mod messages;
mod objects;
mod page_cache;
mod progress;
mod reader;
mod reading;
mod scheduler;
mod sharing;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

pub use self::chosen::{Chosen, Reason};
use self::decisions::Journal;
pub use self::decisions::{DeviceChange, DeviceDecision, DeviceState, JOURNAL_BYTES, ReadPath};
pub use self::delay::Delayed;
pub use self::layout::{Extent, Layout};
pub use self::messages::{Destination, In, Out, ReadError, ReadId, Settings};
use self::objects::{Begins, Objects};
use self::page_cache::PageCacheModel;
use self::reader::{ReaderId, is_before};
use self::reading::Reader;
pub use self::reading::STREAM_BYTES;
pub use self::scheduler::Order;
use self::scheduler::{Entry, Position, Scheduler};
use crate::conn::{Held, ObjectId, Span, StreamId, Want};
use crate::depth::{Depth, DepthBound};
use crate::limits::{
    RATE_BYTES_PER_S_MAX, READS_IN_FLIGHT_MIN, SHORT_REST_BYTES, SLOT_BYTES, WAKE_US,
};
use crate::machine::Machine;
use crate::model::Model;
use crate::prefetch::PoolController;
use crate::units::Instant;

/// A read in the device and who waits for it.
struct Flight {
    read: ReadId,
    object: ObjectId,
    span: Span,
    held: Held,
    /// The first one of its stream.
    urgent: bool,
    /// For whom it was chosen first, why, and when.
    chosen: (ReaderId, Chosen, Instant),
    waiters: Vec<ReaderId>,
}

/// Chooses reads for one device. See the module.
pub struct Disk {
    settings: Settings,
    model: Model,
    pool_controller: PoolController,
    readers: BTreeMap<ReaderId, Reader>,
    /// What those take together whose rate is known, and how many these are.
    rates_bytes_per_s: u64,
    rates_known: u64,
    objects: Objects,
    page_cache: PageCacheModel,
    /// What all readers together bring into the page cache, by their rates.
    filled_bytes_per_s: u64,
    scheduler: Scheduler,
    flights: Vec<Flight>,
    look_ups: u32,
    slots_used: u32,
    /// Slots that the next read lacks.
    slots_lacking: u32,
    /// Bypass count: reads in a row made before one whose turn it was, which lacked slots or was held back.
    bypassed: u32,
    depth: Depth,
    /// Since the last read came back the device had room, and no stream was due.
    unasked: bool,
    outs: VecDeque<Out>,
    next: u64,
    delayed: Delayed,
    /// When each want was last checked for work under way, and how many had none (lost wakeups).
    checked_at: Instant,
    mended: u64,
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
            objects: Objects::new(settings.memory_bytes),
            page_cache: PageCacheModel::new(settings.page_cache_bytes, settings.memory_bytes),
            filled_bytes_per_s: 0,
            scheduler: Scheduler::new(settings.order),
            flights: Vec::new(),
            look_ups: 0,
            slots_used: 0,
            slots_lacking: 0,
            bypassed: 0,
            depth: Depth::new(settings.rotational, settings.spindles),
            unasked: false,
            outs: VecDeque::new(),
            next: 0,
            delayed: Delayed::default(),
            checked_at: Instant { us: 0 },
            mended: 0,
            journal: Journal::new(0, 0, settings.memory_bytes),
        };
        let (target_us, (reads, _)) = (disk.target_us(), disk.settled_reads());
        disk.journal = Journal::new(target_us, reads, settings.memory_bytes);
        disk
    }

    /// Whether nothing is queued, read or to be ordered. A stream that waits for its file's layout does not count.
    pub fn idle(&self) -> bool {
        self.flights.is_empty() && self.outs.is_empty() && self.scheduler.is_empty()
    }

    /// Slots that must come free before the next read can be made; 0: it waits for something else.
    pub fn slots_lacking(&self) -> u32 {
        self.slots_lacking
    }

    /// What is known of the device.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// T_D now.
    pub fn target_us(&self) -> u64 {
        self.settings.prefetch.target_us(&self.load(), &self.model)
    }

    /// K: reads that the device gets at once. They shall not be all that fits into memory.
    pub fn reads_max(&self) -> usize {
        match self.settings.reads {
            Some(reads) => reads as usize,
            None => self.depth.reads().min(self.reads_in_memory_max()),
        }
    }

    /// K but for a trial, and what sets it.
    fn settled_reads(&self) -> (usize, DepthBound) {
        if let Some(reads) = self.settings.reads {
            return (reads as usize, DepthBound::Setting);
        }
        let most = self.reads_in_memory_max();
        match self.depth.settled() {
            (reads, _) if reads > most => (most, DepthBound::Memory),
            settled => settled,
        }
    }

    /// Reads of the present length that take a quarter of the memory.
    fn reads_in_memory_max(&self) -> usize {
        let most = self.settings.memory_bytes / 4 / self.depth.mean_read_bytes().max(1);
        (most as usize).max(READS_IN_FLIGHT_MIN)
    }

    /// Reads that the device has now.
    pub fn reads_in_flight(&self) -> usize {
        self.flights.len()
    }

    fn slots_max(&self) -> u32 {
        u32::try_from(self.settings.memory_bytes / SLOT_BYTES).unwrap_or(u32::MAX)
    }

    fn want(&mut self, mut want: Want, now: Instant) {
        want.rate_bytes_per_s = want.rate_bytes_per_s.min(RATE_BYTES_PER_S_MAX);
        let id = ReaderId::of(want.stream);
        let (mut answered, mut new) = (None, true);
        match self.readers.get(&id) {
            Some(reader) if is_before(want.stream, reader.want.stream) => return,
            Some(reader) if reader.want.stream == want.stream => {
                let before = reader.want.seq;
                if want.seq.is_before(before) {
                    return;
                }
                if want.seq == before && reader.answered.is_some() {
                    // It was sent before the worker took our answer.
                    if want.dry_at <= now.plus_us(WAKE_US) {
                        self.outs.push_back(Out::Nudge(want.stream));
                    }
                    return;
                }
                (answered, new) = (reader.answered, want.seq != before);
                if reader.want.object != want.object {
                    answered = None;
                    self.objects.leave(reader.want.object, id);
                    self.enter_object(id, &want, now);
                }
            }
            _ => {
                self.leave(id, now);
                self.enter(id, want, now);
            }
        }
        let congested = self.congested(id, &want, now);
        self.renew(id, want);
        if new {
            self.learn(answered, &want, now);
        }
        if let Some(standing) = congested {
            self.delay(id, &standing, now);
        }
        if !self.join_flight(id, &want) {
            self.enqueue(id);
        }
    }

    /// Joins the stream to a read under way that brings what it wants, and to no other; `false`: there is none.
    fn join_flight(&mut self, id: ReaderId, want: &Want) -> bool {
        let mut waits = false;
        for flight in &mut self.flights {
            let waiting = flight.waiters.contains(&id);
            let brings =
                flight.object == want.object && flight.span.contains(want.span.offset_bytes);
            if !waits && brings && (waiting || flight.held == Held::PageCache) {
                waits = true;
                if !waiting {
                    flight.waiters.push(id);
                }
            } else {
                flight.waiters.retain(|waiter| *waiter != id);
            }
        }
        waits
    }

    /// A stream begins to read from this device.
    fn enter(&mut self, id: ReaderId, want: Want, now: Instant) {
        self.enter_object(id, &want, now);
        self.add_rate(want.rate_bytes_per_s);
        self.readers.insert(id, Reader::new(want));
    }

    fn enter_object(&mut self, id: ReaderId, want: &Want, now: Instant) {
        let begins = Begins {
            from_bytes: want.span.offset_bytes,
            anew: want.answers > 0,
            read_bytes: self.page_cache.read_bytes(),
            room_bytes: self.page_cache.bytes(now),
        };
        self.objects.enter(want.object, id, &begins, now);
    }

    /// A stream is gone, and those before it in its slot. One that came after it stays.
    fn forget(&mut self, stream: StreamId, now: Instant) {
        let id = ReaderId::of(stream);
        let stays = |reader: &Reader| is_before(stream, reader.want.stream);
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
        self.filled_bytes_per_s -= reader.filled_bytes_per_s;
        self.objects.leave(reader.want.object, id);
        if let Some(position) = reader.position {
            self.scheduler.remove(id, position);
        }
        for flight in &mut self.flights {
            flight.waiters.retain(|waiter| *waiter != id);
        }
        let due = matches!(
            reader.position,
            Some(Position::Due(_) | Position::Urgent(_))
        );
        if due && !self.settings.cancel {
            self.read_uncancelled(reader.want, now);
        }
    }

    /// Keeps the read of a stream that left, as a server does that cannot cancel its requests.
    fn read_uncancelled(&mut self, want: Want, now: Instant) {
        self.next += 1;
        let id = ReaderId::Left(self.next);
        self.enter(id, want, now);
        self.enqueue(id);
    }

    /// A want is new, or has a new date.
    fn renew(&mut self, id: ReaderId, want: Want) {
        let Some(reader) = self.readers.get_mut(&id) else {
            return;
        };
        let before = core::mem::replace(&mut reader.want, want);
        if reader.answered.take().is_some() || before.dry_at != want.dry_at {
            reader.put_off_to = None; // until the next sample, at most
        }
        if let Some(position) = reader.position.take() {
            self.scheduler.remove(id, position);
        }
        self.remove_rate(before.rate_bytes_per_s);
        self.add_rate(want.rate_bytes_per_s);
        self.refill(id);
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

    fn set_position(&mut self, id: ReaderId, position: Position) {
        if let Some(reader) = self.readers.get_mut(&id) {
            reader.position = Some(position);
        }
    }

    fn entry(&self, id: ReaderId) -> Option<Entry> {
        let reader = self.readers.get(&id)?;
        let Want {
            object,
            span,
            dry_at,
            rate_bytes_per_s,
            ..
        } = reader.want;
        Some(Entry {
            reader: id,
            due_at: reader
                .put_off_to
                .unwrap_or_else(|| self.settings.prefetch.due_at(dry_at, rate_bytes_per_s)),
            device_bytes: self.objects.device_bytes(object, span.offset_bytes),
            served: reader.served,
            urgent: reader.want.answers == 0 && !id.is_gone(),
            short: is_short_rest(&reader.want) && !id.is_gone(),
        })
    }

    fn mapped(&mut self, object: ObjectId, layout: Layout) {
        for id in self.objects.mapped(object, layout) {
            let waits = self.readers.get(&id).is_some_and(|reader| {
                reader.want.object == object
                    && reader.position.is_none()
                    && reader.answered.is_none()
            });
            let flies = self
                .flights
                .iter()
                .any(|flight| flight.waiters.contains(&id));
            if waits && !flies {
                self.enqueue(id);
            }
        }
    }
}

impl Machine for Disk {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        match event {
            In::Want(want) => self.want(want, now),
            In::Forget(stream) => self.forget(stream, now),
            In::Mapped { object, layout } => self.mapped(object, layout),
            In::Done { read, result } => self.done(read, result, now),
            In::Freed(slots) => self.slots_used = self.slots_used.saturating_sub(slots),
            In::LookUps(look_ups) => self.look_ups = look_ups,
            In::Indirect => self.became_indirect(now),
            In::Blind => self.became_blind(now),
            In::Budget { memory_bytes } => self.settings.memory_bytes = memory_bytes,
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        self.assert_sums();
        self.mend(now);
        self.outs.pop_front().or_else(|| self.choose(now))
    }

    /// When the next want becomes due, if the device has room for it.
    fn deadline(&self) -> Option<Instant> {
        if !self.outs.is_empty() {
            return Some(Instant { us: 0 });
        }
        let check_at = (!self.readers.is_empty()).then(|| self.check_at());
        if !self.has_room() || self.slots_lacking > 0 {
            return check_at;
        }
        let due_at = self.scheduler.next_at(self.target_us() / 2);
        [due_at, check_at].into_iter().flatten().min()
    }
}

/// Whether little is left of a response that has begun, and its client took all that it was given: nobody knows how fast it is.
fn is_short_rest(want: &Want) -> bool {
    want.rate_bytes_per_s == 0 && want.span.len_bytes <= SHORT_REST_BYTES
}

/// The first `len_bytes` of a span.
fn first(span: Span, len_bytes: u64) -> Span {
    Span {
        len_bytes: span.len_bytes.min(len_bytes),
        ..span
    }
}
