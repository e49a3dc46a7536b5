//! The thread of one device: drives the disk machine, hands its reads to the kernel or to reading threads, and its
//! completions to the workers.

mod look;
mod readers;
mod shell;
#[cfg(test)]
mod tests;
mod wanted;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use ackpace_core::conn::{Span, StreamId, Want, WantSeq};
use ackpace_core::disk::{Chosen, Disk, ReadError, Settings};
use ackpace_core::limits::{READS_IN_FLIGHT_MAX, SLOT_BYTES};
use crossbeam_channel::{Sender, bounded};

pub use self::look::{DeviceLook, ToldDecision};
use self::readers::Readers;
use self::shell::Shell;
use self::wanted::Wanted;
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::mailbox::{Mailboxes, ThreadWaker};
use crate::sched;
use crate::store::device::Devices;
use crate::store::file::File;
use crate::store::pool::{Lease, Pool};
use crate::store::ring::{self, Ring};

/// A message from a worker to a disk.
#[derive(Debug)]
pub enum Ask {
    /// A want, with its file.
    Want(Want, Arc<File>),
    /// A stream is gone.
    Forget(StreamId),
}

/// A message from a disk to a worker: the completion of a want.
#[derive(Debug)]
pub enum Completion {
    /// The want of this number is fulfilled, up to the end of the span, by a read that was chosen for this reason.
    Filled(StreamId, WantSeq, Span, ReadBytes, Chosen),
    /// Its read failed.
    Failed(StreamId, WantSeq, ReadError),
}

/// Where the bytes of a fulfilled want are.
#[derive(Debug)]
pub enum ReadBytes {
    /// In the page cache.
    PageCache,
    /// In slots, which now belong to the stream.
    Slots(SlotBytes),
}

/// Bytes of a file in slots of the pool.
#[derive(Debug)]
pub struct SlotBytes {
    /// The slots.
    pub lease: Lease,
    /// The offset in the file of their first byte.
    pub from_bytes: u64,
    /// The bytes of the file that they hold.
    pub span: Span,
    /// The file was checked after they were read, so they are of the promised version, even if the file changes later.
    pub proven: bool,
}

/// The receiving side of one worker for the completions of all disks.
pub struct Channel {
    /// The completions: one mailbox per connection, since a connection has one stream.
    pub completions: Mailboxes<Completion>,
    /// Woken when a stream of the worker is stalled for the bytes that came, or soon will be.
    pub waker: Arc<ThreadWaker>,
}

/// A request for a snapshot of the device; the answer goes back by this channel.
type Question = Sender<DeviceLook>;

/// A disk thread as the workers see it.
pub struct Handle {
    asks: Vec<Mailboxes<Ask>>,
    waker: Arc<ThreadWaker>,
    pool: Arc<Pool>,
    tally: Tally,
    questions: Sender<Question>,
}

/// Memory of a slot of the pool, with its entry in the list of slots that a stream holds.
pub const SLOT_COST_BYTES: u64 = SLOT_BYTES + 32;

/// The counters of a device's thread.
#[derive(Debug, Default)]
pub struct Tally {
    /// Reads that ended, failed ones too.
    pub reads: AtomicU64,
    /// Reads that failed.
    pub failed: AtomicU64,
    /// Bytes of the reads that did not fail.
    pub bytes: AtomicU64,
    /// The service time of all reads.
    pub service_us: AtomicU64,
    /// Reads that went past the page cache.
    pub direct: AtomicU64,
    /// Streams that read from the device now (N).
    pub streams: AtomicU64,
    /// The rate of all these together (B_net), bytes per second.
    pub rates_bytes_per_s: AtomicU64,
    /// Wants that were due and that signs of congestion deferred.
    pub delayed: AtomicU64,
    /// The bytes that would have been read for them.
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
    /// Lost wakeups, mended: streams that waited and nobody worked for. Each is a bug of ours.
    pub mended: AtomicU64,
}

/// What a disk thread is given.
#[derive(Clone)]
pub struct Context {
    /// All devices met so far.
    pub devices: Arc<Devices>,
    /// The workers' mailboxes and wakers.
    pub channels: Arc<Vec<Channel>>,
    /// Slots in the table of connections of each worker.
    pub places: u32,
    /// The clock of all machines.
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
}

impl Handle {
    /// Leaves a message; [`Handle::wake`] wakes the disk thread for it.
    pub fn ask(&self, worker: u16, place: u32, ask: Ask) {
        self.asks[usize::from(worker)].put(place, ask);
    }

    /// The counters of the device.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Wakes the disk thread: once a turn is enough.
    pub fn wake(&self) {
        self.waker.wake();
    }
}

/// Starts the thread of a device and its readers. They live as long as the process, since a read that hangs in the
/// kernel can't be cancelled.
///
/// # Errors
/// When threads, descriptors or address space are lacking.
pub fn start(index: u16, equipment: &Context) -> io::Result<Arc<Handle>> {
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
    pool.retire(u32::MAX); // none of it is ours until it is claimed from the ledger
    let (questions, asked) = bounded(1);
    let handle = Arc::new(Handle {
        questions,
        asks: equipment
            .channels
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
        files: Wanted::new(settings.cancel),
        landed: None,
        handle: Arc::clone(&handle),
        questions: asked,
        channels: Arc::clone(&equipment.channels),
        readers,
        ring,
        clock: equipment.clock,
        devices: Arc::clone(&equipment.devices),
        index,
        ledger: Arc::clone(&equipment.ledger),
        budget_slots: None,
        divided_at: None,
        divide_at: None,
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

impl Tally {
    fn count(&self, result: Result<u64, ReadError>, service_us: u64, direct: bool) {
        self.reads.fetch_add(1, Relaxed);
        self.failed.fetch_add(result.is_err().into(), Relaxed);
        self.bytes.fetch_add(result.unwrap_or(0), Relaxed);
        self.service_us.fetch_add(service_us, Relaxed);
        self.direct.fetch_add(direct.into(), Relaxed);
    }
}
