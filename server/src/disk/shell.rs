//! The thread of a disk: reports events to the machine, executes its orders, and sleeps until the next event.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ackpace_core::conn::{Held, ObjectId, Span, StreamId};
use ackpace_core::disk::{Destination, Disk, In, Out, ReadError, ReadId};
use ackpace_core::limits::{AHEAD_EACH_US, AHEAD_SHORT_US, SLOT_BYTES};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use crossbeam_channel::Receiver;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::readers::{Finished, Job, Readers};
use super::wanted::Wanted;
use super::{Ask, Channel, Completion, Handle, Question, ReadBytes, SLOT_COST_BYTES, SlotBytes};
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::memory;
use crate::store::device::{Device, Devices};
use crate::store::pool::Lease;
use crate::store::ring::{self, Ring};

/// A disk's thread and its state.
pub(super) struct Shell {
    pub disk: Disk,
    pub files: Wanted,
    /// The slots of the read that has just completed, until the machine says which stream gets them.
    pub landed: Option<(ReadId, Lease, Span)>,
    pub handle: Arc<Handle>,
    pub questions: Receiver<Question>,
    pub channels: Arc<Vec<Channel>>,
    pub readers: Readers,
    /// `None` where io_uring is refused: then the reading threads make all reads.
    pub ring: Option<Ring<(ReadId, Instant)>>,
    pub clock: Clock,
    pub devices: Arc<Devices>,
    pub index: u16,
    pub ledger: Arc<Ledger>,
    /// The slots that the machine may use; `None`: it was not told yet.
    pub budget_slots: Option<u32>,
    /// When the memory was last divided, and when it is to be divided again if no other event comes first.
    pub divided_at: Option<Instant>,
    pub divide_at: Option<Instant>,
    /// The device can't be read past the page cache; the log says so.
    pub indirect: bool,
}

impl Shell {
    /// Serves for ever.
    pub fn run(mut self) {
        loop {
            self.wait();
            self.turn();
        }
    }

    /// Waits for a message, the end of a read, a due want, or the time to divide the memory.
    fn wait(&mut self) {
        let due = [self.disk.deadline(), self.divide_at];
        let due = due.into_iter().flatten().min();
        let due = due.map(|at| Duration::from_micros(at.since_us(self.clock.now())));
        let retry = self.ring.as_mut().and_then(Ring::retry_after);
        let timeout = [due, retry]
            .into_iter()
            .flatten()
            .min()
            .map(|left| Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            });
        let waker = PollFd::new(&*self.handle.waker, PollFlags::IN);
        let _ = match &self.ring {
            Some(ring) => poll(
                &mut [waker, PollFd::new(ring, PollFlags::IN)],
                timeout.as_ref(),
            ),
            None => poll(&mut [waker], timeout.as_ref()),
        };
        self.handle.waker.awake();
    }

    /// One turn: receive, decide, execute.
    pub fn turn(&mut self) {
        let now = self.clock.now();
        self.memory_came_back(now);
        self.look_at_device(now);
        self.hear_ring(now);
        while let Some(finished) = self.readers.finished() {
            self.finished(finished, now);
        }
        // Completions go out before new wants come in, since they answer earlier wants.
        self.pump(now);
        let handle = Arc::clone(&self.handle);
        for asks in &handle.asks {
            while let Some(ask) = asks.take() {
                self.hear(ask, now);
            }
        }
        self.pump(now);
        handle.pool.set_hungry(self.disk.slots_lacking());
        if self.disk.slots_lacking() > 0 && self.divide_at.is_none() {
            self.divide_at = Some(now.plus_us(AHEAD_EACH_US)); // others may have given some back
        }
        self.publish();
        self.log_notice();
        self.answer(now);
    }

    fn memory_came_back(&mut self, now: Instant) {
        let freed = self.handle.pool.take_freed();
        if freed > 0 {
            self.disk.on(In::Freed(freed), now);
        }
        self.divide(now);
    }

    /// Claims memory that others do not use for reading ahead, and gives back what they want.
    fn divide(&mut self, now: Instant) {
        self.ledger.heard();
        let pool = Arc::clone(&self.handle.pool);
        let owes = |shell: &Shell| shell.budget_slots.is_some_and(|slots| slots < pool.slots());
        let each_us = match self.ledger.is_short() || owes(self) {
            true => AHEAD_SHORT_US,
            false => AHEAD_EACH_US,
        };
        let next_at = self.divided_at.map(|at| at.plus_us(each_us));
        if let Some(next_at) = next_at.filter(|at| now < *at) {
            self.divide_at = Some(next_at).filter(|_| each_us == AHEAD_SHORT_US);
            return;
        }
        self.divided_at = Some(now);
        let has = pool.slots();
        let held_bytes = memory::held_bytes().unwrap_or(0);
        let share_bytes = (self.ledger).share_bytes(u64::from(has) * SLOT_COST_BYTES, held_bytes);
        let share = u32::try_from(share_bytes / SLOT_COST_BYTES).unwrap_or(u32::MAX);
        if share < has {
            let gone = pool.retire(has - share);
            self.ledger.give_ahead(u64::from(gone) * SLOT_COST_BYTES);
        } else {
            let more = (share - has).min(pool.slots_max() - has);
            if self.ledger.claim_ahead(u64::from(more) * SLOT_COST_BYTES) {
                pool.enlist(more);
            }
        }
        let budget = share.min(pool.slots());
        if self.budget_slots.replace(budget) != Some(budget) {
            let memory_bytes = u64::from(budget) * SLOT_BYTES;
            self.disk.on(In::Budget { memory_bytes }, now);
        }
        let soon = now.plus_us(AHEAD_SHORT_US);
        self.divide_at = owes(self).then_some(soon);
    }

    /// Nothing wakes this thread for look-ups: as long as they matter the device is reading, and its next read ends
    /// soon.
    fn look_at_device(&mut self, now: Instant) {
        let device = self.devices.get(self.index);
        let look_ups = device.map_or(0, Device::look_ups);
        self.disk.on(In::LookUps(look_ups), now);
        if device.is_some_and(Device::is_blind) {
            self.disk.on(In::Blind, now);
        }
    }

    fn hear_ring(&mut self, now: Instant) {
        let Some(ring) = &mut self.ring else { return };
        let done: Vec<_> = ring.completions().collect();
        for done in done {
            let (read, begun) = done.tag;
            self.read_done(
                read,
                done.span,
                Some(done.lease),
                done.result,
                now.since_us(begun),
                now,
            );
        }
    }

    fn finished(&mut self, finished: Finished, now: Instant) {
        match finished {
            Finished::Mapped { object, layout } => self.disk.on(In::Mapped { object, layout }, now),
            Finished::Refused(why) => {
                if !std::mem::replace(&mut self.indirect, true) {
                    tracing::info!("read through the page cache: {why}");
                }
                self.disk.on(In::Indirect, now);
            }
            Finished::Read {
                read,
                span,
                lease,
                result,
                service_us,
            } => self.read_done(read, span, lease, result, service_us, now),
        }
    }

    fn read_done(
        &mut self,
        read: ReadId,
        span: Span,
        lease: Option<Lease>,
        result: Result<u64, ReadError>,
        service_us: u64,
        now: Instant,
    ) {
        self.handle.tally.count(result, service_us, lease.is_some());
        self.landed = lease.map(|lease| (read, lease, span));
        self.disk.on(In::Done { read, result }, now);
        self.pump(now);
        self.landed = None; // its stream is gone
    }

    fn pump(&mut self, now: Instant) {
        while let Some(out) = self.disk.poll(now) {
            self.execute(out, now);
        }
    }

    fn hear(&mut self, ask: Ask, now: Instant) {
        match ask {
            Ask::Want(want, file) => {
                self.files.add(want.stream, file);
                self.disk.on(In::Want(want), now);
            }
            Ask::Forget(stream) => {
                self.files.remove(stream);
                self.disk.on(In::Forget(stream), now);
            }
        }
    }

    fn execute(&mut self, out: Out, now: Instant) {
        match out {
            Out::Map(object) => match self.files.get(object) {
                Some(file) => self.readers.submit(Job::Map(file)),
                None => {
                    let layout = ackpace_core::disk::Layout::default();
                    self.disk.on(In::Mapped { object, layout }, now);
                }
            },
            Out::Read {
                read,
                object,
                span,
                into,
            } => self.read(read, object, span, into, now),
            Out::Filled {
                read,
                stream,
                seq,
                span,
                held,
                chosen,
                urgent,
            } => {
                let landed = self.landed.take_if(|(of, ..)| *of == read);
                let fill = match (held, landed) {
                    (Held::Slots, Some((_, lease, all))) => ReadBytes::Slots(SlotBytes {
                        lease,
                        from_bytes: all.offset_bytes,
                        span,
                        proven: false,
                    }),
                    // A bug, but the stream goes on: it asks where its bytes are, and wants again.
                    (Held::Slots, None) => {
                        debug_assert!(false, "a read into slots has one stream");
                        ReadBytes::PageCache
                    }
                    (Held::PageCache, _) => ReadBytes::PageCache,
                };
                self.tell(
                    stream,
                    Completion::Filled(stream, seq, span, fill, chosen),
                    urgent,
                );
            }
            Out::Failed { stream, seq, error } => {
                self.tell(stream, Completion::Failed(stream, seq, error), true);
            }
            Out::Nudge(stream) => {
                if let Some(line) = self.channels.get(usize::from(stream.worker)) {
                    line.waker.wake();
                }
            }
        }
    }

    fn read(
        &mut self,
        read: ReadId,
        object: ObjectId,
        span: Span,
        into: Destination,
        now: Instant,
    ) {
        let lease = match into {
            Destination::PageCache => None,
            Destination::Slots(slots) => self.handle.pool.lease(slots),
        };
        let lost = matches!(into, Destination::Slots(_)) && lease.is_none();
        let file = self.files.get(object).filter(|_| !lost);
        let Some(file) = file else {
            debug_assert!(
                false,
                "a read is ordered for a file that is wanted, and with free slots only"
            );
            // A bug, but nothing is lost: the streams that wait are told, and the read's place in the device is free.
            let error = ReadError {
                errno: libc::EBADF,
                offset_bytes: span.offset_bytes,
            };
            return self.disk.on(
                In::Done {
                    read,
                    result: Err(error),
                },
                now,
            );
        };
        match (lease, &mut self.ring, file.direct()) {
            (Some(lease), Some(ring), Some(direct)) => {
                let direct = Arc::clone(direct);
                let tag = (read, now);
                let order = ring::Order {
                    tag,
                    direct,
                    span,
                    lease,
                };
                if let Err(order) = ring.submit(order) {
                    let lease = order.lease;
                    self.readers.submit(Job::Direct {
                        read,
                        file,
                        span,
                        lease,
                    });
                }
            }
            (Some(lease), ..) => self.readers.submit(Job::Direct {
                read,
                file,
                span,
                lease,
            }),
            (None, ..) => self.readers.submit(Job::Promote { read, file, span }),
        }
    }

    fn tell(&self, stream: StreamId, completions: Completion, wake: bool) {
        let Some(line) = self.channels.get(usize::from(stream.worker)) else {
            return;
        };
        line.completions.put(stream.conn.index, completions);
        if wake {
            line.waker.wake();
        }
    }

    /// Publishes the load of the device, and reports lost wakeups.
    fn publish(&self) {
        let (tally, load, model) = (&self.handle.tally, self.disk.load(), self.disk.model());
        tally.streams.store(load.streams, Relaxed);
        tally
            .rates_bytes_per_s
            .store(load.rates_bytes_per_s, Relaxed);
        let delayed = self.disk.delayed();
        tally.delayed.store(delayed.wants, Relaxed);
        tally.delayed_bytes.store(delayed.bytes, Relaxed);
        tally.target_us.store(self.disk.target_us(), Relaxed);
        tally.positioning_us.store(model.positioning_us(), Relaxed);
        tally
            .media_bytes_per_s
            .store(model.media_bytes_per_s(), Relaxed);
        tally.reads_max.store(self.disk.reads_max() as u64, Relaxed);
        let in_flight = self.disk.reads_in_flight() as u64;
        tally.in_flight.store(in_flight, Relaxed);
        let pool = &self.handle.pool;
        let used = pool.slots().saturating_sub(pool.free_slots());
        let used_bytes = u64::from(used) * SLOT_BYTES;
        tally.memory_used_bytes.store(used_bytes, Relaxed);
        tally.memory_bytes.store(load.memory_bytes, Relaxed);
        let mended = self.disk.mended();
        let more = mended - tally.mended.swap(mended, Relaxed);
        if more > 0 {
            tracing::error!(
                device = self.index,
                streams = more,
                "streams waited for the disk and nothing worked for them; they are read for now. Please report this"
            );
        }
        let waits = self.disk.slots_lacking() > 0;
        tally.memory_waits.fetch_add(waits.into(), Relaxed);
    }
}
