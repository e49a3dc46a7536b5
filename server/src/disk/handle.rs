//! A device's thread as others see it.

use std::sync::Arc;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ackpace_core::disk::Disk;
use ackpace_core::limits::SLOT_BYTES;
use crossbeam_channel::{Sender, bounded};

use super::snapshot::Question;
use super::{Context, DeviceAnswer, DeviceTally, DiskAsk};
use crate::mailbox::{Mailboxes, ThreadWaker};
use crate::store::pool::Pool;

/// A disk thread as the workers see it.
pub struct DiskHandle {
    pub(super) asks: Vec<Mailboxes<DiskAsk>>,
    pub(super) waker: Arc<ThreadWaker>,
    pub(super) pool: Arc<Pool>,
    pub(super) tally: DeviceTally,
    pub(super) questions: Sender<Question>,
}

impl DiskHandle {
    /// The handle of a thread that uses this pool and answers these questions.
    pub(crate) fn new(
        context: &Context,
        pool: Arc<Pool>,
        waker: Arc<ThreadWaker>,
        questions: Sender<Question>,
    ) -> DiskHandle {
        let asks = context.channels.iter();
        DiskHandle {
            asks: asks
                .map(|channel| Mailboxes::new(channel.completions.places()))
                .collect(),
            waker,
            pool,
            tally: DeviceTally::default(),
            questions,
        }
    }

    /// The next message of a worker, for the thread.
    pub(crate) fn next_ask(&self) -> Option<DiskAsk> {
        self.asks.iter().find_map(Mailboxes::take)
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn waker(&self) -> &ThreadWaker {
        &self.waker
    }

    /// Leaves a message; [`DiskHandle::wake`] wakes the disk thread for it.
    pub fn ask(&self, worker: u16, place: u32, ask: DiskAsk) {
        self.asks[usize::from(worker)].put(place, ask);
    }

    pub fn tally(&self) -> &DeviceTally {
        &self.tally
    }

    /// Wakes the disk thread: once a turn is enough.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Whether the disk thread was awake since this was last asked ([`ThreadWaker::was_awake`]).
    pub fn was_awake(&self) -> bool {
        self.waker.was_awake()
    }
}

impl DiskHandle {
    /// Asks the thread; `None` if it does not answer within `timeout`.
    pub fn snapshot(&self, timeout: Duration) -> Option<DeviceAnswer> {
        let (reply, told) = bounded(1);
        self.questions.try_send(reply).ok()?;
        self.wake();
        told.recv_timeout(timeout).ok()
    }
}

impl DiskHandle {
    /// Publishes the load of the device.
    pub(crate) fn publish(&self, disk: &Disk) {
        let (tally, load, model) = (&self.tally, disk.load(), disk.model());
        tally.streams.store(load.streams, Relaxed);
        tally
            .rates_bytes_per_s
            .store(load.rates_bytes_per_s, Relaxed);
        let delayed = disk.delayed();
        tally.delayed.store(delayed.wants, Relaxed);
        tally.delayed_bytes.store(delayed.bytes, Relaxed);
        tally.target_us.store(disk.target_us(), Relaxed);
        tally.positioning_us.store(model.positioning_us(), Relaxed);
        tally
            .media_bytes_per_s
            .store(model.media_bytes_per_s(), Relaxed);
        tally.reads_max.store(disk.reads_max() as u64, Relaxed);
        let in_flight = disk.reads_in_flight() as u64;
        tally.in_flight.store(in_flight, Relaxed);
        let pool = &self.pool;
        let used = pool.slots().saturating_sub(pool.free_slots());
        let used_bytes = u64::from(used) * SLOT_BYTES;
        tally.memory_used_bytes.store(used_bytes, Relaxed);
        tally.memory_bytes.store(load.memory_bytes, Relaxed);
        let waits = disk.slots_lacking() > 0;
        tally.memory_waits.fetch_add(waits.into(), Relaxed);
    }
}
