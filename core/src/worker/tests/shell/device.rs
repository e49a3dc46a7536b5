//! The page cache and a device below it: what is read, where it lies, and who holds it.

use super::super::*;
use super::{DISK, Shell};
use crate::cache::RESIDENCY_TRUST_US;
use crate::conn::Held;
use crate::disk::{self, ReadError};
use crate::limits::SLOT_BYTES;

/// Residency is kept in quarters of a window, so that half-known windows occur.
const CHUNK: u64 = WINDOW / 4;

impl Shell {
    /// Orders about reads.
    pub(super) fn obey_about_reads(&mut self, out: Out) {
        match out {
            Out::Probe {
                stream,
                object,
                span,
                ..
            } => {
                let is_resident = self.resident_bytes(object, span) == span.len_bytes;
                self.on(In::Probed {
                    stream,
                    is_resident,
                });
            }
            Out::Want(want) => {
                self.wants.insert(want.stream);
                self.disk.on(disk::In::Want(want), self.now);
            }
            Out::Forget(stream) => {
                self.wants.remove(&stream);
                self.listings.remove(&stream);
                self.resolving.remove(&stream);
                self.disk.on(disk::In::Forget(stream), self.now);
            }
            other => panic!("not about a read: {other:?}"),
        }
    }

    /// Whether the disk machine has completions for the worker.
    pub(super) fn disk_turn(&mut self) -> bool {
        while let Some(out) = self.disk.poll(self.now) {
            match out {
                disk::Out::Map(object) => {
                    let layout = disk::Layout::default();
                    let mapped = disk::In::Mapped {
                        object,
                        layout,
                        direct: object.index % 4 != 3,
                    };
                    self.disk.on(mapped, self.now);
                }
                disk::Out::Read {
                    read,
                    object,
                    span,
                    into,
                } => {
                    if let disk::Destination::Slots(slots) = into {
                        self.slots += slots;
                        assert!(u64::from(self.slots) * SLOT_BYTES <= DISK.memory_bytes);
                    }
                    self.reading.insert(read, (object, span, into));
                }
                disk::Out::Fetched {
                    read,
                    stream,
                    seq,
                    span,
                    held,
                    chosen,
                } => {
                    self.wants.remove(&stream);
                    if let Some(slots) = self.landed.remove(&read) {
                        assert_eq!(held, Held::Slots);
                        self.leases.entry(stream).or_default().push((span, slots));
                    }
                    self.mailbox.push(In::Fetched {
                        stream,
                        seq,
                        span,
                        held,
                        chosen,
                    });
                }
                disk::Out::Failed { stream, seq, .. } => {
                    self.wants.remove(&stream);
                    self.mailbox.push(In::FetchFailed {
                        stream,
                        seq,
                        why: Why::ReadFailed,
                    });
                }
            }
        }
        let lost = std::mem::take(&mut self.landed).into_values().sum();
        self.free(lost); // read for a stream that is gone
        let completions = std::mem::take(&mut self.mailbox);
        let woken = !completions.is_empty();
        for event in completions {
            self.on(event);
        }
        woken
    }

    pub(super) fn free(&mut self, slots: u32) {
        self.slots -= slots;
        self.disk.on(disk::In::Freed(slots), self.now);
    }

    /// Give back what a stream holds of the pool before this byte of its file.
    pub(super) fn release(&mut self, stream: StreamId, before_bytes: u64) {
        let leases = self.leases.remove(&stream).unwrap_or_default();
        let (sent, held): (Vec<_>, Vec<_>) = leases
            .into_iter()
            .partition(|(span, _)| span.end_bytes() <= before_bytes);
        self.free(sent.iter().map(|(_, slots)| slots).sum());
        if !held.is_empty() {
            self.leases.insert(stream, held);
        }
    }

    /// Nobody waits for what was read: its slots are free.
    pub(super) fn drop_late(&mut self, stream: StreamId, late: Span) {
        let leases = self.leases.remove(&stream).unwrap_or_default();
        let (free, held): (Vec<_>, Vec<_>) =
            leases.into_iter().partition(|(span, _)| *span == late);
        self.free(free.iter().map(|(_, slots)| slots).sum());
        if !held.is_empty() {
            self.leases.insert(stream, held);
        }
    }

    pub fn read_done(&mut self, fails: bool) {
        let Some((read, (object, span, into))) = self.reading.pop_first() else {
            return;
        };
        // Some of it was read before the bad block.
        let bad_bytes = self.dice.below(span.len_bytes) / CHUNK * CHUNK;
        let (errno, offset_bytes) = (5, span.offset_bytes + bad_bytes);
        let good = Span {
            len_bytes: if fails { bad_bytes } else { span.len_bytes },
            ..span
        };
        let result = match fails {
            true => Err(ReadError {
                errno,
                offset_bytes,
            }),
            false => Ok(span.len_bytes),
        };
        match into {
            disk::Destination::Slots(slots) => drop(self.landed.insert(read, slots)),
            disk::Destination::PageCache => self.resident.extend(chunks(object, good)),
        }
        self.disk.on(disk::In::Done { read, result }, self.now);
    }

    /// The kernel needs memory for something else.
    pub fn evict(&mut self) {
        let nth = self.dice.below(self.resident.len() as u64) as usize;
        if let Some(chunk) = self.resident.iter().nth(nth).copied() {
            self.resident.remove(&chunk);
            self.evicted_at.insert(chunk, self.now);
        }
    }

    pub(super) fn resident_bytes(&self, object: ObjectId, span: Span) -> u64 {
        let cold = chunks(object, span).find(|chunk| !self.resident.contains(chunk));
        cold.map_or(span.len_bytes, |(_, chunk)| {
            (chunk * CHUNK).saturating_sub(span.offset_bytes)
        })
    }

    pub(super) fn check_slots(&self, stream: StreamId, span: Span) {
        let mut at_bytes = span.offset_bytes;
        for (held, _) in self.leases.get(&stream).into_iter().flatten() {
            if held.contains(at_bytes) {
                at_bytes = held.end_bytes();
            }
        }
        assert!(
            at_bytes >= span.end_bytes(),
            "{stream:?} does not hold {span:?}"
        );
    }

    /// A worker never reads: what it sends is in memory, or was a moment ago.
    pub(super) fn check_resident(&self, object: ObjectId, span: Span) {
        for chunk in chunks(object, span) {
            let lost_at = self.evicted_at.get(&chunk);
            let just_lost = lost_at.is_some_and(|at| self.now.since_us(*at) < RESIDENCY_TRUST_US);
            assert!(
                self.resident.contains(&chunk) || just_lost,
                "a worker reads from the disk: {object:?} {span:?}"
            );
        }
    }
}

fn chunks(object: ObjectId, span: Span) -> impl Iterator<Item = (u32, u64)> {
    let last = span.end_bytes().div_ceil(CHUNK);
    (span.offset_bytes / CHUNK..last).map(move |chunk| (object.index, chunk))
}
