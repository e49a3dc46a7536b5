//! The I/O scheduler of a device: which want is read next. A [`Want`](crate::conn::Want) asks for the bytes that follow those
//! which a stream has. Each reader has one want at most; a reader is a stream, or one that left where reads are not
//! cancelled ([`ReaderId`]).
//!
//! | a want is | in the order of | until |
//! |---|---|---|
//! | later: the bytes that its stream has last for a while | [`QueuedWant::due_at`] | [`Scheduler::make_due`] |
//! | due | [`Order`] | [`Scheduler::take`]: it becomes a read |
//! | urgent: the first one of a stream, or the short rest of a response that is due | [`Order`] | [`Scheduler::take`] |
//!
//! [`Scheduler::remove`] takes a want from any of them, when its stream ends or wants something else.
//!
//! The caller makes wants due some time ahead of `due_at`, so that a sweep reaches them before their streams run dry
//! ([`crate::prefetch`]).
//!
//! Urgent wants go first: a client sees nothing before its first bytes, and one that needs little more should not wait for
//! several sweeps ([`SHORT_REST_BYTES`](crate::limits::SHORT_REST_BYTES)). But they cost a seek each, and streams that are
//! due run dry meanwhile: after [`URGENT_IN_A_ROW_MAX`] of them one due want has its turn.

use alloc::collections::BTreeSet;

use super::ReaderId;
use crate::limits::URGENT_IN_A_ROW_MAX;
use crate::units::Instant;

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
    /// By its `due_at`.
    Later(Instant),
    /// Due, by its key in the order.
    Due(Key),
    /// Urgent, likewise.
    Urgent(Key),
}

/// C-LOOK: the sweep, and the position in it. Other orders: their sort key, then the order of arrival.
type Key = (u64, u64);

/// The queued wants of one device.
pub(super) struct Scheduler {
    /// The order of what is due.
    order: Order,
    /// The wants by where they are queued (see above), first the one that is next.
    later: BTreeSet<(Instant, ReaderId)>,
    due: BTreeSet<(Key, ReaderId)>,
    urgent: BTreeSet<(Key, ReaderId)>,
    /// The number of the current sweep over the device.
    sweep: u64,
    /// Where the sweep is on the device. Urgent reads move the arm but not this: else the sweep would pass over all wants
    /// between, and they would wait for the next one.
    swept_to_bytes: u64,
    /// Wants that became due so far: the order of arrival.
    arrivals: u64,
    /// Urgent wants taken in a row.
    urgent_in_a_row: u32,
}

/// A want as the scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedWant {
    pub reader: ReaderId,
    /// Its deadline: when its stream runs dry, or later if congestion put it off (`disk/delay.rs`).
    pub due_at: Instant,
    /// Where its first byte lies on the device.
    pub device_bytes: u64,
    /// The sweep in which the last read for its stream was made; `None`: none was made yet.
    pub served: Option<u64>,
    /// Its stream has received nothing from the device yet: urgent at once.
    pub is_first: bool,
    /// It is the short rest of a response: urgent when it is due.
    pub is_short_rest: bool,
}

impl Scheduler {
    pub fn new(order: Order) -> Scheduler {
        Scheduler {
            order,
            later: BTreeSet::new(),
            due: BTreeSet::new(),
            urgent: BTreeSet::new(),
            sweep: 0,
            swept_to_bytes: 0,
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
            let key = self.key(entry);
            self.urgent.insert((key, entry.reader));
            return Position::Urgent(key);
        }
        self.later.insert((entry.due_at, entry.reader));
        Position::Later(entry.due_at)
    }

    pub fn remove(&mut self, reader: ReaderId, position: Position) {
        match position {
            Position::Later(due_at) => self.later.remove(&(due_at, reader)),
            Position::Due(key) => self.due.remove(&(key, reader)),
            Position::Urgent(key) => self.urgent.remove(&(key, reader)),
        };
    }

    /// The later want with the earliest `due_at`, if that is at `horizon` or before. The caller gives it to
    /// [`Scheduler::make_due`].
    pub fn next_due(&self, horizon: Instant) -> Option<ReaderId> {
        let (_, reader) = self.later.first().filter(|(at, _)| *at <= horizon)?;
        Some(*reader)
    }

    /// When [`Scheduler::next_due`] will find a want again, if its horizon is always `ahead_us` from now.
    pub fn next_at(&self, ahead_us: u64) -> Option<Instant> {
        let (at, _) = self.later.first()?;
        Some(Instant {
            us: at.us.saturating_sub(ahead_us),
        })
    }

    /// Moves a want from the later ones to the due ones, or to the urgent ones.
    pub fn make_due(&mut self, entry: &QueuedWant) -> Position {
        self.later.remove(&(entry.due_at, entry.reader));
        let key = self.key(entry);
        if entry.is_short_rest {
            self.urgent.insert((key, entry.reader));
            return Position::Urgent(key);
        }
        self.due.insert((key, entry.reader));
        Position::Due(key)
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
        if let Position::Due((sweep, _)) = position {
            if self.order == Order::CLook {
                (self.sweep, self.swept_to_bytes) = (sweep, end_bytes);
            }
        }
        self.sweep
    }

    /// Where a want goes in the order of what is due.
    fn key(&mut self, entry: &QueuedWant) -> Key {
        match self.order {
            Order::CLook => {
                let is_passed = entry.device_bytes < self.swept_to_bytes;
                let is_served = entry.served == Some(self.sweep);
                let waits_for_next = is_passed || is_served;
                (self.sweep + u64::from(waits_for_next), entry.device_bytes)
            }
            Order::Deadline => {
                self.arrivals += 1; // of equal deadlines the oldest goes first
                (entry.due_at.us, self.arrivals)
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
            due_at: Instant { us: 0 },
            device_bytes,
            served,
            is_first: false,
            is_short_rest: false,
        }
    }

    #[test]
    fn a_sweep_goes_one_way_and_starts_again() {
        let mut scheduler = Scheduler::new(Order::CLook);
        let mut positions = BTreeMap::new();
        for (n, at) in [(1, 500), (2, 100), (3, 900)] {
            let entry = entry(n, at, None);
            scheduler.add(&entry);
            positions.insert(entry.reader, scheduler.make_due(&entry));
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
                scheduler.add(&late);
                positions.insert(late.reader, scheduler.make_due(&late));
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
            scheduler.add(&due);
            positions.insert(due.reader, scheduler.make_due(&due));
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
                scheduler.add(&entry);
                positions.insert(entry.reader, scheduler.make_due(&entry));
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
                scheduler.add(&again);
                positions.insert(reader, scheduler.make_due(&again));
            }
        }
    }
}
