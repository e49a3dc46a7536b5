//! The disk machine: which read goes to the device next, and how long it is. Only it reads.
//!
//! There is no queue of requests (TPF's EDRC without one): each stream has one standing wish, for the bytes that follow
//! those it has. A wish becomes a read when it is due ([`crate::prefetch`]), when the arm comes by
//! ([`agenda`]), when memory is free and a place in the device is; its length is found in that moment. Until then,
//! whoever leaves costs nothing, and whoever slows down is simply due later.
//!
//! A file with one reader is read past the page cache into slots of a pool of fixed size: a one-time download
//! displaces nothing. A file with several is read through the page cache, window by window, once for all who wait.

mod agenda;
mod layout;
mod objects;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

pub use self::agenda::Order;
use self::agenda::{Agenda, Entry, Spot};
pub use self::layout::{Extent, Layout};
use self::objects::Objects;
use crate::conn::{Held, ObjectId, Span, StreamId, Want};
use crate::limits::{
    FIRST_READ_BYTES, IN_DEVICE_BYTES, READ_ALIGN_BYTES, READ_BYTES_MIN, READS_IN_FLIGHT_MAX,
    READS_IN_FLIGHT_MIN, READS_PER_SPINDLE_MAX, SLOT_BYTES, WAKE_US, WINDOW_BYTES,
};
use crate::machine::Machine;
use crate::model::Model;
use crate::prefetch::{Lateness, Load, Prefetch};
use crate::units::Instant;

/// What the operator may choose, and what is known of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long reads are.
    pub prefetch: Prefetch,
    /// In which order they are made.
    pub order: Order,
    /// Whether the wishes of those who left are dropped. If not, the due ones are read all the same, as by a server that
    /// has given its requests away.
    pub cancel: bool,
    /// Files with one reader are read past the page cache. If not, all goes through it.
    pub direct: bool,
    /// M, the size of the pool for direct reads; whole slots of it count.
    pub memory_bytes: u64,
    /// It has an arm.
    pub rotational: bool,
    /// How many disks it is made of.
    pub spindles: u32,
}

/// Number of a read, unique in one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// Where and how a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The `errno` of the system call; 0: the file ended before the bytes that were promised.
    pub errno: i32,
    /// The first byte that could not be read.
    pub offset_bytes: u64,
}

/// Where a read goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// The kernel's page cache.
    PageCache,
    /// So many slots of the pool, which are free: the machine counts them.
    Slots(u32),
}

/// What the machine is told.
#[derive(Clone, Debug)]
pub enum In {
    /// A stream wishes for bytes; replaces its earlier wish.
    Want(Want),
    /// A stream is gone: it, and the earlier ones of its connection's place, wish for nothing more.
    Forget(StreamId),
    /// Where a file lies; empty if nobody knows.
    Mapped {
        /// Which.
        object: ObjectId,
        /// Where.
        layout: Layout,
    },
    /// A read came back.
    Done {
        /// Which.
        read: ReadId,
        /// Bytes from its start that are there: fewer than asked for if the file ends. Through the page cache
        /// a file that ends early is no error either: who sends notices.
        result: Result<u64, ReadError>,
    },
    /// So many slots of the pool are free again.
    Freed(u32),
    /// The device can't be read past the page cache.
    Indirect,
    /// The pool has this size from now on.
    Budget {
        /// M.
        memory_bytes: u64,
    },
}

/// What the machine orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Find out where the file lies; answered by `Mapped`, and not waited for by others.
    Map(ObjectId),
    /// Read.
    Read {
        /// Name of the read for its `Done`.
        read: ReadId,
        /// The file.
        object: ObjectId,
        /// The bytes; into slots: multiples of [`READ_ALIGN_BYTES`], beyond the end of the file perhaps.
        span: Span,
        /// Where to.
        into: Into,
    },
    /// Tell the stream that bytes of its wish are there, from its start.
    Filled {
        /// By which read.
        read: ReadId,
        /// Who wished.
        stream: StreamId,
        /// Which bytes.
        span: Span,
        /// Where they are; slots go to this stream.
        held: Held,
        /// The stream stands still for lack of them, or soon will: wake its worker. Otherwise the worker finds
        /// the news when it wakes for another reason.
        urgent: bool,
    },
    /// Tell the stream that its wish can't be fulfilled.
    Failed {
        /// Who wished.
        stream: StreamId,
        /// Why.
        error: ReadError,
    },
    /// The stream stands still and has an answer that its worker has not heard: wake it.
    Nudge(StreamId),
}

/// A worker and a place in its table of connections, which has one stream at a time: news of a
/// later stream speaks for the earlier ones too.
type Place = (u16, u32);

fn place(stream: StreamId) -> Place {
    (stream.worker, stream.conn.index)
}

/// Places of streams that left but are read for (`cancel` off).
const ORPHANS: u16 = u16::MAX;

/// A stream that reads from this device.
struct Reader {
    want: Want,
    /// Where its wish stands; `None`: it waits for its file's layout, or is being read, or is answered.
    spot: Option<Spot>,
    /// Its wish is answered, and it has not wished again.
    answered: bool,
    /// Answers given.
    told: u32,
    /// The sweep in which it was last read.
    served: Option<u64>,
}

/// A read in the device and who waits for it.
struct Flight {
    read: ReadId,
    object: ObjectId,
    span: Span,
    held: Held,
    /// The first one of its stream.
    hurried: bool,
    waiters: Vec<Place>,
}

/// Chooses reads for one device. See the module.
pub struct Disk {
    settings: Settings,
    model: Model,
    late: Lateness,
    readers: BTreeMap<Place, Reader>,
    /// What those take together whose rate is known, and how many these are.
    rates_bytes_per_s: u64,
    rates_known: u64,
    objects: Objects,
    agenda: Agenda,
    flights: Vec<Flight>,
    slots_used: u32,
    /// Slots that the next read lacks.
    slots_lacking: u32,
    /// Mean length of the last reads.
    mean_read_bytes: u64,
    outs: VecDeque<Out>,
    next: u64,
}

impl Disk {
    /// A device that nobody reads from.
    pub fn new(settings: Settings) -> Disk {
        Disk {
            settings,
            model: Model::new(settings.rotational),
            late: Lateness::default(),
            readers: BTreeMap::new(),
            rates_bytes_per_s: 0,
            rates_known: 0,
            objects: Objects::default(),
            agenda: Agenda::new(settings.order),
            flights: Vec::new(),
            slots_used: 0,
            slots_lacking: 0,
            mean_read_bytes: WINDOW_BYTES,
            outs: VecDeque::new(),
            next: 0,
        }
    }

    /// Whether nothing is wished for, read or to be told.
    pub fn idle(&self) -> bool {
        self.flights.is_empty() && self.outs.is_empty() && self.agenda.is_empty()
    }

    /// Slots that must come free before the next read can be made; 0: it waits for something else.
    pub fn slots_lacking(&self) -> u32 {
        self.slots_lacking
    }

    /// What is asked of the device together. Those whose rate is not known yet are taken for as fast as the others: a
    /// crowd that has just come shall not believe that it has the memory to itself.
    pub fn load(&self) -> Load {
        let streams = self.readers.len() as u64;
        let all = u128::from(self.rates_bytes_per_s) * u128::from(streams);
        let all = all.checked_div(self.rates_known.into()).unwrap_or(0);
        Load {
            streams,
            rates_bytes_per_s: u64::try_from(all).unwrap_or(u64::MAX),
            memory_bytes: self.settings.memory_bytes,
            late_percent: self.late.percent(),
        }
    }

    fn add_rate(&mut self, rate_bytes_per_s: u64) {
        self.rates_bytes_per_s += rate_bytes_per_s;
        self.rates_known += u64::from(rate_bytes_per_s > 0);
    }

    fn remove_rate(&mut self, rate_bytes_per_s: u64) {
        self.rates_bytes_per_s -= rate_bytes_per_s;
        self.rates_known -= u64::from(rate_bytes_per_s > 0);
    }

    /// What is known of the device.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// T_D now.
    pub fn target_us(&self) -> u64 {
        self.settings.prefetch.target_us(&self.load(), &self.model)
    }

    /// K: reads that the device gets at once. With long reads one more than it works at; with short ones its own
    /// queue saves positioning.
    pub fn reads_max(&self) -> usize {
        let spindles = self.settings.spindles.max(1) as usize;
        let each = if self.settings.rotational {
            let enough = IN_DEVICE_BYTES.div_ceil(self.mean_read_bytes.max(1)) as usize;
            enough.clamp(READS_IN_FLIGHT_MIN, READS_PER_SPINDLE_MAX)
        } else {
            READS_PER_SPINDLE_MAX
        };
        (each * spindles).min(READS_IN_FLIGHT_MAX)
    }

    /// Reads that the device has now.
    pub fn reads_in_flight(&self) -> usize {
        self.flights.len()
    }

    fn slots_max(&self) -> u32 {
        u32::try_from(self.settings.memory_bytes / SLOT_BYTES).unwrap_or(u32::MAX)
    }

    fn want(&mut self, want: Want, now: Instant) {
        let at = place(want.stream);
        match self.readers.get(&at) {
            Some(reader) if reader.want.stream == want.stream => {
                if want.heard != reader.told {
                    // From before our last answer. It will wish again when it has heard that.
                    if want.dry_at <= now.plus_us(WAKE_US) {
                        self.outs.push_back(Out::Nudge(want.stream));
                    }
                    return;
                }
                if reader.want.object != want.object {
                    self.objects.leave(reader.want.object, at);
                    self.objects.enter(want.object, at, want.heard > 0, now);
                }
            }
            _ => {
                self.leave(at);
                self.enter(at, want, now);
            }
        }
        self.renew(at, want);
        if !self.waits(at, &want) {
            self.stand(at);
        }
    }

    /// Whether a read under way brings what the stream wishes for; it waits for no other.
    fn waits(&mut self, at: Place, want: &Want) -> bool {
        let mut waits = false;
        for flight in &mut self.flights {
            let waiting = flight.waiters.contains(&at);
            let brings =
                flight.object == want.object && flight.span.contains(want.span.offset_bytes);
            if !waits && brings && (waiting || flight.held == Held::PageCache) {
                waits = true;
                if !waiting {
                    flight.waiters.push(at);
                }
            } else {
                flight.waiters.retain(|waiter| *waiter != at);
            }
        }
        waits
    }

    /// A stream begins to read from this device.
    fn enter(&mut self, at: Place, want: Want, now: Instant) {
        self.objects.enter(want.object, at, want.heard > 0, now);
        self.add_rate(want.rate_bytes_per_s);
        let reader = Reader {
            want,
            spot: None,
            answered: false,
            told: want.heard,
            served: None,
        };
        self.readers.insert(at, reader);
    }

    /// The stream of this place is gone, if there is one.
    fn leave(&mut self, at: Place) {
        let Some(reader) = self.readers.remove(&at) else {
            return;
        };
        self.remove_rate(reader.want.rate_bytes_per_s);
        self.objects.leave(reader.want.object, at);
        if let Some(spot) = reader.spot {
            self.agenda.remove(at, spot);
        }
        for flight in &mut self.flights {
            flight.waiters.retain(|waiter| *waiter != at);
        }
        let due = matches!(reader.spot, Some(Spot::Due(_) | Spot::Urgent(_)));
        if due && !self.settings.cancel {
            self.orphan(reader.want);
        }
    }

    /// Read for nobody, as if the request had been given away.
    fn orphan(&mut self, mut want: Want) {
        self.next += 1;
        want.stream.worker = ORPHANS;
        want.stream.conn.index = self.next as u32;
        let at = place(want.stream);
        self.enter(at, want, want.dry_at);
        self.stand(at);
    }

    /// A wish is new, or newly dated.
    fn renew(&mut self, at: Place, want: Want) {
        let Some(reader) = self.readers.get_mut(&at) else {
            return;
        };
        let before = core::mem::replace(&mut reader.want, want);
        reader.answered = false;
        if let Some(spot) = reader.spot.take() {
            self.agenda.remove(at, spot);
        }
        self.remove_rate(before.rate_bytes_per_s);
        self.add_rate(want.rate_bytes_per_s);
    }

    /// Put a wish on the agenda, once it is known where its file lies.
    fn stand(&mut self, at: Place) {
        let Some(object) = self.readers.get(&at).map(|reader| reader.want.object) else {
            return;
        };
        let mut ask = false;
        if !self.objects.is_mapped(object, at, &mut ask) {
            if ask {
                self.outs.push_back(Out::Map(object));
            }
            return;
        }
        if let Some(entry) = self.entry(at) {
            let spot = self.agenda.add(&entry);
            self.set_spot(at, spot);
        }
    }

    fn set_spot(&mut self, at: Place, spot: Spot) {
        if let Some(reader) = self.readers.get_mut(&at) {
            reader.spot = Some(spot);
        }
    }

    fn entry(&self, at: Place) -> Option<Entry> {
        let reader = self.readers.get(&at)?;
        let Want {
            object,
            span,
            dry_at,
            rate_bytes_per_s,
            ..
        } = reader.want;
        Some(Entry {
            place: at,
            due_at: self.settings.prefetch.due_at(dry_at, rate_bytes_per_s),
            device_bytes: self.objects.device_bytes(object, span.offset_bytes),
            served: reader.served,
            urgent: reader.told == 0 && at.0 != ORPHANS,
        })
    }

    fn mapped(&mut self, object: ObjectId, layout: Layout) {
        for at in self.objects.mapped(object, layout) {
            let waits = self.readers.get(&at).is_some_and(|reader| {
                reader.want.object == object && reader.spot.is_none() && !reader.answered
            });
            let flies = self
                .flights
                .iter()
                .any(|flight| flight.waiters.contains(&at));
            if waits && !flies {
                self.stand(at);
            }
        }
    }

    fn done(&mut self, read: ReadId, result: Result<u64, ReadError>, now: Instant) {
        let Some(nth) = self.flights.iter().position(|flight| flight.read == read) else {
            return;
        };
        let flight = self.flights.swap_remove(nth);
        self.model.done(flight.span.len_bytes, now);
        for at in flight.waiters {
            if at.0 == ORPHANS {
                self.leave(at);
                continue;
            }
            let Some(reader) = self.readers.get_mut(&at) else {
                continue;
            };
            let Want {
                stream,
                span: wish,
                dry_at,
                ..
            } = reader.want;
            let there = result.map(|bytes| common(wish, first(flight.span, bytes)));
            (reader.told, reader.answered) = (reader.told.wrapping_add(1), true);
            self.outs.push_back(match there {
                Ok(Some(span)) => Out::Filled {
                    read,
                    stream,
                    span,
                    held: flight.held,
                    urgent: dry_at <= now.plus_us(WAKE_US),
                },
                Ok(None) => Out::Failed {
                    stream,
                    error: ReadError {
                        errno: 0,
                        offset_bytes: wish.offset_bytes,
                    },
                },
                Err(error) => Out::Failed { stream, error },
            });
        }
    }

    /// The best wish becomes a read, if the device and the pool have room for it.
    fn choose(&mut self, now: Instant) -> Option<Out> {
        self.slots_lacking = 0;
        if self.flights.len() >= self.reads_max() {
            return None;
        }
        let target_us = self.target_us();
        let horizon = now.plus_us(target_us / 2);
        while let Some(at) = self.agenda.next_due(horizon) {
            let Some(entry) = self.entry(at) else { break };
            let spot = self.agenda.ripen(&entry);
            self.set_spot(at, spot);
        }
        let holds_back = self.holds_back();
        let candidates = self.agenda.candidates();
        let mut fitting = candidates.into_iter().flatten();
        fitting.find_map(|at| {
            let spot = self.readers.get(&at)?.spot?;
            let waits = holds_back && !matches!(spot, Spot::Urgent(_));
            (!waits).then(|| self.read_for(at, target_us, now))?
        })
    }

    /// Whether the sweep waits for a first read: a drive takes whatever is near its arm, and would leave that one until
    /// it is old.
    fn holds_back(&self) -> bool {
        let enough = READS_IN_FLIGHT_MIN * self.settings.spindles.max(1) as usize;
        let hurried = self.flights.iter().any(|flight| flight.hurried);
        self.settings.rotational && hurried && self.flights.len() >= enough
    }

    fn read_for(&mut self, at: Place, target_us: u64, now: Instant) -> Option<Out> {
        let reader = self.readers.get(&at)?;
        let (want, spot) = (reader.want, reader.spot?);
        let read_bytes = self.settings.prefetch.read_bytes(
            target_us,
            want.dry_at.since_us(now),
            self.rate_for(&want, now),
            reader.told,
        );
        let (span, into) = if self.objects.is_shared(want.object, now) {
            (rest_of_window(want.span), Into::PageCache)
        } else if self.settings.direct {
            let slots = self.slots_for(want.span, read_bytes)?;
            (in_slots(want.span, slots), Into::Slots(slots))
        } else {
            (first(want.span, read_bytes), Into::PageCache)
        };
        Some(self.read(at, spot, span, into, now))
    }

    /// B_n for a read. Of a stream that stands still nobody knows more than that it is at least so fast: it is
    /// read as much as the others, or it would stay as slow as it was read for.
    fn rate_for(&self, want: &Want, now: Instant) -> u64 {
        let dry = want.rate_bytes_per_s > 0 && want.dry_at <= now;
        let mean = self.rates_bytes_per_s.checked_div(self.rates_known);
        let least = mean.filter(|_| dry).unwrap_or(0);
        want.rate_bytes_per_s.max(least)
    }

    /// Slots for a read of about this length. If memory is short it waits for them, but never with an idle device.
    fn slots_for(&mut self, wish: Span, read_bytes: u64) -> Option<u32> {
        let ahead_bytes = wish.offset_bytes % READ_ALIGN_BYTES;
        let slots = |bytes: u64| (bytes + ahead_bytes).div_ceil(SLOT_BYTES) as u32;
        // Whole slots, rounded down: what is not filled would wait in vain for its last byte.
        let whole = (read_bytes / SLOT_BYTES).max(1) as u32;
        let most = (self.slots_max() / 4).max(1);
        let want = whole.min(slots(wish.len_bytes)).min(most);
        let free = self.slots_max().saturating_sub(self.slots_used);
        if want <= free {
            return Some(want);
        }
        let least = slots(READ_BYTES_MIN.min(wish.len_bytes));
        if self.flights.is_empty() && least <= free {
            return Some(free);
        }
        let lacking = if self.flights.is_empty() { least } else { want };
        self.slots_lacking = lacking - free;
        self.late.short_of_memory();
        None
    }

    fn read(&mut self, at: Place, spot: Spot, span: Span, into: Into, now: Instant) -> Out {
        self.next += 1;
        let (read, idle) = (ReadId(self.next), self.flights.is_empty());
        let object = self.readers[&at].want.object;
        let end_bytes = self.objects.device_bytes(object, span.end_bytes());
        let sweep = self.agenda.take(at, spot, end_bytes);
        if let Some(reader) = self.readers.get_mut(&at) {
            (reader.spot, reader.served) = (None, Some(sweep));
        }
        let mut flight = Flight {
            read,
            object,
            span,
            held: Held::PageCache,
            hurried: matches!(spot, Spot::Urgent(_)),
            waiters: alloc::vec![at],
        };
        match into {
            Into::Slots(slots) => {
                self.slots_used += slots;
                flight.held = Held::Slots;
            }
            Into::PageCache => self.join(&mut flight),
        }
        self.late_or_not(at, now);
        self.model.begun(idle, now);
        self.mean_read_bytes = (self.mean_read_bytes * 15 + span.len_bytes) / 16;
        self.flights.push(flight);
        Out::Read {
            read,
            object,
            span,
            into,
        }
    }

    /// Whether a stream whose rate is known was found dry.
    fn late_or_not(&mut self, at: Place, now: Instant) {
        let want = self.readers.get(&at).map(|reader| reader.want);
        if let Some(want) = want.filter(|want| want.rate_bytes_per_s > 0) {
            self.late.turn(want.dry_at <= now);
        }
    }

    /// All whose next bytes are in the window join its read.
    fn join(&mut self, flight: &mut Flight) {
        for at in self.objects.readers(flight.object) {
            let Some(reader) = self.readers.get_mut(&at) else {
                continue;
            };
            if !flight.span.contains(reader.want.span.offset_bytes) {
                continue;
            }
            if let Some(spot) = reader.spot.take() {
                self.agenda.remove(at, spot);
                flight.waiters.push(at);
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
            In::Forget(stream) => self.leave(place(stream)),
            In::Mapped { object, layout } => self.mapped(object, layout),
            In::Done { read, result } => self.done(read, result, now),
            In::Freed(slots) => self.slots_used = self.slots_used.saturating_sub(slots),
            In::Indirect => self.settings.direct = false,
            In::Budget { memory_bytes } => self.settings.memory_bytes = memory_bytes,
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        self.outs.pop_front().or_else(|| self.choose(now))
    }

    /// When the next wish becomes due, if the device has room for it.
    fn deadline(&self) -> Option<Instant> {
        if !self.outs.is_empty() {
            return Some(Instant { us: 0 });
        }
        if self.flights.len() >= self.reads_max() || self.slots_lacking > 0 {
            return None;
        }
        self.agenda.next_at(self.target_us() / 2)
    }
}

/// The first `len_bytes` of a span.
fn first(span: Span, len_bytes: u64) -> Span {
    Span {
        len_bytes: span.len_bytes.min(len_bytes),
        ..span
    }
}

/// What two spans share.
fn common(a: Span, b: Span) -> Option<Span> {
    let offset_bytes = a.offset_bytes.max(b.offset_bytes);
    let end_bytes = a.end_bytes().min(b.end_bytes());
    (offset_bytes < end_bytes).then(|| Span {
        offset_bytes,
        len_bytes: end_bytes - offset_bytes,
    })
}

/// From the start of a wish to the end of its window.
fn rest_of_window(wish: Span) -> Span {
    first(wish, WINDOW_BYTES - wish.offset_bytes % WINDOW_BYTES)
}

/// What is read for a wish into so many slots: from its start, rounded down, as far as they reach or it goes, rounded up.
fn in_slots(wish: Span, slots: u32) -> Span {
    let offset_bytes = wish.offset_bytes / READ_ALIGN_BYTES * READ_ALIGN_BYTES;
    let room_bytes = u64::from(slots) * SLOT_BYTES;
    let need_bytes = wish.end_bytes() - offset_bytes;
    let len_bytes = room_bytes.min(need_bytes.next_multiple_of(READ_ALIGN_BYTES));
    Span {
        offset_bytes,
        len_bytes,
    }
}

const _: () = assert!(FIRST_READ_BYTES % SLOT_BYTES == 0 && SLOT_BYTES % READ_ALIGN_BYTES == 0);
