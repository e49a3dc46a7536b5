//! The disk thread: it hears messages, executes reads, and leaves answers for the worker.

use ackpace_core::Machine;
use ackpace_core::conn::{Held, ObjectId, Span};
use ackpace_core::disk::{self, Destination, Layout, Out, ReadError, ReadId};
use ackpace_core::limits::{READ_ALIGN_BYTES, READS_IN_FLIGHT_MAX, SLOT_BYTES};

use super::disk_thread::{Ask, Fate, Landed, Outstanding};
use super::memory::FilledSlots;
use super::messages::{self, Answer, WantCompletion};
use super::shell::Run;
use crate::worlds::store::ReadInFlight;

impl Run<'_> {
    /// A turn of the disk thread after it was woken.
    pub fn disk_turn(&mut self) {
        self.disk_thread.woken = false;
        self.memory_came_back();
        self.pump_disk();
        while self.hear_ask() {}
        self.pump_disk();
        self.disk_thread.slots_awaited = self.disk_thread.disk.slots_lacking();
        self.disk_thread.wake_if_enough();
    }

    pub fn on_disk(&mut self, event: disk::In) {
        self.disk_thread.quiet = false;
        self.disk_thread.disk.on(event, self.now);
    }

    pub fn memory_came_back(&mut self) {
        let freed = std::mem::take(&mut self.disk_thread.freed);
        if freed > 0 {
            self.on_disk(disk::In::Freed(freed));
        }
    }

    /// Passes the oldest message to the disk machine; `false` if there is none.
    pub fn hear_ask(&mut self) -> bool {
        let Some(ask) = self.asks.take() else {
            return false;
        };
        let place = ask.stream().conn.index;
        let outstanding = self.disk_thread.outstanding.get(&place).copied();
        let event = match ask {
            Ask::Want(want) => {
                if outstanding.is_none_or(|outstanding| messages::is_taken(&want, &outstanding)) {
                    let outstanding = Outstanding {
                        want,
                        answers: want.answers,
                        holds: true,
                    };
                    self.disk_thread.outstanding.insert(place, outstanding);
                }
                disk::In::Want(want)
            }
            Ask::Forget(stream) => {
                self.disk_thread.outstanding.remove(&place);
                disk::In::Forget(stream)
            }
        };
        self.trace.note(self.now, "asked", &event);
        self.on_disk(event);
        true
    }

    /// Executes the disk machine's orders until it has none.
    pub fn pump_disk(&mut self) {
        let mut outs = 0;
        while let Some(out) = self.disk_thread.disk.poll(self.now) {
            self.trace.note(self.now, "disk", &out);
            self.execute_disk(out);
            outs += 1;
            assert!(outs < 1_000, "the disk machine turns in circles");
        }
        self.disk_thread.quiet = true;
    }

    fn execute_disk(&mut self, out: Out) {
        match out {
            Out::Map(object) => self.disk_thread.maps.push(object),
            Out::Read {
                read,
                object,
                span,
                into,
            } => self.read(read, object, span, into),
            Out::Cancel(_) => unreachable!("disks can't end a read"),
            Out::Fetched { .. } | Out::Failed { .. } => self.answer(&out),
        }
    }

    fn read(&mut self, read: ReadId, object: ObjectId, span: Span, into: Destination) {
        let disk_thread = &mut self.disk_thread;
        let mut living = disk_thread.outstanding.values();
        assert!(
            !disk_thread.settings.cancel
                || living.any(|outstanding| outstanding.want.object == object),
            "a read for nobody"
        );
        let mut slots = 0;
        if let Destination::Slots(count) = into {
            slots = count;
            disk_thread.used += count;
            let used_bytes = u64::from(disk_thread.used) * SLOT_BYTES;
            assert!(
                used_bytes <= disk_thread.settings.memory_bytes,
                "more slots than the pool has"
            );
            let aligned = [span.offset_bytes, span.len_bytes].map(|n| n % READ_ALIGN_BYTES);
            assert_eq!(aligned, [0, 0], "{span:?} can't be read past the cache");
            assert!(span.len_bytes <= u64::from(count) * SLOT_BYTES);
        }
        let flight = ReadInFlight {
            object,
            span,
            slots,
        };
        disk_thread.reads.insert(read, flight);
        assert!(disk_thread.reads.len() <= READS_IN_FLIGHT_MAX);
    }

    /// Answers a want, with the bytes that its read has brought.
    fn answer(&mut self, out: &Out) {
        let landed = &mut self.disk_thread.landed;
        let completion = WantCompletion::of(out, |told| {
            let landed = landed.as_mut()?;
            assert_eq!(Some(landed.read), told.read, "an answer by another read");
            assert!(
                landed.good.covers(told.span) && told.span.len_bytes > 0,
                "{:?} of which is there: {:?}",
                told.span,
                landed.good
            );
            if told.held == Held::PageCache {
                assert_eq!(landed.flight.slots, 0, "slots that nobody gets");
                return None;
            }
            assert!(!landed.taken, "slots that two streams get");
            landed.taken = true;
            let ReadInFlight {
                object,
                span,
                slots,
            } = landed.flight;
            Some(FilledSlots::new(
                object,
                span.offset_bytes,
                told.span,
                slots,
            ))
        });
        let (completion, told) = completion.expect("an answer");
        let place = told.stream.conn.index;
        let outstanding = self.disk_thread.outstanding.get_mut(&place);
        let outstanding = outstanding.filter(|s| s.want.stream == told.stream && s.holds);
        let Some(outstanding) = outstanding else {
            panic!("an answer to nobody's want: {out:?}");
        };
        (outstanding.answers, outstanding.holds) = (outstanding.answers.wrapping_add(1), false);
        self.worker_woken = true;
        if let Some(replaced) = self.completions.put(place, completion) {
            let lost = replaced.stream == told.stream && replaced.is_awaited(&self.worker);
            assert!(!lost, "an answer is lost");
            if let Answer::Fetched(_, Some(piece), _) = replaced.answer {
                self.disk_thread.free(piece.slots());
            }
        }
    }

    /// Completes a read and tells the streams that wait for it.
    pub fn read_done(&mut self, read: ReadId, fate: Fate) {
        let Some(flight) = self.disk_thread.reads.remove(&read) else {
            return;
        };
        let span = flight.span;
        let file_bytes = self.file(flight.object).len_bytes;
        let there_bytes = match flight.slots {
            0 => span.len_bytes,
            _ => file_bytes
                .saturating_sub(span.offset_bytes)
                .min(span.len_bytes),
        };
        let (good_bytes, result) = match fate {
            Fate::Whole => (there_bytes, Ok(there_bytes)),
            Fate::Short(bytes) => {
                let bytes = bytes % (there_bytes + 1);
                (bytes, Ok(bytes))
            }
            Fate::Broken(bytes) => {
                let bytes = bytes % there_bytes.max(1);
                let offset_bytes = span.offset_bytes + bytes;
                let errno = 5;
                (
                    bytes,
                    Err(ReadError {
                        errno,
                        offset_bytes,
                    }),
                )
            }
        };
        if fate != Fate::Whole {
            let responses = self.clients.iter_mut().flatten();
            let responses = responses.filter_map(|client| client.response.as_mut());
            responses
                .filter(|(_, response)| response.file == flight.object.index)
                .for_each(|(_, response)| response.excused = true);
        }
        let good = Span {
            len_bytes: good_bytes,
            ..span
        };
        if flight.slots == 0 && good_bytes > 0 {
            self.file(flight.object).keep(good);
        }
        self.disk_thread.landed = Some(Landed {
            read,
            flight,
            good,
            taken: false,
        });
        self.progress += 1;
        self.on_disk(disk::In::Done { read, result });
        self.pump_disk();
        if let Some(landed) = self
            .disk_thread
            .landed
            .take()
            .filter(|landed| !landed.taken)
        {
            self.disk_thread.free(landed.flight.slots); // nobody's: its stream is gone
        }
    }

    /// Answers one layout look-up. `false` if none is under way.
    pub fn map_one(&mut self) -> bool {
        let Some(object) = self.disk_thread.maps.pop() else {
            return false;
        };
        self.mapped(object);
        self.disk_thread.woken = true;
        true
    }

    /// The layout of a file is unknown; its file system may have no O_DIRECT.
    pub fn mapped(&mut self, object: ObjectId) {
        let layout = Layout::default();
        let direct = !self.input.once_in(4);
        self.on_disk(disk::In::Mapped {
            object,
            layout,
            direct,
        });
    }
}
