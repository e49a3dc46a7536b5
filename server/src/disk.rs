//! The thread of one device: drives the disk machine, hands its reads to the kernel or to reading threads, and its
//! news to the workers.

mod look;
mod readers;
#[cfg(test)]
mod tests;
mod wanted;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use ackpace_core::conn::{Held, ObjectId, Span, StreamId, Want};
use ackpace_core::disk::{Chosen, Destination, Disk, In, Out, ReadError, ReadId, Settings};
use ackpace_core::limits::{AHEAD_EACH_US, AHEAD_SHORT_US, READS_IN_FLIGHT_MAX, SLOT_BYTES};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::look::Question;
pub use self::look::{DeviceLook, ToldDecision};
use self::readers::{Finished, Job, Readers};
use self::wanted::Wanted;
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::mailbox::{Mailboxes, ThreadWaker};
use crate::memory;
use crate::sched;
use crate::store::device::{Device, Devices};
use crate::store::file::File;
use crate::store::pool::{Lease, Pool};
use crate::store::ring::{self, Ring};

/// What a worker asks.
#[derive(Debug)]
pub enum Ask {
    /// A wish, with the file that it is about.
    Want(Want, Arc<File>),
    /// A stream is gone.
    Forget(StreamId),
}

/// What a worker is told.
#[derive(Debug)]
pub enum News {
    /// The wish of this number is fulfilled, as far as the span goes, by a read that was chosen so.
    Filled(StreamId, u32, Span, Fill, Chosen),
    /// It can't be.
    Failed(StreamId, u32, ReadError),
}

/// Where the bytes of a fulfilled wish are.
#[derive(Debug)]
pub enum Fill {
    /// In the page cache.
    PageCache,
    /// In memory that goes to the stream.
    Piece(Piece),
}

/// Bytes of a file in slots of the pool.
#[derive(Debug)]
pub struct Piece {
    /// The slots.
    pub lease: Lease,
    /// Where in the file their first byte is.
    pub from_bytes: u64,
    /// Which bytes of the file are there.
    pub span: Span,
    /// The file was looked at since they were read: they are of the version that was promised, whatever becomes of it.
    pub proven: bool,
}

/// One worker's side of the conversation with all disks.
pub struct Line {
    /// What the disks tell this worker: a connection has one stream, so one box a connection.
    pub news: Mailboxes<News>,
    /// Signalled when a stream of the worker stands still for what came.
    pub waker: Arc<ThreadWaker>,
}

/// A disk thread as the workers see it.
pub struct Handle {
    asks: Vec<Mailboxes<Ask>>,
    waker: Arc<ThreadWaker>,
    pool: Arc<Pool>,
    tally: Tally,
    questions: Sender<Question>,
}

/// A slot of the pool, with its part of the list of slots that a stream holds.
pub const SLOT_COST_BYTES: u64 = SLOT_BYTES + 32;

/// What the thread of a device counts.
#[derive(Debug, Default)]
pub struct Tally {
    /// Reads that came to an end, failed ones too.
    pub reads: AtomicU64,
    /// Those that failed.
    pub failed: AtomicU64,
    /// Bytes of those that did not.
    pub bytes: AtomicU64,
    /// What all took together.
    pub service_us: AtomicU64,
    /// Those of all reads that went past the page cache.
    pub direct: AtomicU64,
    /// Streams that read from the device now (N).
    pub streams: AtomicU64,
    /// What they take together (B_net), bytes per second.
    pub rates_bytes_per_s: AtomicU64,
    /// Wishes that were due and that signs of congestion have put off.
    pub delayed: AtomicU64,
    /// What would have been read for them.
    pub delayed_bytes: AtomicU64,
    /// T_D, the time for which a stream's bytes are to last after a read.
    pub target_us: AtomicU64,
    /// t_p, the time of positioning at the present load.
    pub positioning_us: AtomicU64,
    /// R, the rate of the medium.
    pub media_bytes_per_s: AtomicU64,
    /// K, reads given to the device at once.
    pub reads_max: AtomicU64,
    /// Reads in the device now.
    pub in_flight: AtomicU64,
    /// Memory of the pool in use, bytes.
    pub memory_used_bytes: AtomicU64,
    /// M, bytes.
    pub memory_bytes: AtomicU64,
    /// Turns after which the next read waited for memory.
    pub memory_waits: AtomicU64,
    /// Wishes for which nobody was at work: our own faults, mended.
    pub mended: AtomicU64,
}

/// What a disk thread is given.
#[derive(Clone)]
pub struct Equipment {
    /// All devices met.
    pub devices: Arc<Devices>,
    /// The workers' sides.
    pub lines: Arc<Vec<Line>>,
    /// Connections that a worker may have.
    pub places: u32,
    /// The time of all machines.
    pub clock: Clock,
    /// How it chooses; what depends on the device is filled in here. Its memory is what tables go by: what is read ahead goes by
    /// the ledger.
    pub settings: Settings,
    /// Who has how much memory.
    pub ledger: Arc<Ledger>,
    /// What one disk may have at most for reading ahead.
    pub pool_bytes: u64,
    /// What its thread, its readers and its tables take.
    pub device_bytes: u64,
}

impl Handle {
    /// Leave a message; the disk thread hears of it by [`Handle::wake`].
    pub fn ask(&self, worker: u16, place: u32, ask: Ask) {
        self.asks[usize::from(worker)].put(place, ask);
    }

    /// What was read, and how the device is loaded.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Wake the disk thread: once a turn is enough.
    pub fn wake(&self) {
        self.waker.wake();
    }
}

/// Starts the thread of a device and its readers. They live as long as the process: a read that hangs
/// in the kernel can't be called back.
///
/// # Errors
/// When threads, descriptors or address space are lacking.
pub fn start(index: u16, equipment: &Equipment) -> io::Result<Arc<Handle>> {
    let device = equipment
        .devices
        .get(index)
        .ok_or(io::ErrorKind::NotFound)?;
    let settings = Settings {
        rotational: device.rotational,
        spindles: device.spindles() as u32,
        ..equipment.settings
    };
    let waker = Arc::new(ThreadWaker::new()?);
    let slots = u32::try_from(equipment.pool_bytes / SLOT_BYTES).unwrap_or(u32::MAX);
    let pool = Arc::new(Pool::new(slots, Arc::clone(&waker))?);
    pool.retire(u32::MAX); // all of it is others' until it was claimed
    let (questions, asked) = bounded(1);
    let handle = Arc::new(Handle {
        questions,
        asks: equipment
            .lines
            .iter()
            .map(|_| Mailboxes::new(equipment.places))
            .collect(),
        pool,
        waker: Arc::clone(&waker),
        tally: Tally::default(),
    });
    let ring = match Ring::new(READS_IN_FLIGHT_MAX as u32) {
        Ok(ring) => Some(ring),
        Err(error) => {
            tracing::warn!("{}", ring::refusal(&error));
            None
        }
    };
    let readers = Readers::start(index, Arc::clone(&handle.waker), equipment)?;
    equipment.ledger.take(equipment.device_bytes);
    equipment.ledger.enter(usize::from(index), waker);
    let shell = Shell {
        disk: Disk::new(settings),
        files: Wanted::default(),
        landed: None,
        handle: Arc::clone(&handle),
        questions: asked,
        lines: Arc::clone(&equipment.lines),
        readers,
        ring,
        clock: equipment.clock,
        devices: Arc::clone(&equipment.devices),
        index,
        ledger: Arc::clone(&equipment.ledger),
        budget_slots: None,
        divided_at: None,
        divide_at: None,
        cancel: settings.cancel,
        indirect: !settings.direct,
    };
    thread::Builder::new()
        .name(format!("disk-{index}"))
        .spawn(move || {
            sched::give_way();
            shell.run();
        })?;
    Ok(handle)
}

struct Shell {
    disk: Disk,
    files: Wanted,
    /// The memory of the read that has just come back, until the machine says whose it is.
    landed: Option<(ReadId, Lease, Span)>,
    handle: Arc<Handle>,
    questions: Receiver<Question>,
    lines: Arc<Vec<Line>>,
    readers: Readers,
    /// `None` where io_uring is refused: the reading threads read all.
    ring: Option<Ring<(ReadId, Instant)>>,
    clock: Clock,
    devices: Arc<Devices>,
    index: u16,
    ledger: Arc<Ledger>,
    /// What of the pool the machine may use; `None`: it was not told yet.
    budget_slots: Option<u32>,
    /// When the memory was last divided, and when it is to be again, if that does not wait for anything else.
    divided_at: Option<Instant>,
    divide_at: Option<Instant>,
    cancel: bool,
    /// The device can't be read past the page cache; that was said.
    indirect: bool,
}

impl Shell {
    fn run(mut self) {
        loop {
            self.wait();
            self.turn();
        }
    }

    /// Until something is asked or read, or a wish is due.
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

    fn turn(&mut self) {
        let now = self.clock.now();
        self.memory_came_back(now);
        self.look_at_device(now);
        self.hear_ring(now);
        while let Some(finished) = self.readers.finished() {
            self.finished(finished, now);
        }
        // The news is told before anything new is heard: it speaks of the wishes before.
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

    /// What others do not use of the memory is ours, and what they want comes back.
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

    /// Nobody rings for look-ups: as long as they matter the device is at work, and its next read ends soon.
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
        self.landed = None; // nobody's: its stream is gone
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
                if self.cancel {
                    self.files.remove(stream);
                } else {
                    self.files.keep_uncancelled(stream);
                }
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
                    (Held::Slots, Some((_, lease, all))) => Fill::Piece(Piece {
                        lease,
                        from_bytes: all.offset_bytes,
                        span,
                        proven: false,
                    }),
                    // Not lost, whatever went wrong here: the stream looks where its bytes are, and asks again.
                    (Held::Slots, None) => {
                        debug_assert!(false, "a read into slots has one stream");
                        Fill::PageCache
                    }
                    (Held::PageCache, _) => Fill::PageCache,
                };
                self.tell(
                    stream,
                    News::Filled(stream, seq, span, fill, chosen),
                    urgent,
                );
            }
            Out::Failed { stream, seq, error } => {
                self.tell(stream, News::Failed(stream, seq, error), true);
            }
            Out::Nudge(stream) => {
                if let Some(line) = self.lines.get(usize::from(stream.worker)) {
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
                "a read is ordered for a living wish and with free slots only"
            );
            // Not lost, whatever went wrong here: its waiters are told, its place in the device is free.
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

    fn tell(&self, stream: StreamId, news: News, wake: bool) {
        let Some(line) = self.lines.get(usize::from(stream.worker)) else {
            return;
        };
        line.news.put(stream.conn.index, news);
        if wake {
            line.waker.wake();
        }
    }

    /// Let others see how the device is loaded.
    fn publish(&self) {
        let (tally, load, model) = (&self.handle.tally, self.disk.load(), self.disk.model());
        tally.streams.store(load.streams, Relaxed);
        tally
            .rates_bytes_per_s
            .store(load.rates_bytes_per_s, Relaxed);
        let delayed = self.disk.delayed();
        tally.delayed.store(delayed.wishes, Relaxed);
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
                "streams waited for the disk and nobody was at work for them; they are read for now. Please report this"
            );
        }
        let waits = self.disk.slots_lacking() > 0;
        tally.memory_waits.fetch_add(waits.into(), Relaxed);
    }
}

impl Tally {
    fn count(&self, result: Result<u64, ReadError>, service_us: u64, direct: bool) {
        self.reads.fetch_add(1, Relaxed);
        self.failed.fetch_add(result.is_err().into(), Relaxed);
        self.bytes.fetch_add(result.unwrap_or(0), Relaxed);
        self.service_us.fetch_add(service_us, Relaxed);
        self.direct.fetch_add(direct.into(), Relaxed);
    }
}
