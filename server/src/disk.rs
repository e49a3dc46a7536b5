//! The thread of one device: drives the disk machine, hands its reads to the kernel or to reading threads, and its
//! news to the workers.

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

use ackpace_core::conn::{Span, StreamId, Want};
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
pub enum Completion {
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
pub struct Channel {
    /// What the disks tell this worker: a connection has one stream, so one box a connection.
    pub news: Mailboxes<Completion>,
    /// Signalled when a stream of the worker stands still for what came.
    pub waker: Arc<ThreadWaker>,
}

/// Somebody asks how the device stands; the answer goes back here.
type Question = Sender<DeviceLook>;

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
pub struct Context {
    /// All devices met.
    pub devices: Arc<Devices>,
    /// The workers' sides.
    pub channels: Arc<Vec<Channel>>,
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
    pool.retire(u32::MAX); // all of it is others' until it was claimed
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
        files: Wanted::default(),
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

impl Tally {
    fn count(&self, result: Result<u64, ReadError>, service_us: u64, direct: bool) {
        self.reads.fetch_add(1, Relaxed);
        self.failed.fetch_add(result.is_err().into(), Relaxed);
        self.bytes.fetch_add(result.unwrap_or(0), Relaxed);
        self.service_us.fetch_add(service_us, Relaxed);
        self.direct.fetch_add(direct.into(), Relaxed);
    }
}
