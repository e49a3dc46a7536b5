//! A disk machine without a worker: any stream sends wants in any order, and reads complete as the input says.

use std::collections::{BTreeMap, BTreeSet};

use ackpace_core::Machine;
use ackpace_core::conn::{ConnId, Held, Span, StreamId, Want};
use ackpace_core::disk::{Destination, Disk, Extent, In, Layout, Out, ReadError, ReadId};
use ackpace_core::limits::{READ_ALIGN_BYTES, READS_IN_FLIGHT_MAX, SLOT_BYTES};
use ackpace_core::units::Instant;

use super::input::Input;
use super::messages::{self, WantCompletion};
use super::response::object;
use super::settings::disk_settings;
use super::trace::Trace;

/// More orders than one message can ever cause.
const OUTS_MAX: u32 = 1_000;
const MESSAGES_MAX: u32 = 2_000;

/// Drives the disk machine with arbitrary messages.
///
/// # Panics
/// When the machine panics, answers a want that nobody sent, orders an impossible read, or orders without end.
pub fn disk_alone(data: &[u8]) {
    let mut input = Input::new(data);
    let mut alone = LoneDisk {
        disk: Disk::new(disk_settings(&mut input)),
        input,
        now: Instant { us: 1 },
        wants: BTreeMap::new(),
        told: BTreeMap::new(),
        reads: BTreeMap::new(),
        filled: BTreeSet::new(),
        trace: Trace::default(),
    };
    for _ in 0..MESSAGES_MAX {
        if alone.input.is_empty() {
            return;
        }
        alone.message();
        if !alone.input.once_in(4) {
            alone.obey();
        }
    }
}

struct LoneDisk<'a> {
    disk: Disk,
    input: Input<'a>,
    now: Instant,
    /// The wants of each stream; an answer may be to any of them.
    wants: BTreeMap<StreamId, Vec<Want>>,
    /// Number of answers to each stream.
    told: BTreeMap<StreamId, u32>,
    /// Reads under way.
    reads: BTreeMap<ReadId, Span>,
    /// Reads into slots that a stream has received.
    filled: BTreeSet<ReadId>,
    trace: Trace,
}

impl LoneDisk<'_> {
    fn on(&mut self, event: In) {
        self.trace.note(self.now, "told", &event);
        self.disk.on(event, self.now);
    }

    fn obey(&mut self) {
        let mut outs = 0;
        while let Some(out) = self.disk.poll(self.now) {
            self.trace.note(self.now, "disk", &out);
            self.check(&out);
            outs += 1;
            assert!(outs < OUTS_MAX, "the disk machine turns in circles");
        }
    }

    fn check(&mut self, out: &Out) {
        if let Some((_, told)) = WantCompletion::of(out, |_| None) {
            let answers = self.told.entry(told.stream).or_insert(0);
            *answers = answers.wrapping_add(1);
            let wants = self.wants.get(&told.stream).map_or(&[][..], |wants| wants);
            assert!(!wants.is_empty(), "an answer to a stranger: {out:?}");
            if let Some(read) = told.read {
                let Span {
                    offset_bytes,
                    len_bytes,
                } = told.span;
                let wanted = wants.iter().any(|want| {
                    want.span.offset_bytes == offset_bytes && want.span.covers(told.span)
                });
                assert!(wanted && len_bytes > 0, "nobody wanted for {out:?}");
                let first = told.held == Held::PageCache || self.filled.insert(read);
                assert!(first, "slots that two streams get: {out:?}");
            }
        }
        let Out::Read {
            read, span, into, ..
        } = *out
        else {
            return;
        };
        if let Destination::Slots(slots) = into {
            let aligned = [span.offset_bytes, span.len_bytes].map(|n| n % READ_ALIGN_BYTES);
            let fits = span.len_bytes <= u64::from(slots) * SLOT_BYTES;
            assert!(fits && aligned == [0, 0], "{out:?}");
        }
        assert!(span.len_bytes > 0, "a read of nothing");
        assert!(self.reads.insert(read, span).is_none(), "a read twice");
        assert!(self.reads.len() <= READS_IN_FLIGHT_MAX);
    }

    fn message(&mut self) {
        match self.input.byte() % 32 {
            0..10 => self.want(),
            10..13 => {
                let stream = self.someone();
                self.on(In::Forget(stream));
            }
            13..23 => self.done(),
            23..25 => self.mapped(),
            25..27 => {
                let slots = self.input.pick(&[4, 1, 64, u32::MAX]);
                self.on(In::Freed(slots));
            }
            27 => {
                let look_ups = self.input.pick(&[0, 1, 70, u32::MAX]);
                self.on(In::LookUps(look_ups));
            }
            28 => {
                let memory_bytes = self.input.pick(&[8, 64, 1_024, 0]) * SLOT_BYTES;
                self.on(In::Budget { memory_bytes });
            }
            _ => {
                let us = self
                    .input
                    .pick(&[1_000, 300_000, 21_000_000, 3_600_000_000]);
                self.now = match self.input.once_in(16) {
                    true => Instant {
                        us: self.now.us.saturating_sub(us),
                    },
                    false => self.now.plus_us(us),
                };
            }
        }
    }

    fn someone(&mut self) -> StreamId {
        let worker = self.input.below(2) as u16;
        let index = self.input.below(3) as u32;
        let generation = self.input.below(2) as u32;
        let conn = ConnId { index, generation };
        let nth = self.input.pick(&[0, 0, 1, u16::MAX]);
        StreamId { worker, conn, nth }
    }

    fn want(&mut self) {
        let stream = self.someone();
        let object = object(self.input.pick(&[0, 1, u32::MAX]), 0);
        let step_bytes = self.input.pick(&[4_096, 1 << 20, 1, 1 << 55]);
        let span = Span {
            offset_bytes: self.input.below(200) * step_bytes,
            len_bytes: self
                .input
                .pick(&[1 << 20, 5_000, 1, 70_000, 40 << 20, 1 << 62]),
        };
        let told = self.told.get(&stream).copied().unwrap_or(0);
        let heard = match self.input.once_in(8) {
            true => told.wrapping_sub(1),
            false => told,
        };
        let (seq, signals) = (self.input.below(8) as u32, self.input.below(3) as u32);
        let in_us = self.input.pick(&[0, 100_000, 5_000_000, u64::MAX]);
        let want = Want {
            underrun_at: self.now.plus_us(in_us),
            rate_bytes_per_s: self.input.pick(&[0, 100_000, 1 << 40, 1, 1 << 62]),
            ..messages::want(stream, object, span, [seq, heard, signals])
        };
        self.wants.entry(stream).or_default().push(want);
        self.on(In::Want(want));
    }

    fn done(&mut self) {
        let nth = self.input.below(self.reads.len().max(1) as u64) as usize;
        let doubled = self.input.once_in(16);
        let Some((&read, &span)) = self.reads.iter().nth(nth) else {
            return;
        };
        if !doubled {
            self.reads.remove(&read);
        }
        let bytes = self
            .input
            .pick(&[span.len_bytes, span.len_bytes / 2, 0, u64::MAX]);
        let result = match self.input.once_in(4) {
            true => Err(ReadError {
                errno: 5,
                offset_bytes: span.offset_bytes.saturating_add(bytes),
            }),
            false => Ok(bytes),
        };
        self.on(In::Done { read, result });
        if doubled {
            self.on(In::Done { read, result });
            self.reads.remove(&read);
        }
    }

    fn mapped(&mut self) {
        let object = object(self.input.below(2) as u32, self.input.below(2) as u32);
        let count = self.input.below(3);
        let extents = (0..count).map(|_| Extent {
            file_bytes: self.input.any(),
            device_bytes: self.input.any(),
            len_bytes: self.input.any(),
        });
        let layout = Layout::new(extents.collect());
        let direct = !self.input.once_in(4);
        self.on(In::Mapped {
            object,
            layout,
            direct,
        });
    }
}
