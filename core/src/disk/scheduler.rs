//! The I/O scheduler of a device: which want is read next. A [`Want`](crate::conn::Want) asks for the bytes that follow those
//! which a stream has. Each reader has one want at most; a reader is a stream, or one that left where reads are not
//! cancelled ([`ReaderId`]).
//!
//! | a want is | in the order of | until |
//! |---|---|---|
//! | later: the bytes that its stream has last for a while | [`QueuedWant::dry_at`] | [`Scheduler::make_due`] |
//! | due | [`Order`] | [`Scheduler::take`]: it becomes a read |
//! | urgent: the first one of a stream, or the short rest of a response, once it is due and its stream is dry | [`Order`] | [`Scheduler::take`] |
//!
//! [`Scheduler::remove`] takes a want from any of them, when its stream ends or wants something else.
//!
//! The caller makes wants due some time ahead of `dry_at`, so that a sweep reaches them before their streams run dry
//! ([`crate::prefetch`]).
//!
//! Urgent wants go first: a client sees nothing before its first bytes, and one that needs little more should not wait for
//! several sweeps ([`SHORT_REST_BYTES`](crate::limits::SHORT_REST_BYTES)). But they cost a seek each, and streams that are
//! due run dry meanwhile: after [`URGENT_IN_A_ROW_MAX`] of them one due want has its turn.

use alloc::collections::BTreeSet;

use crate::conn::StreamId;
use crate::limits::URGENT_IN_A_ROW_MAX;
use crate::units::Instant;

/// Who reads from this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReaderId {
    /// A stream, by its worker and its slot in the table of connections. A slot has one stream at a time: a message of a later
    /// stream supersedes those of earlier ones.
    Stream(u16, u32),
    /// A stream that left and whose read is made all the same (`cancel` off), by a number of its own.
    Left(u64),
}

impl ReaderId {
    /// The reader that this stream is.
    pub fn of(stream: StreamId) -> ReaderId {
        ReaderId::Stream(stream.worker, stream.conn.index)
    }

    /// Whether it is gone, and nobody waits for its read.
    pub fn is_gone(self) -> bool {
        matches!(self, ReaderId::Left(_))
    }
}

/// The order in which wants that are due are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By position on the device, in one direction, from the start again after the end (C-LOOK). Each stream at most
    /// once per sweep.
    CLook,
    /// The stream that runs dry first (EDF). It seeks more than C-LOOK, so where a device is too slow for its streams,
    /// all of them run dry.
    Deadline,
    /// In the order of arrival.
    Arrival,
}

/// Where a want is queued, with its sort key there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// By its `dry_at`.
    Later(Instant),
    /// Due, by its key in the order.
    Due(Key),
    /// The same, and urgent from this time on: the short rest of a response, whose stream runs dry then.
    DueRest(Key, Instant),
    /// Urgent, likewise.
    Urgent(Key),
}

/// C-LOOK: the sweep, and the position in it. Other orders: their sort key, then the order of arrival.
type Key = (u64, u64);

/// C-LOOK's progress: over the device in one direction, and then from the start again.
#[derive(Clone, Copy, Default)]
struct Sweep {
    /// Its number.
    nth: u64,
    /// Where it is on the device.
    swept_to_bytes: u64,
}

impl Sweep {
    /// Where a want goes that begins here. `is_late`: it waits for the next sweep in any case.
    fn key(&self, device_bytes: u64, is_late: bool) -> Key {
        let waits_for_next = device_bytes < self.swept_to_bytes || is_late;
        (self.nth + u64::from(waits_for_next), device_bytes)
    }

    /// The want with this key is read, up to `end_bytes` of the device.
    fn advance(&mut self, (nth, _): Key, end_bytes: u64) {
        (self.nth, self.swept_to_bytes) = (nth, end_bytes);
    }
}

/// The queued wants of one device.
pub(super) struct Scheduler {
    /// The order of what is due.
    order: Order,
    /// The wants by where they are queued (see above), first the one that is next.
    later: BTreeSet<(Instant, ReaderId)>,
    due: BTreeSet<(Key, ReaderId)>,
    urgent: BTreeSet<(Key, ReaderId)>,
    /// Short rests among the due ones, by when their streams run dry.
    rests: BTreeSet<(Instant, ReaderId)>,
    /// The sweep over wants that are due. Urgent reads move the arm but not this: else it would pass over all wants
    /// between, and they would wait for the next one.
    sweep: Sweep,
    /// The sweep over urgent wants. If they were served in the order of the other one, which stands still meanwhile, those
    /// far behind it would wait as long as new ones come before them.
    urgent_sweep: Sweep,
    /// Wants that became due so far: the order of arrival.
    arrivals: u64,
    /// Urgent wants taken in a row.
    urgent_in_a_row: u32,
}

/// A want as the scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedWant {
    pub reader: ReaderId,
    /// When its stream runs dry, or later if congestion put it off (`disk/delay.rs`).
    pub dry_at: Instant,
    /// Where its first byte lies on the device.
    pub device_bytes: u64,
    /// The sweep in which the last read for its stream was made; `None`: none was made yet.
    pub served: Option<u64>,
    /// Its stream has received nothing from the device yet: urgent at once.
    pub is_first: bool,
    /// It is the short rest of a response: when its stream has run dry. Once it is due, it is urgent from then on.
    pub rest_dry_at: Option<Instant>,
}

impl Scheduler {
    pub fn new(order: Order) -> Scheduler {
        Scheduler {
            order,
            later: BTreeSet::new(),
            due: BTreeSet::new(),
            urgent: BTreeSet::new(),
            rests: BTreeSet::new(),
            sweep: Sweep::default(),
            urgent_sweep: Sweep::default(),
            arrivals: 0,
            urgent_in_a_row: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.later.is_empty() && self.due.is_empty() && self.urgent.is_empty()
    }

    /// Adds a want: a first one is urgent, any other waits for [`Scheduler::make_due`].
    pub fn add(&mut self, entry: &QueuedWant) -> Position {
        if entry.is_first {
            return self.add_urgent(entry);
        }
        self.later.insert((entry.dry_at, entry.reader));
        Position::Later(entry.dry_at)
    }

    pub fn remove(&mut self, reader: ReaderId, position: Position) {
        match position {
            Position::Later(dry_at) => self.later.remove(&(dry_at, reader)),
            Position::Due(key) => self.due.remove(&(key, reader)),
            Position::DueRest(key, dry_at) => {
                self.rests.remove(&(dry_at, reader));
                self.due.remove(&(key, reader))
            }
            Position::Urgent(key) => self.urgent.remove(&(key, reader)),
        };
    }

    /// A want to give to [`Scheduler::make_due`]: the later one with the earliest `dry_at`, if that is at `horizon` or
    /// before, or a short rest whose stream has run dry.
    pub fn next_due(&self, horizon: Instant, now: Instant) -> Option<ReaderId> {
        let first = |set: &BTreeSet<(Instant, ReaderId)>, until: Instant| {
            let (_, reader) = set.first().filter(|(at, _)| *at <= until)?;
            Some(*reader)
        };
        first(&self.later, horizon).or_else(|| first(&self.rests, now))
    }

    /// When [`Scheduler::next_due`] will find a later want again, if its horizon is always `ahead_us` from now.
    pub fn next_at(&self, ahead_us: u64) -> Option<Instant> {
        let (at, _) = self.later.first()?;
        Some(Instant {
            us: at.us.saturating_sub(ahead_us),
        })
    }

    /// Moves a want on from its place: to the due ones or, if it is the short rest of a dry stream, to the urgent ones.
    pub fn make_due(&mut self, entry: &QueuedWant, from: Position, now: Instant) -> Position {
        self.remove(entry.reader, from);
        if entry.rest_dry_at.is_some_and(|dry_at| dry_at <= now) {
            return self.add_urgent(entry);
        }
        let is_served = entry.served == Some(self.sweep.nth);
        let key = self.key(self.sweep, is_served, entry); // one turn in a sweep
        self.due.insert((key, entry.reader));
        match entry.rest_dry_at {
            Some(dry_at) => {
                self.rests.insert((dry_at, entry.reader));
                Position::DueRest(key, dry_at)
            }
            None => Position::Due(key),
        }
    }

    /// Adds a want to the urgent ones.
    fn add_urgent(&mut self, entry: &QueuedWant) -> Position {
        let key = self.key(self.urgent_sweep, false, entry);
        self.urgent.insert((key, entry.reader));
        Position::Urgent(key)
    }

    /// The best urgent want and the best due one, the one whose turn it is first. The caller reads the second one instead
    /// if memory for the first is short, or if an urgent read in the device holds the first back (`disk/room.rs`).
    pub fn candidates(&self) -> [Option<ReaderId>; 2] {
        let first = |set: &BTreeSet<(Key, ReaderId)>| set.first().map(|(_, reader)| *reader);
        let (urgent, due) = (first(&self.urgent), first(&self.due));
        if urgent.is_none() || self.urgent_in_a_row >= URGENT_IN_A_ROW_MAX && due.is_some() {
            [due, urgent]
        } else {
            [urgent, due]
        }
    }

    /// Takes a candidate, for which the device is read up to `end_bytes`. Returns the current sweep: the one in which the
    /// stream is served ([`QueuedWant::served`]).
    pub fn take(&mut self, reader: ReaderId, position: Position, end_bytes: u64) -> u64 {
        self.remove(reader, position);
        self.urgent_in_a_row = match position {
            Position::Urgent(_) => self.urgent_in_a_row.saturating_add(1),
            _ => 0,
        };
        if self.order == Order::CLook {
            match position {
                Position::Later(_) => {}
                Position::Due(key) | Position::DueRest(key, _) => {
                    self.sweep.advance(key, end_bytes);
                }
                Position::Urgent(key) => self.urgent_sweep.advance(key, end_bytes),
            }
        }
        self.sweep.nth
    }

    /// Where a want goes in the order of its set.
    fn key(&mut self, sweep: Sweep, is_late: bool, entry: &QueuedWant) -> Key {
        match self.order {
            Order::CLook => sweep.key(entry.device_bytes, is_late),
            Order::Deadline => {
                self.arrivals += 1; // of equal deadlines the oldest goes first
                (entry.dry_at.us, self.arrivals)
            }
            Order::Arrival => {
                self.arrivals += 1;
                (0, self.arrivals)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn slot(reader: ReaderId) -> u32 {
        match reader {
            ReaderId::Stream(_, slot) => slot,
            ReaderId::Left(_) => panic!("all readers of these tests are streams"),
        }
    }

    fn entry(n: u32, device_bytes: u64, served: Option<u64>) -> QueuedWant {
        QueuedWant {
            reader: ReaderId::Stream(0, n),
            dry_at: Instant { us: 0 },
            device_bytes,
            served,
            is_first: false,
            rest_dry_at: None,
        }
    }

    const NOW: Instant = Instant { us: 1_000_000 };

    /// Adds a want that is due at once.
    fn made_due(scheduler: &mut Scheduler, entry: &QueuedWant) -> Position {
        let position = scheduler.add(entry);
        scheduler.make_due(entry, position, NOW)
    }

    #[test]
    fn a_sweep_goes_one_way_and_starts_again() {
        let mut scheduler = Scheduler::new(Order::CLook);
        let mut positions = BTreeMap::new();
        for (n, at) in [(1, 500), (2, 100), (3, 900)] {
            let entry = entry(n, at, None);
            positions.insert(entry.reader, made_due(&mut scheduler, &entry));
        }
        let mut order = Vec::new();
        for round in 0..5 {
            let [Some(reader), None] = scheduler.candidates() else {
                break;
            };
            let position = positions[&reader];
            let Position::Due((_, at)) = position else {
                panic!()
            };
            scheduler.take(reader, position, at + 10);
            order.push(slot(reader));
            if round == 0 {
                let late = entry(4, 50, None); // the sweep has passed it: next time
                positions.insert(late.reader, made_due(&mut scheduler, &late));
            }
        }
        assert_eq!(order, [2, 1, 3, 4]);
    }

    #[test]
    fn urgent_ones_and_the_sweep_take_turns() {
        let mut scheduler = Scheduler::new(Order::CLook);
        let mut positions = BTreeMap::new();
        for n in 0..2 {
            let due = entry(n, u64::from(n), None);
            positions.insert(due.reader, made_due(&mut scheduler, &due));
        }
        for n in 0..5 {
            let urgent = QueuedWant {
                is_first: true,
                ..entry(10 + n, 0, None)
            };
            positions.insert(urgent.reader, scheduler.add(&urgent));
        }
        let mut order = Vec::new();
        while let Some(reader) = scheduler.candidates()[0] {
            scheduler.take(reader, positions[&reader], 0);
            order.push(slot(reader));
        }
        assert_eq!(order, [10, 11, 12, 13, 0, 14, 1]);
    }

    #[test]
    fn an_urgent_want_waits_for_one_round_however_many_come_after_it() {
        const WAITING: u32 = 20;
        let mut scheduler = Scheduler::new(Order::CLook);
        let mut positions = BTreeMap::new();
        let first = |n: u32| QueuedWant {
            is_first: true,
            ..entry(n, u64::from(n % WAITING) * 100, None)
        };
        // The sweep stands behind all of them.
        let swept = entry(WAITING, 10_000, None);
        let position = made_due(&mut scheduler, &swept);
        scheduler.take(swept.reader, position, 10_100);
        for n in 0..WAITING {
            positions.insert(first(n).reader, scheduler.add(&first(n)));
        }
        let mut order = Vec::new();
        for n in 0..WAITING {
            let reader = scheduler.candidates()[0].unwrap();
            let position = positions[&reader];
            let end_bytes = u64::from(slot(reader) % WAITING) * 100 + 50;
            scheduler.take(reader, position, end_bytes);
            order.push(slot(reader));
            // Each time one comes to the place that was served.
            let new = first(1000 * WAITING + n);
            positions.insert(new.reader, scheduler.add(&new));
        }
        assert_eq!(order, (0..WAITING).collect::<Vec<_>>());
    }

    #[test]
    fn a_due_rest_is_urgent_once_it_is_dry_and_leaves_nothing_behind() {
        let mut scheduler = Scheduler::new(Order::CLook);
        let dry_at = NOW.plus_us(1000);
        let rest = QueuedWant {
            rest_dry_at: Some(dry_at),
            ..entry(1, 500, None)
        };
        let position = made_due(&mut scheduler, &rest);
        assert!(matches!(position, Position::DueRest(..)), "{position:?}");
        assert_eq!(scheduler.next_due(NOW, NOW), None);
        assert_eq!(scheduler.next_due(NOW, dry_at), Some(rest.reader));
        let position = scheduler.make_due(&rest, position, dry_at);
        assert!(matches!(position, Position::Urgent(_)), "{position:?}");
        assert_eq!(scheduler.next_due(dry_at, dry_at), None);
        assert_eq!(scheduler.candidates(), [Some(rest.reader), None]);
        scheduler.remove(rest.reader, position);
        assert!(scheduler.is_empty());
    }

    proptest! {
        /// Streams that are always due again: none is read for twice in a sweep, and none waits for more than two
        /// sweeps.
        #[test]
        fn each_is_read_once_in_a_sweep(places in prop::collection::vec(0u64..1 << 30, 1..40), len in 1u64..1 << 22) {
            let mut scheduler = Scheduler::new(Order::CLook);
            let mut positions = BTreeMap::new();
            let mut at: Vec<u64> = places;
            for (n, device_bytes) in at.iter().enumerate() {
                let entry = entry(n as u32, *device_bytes, None);
                positions.insert(entry.reader, made_due(&mut scheduler, &entry));
            }
            let mut served: BTreeMap<u32, u64> = BTreeMap::new();
            let streams = at.len();
            let mut last_turn = vec![0usize; streams];
            for turn in 0..streams * 6 {
                let reader = scheduler.candidates()[0].expect("all are due");
                let n = slot(reader) as usize;
                at[n] += len;
                let sweep = scheduler.take(reader, positions[&reader], at[n]);
                prop_assert_ne!(served.insert(slot(reader), sweep), Some(sweep), "twice in a sweep");
                prop_assert!(turn - last_turn[n] <= 2 * streams, "starved");
                last_turn[n] = turn;
                let again = entry(slot(reader), at[n], Some(sweep));
                positions.insert(reader, made_due(&mut scheduler, &again));
            }
        }
    }
}
