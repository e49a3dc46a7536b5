//! The disk thread of a world: it executes the orders of the disk machine on the modelled device.

use ackpace_core::Machine;
use ackpace_core::conn::{ObjectId, Span};
use ackpace_core::disk::{self, Extent, Layout, ReadError, ReadId};
use ackpace_core::limits::SLOT_BYTES;
use ackpace_core::why::Why;
use ackpace_core::worker::In;

use super::shell::Run;
use crate::models::disk::request::{Kind, Request};
use crate::worlds::laws::Lease;
use crate::worlds::reads::ReadInFlight;

impl Run<'_> {
    pub fn read_done(&mut self, read: ReadId, failed: bool) {
        let Some(flight) = self.reads.remove(&read) else {
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
            self.landed = Some((read, flight.slots));
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
        self.disk.on(disk::In::Done { read, result }, self.now);
        self.disk_turn();
        if let Some((_, slots)) = self.landed.take() {
            self.free(slots);
        }
    }

    pub fn disk_turn(&mut self) {
        while let Some(out) = self.disk.poll(self.now) {
            match out {
                disk::Out::Map(object) => {
                    let extent = Extent {
                        file_bytes: 0,
                        device_bytes: self.device_bytes(object),
                        len_bytes: self.world.file_bytes,
                    };
                    let layout = Layout::new(vec![extent]);
                    self.disk.on(
                        disk::In::Mapped {
                            object,
                            layout,
                            direct: true,
                        },
                        self.now,
                    );
                }
                disk::Out::Read {
                    read,
                    object,
                    span,
                    into,
                } => self.read(read, object, span, into),
                disk::Out::Fetched {
                    read,
                    stream,
                    seq,
                    span,
                    held,
                    chosen,
                } => {
                    if let Some((_, slots)) = self.landed.take_if(|(of, _)| *of == read) {
                        self.leases.lend(stream, Lease { span, slots });
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

    /// The first byte of a file's range that can't be read: its offset in the file. The range's end if all can.
    fn first_bad_bytes(&self, object: ObjectId, span: Span) -> u64 {
        let start_bytes = self.device_bytes(object) + span.offset_bytes;
        let end_bytes = start_bytes + span.len_bytes;
        let bad = self.world.faults.bad.iter();
        let bad = bad.filter(|bad| bad.end > start_bytes && bad.start < end_bytes);
        let first = bad.map(|bad| bad.start.max(start_bytes)).min();
        first.unwrap_or(end_bytes) - start_bytes + span.offset_bytes
    }

    fn device_bytes(&self, object: ObjectId) -> u64 {
        let each = self.device.size_bytes() / u64::from(self.world.files.max(1));
        u64::from(object.index) * (each / 4096 * 4096)
    }

    fn read(&mut self, read: ReadId, object: ObjectId, span: Span, into: disk::Destination) {
        let slots = match into {
            disk::Destination::Slots(slots) => slots,
            disk::Destination::PageCache => 0,
        };
        self.slots += slots;
        if self.counts() {
            self.outcome.reads += 1;
            self.outcome.read_bytes += span.len_bytes;
            self.read_by_file_bytes[object.index as usize] += span.len_bytes;
            let alive = self.alive[object.index as usize];
            self.outcome.dead_read_bytes += if alive == 0 { span.len_bytes } else { 0 };
        }
        let pool_bytes = u64::from(self.slots) * SLOT_BYTES;
        assert!(
            slots == 0 || pool_bytes <= self.memory_bytes,
            "more slots than the pool has"
        );
        self.outcome.pool_max_bytes = self.outcome.pool_max_bytes.max(pool_bytes);
        let request = Request {
            id: read.0,
            offset_bytes: self.device_bytes(object) + span.offset_bytes,
            len_bytes: span.len_bytes,
            kind: Kind::Read,
        };
        self.device.submit(self.now.us * 1000, request);
        let flight = ReadInFlight {
            object,
            span,
            slots,
        };
        self.reads.insert(read, flight);
    }
}
