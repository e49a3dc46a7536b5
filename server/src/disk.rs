//! The thread of one device. It takes wants from the workers, tells the disk machine
//! ([`ackpace_core::disk`]), hands the reads that it orders to the kernel (`store/ring.rs`) or to reading threads, and
//! the completions to the workers. It decides nothing, and sleeps until the next event.

mod budget;
mod handle;
mod readers;
mod snapshot;
mod start;
mod tally;
#[cfg(test)]
mod tests;
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use ackpace_core::conn::{Held, ObjectId, Span, StreamId, Want, WantSeq};
use ackpace_core::disk::{Destination, Disk, In, Out, ReadError, ReadId, Settings};
use ackpace_core::machine::Machine;
use ackpace_core::residency::Way;
use ackpace_core::units::Instant;
use ackpace_core::why::Chosen;
use crossbeam_channel::Receiver;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) use self::budget::Budget;
pub use self::budget::SLOT_COST_BYTES;
pub(crate) use self::handle::DiskHandle;
use self::readers::{Finished, ReaderJob, Readers};
pub use self::snapshot::DeviceAnswer;
pub(crate) use self::snapshot::{Question, answer};
pub use self::start::{Disks, tell_lacking};
pub use self::tally::DeviceTally;
pub(crate) use self::wanted::Wanted;
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::log::Seldom;
use crate::mailbox::{Mailboxes, ThreadWaker};
use crate::source::Source;
use crate::store::device::{Device, Devices};
use crate::store::file::File;
use crate::store::pool::Lease;
use crate::store::ring::{self, Ring};

/// A message from a worker to a disk.
#[derive(Debug)]
pub enum DiskAsk {
    Want(Want, Source),
    Forget(StreamId),
}

/// A message from a disk to a worker: the completion of a want.
#[derive(Debug)]
pub enum Completion {
    /// The want of this number is fulfilled, up to the end of the span, by a read that was chosen for this reason.
    Fetched(StreamId, WantSeq, Span, ReadBytes, Chosen),
    Failed(StreamId, WantSeq, ReadError),
}

impl Completion {
    fn want(&self) -> (StreamId, WantSeq) {
        match *self {
            Completion::Fetched(stream, seq, ..) | Completion::Failed(stream, seq, _) => {
                (stream, seq)
            }
        }
    }
}

/// Where the bytes of a fulfilled want are.
#[derive(Debug)]
pub enum ReadBytes {
    PageCache,
    /// In slots, which now belong to the stream.
    Slots(SlotBytes),
}

/// Bytes of a file in slots of the pool.
#[derive(Debug)]
pub struct SlotBytes {
    pub lease: Lease,
    /// The offset in the file of their first byte.
    pub from_bytes: u64,
    /// The bytes of the file that they hold.
    pub span: Span,
    /// The file was checked after they were read, so they are of the promised version, even if the file changes later.
    pub version_checked: bool,
}

/// The receiving side of one worker for the completions of all disks.
pub struct Channel {
    /// The completions: one mailbox per connection, since a connection has one stream.
    pub completions: Mailboxes<Completion>,
    pub waker: Arc<ThreadWaker>,
}

impl Channel {
    /// Leaves a completion for its connection, and wakes the worker. One for a later want, left by another disk, stays: a
    /// thread that was kept from its core may answer a connection that has departed when the next one in that slot has its
    /// answer.
    pub(crate) fn tell(&self, mut completion: Completion) {
        loop {
            let (stream, seq) = completion.want();
            match self.completions.put(stream.conn.index, completion) {
                Some(other) if is_after(other.want(), (stream, seq)) => completion = other,
                _ => break,
            }
        }
        self.waker.wake();
    }
}

/// Whether a want of a slot is later than another one of that slot.
fn is_after((stream, seq): (StreamId, WantSeq), (of, of_seq): (StreamId, WantSeq)) -> bool {
    of.is_before(stream) || of == stream && of_seq.is_before(seq)
}

#[derive(Clone)]
pub struct Context {
    pub devices: Arc<Devices>,
    pub channels: Arc<Vec<Channel>>,
    pub clock: Clock,
    /// How the machine chooses reads; settings that depend on the device are filled in at its start. The memory in it
    /// sizes the tables; the memory for reading ahead comes from the ledger.
    pub settings: Settings,
    /// The account of the memory that `memory_max` allows.
    pub ledger: Arc<Ledger>,
    /// The most memory that one disk may have for reading ahead.
    pub pool_bytes: u64,
    /// Memory of a disk's thread, its readers and its tables.
    pub device_bytes: u64,
    /// The lines of the log that many clients cause at once.
    pub seldom: Arc<Seldom>,
}

struct Shell {
    disk: Disk,
    files: Wanted<File>,
    /// The slots of the read that has just completed, until the machine says which stream gets them.
    landed: Option<(ReadId, Lease, Span)>,
    handle: Arc<DiskHandle>,
    questions: Receiver<Question>,
    channels: Arc<Vec<Channel>>,
    readers: Readers,
    /// `None` where io_uring is refused: then the reading threads make all reads.
    ring: Option<Ring<(ReadId, Instant)>>,
    clock: Clock,
    devices: Arc<Devices>,
    index: u16,
    budget: Budget,
    /// A file can't be read past the page cache; the log has been told.
    told_refusal: bool,
}

impl Shell {
    fn run(mut self) {
        loop {
            // First of all: the wake-up of a want may have been taken while the readers were started.
            self.turn();
            self.wait();
        }
    }

    /// Waits for a message, the end of a read, a due want, or the time to divide the memory.
    fn wait(&mut self) {
        let due = [self.disk.deadline(), self.budget.again_at];
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
    fn turn(&mut self) {
        let now = self.clock.now();
        self.memory_came_back(now);
        self.look_at_device(now);
        self.hear_ring(now);
        while let Some(finished) = self.readers.finished() {
            self.finished(finished, now);
        }
        // Completions go out before new wants come in, since they answer earlier wants.
        self.pump(now);
        self.hear_workers(now);
        self.pump(now);
        let slots_lacking = self.disk.slots_lacking();
        self.handle.pool.wake_at_freed(slots_lacking);
        if slots_lacking > 0 {
            self.budget.lacks(now);
        }
        self.handle.publish(&self.disk);
        self.log_notice();
        answer(&self.questions, &self.disk, now);
    }

    fn memory_came_back(&mut self, now: Instant) {
        let freed = self.handle.pool.take_freed();
        if freed > 0 {
            self.disk.on(In::Freed(freed), now);
        }
        if let Some(memory_bytes) = self.budget.divide(&self.handle.pool, now) {
            self.disk.on(In::Budget { memory_bytes }, now);
        }
    }

    /// Nothing wakes this thread for look-ups: as long as they matter the device is reading, and its next read ends
    /// soon.
    fn look_at_device(&mut self, now: Instant) {
        let device = self.devices.get(self.index);
        let look_ups = device.map_or(0, Device::look_ups);
        self.disk.on(In::LookUps(look_ups), now);
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
            Finished::Mapped {
                object,
                layout,
                refusal,
            } => {
                if let Some(why) = refusal.filter(|_| !self.told_refusal) {
                    self.told_refusal = true;
                    tracing::info!("read through the page cache: {why}");
                }
                let direct = refusal.is_none();
                let mapped = In::Mapped {
                    object,
                    layout,
                    direct,
                };
                self.disk.on(mapped, now);
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
        if let (Some(device), Ok(len_bytes)) = (self.devices.get(self.index), result) {
            let way = if lease.is_some() {
                Way::Past
            } else {
                Way::Through
            };
            device.latency.has_read(len_bytes, service_us, way);
        }
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

    fn hear_workers(&mut self, now: Instant) {
        let handle = Arc::clone(&self.handle);
        while let Some(ask) = handle.next_ask() {
            self.hear(ask, now);
        }
    }

    fn hear(&mut self, ask: DiskAsk, now: Instant) {
        match ask {
            DiskAsk::Want(want, Source::File(file)) => {
                self.files.add(want.stream, file);
                self.disk.on(In::Want(want), now);
            }
            DiskAsk::Want(_, Source::Object(_) | Source::Blocks(_)) => {
                debug_assert!(
                    false,
                    "these are wanted from the upstream, or from the unit"
                );
            }
            DiskAsk::Forget(stream) => {
                self.files.remove(stream);
                self.disk.on(In::Forget(stream), now);
            }
        }
    }

    fn execute(&mut self, out: Out, now: Instant) {
        match out {
            Out::Map(object) => match self.files.get(object) {
                Some(file) => self.readers.submit(ReaderJob::Map(file)),
                None => {
                    let mapped = In::Mapped {
                        object,
                        layout: ackpace_core::disk::Layout::default(),
                        direct: true,
                    };
                    self.disk.on(mapped, now);
                }
            },
            Out::Read {
                read,
                object,
                span,
                into,
            } => self.read(read, object, span, into, now),
            Out::Cancel(_) => {} // the kernel can't
            Out::Fetched {
                read,
                stream,
                seq,
                span,
                held,
                chosen,
            } => {
                let fill = self.landed_bytes(read, span, held);
                let fetched = Completion::Fetched(stream, seq, span, fill, chosen);
                self.tell(stream, fetched);
            }
            Out::Failed { stream, seq, error } => {
                self.tell(stream, Completion::Failed(stream, seq, error));
            }
        }
    }

    /// Where the bytes of the read that has just completed are, for the stream that gets them.
    fn landed_bytes(&mut self, read: ReadId, span: Span, held: Held) -> ReadBytes {
        let landed = self.landed.take_if(|(of, ..)| *of == read);
        match (held, landed) {
            (Held::Slots, Some((_, lease, all))) => ReadBytes::Slots(SlotBytes {
                lease,
                from_bytes: all.offset_bytes,
                span,
                version_checked: false,
            }),
            // A bug, but the stream goes on: it asks where its bytes are, and wants again.
            (Held::Slots, None) => {
                debug_assert!(false, "a read into slots has one stream");
                ReadBytes::PageCache
            }
            (Held::PageCache, _) => ReadBytes::PageCache,
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
        match (self.files.get(object).filter(|_| !lost), lease) {
            (None, _) => self.read_lost(read, span, now),
            (Some(file), None) => self.readers.submit(ReaderJob::Promote { read, file, span }),
            (Some(file), Some(lease)) => self.read_direct((read, file), span, lease, now),
        }
    }

    /// A bug, but nothing is lost: the streams that wait are told, and the read's place in the device is free.
    fn read_lost(&mut self, read: ReadId, span: Span, now: Instant) {
        debug_assert!(
            false,
            "a read is ordered for a file that is wanted, and with free slots only"
        );
        let result = Err(ReadError {
            errno: libc::EBADF,
            offset_bytes: span.offset_bytes,
        });
        self.disk.on(In::Done { read, result }, now);
    }

    /// Reads past the page cache: by the ring, or by a reading thread where the ring can't.
    fn read_direct(
        &mut self,
        (read, file): (ReadId, Arc<File>),
        span: Span,
        lease: Lease,
        now: Instant,
    ) {
        let lease = match (&mut self.ring, file.direct()) {
            (Some(ring), Some(direct)) => {
                let order = ring::ReadOrder {
                    tag: (read, now),
                    direct: Arc::clone(direct),
                    span,
                    lease,
                };
                match ring.submit(order) {
                    Ok(()) => return,
                    Err(refused) => refused.lease,
                }
            }
            _ => lease,
        };
        self.readers.submit(ReaderJob::Direct {
            read,
            file,
            span,
            lease,
        });
    }

    fn tell(&self, stream: StreamId, completion: Completion) {
        if let Some(channel) = self.channels.get(usize::from(stream.worker)) {
            channel.tell(completion);
        }
    }
}
