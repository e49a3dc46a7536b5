//! Reads of objects: ranged GETs whose bytes go into slots for one client, or into the slab for all.

use std::io::IoSliceMut;
use std::sync::Arc;

use ackpace_core::conn::{Held, ObjectId, Span};
use ackpace_core::disk::{Destination, In, ReadError, ReadId};
use ackpace_core::limits::SLOT_BYTES;
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::upstream::{self, Kind, TaskId};
use ackpace_wire::http::ask::AskedRange;
use ackpace_wire::http::fields::Field;
use ackpace_wire::http::{Asked as Method, ContentRange, Response};

use super::receiving::Verdict;
use super::{Job, Upstream};
use crate::clock::unix_ms;
use crate::disk::{ReadBytes, SlotBytes};
use crate::gateway::{Address, Object};
use crate::log::Topic;
use crate::store::pool::Lease;
use crate::store::slab::SlabLease;
use ackpace_core::upstream::Fault;

/// How often a read looks again for room in the slab, in which everything is in use.
pub(super) const ROOM_EACH_US: u64 = 5_000;
/// For how long. Slow clients may hold all segments for minutes; then those who wait for a read get its bytes in slots.
const ROOM_US_MAX: u64 = 200_000;

/// A read under way.
pub(super) struct Reading {
    pub read: ReadId,
    pub object: Arc<Object>,
    /// What it is to bring, inside the object.
    pub span: Span,
    pub into: Into,
    /// Bytes from its start that came.
    pub got_bytes: u64,
    /// Of these, those that came before the present request.
    pub had_bytes: u64,
    pub begun_at: Instant,
    /// Its origin sent all of the object in place of a part of it.
    is_rangeless: bool,
}

/// Where the bytes of a read go.
pub(super) enum Into {
    /// Slots that are not handed on yet; the first byte of the first one is byte `from_bytes` of the read.
    Slots {
        lease: Lease,
        from_bytes: u64,
    },
    Slab(SlabLease),
    /// It waits for room in the slab.
    Postponed,
    /// The tier on disk has the memory, and reads into it.
    Tier,
}

/// Slots that the machine gives to a stream.
struct Landed {
    lease: Lease,
    /// The offset in the object of their first byte.
    from_bytes: u64,
}

impl Reading {
    /// A read of a span that is not empty.
    pub fn new(read: ReadId, object: Arc<Object>, span: Span, into: Into, now: Instant) -> Reading {
        Reading {
            read,
            object,
            span,
            into,
            got_bytes: 0,
            had_bytes: 0,
            begun_at: now,
            is_rangeless: false,
        }
    }

    /// What is to come.
    pub fn rest(&self) -> Span {
        self.span.behind(self.got_bytes)
    }

    /// Asks for what is to come, of this version.
    pub fn request(&self, origin: &Address) -> Result<Vec<u8>, &'static str> {
        let rest = self.rest();
        let range = AskedRange::Span {
            first: rest.offset_bytes,
            last: rest.end_bytes() - 1,
        };
        let (target, condition) = (&self.object.target, self.object.if_range());
        origin.request(Method::Get, target, Some(range), condition)
    }

    /// Whether a response of this origin brings what is to come.
    pub fn head(&mut self, response: &Response<'_>, origin: u16) -> Verdict {
        let rest = self.rest();
        match response.status {
            206 => {
                let range = response.fields().single(Field::ContentRange);
                let range = range.and_then(ContentRange::parse);
                let Some(ContentRange::Part { span, len_bytes }) = range else {
                    return Verdict::Fault(Fault::Bad, "a part without a Content-Range");
                };
                let whole = len_bytes.is_none_or(|len_bytes| len_bytes == self.object.len_bytes);
                if !whole || !self.object.is_of(response) {
                    return Verdict::Changed;
                }
                if span.offset_bytes != rest.offset_bytes || span.len_bytes > rest.len_bytes {
                    return Verdict::Fault(Fault::Bad, "another part than the one asked for");
                }
                Verdict::Take
            }
            // It has no ranges, or this is another version.
            200 if !self.object.is_of(response) => Verdict::Changed,
            200 if rest.offset_bytes == 0 => Verdict::Take,
            200 => {
                self.is_rangeless = true;
                Verdict::Fault(Fault::Bad, "the whole object in place of a part")
            }
            404 | 410 if origin != self.object.origin => Verdict::Fault(
                Fault::Bad,
                "it has nothing where another origin has an object",
            ),
            404 | 410 | 412 | 416 => Verdict::Changed,
            _ => Verdict::Fault(Fault::Bad, "an error in place of a part"),
        }
    }

    /// Memory for the next bytes, at most so many.
    pub fn room(&mut self, most_bytes: u64) -> Vec<IoSliceMut<'_>> {
        let len_bytes = self.rest().len_bytes.min(most_bytes);
        match &mut self.into {
            Into::Slots { lease, from_bytes } => {
                let at_bytes = self.got_bytes - *from_bytes;
                lease.iovecs(at_bytes, len_bytes).into_iter().collect()
            }
            Into::Slab(lease) => lease
                .iovecs(self.got_bytes, len_bytes)
                .into_iter()
                .collect(),
            Into::Postponed | Into::Tier => Vec::new(),
        }
    }

    /// So many bytes came into that memory.
    pub fn came(&mut self, len_bytes: u64) {
        if let Into::Slab(lease) = &mut self.into {
            let came = Span {
                offset_bytes: self.span.offset_bytes + self.got_bytes,
                len_bytes,
            };
            let slab = self.object.slab();
            slab.publish(lease, self.object.id, self.got_bytes, came);
        }
        self.got_bytes += len_bytes;
    }

    /// Copies bytes into that memory; those behind its end are left.
    pub fn copy(&mut self, mut bytes: &[u8]) {
        let mut copied_bytes = 0;
        for mut slice in self.room(bytes.len() as u64) {
            let len = slice.len().min(bytes.len());
            slice[..len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            copied_bytes += len as u64;
        }
        self.came(copied_bytes);
    }

    /// Copies what the slab has from the start of what is to come: the first bytes of an object come there with the answer about
    /// it, and several readers read it whole.
    fn copy_from_slab(&mut self) {
        let object = Arc::clone(&self.object);
        while matches!(self.into, Into::Slots { .. } | Into::Slab(_)) && self.rest().len_bytes > 0 {
            let Some(there) = object.slab().find(object.id, self.rest()) else {
                break;
            };
            self.copy(there.bytes());
        }
        self.had_bytes = self.got_bytes;
    }

    /// Takes the slots that hold the bytes of the read before `until_bytes`: all slots up to there, and the next byte comes into
    /// a new one.
    fn hand_on(&mut self, until_bytes: u64) -> Option<Landed> {
        let Into::Slots { lease, from_bytes } = &mut self.into else {
            return None;
        };
        let first_bytes = self.span.offset_bytes + *from_bytes;
        let slots = (until_bytes - *from_bytes).div_ceil(SLOT_BYTES);
        *from_bytes = until_bytes;
        Some(Landed {
            lease: lease.split_front(slots as u32),
            from_bytes: first_bytes,
        })
    }
}

impl Upstream {
    /// Begins a read that the machine ordered.
    pub(super) fn read(
        &mut self,
        (read, object): (ReadId, ObjectId),
        span: Span,
        into: Destination,
        now: Instant,
    ) {
        let lease = match into {
            Destination::Slots(slots) => self.handle.pool().lease(slots),
            Destination::PageCache => None,
        };
        let object = self
            .objects
            .get(object)
            .filter(|object| !object.is_changed());
        let (Some(object), true) = (object, lease.is_some() || into == Destination::PageCache)
        else {
            let error = ReadError {
                errno: 0,
                offset_bytes: span.offset_bytes,
            };
            let result = Err(error);
            return self.disk.on(In::Done { read, result }, now);
        };
        // Whole slots may reach behind the end of the object.
        let inside = Span {
            len_bytes: (object.len_bytes.saturating_sub(span.offset_bytes)).min(span.len_bytes),
            ..span
        };
        // Another read brought it between the answer to a reader and its next want. All of it: a read that brings less has
        // come to the end of the object, for those who wait for its later bytes.
        if lease.is_none() && object.slab().covers(object.id, inside) {
            let result = Ok(inside.len_bytes);
            return self.disk.on(In::Done { read, result }, now);
        }
        let into = match lease {
            Some(lease) => Into::Slots {
                lease,
                from_bytes: 0,
            },
            None => self.slab_lease(inside.len_bytes),
        };
        let waits = matches!(into, Into::Postponed);
        if waits && self.has_no_memory(read, now, now) {
            return;
        }
        let mut reading = Reading::new(read, object, inside, into, now);
        // What is in a slab lease stays, and the tier may bring all.
        if matches!(reading.into, Into::Slots { .. }) {
            reading.copy_from_slab();
        }
        if reading.rest().len_bytes == 0 {
            return self.filled.push_back(reading);
        }
        if !waits {
            return self.launch(reading, now);
        }
        let task = TaskId(self.number());
        self.jobs.insert(task, Job::Read(reading));
        self.postponed.push_back(task);
        self.reads.insert(read, task);
    }

    /// A read that has its memory begins: from the tier on disk, or where that has not got its first byte, from an origin.
    fn launch(&mut self, reading: Reading, now: Instant) {
        let Some(mut reading) = self.read_tier(reading) else {
            return;
        };
        reading.copy_from_slab();
        if reading.rest().len_bytes == 0 {
            return self.filled.push_back(reading);
        }
        let (read, len_bytes) = (reading.read, reading.got_bytes);
        self.read_origin(reading, now);
        if len_bytes > 0 {
            self.disk.on(In::Part { read, len_bytes }, now); // it need not wait for the origin
        }
    }

    /// An origin is asked for the rest of a read.
    pub(super) fn read_origin(&mut self, reading: Reading, now: Instant) {
        let read = reading.read;
        let task = self.begin(Kind::Read, Job::Read(reading), now);
        self.reads.insert(read, task);
    }

    fn slab_lease(&self, len_bytes: u64) -> Into {
        let lease = self.gateway.slab.lease(len_bytes);
        lease.map_or(Into::Postponed, Into::Slab)
    }

    /// Whether the slab gets no memory from the kernel, or has had no room since then for too long. Those who wait for the read
    /// then get its bytes in slots.
    fn has_no_memory(&mut self, read: ReadId, since: Instant, now: Instant) -> bool {
        if let Some(error) = self.gateway.slab.refused() {
            let text = format_args!(
                "{error}: no memory for what several clients want, so each has it fetched by itself; is the tmpfs of --slab-dir full of other files?"
            );
            self.seldom.tell(Topic::Slab, None, text, now);
        } else if now.since_us(since) < ROOM_US_MAX {
            return false;
        }
        self.disk.on(In::NoMemory(read), now);
        true
    }

    /// Reads that waited for room in the slab.
    pub(super) fn retry_postponed(&mut self, now: Instant) {
        while let Some(&task) = self.postponed.front() {
            if let Some(Job::Read(reading)) = self.jobs.get(&task) {
                let (read, since) = (reading.read, reading.begun_at);
                let into = self.slab_lease(reading.span.len_bytes);
                if matches!(into, Into::Postponed) {
                    if !self.has_no_memory(read, since, now) {
                        return;
                    }
                    self.jobs.remove(&task);
                    self.reads.remove(&read);
                    self.postponed.pop_front();
                    continue;
                }
                if let Some(Job::Read(reading)) = self.jobs.remove(&task) {
                    self.launch(Reading { into, ..reading }, now);
                }
            }
            self.postponed.pop_front();
        }
    }

    /// Nobody waits for a read any more.
    pub(super) fn cancel(&mut self, read: ReadId, now: Instant) {
        self.rested.remove(&read);
        if let Some(reading) = self.tiered.remove(&read) {
            return self.read_done(reading, now);
        }
        let Some(task) = self.reads.get(&read).copied() else {
            return;
        };
        self.machine.on(upstream::In::Drop(task), now);
        if let Some(Job::Read(reading)) = self.jobs.remove(&task) {
            self.read_done(reading, now);
        }
    }

    /// Bytes of a read came: they are handed on.
    pub(super) fn read_moved(&mut self, read: ReadId, got_bytes: u64, now: Instant) {
        let len_bytes = got_bytes;
        self.disk.on(In::Part { read, len_bytes }, now);
        self.pump_disk(now);
    }

    /// A read is complete, or as complete as it will be. Its slots are kept while its reader may ask for them.
    fn read_ended(&mut self, reading: Reading, result: Result<u64, ReadError>, now: Instant) {
        let read = reading.read;
        self.reads.remove(&read);
        let service_us = now.since_us(reading.begun_at);
        let direct = matches!(reading.into, Into::Slots { .. });
        self.handle.tally().count(result, service_us, direct);
        self.keep_windows(&reading);
        self.rested.insert(read, reading);
        self.disk.on(In::Done { read, result }, now);
        self.pump_disk(now);
        if !self.disk.rests(read) {
            self.rested.remove(&read);
        }
    }

    /// A read came to its end.
    pub(super) fn read_done(&mut self, reading: Reading, now: Instant) {
        let result = Ok(reading.got_bytes);
        self.read_ended(reading, result, now);
    }

    /// No origin brings the rest of a read.
    pub(super) fn read_failed(&mut self, reading: Reading, now: Instant) {
        if reading.is_rangeless && !reading.object.is_changed() {
            let target = &reading.object.target;
            self.gateway.catalog.passes(target, true, unix_ms() / 1000);
        }
        let error = ReadError {
            errno: match reading.object.is_changed() {
                true => 0,
                false => libc::EIO,
            },
            offset_bytes: reading.rest().offset_bytes,
        };
        self.read_ended(reading, Err(error), now);
    }

    /// Executes what the machine that chooses reads has to say now.
    fn pump_disk(&mut self, now: Instant) {
        while let Some(out) = self.disk.poll(now) {
            self.execute(out, now);
        }
    }

    /// Where the bytes are that a stream is told of.
    pub(super) fn landed_bytes(&mut self, read: ReadId, span: Span, held: Held) -> ReadBytes {
        if !held.is_own_memory() {
            return ReadBytes::PageCache;
        }
        let task = self.reads.get(&read);
        let reading = match task.and_then(|task| self.jobs.get_mut(task)) {
            Some(Job::Read(reading)) => Some(reading),
            _ => self.rested.get_mut(&read),
        };
        let landed = reading.and_then(|reading| {
            let until_bytes = span.end_bytes() - reading.span.offset_bytes;
            reading.hand_on(until_bytes)
        });
        if !self.disk.rests(read) && !self.reads.contains_key(&read) {
            self.rested.remove(&read);
        }
        match landed {
            Some(landed) => ReadBytes::Slots(SlotBytes {
                lease: landed.lease,
                from_bytes: landed.from_bytes,
                span,
                version_checked: false,
            }),
            None => {
                debug_assert!(false, "a read into slots has one stream");
                ReadBytes::PageCache
            }
        }
    }
}
