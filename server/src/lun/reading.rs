//! Reads of files: asked of the target task by task, received into the slab, and kept there under the counters that the chunks
//! had before, if they have not changed.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ackpace_core::blocks::{TASK_BYTES, TASK_CHUNKS_MAX, chunks};
use ackpace_core::conn::{ObjectId, Span};
use ackpace_core::disk::{In, ReadError, ReadId};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_wire::iscsi::session::End;
use ackpace_wire::iscsi::{Command, Refused, TaskId};
use smallvec::SmallVec;

use super::Lun;
use crate::log::Topic;
use crate::store::slab::SlabLease;
use crate::unit::Blocks;

/// Tasks that are asked of the target at once: 16 MiB, or a quarter of a small slab. More would not keep it busier.
const ASKED_MAX: u64 = 64;
/// How often a task is asked again because a chunk was written meanwhile. More: the file is read through the mount.
const REPEATS_MAX: u8 = 3;
/// Tasks begin and end at multiples of this, or of a block that is longer: what the slab keeps is whole pages.
const ALIGN_BYTES: u64 = 4096;
/// How often the slab is asked for room again, in which everything is in use.
pub(super) const ROOM_EACH_US: u64 = 5_000;
/// For how long. Slow clients may hold all segments for minutes; then those who wait for the read get its bytes through the mount.
const ROOM_US_MAX: u64 = 200_000;

/// Tasks that are asked at once with a slab of this size.
pub(super) fn asked_max(slab_bytes: u64) -> usize {
    ASKED_MAX.min(slab_bytes / 4 / TASK_BYTES).max(1) as usize
}

/// A read under way.
pub(super) struct Reading {
    blocks: Arc<Blocks>,
    /// What it is to bring, inside the file.
    span: Span,
    /// Its tasks on the unit. With each stands how much of the read is there when it and those before it are done.
    tasks: Vec<(Span, u64)>,
    is_done: Vec<bool>,
    /// Tasks from the first on that are done.
    done: usize,
    begun_at: Instant,
}

/// A task of a read that is to be asked.
#[derive(Clone, Copy)]
pub(super) struct Part {
    read: ReadId,
    nth: usize,
    repeats: u8,
}

/// A task that was asked.
pub(super) struct Asked {
    part: Part,
    blocks: Arc<Blocks>,
    span: Span,
    pub lease: SlabLease,
    /// The counters of its chunks before it was asked.
    counters: SmallVec<[u32; TASK_CHUNKS_MAX]>,
}

impl Reading {
    /// Bytes from its start that are there.
    fn there_bytes(&self) -> u64 {
        self.done
            .checked_sub(1)
            .map_or(0, |last| self.tasks[last].1)
    }
}

impl Lun {
    /// Begins a read that the machine ordered.
    pub(super) fn read(&mut self, (read, object): (ReadId, ObjectId), span: Span, now: Instant) {
        let blocks = self.files.get(object);
        let usable = blocks.filter(|blocks| self.unit.has(&blocks.mount));
        let Some(blocks) = usable else {
            let result = Err(ReadError {
                errno: 0,
                offset_bytes: span.offset_bytes,
            });
            return self.disk.on(In::Done { read, result }, now);
        };
        // Whole windows may reach behind the end of the file.
        let left_bytes = blocks.len_bytes().saturating_sub(span.offset_bytes);
        let span = Span {
            len_bytes: left_bytes.min(span.len_bytes),
            ..span
        };
        // Another read may have brought it between the answer to a reader and its next want.
        if blocks.is_resident(span) {
            let result = Ok(span.len_bytes);
            return self.disk.on(In::Done { read, result }, now);
        }
        let seen = &blocks.mount.seen;
        let align_bytes = ALIGN_BYTES.max(seen.block_bytes.into());
        let tasks = blocks
            .map()
            .map(|map| map.tasks(span, align_bytes, seen.len_bytes));
        let tasks = tasks.unwrap_or_default();
        self.queue.extend((0..tasks.len()).map(|nth| Part {
            read,
            nth,
            repeats: 0,
        }));
        let reading = Reading {
            is_done: vec![false; tasks.len()],
            blocks,
            span,
            tasks,
            done: 0,
            begun_at: now,
        };
        self.reads.insert(read, reading);
    }

    /// Asks the target for the next part. `false`: there is none, or it has to wait.
    pub(super) fn ask_next(&mut self, now: Instant) -> bool {
        let Some(&part) = self
            .queue
            .front()
            .filter(|_| self.asked.len() < self.asked_max)
        else {
            return false;
        };
        let Some(reading) = self.reads.get(&part.read) else {
            self.queue.pop_front(); // its read has failed
            return true;
        };
        let (span, blocks) = (reading.tasks[part.nth].0, Arc::clone(&reading.blocks));
        if !self.unit.has(&blocks.mount) {
            self.fail(part.read, 0, now);
            return true;
        }
        if blocks.has(span) {
            self.queue.pop_front();
            self.part_done(part, now);
            return true;
        }
        let Some(lease) = self.unit.slab.lease(span.len_bytes) else {
            return self.starves(part.read, now);
        };
        self.starved_since = None;
        let counters = &blocks.mount.counters;
        let counters = chunks(span)
            .map(|(number, _)| counters.get(number))
            .collect();
        self.tasks += 1;
        let (task, block_bytes) = (TaskId(self.tasks), blocks.mount.seen.block_bytes);
        let command = Command::Read {
            lba: span.offset_bytes / u64::from(block_bytes),
            blocks: (span.len_bytes / u64::from(block_bytes)) as u32, // of 256 KiB
            block_bytes,
        };
        match self.session.ask(task, command) {
            Ok(()) => {}
            Err(Refused::Full) => return false,
            Err(Refused::Length | Refused::Over) => {
                self.fail(part.read, libc::EIO, now);
                return true;
            }
        }
        self.queue.pop_front();
        let asked = Asked {
            part,
            blocks,
            span,
            lease,
            counters,
        };
        self.asked.insert(task, asked);
        true
    }

    /// The slab has no room for the next part. If that lasts, its bytes come through the mount. Returns whether the next one may be tried.
    fn starves(&mut self, read: ReadId, now: Instant) -> bool {
        let since = *self.starved_since.get_or_insert(now);
        if let Some(error) = self.unit.slab.refused() {
            let text = format_args!(
                "{error}: no memory for what comes from the iSCSI target, so files are read through the mount; is the tmpfs of --slab-dir \
                 full of other files?"
            );
            self.seldom.tell(Topic::Slab, None, text, now);
        } else if now.since_us(since) < ROOM_US_MAX {
            return false;
        }
        self.starved_since = None;
        self.fail(read, 0, now);
        true
    }

    /// The session has no more to do with a task.
    pub(super) fn task_ended(&mut self, task: TaskId, end: End, now: Instant) {
        let Some(asked) = self.asked.remove(&task) else {
            return;
        };
        let part = asked.part;
        let why = match end {
            End::Good { len_bytes } => {
                let tally = &self.unit.tally;
                tally.reads.fetch_add(1, Relaxed);
                tally.read_bytes.fetch_add(len_bytes.into(), Relaxed);
                return self.came(asked, now);
            }
            End::Failed(failure) => failure.to_string(),
            End::Aborted | End::Unreachable => "it is out of reach".to_owned(),
        };
        if self.reads.contains_key(&part.read) {
            let text = format_args!(
                "{why}: bytes at {} can't be read; NFS clients are told EIO. Look at the target",
                asked.span.offset_bytes
            );
            self.seldom
                .tell(Topic::Unit, Some(&self.unit.url), text, now);
            self.fail(part.read, libc::EIO, now);
        }
    }

    /// All bytes of a task came: those of chunks that were not written meanwhile can be found from now on. Who finds them has to see
    /// whose they are ([`Blocks::is_current`]).
    fn came(&mut self, asked: Asked, now: Instant) {
        let Asked {
            part,
            blocks,
            span,
            mut lease,
            counters,
        } = asked;
        if !self.unit.has(&blocks.mount) {
            return self.fail(part.read, 0, now);
        }
        let mut is_whole = true;
        for ((number, chunk), before) in chunks(span).zip(counters) {
            if blocks.mount.counters.get(number) != before {
                is_whole = false;
                continue;
            }
            let from_bytes = chunk.offset_bytes - span.offset_bytes;
            let key = blocks.key(before);
            self.unit.slab.publish(&mut lease, key, from_bytes, chunk);
        }
        if is_whole {
            return self.part_done(part, now);
        }
        if part.repeats >= REPEATS_MAX {
            return self.fail(part.read, 0, now);
        }
        self.unit.tally.repeats.fetch_add(1, Relaxed);
        self.queue.push_front(Part {
            repeats: part.repeats + 1,
            ..part
        });
    }

    /// A part of a read is in the slab.
    fn part_done(&mut self, Part { read, nth, .. }: Part, now: Instant) {
        let Entry::Occupied(mut entry) = self.reads.entry(read) else {
            return;
        };
        let reading = entry.get_mut();
        let before_bytes = reading.there_bytes();
        reading.is_done[nth] = true;
        while reading.is_done.get(reading.done) == Some(&true) {
            reading.done += 1;
        }
        let len_bytes = reading.there_bytes();
        if reading.done < reading.tasks.len() {
            if len_bytes > before_bytes {
                self.disk.on(In::Part { read, len_bytes }, now);
            }
            return;
        }
        let result = Ok(reading.span.len_bytes);
        let service_us = now.since_us(reading.begun_at);
        entry.remove();
        self.handle.tally().count(result, service_us, false);
        self.disk.on(In::Done { read, result }, now);
    }

    /// What is left of a read does not come. With an errno of 0 those who wait for it read through the mount.
    fn fail(&mut self, read: ReadId, errno: i32, now: Instant) {
        let Some(reading) = self.reads.remove(&read) else {
            return;
        };
        let result = Err(ReadError {
            errno,
            offset_bytes: reading.span.offset_bytes + reading.there_bytes(),
        });
        let service_us = now.since_us(reading.begun_at);
        self.handle.tally().count(result, service_us, false);
        self.disk.on(In::Done { read, result }, now);
    }
}
