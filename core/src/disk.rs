//! The disk machine: which read goes to the device next. Only it reads.
//!
//! Today: first come, first served, at most [`READS_IN_FLIGHT_MAX`] windows in the device at once.
//! There is no queue of requests: a wish stays a wish until a place in the device is free, so a
//! client that left costs no read (TPF 3.3), and streams that wish for the same window share one read.

use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::conn::{Held, ObjectId, Span, StreamId, Want};
use crate::limits::{READS_IN_FLIGHT_MAX, WINDOW_BYTES};
use crate::machine::Machine;
use crate::units::Instant;

/// Number of a read, unique in one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId(pub u64);

/// Where and how a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The `errno` of the system call.
    pub errno: i32,
    /// The first byte that could not be read.
    pub offset_bytes: u64,
}

/// What the machine is told.
#[derive(Clone, Copy, Debug)]
pub enum In {
    /// A stream wishes for bytes; replaces its earlier wish.
    Want(Want),
    /// A stream is gone: it, and the earlier ones of its connection's place, wish for nothing more.
    Forget(StreamId),
    /// A read came back after `service_us` in the device.
    Done {
        /// Which.
        read: ReadId,
        /// Whether the bytes are there. A file that ends early is no error here: who sends notices.
        result: Result<(), ReadError>,
        /// Time from order to completion.
        service_us: u64,
    },
}

/// What the machine orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Read `span` of `object` into the page cache.
    Read {
        /// Name of the read for its `Done`.
        read: ReadId,
        /// The file.
        object: ObjectId,
        /// The bytes, inside one window.
        span: Span,
    },
    /// Tell the stream that its wish is fulfilled.
    Filled {
        /// Who wished.
        stream: StreamId,
        /// What it wished for.
        span: Span,
        /// Where the bytes are.
        held: Held,
        /// The stream stands still for lack of them: wake its worker. Otherwise the worker finds
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
}

/// Chooses reads for one device. See the module.
#[derive(Default)]
pub struct Disk {
    /// Wishes without a read, by age.
    wishes: BTreeMap<u64, Want>,
    /// The age of the wish of each connection's place.
    ages: BTreeMap<Place, u64>,
    flights: Vec<Flight>,
    outs: VecDeque<Out>,
    next: u64,
}

/// A worker and a place in its table of connections, which has one stream at a time: news of a
/// later stream speaks for the earlier ones too.
type Place = (u16, u32);

fn place(stream: StreamId) -> Place {
    (stream.worker, stream.conn.index)
}

/// A read in the device and who waits for it.
struct Flight {
    read: ReadId,
    object: ObjectId,
    span: Span,
    waiters: Vec<Want>,
}

impl Flight {
    fn covers(&self, want: &Want) -> bool {
        self.object == want.object && self.span.covers(want.span)
    }
}

impl Disk {
    /// Whether nothing is wished for, read or to be told.
    pub fn idle(&self) -> bool {
        let quiet = self.flights.is_empty() && self.outs.is_empty();
        quiet && self.wishes.is_empty() && self.ages.is_empty()
    }

    fn want(&mut self, want: Want) {
        let age = self.ages.get(&place(want.stream)).copied();
        let repeated = age.filter(|age| {
            self.wishes
                .get(age)
                .is_some_and(|old| same_window(old, &want))
        });
        if let Some(age) = repeated {
            // Its place is kept: hurry is no reason to overtake in a fair queue.
            self.wishes.insert(age, want);
            return;
        }
        self.clear(place(want.stream));
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.covers(&want)) {
            flight.waiters.push(want);
            return;
        }
        self.next += 1;
        self.ages.insert(place(want.stream), self.next);
        self.wishes.insert(self.next, want);
    }

    fn clear(&mut self, gone: Place) {
        if let Some(age) = self.ages.remove(&gone) {
            self.wishes.remove(&age);
        }
        for flight in &mut self.flights {
            flight.waiters.retain(|want| place(want.stream) != gone);
        }
    }

    fn done(&mut self, read: ReadId, result: Result<(), ReadError>, now: Instant) {
        let Some(at) = self.flights.iter().position(|flight| flight.read == read) else {
            return;
        };
        for Want {
            stream,
            span,
            dry_at,
            ..
        } in self.flights.swap_remove(at).waiters
        {
            self.outs.push_back(match result {
                Ok(()) => Out::Filled {
                    stream,
                    span,
                    held: Held::PageCache,
                    urgent: dry_at <= now,
                },
                Err(error) => Out::Failed { stream, error },
            });
        }
    }

    /// The oldest wish becomes a read of its window's rest; all wishes that it covers join.
    fn choose(&mut self) -> Option<Out> {
        if self.flights.len() >= READS_IN_FLIGHT_MAX {
            return None;
        }
        let (_, want) = self.wishes.first_key_value()?;
        self.next += 1;
        let mut flight = Flight {
            read: ReadId(self.next),
            object: want.object,
            span: want.span,
            waiters: Vec::new(),
        };
        self.wishes.retain(|_, wish| {
            let joins = flight.covers(wish);
            if joins {
                flight.waiters.push(*wish);
            }
            !joins
        });
        for waiter in &flight.waiters {
            self.ages.remove(&place(waiter.stream));
        }
        let order = Out::Read {
            read: flight.read,
            object: flight.object,
            span: flight.span,
        };
        self.flights.push(flight);
        Some(order)
    }
}

impl Machine for Disk {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        match event {
            In::Want(want) => self.want(want),
            In::Forget(stream) => self.clear(place(stream)),
            In::Done {
                read,
                result,
                service_us: _,
            } => self.done(read, result, now),
        }
    }

    fn poll(&mut self, _now: Instant) -> Option<Out> {
        self.outs.pop_front().or_else(|| self.choose())
    }

    fn deadline(&self) -> Option<Instant> {
        None // a wish waits for nothing but a place in the device
    }
}

fn same_window(a: &Want, b: &Want) -> bool {
    a.object == b.object && a.span.offset_bytes / WINDOW_BYTES == b.span.offset_bytes / WINDOW_BYTES
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::conn::ConnId;

    const NOW: Instant = Instant { us: 5_000 };

    fn stream(index: u32) -> StreamId {
        StreamId {
            worker: 0,
            conn: ConnId {
                index,
                generation: 0,
            },
            nth: 0,
        }
    }

    fn want(index: u32, file: u32, window: u64) -> Want {
        let object = ObjectId {
            device: 0,
            index: file,
            generation: 0,
        };
        let span = Span {
            offset_bytes: window * WINDOW_BYTES,
            len_bytes: WINDOW_BYTES,
        };
        Want {
            stream: stream(index),
            object,
            span,
            dry_at: NOW,
        }
    }

    fn orders(disk: &mut Disk) -> Vec<Out> {
        std::iter::from_fn(|| disk.poll(NOW)).collect()
    }

    fn read_of(out: &Out) -> ReadId {
        match out {
            Out::Read { read, .. } => *read,
            other => panic!("expected a read, got {other:?}"),
        }
    }

    fn done(read: ReadId, result: Result<(), ReadError>) -> In {
        In::Done {
            read,
            result,
            service_us: 1,
        }
    }

    #[test]
    fn the_device_never_holds_more_than_its_places() {
        let mut disk = Disk::default();
        for n in 0..20 {
            disk.on(In::Want(want(n, n, 0)), NOW);
        }
        let first = orders(&mut disk);
        assert_eq!(first.len(), READS_IN_FLIGHT_MAX);
        disk.on(done(read_of(&first[3]), Ok(())), NOW);
        let next = orders(&mut disk);
        assert_eq!(next.len(), 2, "one answer, one new read: {next:?}");
        assert!(matches!(next[0], Out::Filled { stream: s, urgent: true, .. } if s == stream(3)));
    }

    #[test]
    fn streams_that_wish_for_one_window_share_one_read() {
        let mut disk = Disk::default();
        disk.on(In::Want(want(1, 9, 4)), NOW);
        disk.on(In::Want(want(2, 9, 4)), NOW);
        let first = orders(&mut disk);
        assert_eq!(first.len(), 1);
        disk.on(In::Want(want(3, 9, 4)), NOW);
        assert_eq!(orders(&mut disk), [], "a read under way is joined");
        disk.on(done(read_of(&first[0]), Ok(())), NOW);
        assert_eq!(orders(&mut disk).len(), 3);
    }

    #[test]
    fn nothing_is_read_or_told_to_a_client_that_left() {
        let mut disk = Disk::default();
        for n in 0..10 {
            disk.on(In::Want(want(n, n, 0)), NOW);
        }
        let first = orders(&mut disk);
        for n in 0..10 {
            disk.on(In::Forget(stream(n)), NOW);
        }
        for out in &first {
            disk.on(done(read_of(out), Ok(())), NOW);
        }
        assert_eq!(orders(&mut disk), []);
    }

    #[test]
    fn an_error_reaches_each_waiter_with_its_place() {
        let mut disk = Disk::default();
        disk.on(In::Want(want(1, 9, 4)), NOW);
        disk.on(In::Want(want(2, 9, 4)), NOW);
        let read = read_of(&orders(&mut disk)[0]);
        let error = ReadError {
            errno: 5,
            offset_bytes: 4 * WINDOW_BYTES + 8192,
        };
        disk.on(done(read, Err(error)), NOW);
        let told = [1, 2].map(|n| Out::Failed {
            stream: stream(n),
            error,
        });
        assert_eq!(orders(&mut disk), told);
    }

    #[test]
    fn a_repeated_wish_keeps_its_place_and_a_new_one_goes_to_the_end() {
        let mut disk = Disk::default();
        for n in 0..10 {
            disk.on(In::Want(want(n, n, 0)), NOW);
        }
        let first = orders(&mut disk);
        disk.on(In::Want(want(8, 8, 0)), NOW); // again
        disk.on(done(read_of(&first[0]), Ok(())), NOW);
        let object = |out: &Out| matches!(out, Out::Read { object, .. } if object.index == 8);
        assert!(
            orders(&mut disk).iter().any(object),
            "stream 8 was next and stays next"
        );
    }

    proptest! {
        /// Whatever happens: places are kept, every living wish is answered once, the dead hear nothing.
        #[test]
        fn every_living_wish_is_answered_once(steps in prop::collection::vec((0u32..12, 0u32..3, 0u64..3, 0u8..4), 1..200)) {
            let mut disk = Disk::default();
            let mut open: BTreeMap<StreamId, Want> = BTreeMap::new();
            let mut device: BTreeSet<ReadId> = BTreeSet::new();
            let pump = |disk: &mut Disk, device: &mut BTreeSet<ReadId>, open: &mut BTreeMap<StreamId, Want>| {
                for out in orders(disk) {
                    match out {
                        Out::Read { read, .. } => { device.insert(read); }
                        Out::Filled { stream, span, .. } => {
                            let asked = open.remove(&stream);
                            assert_eq!(asked.map(|w| w.span), Some(span), "answered what nobody asked");
                        }
                        Out::Failed { .. } => unreachable!("no read fails here"),
                    }
                }
                assert!(device.len() <= READS_IN_FLIGHT_MAX);
            };
            for (index, file, window, kind) in steps {
                match kind {
                    0 => { disk.on(In::Forget(stream(index)), NOW); open.remove(&stream(index)); }
                    1 => if let Some(read) = device.pop_first() { disk.on(done(read, Ok(())), NOW); },
                    _ => { let w = want(index, file, window); disk.on(In::Want(w), NOW); open.insert(w.stream, w); }
                }
                pump(&mut disk, &mut device, &mut open);
            }
            while let Some(read) = device.pop_first() {
                disk.on(done(read, Ok(())), NOW);
                pump(&mut disk, &mut device, &mut open);
            }
            prop_assert!(open.is_empty(), "never answered: {open:?}");
        }
    }
}
