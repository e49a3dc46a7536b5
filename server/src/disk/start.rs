//! The disk threads, each started when the first cold byte of its device is wanted.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use ackpace_core::disk::{Disk, ReadError, Settings};
use ackpace_core::limits::{READS_IN_FLIGHT_MAX, SLOT_BYTES};
use ackpace_core::units::Instant;
use crossbeam_channel::{Receiver, bounded};
use rustix::event::{PollFd, PollFlags, poll};

use super::budget::Budget;
use super::readers::Readers;
use super::wanted::Wanted;
use super::{Completion, Context, DeviceAnswer, DiskAsk, DiskHandle, Question, Shell};
use crate::descriptors;
use crate::limits::{DEVICES_MAX, QUESTIONS_PER_TURN_MAX};
use crate::log::{Seldom, Topic};
use crate::mailbox::ThreadWaker;
use crate::sched;
use crate::store::pool::Pool;
use crate::store::ring::{self, Ring};

/// All disk threads of the process, by the number of their device.
pub struct Disks {
    handles: [OnceLock<Arc<DiskHandle>>; DEVICES_MAX],
    starting: Mutex<()>,
    context: Context,
}

impl Disks {
    pub fn new(context: Context) -> Disks {
        Disks {
            handles: Default::default(),
            starting: Mutex::default(),
            context,
        }
    }

    /// The thread of a device, started if need be.
    pub fn get(&self, device: u16) -> io::Result<&Arc<DiskHandle>> {
        let place = &self.handles[usize::from(device) % DEVICES_MAX];
        if let Some(handle) = place.get() {
            return Ok(handle);
        }
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if place.get().is_none() {
            let handle = start(device, &self.context)?;
            place.get_or_init(|| handle);
        }
        place.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// What each thread is given.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Enters a thread of another kind, which is there from the start.
    pub fn enter(&self, device: u16, handle: Arc<DiskHandle>) {
        let _ = self.handles[usize::from(device) % DEVICES_MAX].set(handle);
    }

    /// The threads that were started, by number.
    pub fn started(&self) -> impl Iterator<Item = (usize, &DiskHandle)> {
        let handles = self.handles.iter().enumerate();
        handles.filter_map(|(device, place)| Some((device, &**place.get()?)))
    }

    /// Wakes the threads whose bits are set.
    pub fn wake(&self, devices: u64) {
        for (device, place) in self.handles.iter().enumerate() {
            if (devices >> device) & 1 == 1 {
                place.get().inspect(|handle| handle.wake());
            }
        }
    }
}

/// Starts the thread of a device, which starts its readers: a worker calls this in a turn, and eight more threads
/// would keep it for half a millisecond. All of them live as long as the process, since a read that hangs in the
/// kernel can't be cancelled.
fn start(index: u16, context: &Context) -> io::Result<Arc<DiskHandle>> {
    let device = context.devices.get(index).ok_or(io::ErrorKind::NotFound)?;
    let settings = Settings {
        rotational: device.rotational,
        spindles: device.spindles() as u32,
        ..context.settings
    };
    let waker = Arc::new(ThreadWaker::new()?);
    let slots = u32::try_from(context.pool_bytes / SLOT_BYTES).unwrap_or(u32::MAX);
    // None of it is ours until it is claimed from the ledger.
    let pool = Arc::new(Pool::new(slots, Arc::clone(&waker))?);
    let (questions, asked) = bounded(1);
    let handle = Arc::new(DiskHandle::new(
        context,
        pool,
        Arc::clone(&waker),
        questions,
    ));
    let starting = Starting {
        index,
        settings,
        context: context.clone(),
        handle: Arc::clone(&handle),
        questions: asked,
    };
    thread::Builder::new()
        .name(format!("disk-{index}"))
        .spawn(move || {
            sched::give_way();
            starting.shell().run();
        })?;
    // Behind all that may fail here: nobody would give it back.
    context.ledger.take(context.device_bytes);
    context.ledger.enter(usize::from(index), waker);
    Ok(handle)
}

/// Tells the log that the threads of a disk could not be started, and what to do about it.
pub fn tell_lacking(error: &io::Error, seldom: &Seldom, now: Instant) {
    let text = lacking(error);
    seldom.tell(Topic::DiskThreads, None, format_args!("{text}"), now);
}

fn lacking(error: &io::Error) -> String {
    let cure = match descriptors::cure(error.raw_os_error()) {
        "" => "; raise TasksMax= or ulimit -u",
        cure => cure,
    };
    format!("the threads of a disk could not be started: {error}; its files can't be read{cure}")
}

/// How a disk is read, if its file system allows it.
fn way(direct: bool, by_ring: bool) -> &'static str {
    match (direct, by_ring) {
        (true, true) => "past the page cache by io_uring, and into it what several clients want",
        (true, false) => "past the page cache by threads, and into it what several clients want",
        (false, _) => "all reads go into the page cache (read = page-cache)",
    }
}

/// A disk's thread that has no readers yet.
pub(super) struct Starting {
    pub index: u16,
    pub settings: Settings,
    pub context: Context,
    pub handle: Arc<DiskHandle>,
    pub questions: Receiver<Question>,
}

impl Starting {
    /// The thread's state, once its readers have been started.
    fn shell(self) -> Shell {
        let waker = &self.handle.waker;
        let readers = self.readers(|| Readers::start(self.index, Arc::clone(waker), &self.context));
        let ring = match Ring::new(READS_IN_FLIGHT_MAX as u32) {
            Ok(ring) => Some(ring),
            Err(error) => {
                tracing::warn!("{}", ring::refusal(&error));
                None
            }
        };
        let (settings, context) = (self.settings, self.context);
        let device = context.devices.get(self.index);
        let device = device.map_or_else(|| self.index.to_string(), |device| device.shown());
        tracing::info!(
            "device {device} is read from for the first time: {}",
            way(settings.direct, ring.is_some())
        );
        Shell {
            disk: Disk::new(settings),
            files: Wanted::new(settings.cancel),
            landed: None,
            handle: self.handle,
            questions: self.questions,
            channels: context.channels,
            readers,
            ring,
            clock: context.clock,
            devices: context.devices,
            index: self.index,
            budget: Budget::new(context.ledger),
            told_refusal: false,
        }
    }

    /// Starts the readers by this function. While that fails, each want fails, and the next one tries again; so does a question,
    /// which is answered.
    pub fn readers(&self, start: impl Fn() -> io::Result<Readers>) -> Readers {
        loop {
            match start() {
                Ok(readers) => return readers,
                Err(error) => {
                    tell_lacking(&error, &self.context.seldom, self.context.clock.now());
                    self.fail_wants(&error);
                    self.answer(&error);
                    // Only a signal ends this early, which does no harm.
                    let _ = poll(&mut [PollFd::new(&*self.handle.waker, PollFlags::IN)], None);
                    self.handle.waker.awake();
                }
            }
        }
    }

    fn answer(&self, error: &io::Error) {
        for reply in self.questions.try_iter().take(QUESTIONS_PER_TURN_MAX) {
            // The receiver may have timed out.
            let _ = reply.try_send(DeviceAnswer::Waits(lacking(error)));
        }
    }

    fn fail_wants(&self, error: &io::Error) {
        let (asks, channels) = (&self.handle.asks, &self.context.channels);
        for (asks, channel) in asks.iter().zip(channels.iter()) {
            while let Some(ask) = asks.take() {
                let DiskAsk::Want(want, _) = ask else {
                    continue;
                };
                let error = ReadError {
                    errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
                    offset_bytes: want.span.offset_bytes,
                };
                let failed = Completion::Failed(want.stream, want.seq, error);
                channel.tell(failed);
            }
        }
    }
}
