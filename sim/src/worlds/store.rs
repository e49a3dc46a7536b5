//! A disk thread and what it serves: the disk machine on a modelled device, a page cache, files that may change, and the
//! slots that are lent to responses.

mod cache;
mod faults;

use std::collections::{BTreeMap, VecDeque};

use ackpace_core::Machine;
use ackpace_core::conn::{Held, ObjectId, Span, StreamId};
use ackpace_core::disk::{self, Disk, Extent, Layout, ReadError, ReadId};
use ackpace_core::limits::SLOT_BYTES;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::In;

use self::cache::PageCache;
use self::faults::Files;
pub use self::faults::{Fault, Faults};
use super::laws::{Lease, Leases};
use crate::models::array::Device;
use crate::models::disk::profile::Profile;
use crate::models::disk::request::{Kind, Request};

/// A read in the device.
#[derive(Clone, Copy)]
pub(super) struct ReadInFlight {
    pub object: ObjectId,
    pub span: Span,
    /// Slots that it fills; 0: it goes into the page cache.
    pub slots: u32,
}

/// Reads submitted to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// How many.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Bytes of reads for clients that had left.
    pub dead_read_bytes: u64,
}

/// Parts in which a read's bytes arrive.
const PARTS: u64 = 3;

/// Slots of a read that nobody has been given yet.
struct LandedSlots {
    slots: u32,
    /// The offset in the file of their first byte.
    from_bytes: u64,
}

impl LandedSlots {
    /// Those that hold the bytes up to this one; the next byte is in another slot.
    fn hand_on(&mut self, until_bytes: u64) -> u32 {
        let slots = (until_bytes - self.from_bytes).div_ceil(SLOT_BYTES) as u32;
        self.from_bytes = until_bytes;
        assert!(slots <= self.slots, "more slots than the read has");
        self.slots -= slots;
        slots
    }
}

/// The disk machine, and what it orders about.
pub(super) struct Store {
    pub disk: Disk,
    pub device: Device,
    pub cached: PageCache,
    pub files: Files,
    file_bytes: u64,
    /// From one file's first byte on the device to the next one's.
    each_bytes: u64,
    faults: Faults,
    /// Whether bytes arrive one after the other.
    arriving: bool,
    pub in_flight: BTreeMap<ReadId, ReadInFlight>,
    /// The slots of reads that have ended, as long as nobody has them.
    landed: BTreeMap<ReadId, LandedSlots>,
    pub leases: Leases,
    /// Slots of the pool that are taken.
    pub slots: u32,
    /// Size of the pool now.
    memory_bytes: u64,
    /// What the disk thread has told the worker.
    pub answers: VecDeque<In>,
    /// Number of clients of each file that have not left.
    pub alive: Vec<u32>,
    /// When counting of reads begins.
    pub counted_from: Instant,
    pub counted: Reads,
    pub read_by_file_bytes: Vec<u64>,
    pub pool_max_bytes: u64,
}

impl Store {
    /// An idle disk with an empty page cache of this size, and `files` files, spread evenly, each of this length.
    pub fn new(
        disk: disk::Settings,
        profile: &Profile,
        page_cache_bytes: u64,
        files: u32,
        file_bytes: u64,
    ) -> Store {
        let device = Device::new(profile);
        Store {
            disk: Disk::new(disk),
            cached: PageCache::new(page_cache_bytes),
            files: Files::new(files, file_bytes),
            file_bytes,
            each_bytes: device.size_bytes() / u64::from(files.max(1)) / 4096 * 4096,
            device,
            faults: Faults::default(),
            arriving: disk.arriving,
            in_flight: BTreeMap::new(),
            landed: BTreeMap::new(),
            leases: Leases::default(),
            slots: 0,
            memory_bytes: disk.memory_bytes,
            answers: VecDeque::new(),
            alive: vec![0; files as usize],
            counted_from: Instant { us: 0 },
            counted: Reads::default(),
            read_by_file_bytes: vec![0; files as usize],
            pool_max_bytes: 0,
        }
    }

    /// What will go wrong.
    pub fn set_faults(&mut self, faults: Faults) {
        self.device.set_bad(&faults.bad);
        self.faults = faults;
    }

    /// When something happens next by itself.
    pub fn next_at(&self) -> Option<Instant> {
        let fault = self.faults.timed.first().map(|(at, _)| *at);
        [fault, self.disk.deadline(), self.next_read_done()]
            .into_iter()
            .flatten()
            .min()
    }

    /// When the next read ends.
    pub fn next_read_done(&self) -> Option<Instant> {
        let ns = self.device.next_ns()?;
        let us = ns.div_ceil(1_000);
        Some(Instant { us })
    }

    pub fn on(&mut self, event: disk::In, now: Instant) {
        self.disk.on(event, now);
    }

    /// The faults that are due by now.
    pub fn inject(&mut self, now: Instant) {
        while self.faults.timed.first().is_some_and(|(at, _)| *at <= now) {
            match self.faults.timed.remove(0).1 {
                Fault::Hangs => self.device.hang(now.us * 1_000),
                Fault::Resumes => self.device.resume(now.us * 1_000),
                Fault::Truncated { file, len_bytes } => self.files.change(file, Some(len_bytes)),
                Fault::Written { file } => self.files.change(file, None),
                Fault::Evicted => self.cached.clear(),
                Fault::Pool { memory_bytes } => {
                    self.memory_bytes = memory_bytes;
                    self.on(disk::In::Budget { memory_bytes }, now);
                }
            }
        }
    }

    /// Ends the reads that are done by now, and begins others.
    pub fn reads_done(&mut self, now: Instant) {
        while let Some(done) = self.device.complete(now.us * 1_000) {
            self.read_done(ReadId(done.request.id), done.failed, now);
        }
        self.turn(now);
    }

    fn read_done(&mut self, read: ReadId, failed: bool, now: Instant) {
        let Some(flight) = self.in_flight.get(&read).copied() else {
            return;
        };
        let (file, span) = (flight.object.index, flight.span);
        // What is behind the end of the file is not asked of the device.
        let there_bytes = self
            .files
            .there_bytes(file, span.offset_bytes, span.len_bytes);
        let bad_bytes = failed.then(|| self.first_bad_bytes(flight.object, span));
        let bad_bytes = bad_bytes.filter(|bad| *bad < span.offset_bytes + there_bytes);
        let good_bytes = bad_bytes.map_or(there_bytes, |bad| bad - span.offset_bytes);
        if flight.slots > 0 {
            let landed = LandedSlots {
                slots: flight.slots,
                from_bytes: span.offset_bytes,
            };
            self.landed.insert(read, landed);
        } else {
            let len_bytes = good_bytes;
            self.cached.fill(file, Span { len_bytes, ..span });
        }
        let result = match bad_bytes {
            Some(offset_bytes) => {
                self.files.fail(file);
                let errno = 5;
                Err(ReadError {
                    errno,
                    offset_bytes,
                })
            }
            None => Ok(there_bytes),
        };
        // An origin's bytes arrive one after the other.
        for nth in 1..PARTS * u64::from(self.arriving) {
            let len_bytes = good_bytes * nth / PARTS;
            self.on(disk::In::Part { read, len_bytes }, now);
            self.turn(now);
        }
        self.in_flight.remove(&read);
        self.on(disk::In::Done { read, result }, now);
        self.turn(now);
        if !self.disk.rests(read) {
            self.give_up(read, now);
        }
    }

    /// Executes what the disk machine orders now.
    pub fn turn(&mut self, now: Instant) {
        while let Some(out) = self.disk.poll(now) {
            match out {
                disk::Out::Map(object) => {
                    let extent = Extent {
                        file_bytes: 0,
                        device_bytes: self.device_bytes(object),
                        len_bytes: self.file_bytes,
                    };
                    let mapped = disk::In::Mapped {
                        object,
                        layout: Layout::new(vec![extent]),
                        direct: true,
                    };
                    self.on(mapped, now);
                }
                disk::Out::Read {
                    read,
                    object,
                    span,
                    into,
                } => self.read(read, object, span, into, now),
                disk::Out::Cancel(read) => {
                    if !self.in_flight.contains_key(&read) {
                        self.give_up(read, now);
                    }
                }
                disk::Out::Fetched {
                    read,
                    stream,
                    seq,
                    span,
                    held,
                    chosen,
                } => {
                    if let Some(landed) = self.landed.get_mut(&read).filter(|_| held == Held::Slots)
                    {
                        let slots = landed.hand_on(span.end_bytes());
                        self.leases.lend(stream, Lease { span, slots });
                    }
                    if !self.in_flight.contains_key(&read) && !self.disk.rests(read) {
                        self.give_up(read, now); // one slot is more than its bytes need
                    }
                    self.answers.push_back(In::Fetched {
                        stream,
                        seq,
                        span,
                        held,
                        chosen,
                    });
                }
                disk::Out::Failed { stream, seq, error } => {
                    let why = match error.errno {
                        0 => Why::FileChanged,
                        _ => Why::ReadFailed,
                    };
                    self.answers.push_back(In::FetchFailed { stream, seq, why });
                }
            }
        }
    }

    /// Returns slots to the pool one by one, as their bytes are sent.
    pub fn release(&mut self, stream: StreamId, before_bytes: u64, now: Instant) {
        let freed = self.leases.take_back(stream, before_bytes);
        if freed > 0 {
            self.free(freed, now);
        }
    }

    /// Frees the slots of a read that nobody was given.
    fn give_up(&mut self, read: ReadId, now: Instant) {
        if let Some(landed) = self.landed.remove(&read) {
            self.free(landed.slots, now);
        }
    }

    fn free(&mut self, slots: u32, now: Instant) {
        self.slots -= slots;
        self.on(disk::In::Freed(slots), now);
    }

    /// The first byte of a file's range that can't be read: its offset in the file. The range's end if all can.
    fn first_bad_bytes(&self, object: ObjectId, span: Span) -> u64 {
        let start_bytes = self.device_bytes(object) + span.offset_bytes;
        let end_bytes = start_bytes + span.len_bytes;
        let bad = self.faults.bad.iter();
        let bad = bad.filter(|bad| bad.end > start_bytes && bad.start < end_bytes);
        let first = bad.map(|bad| bad.start.max(start_bytes)).min();
        first.unwrap_or(end_bytes) - start_bytes + span.offset_bytes
    }

    fn device_bytes(&self, object: ObjectId) -> u64 {
        u64::from(object.index) * self.each_bytes
    }

    fn read(
        &mut self,
        read: ReadId,
        object: ObjectId,
        span: Span,
        into: disk::Destination,
        now: Instant,
    ) {
        let slots = match into {
            disk::Destination::Slots(slots) => slots,
            disk::Destination::PageCache => 0,
        };
        self.slots += slots;
        if now >= self.counted_from {
            let file = object.index as usize;
            self.counted.reads += 1;
            self.counted.read_bytes += span.len_bytes;
            self.read_by_file_bytes[file] += span.len_bytes;
            let dead = self.alive[file] == 0;
            self.counted.dead_read_bytes += if dead { span.len_bytes } else { 0 };
        }
        let pool_bytes = u64::from(self.slots) * SLOT_BYTES;
        assert!(
            slots == 0 || pool_bytes <= self.memory_bytes,
            "more slots than the pool has"
        );
        self.pool_max_bytes = self.pool_max_bytes.max(pool_bytes);
        let request = Request {
            id: read.0,
            offset_bytes: self.device_bytes(object) + span.offset_bytes,
            len_bytes: span.len_bytes,
            kind: Kind::Read,
        };
        self.device.submit(now.us * 1_000, request);
        let flight = ReadInFlight {
            object,
            span,
            slots,
        };
        self.in_flight.insert(read, flight);
    }
}
