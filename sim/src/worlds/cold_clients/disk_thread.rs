//! The disk thread of the world: it executes the orders of the disk machine on the modelled device.

use ackpace_core::Machine;
use ackpace_core::conn::{ObjectId, Span};
use ackpace_core::disk::{self, Extent, Layout, ReadId};
use ackpace_core::limits::SLOT_BYTES;
use ackpace_core::units::Instant;
use ackpace_core::worker::In;

use super::shell::Run;
use crate::models::disk::request::{Kind, Request};
use crate::worlds::laws::Lease;
use crate::worlds::reads::ReadInFlight;

impl Run<'_> {
    /// When the next read ends.
    pub fn next_read_done(&self) -> Option<Instant> {
        let ns = self.device.next_ns()?;
        let us = ns.div_ceil(1_000);
        Some(Instant { us })
    }

    /// Ends the reads that are done by now, and begins others.
    pub fn reads_done(&mut self) {
        while let Some(done) = self.device.complete(self.now.us * 1_000) {
            self.read_done(ReadId(done.request.id));
        }
        self.disk_turn();
    }

    fn read_done(&mut self, read: ReadId) {
        let Some(flight) = self.reads.remove(&read) else {
            return;
        };
        self.landed = Some((read, flight.slots));
        let result = Ok(flight.span.len_bytes);
        self.disk.on(disk::In::Done { read, result }, self.now);
        self.disk_turn();
        if let Some((_, slots)) = self.landed.take() {
            self.free(slots);
        }
    }

    /// Executes what the disk machine orders now.
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
                    into: disk::Destination::Slots(slots),
                } => self.read(read, object, span, slots),
                disk::Out::Read { into, .. } => panic!("nobody shares a file, but {into:?}"),
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
                    self.worker_woken = true;
                }
                disk::Out::Failed { stream, error, .. } => panic!("{stream:?}: {error:?}"),
            }
        }
    }

    fn read(&mut self, read: ReadId, object: ObjectId, span: Span, slots: u32) {
        self.slots += slots;
        let pool_bytes = u64::from(self.slots) * SLOT_BYTES;
        let memory_bytes = self.world.disk.memory_bytes;
        assert!(pool_bytes <= memory_bytes, "more slots than the pool has");
        self.reads_submitted += 1;
        self.bytes_submitted += span.len_bytes;
        let request = Request {
            id: read.0,
            offset_bytes: self.device_bytes(object) + span.offset_bytes,
            len_bytes: span.len_bytes,
            kind: Kind::Read,
        };
        self.device.submit(self.now.us * 1_000, request);
        let flight = ReadInFlight {
            object,
            span,
            slots,
        };
        self.reads.insert(read, flight);
    }

    fn device_bytes(&self, object: ObjectId) -> u64 {
        let files = self.world.clients.len().max(1) as u64;
        let each = self.device.size_bytes() / files;
        u64::from(object.index) * (each / 4096 * 4096)
    }
}
