//! The reading threads of a device, for calls that the kernel can only make by blocking.

use std::io;
use std::sync::Arc;
use std::thread;

use ackpace_core::conn::{ObjectId, Span};
use ackpace_core::disk::{Extent, Layout, ReadError, ReadId};
use crossbeam_channel::{Receiver, Sender, unbounded};

use super::Context;
use crate::clock::Clock;
use crate::limits::READERS_MAX;
use crate::mailbox::ThreadWaker;
use crate::sched;
use crate::store::device::{Device, Devices};
use crate::store::direct::{Why, extents};
use crate::store::file::File;
use crate::store::pool::Lease;
use crate::store::reader::Reader;

pub(super) enum ReaderJob {
    /// Open the file past the page cache, and find out where it lies.
    Map(Arc<File>),
    Promote {
        read: ReadId,
        file: Arc<File>,
        span: Span,
    },
    /// Read into slots: past the page cache, or through it where that is refused.
    Direct {
        read: ReadId,
        file: Arc<File>,
        span: Span,
        lease: Lease,
    },
}

pub(super) enum Finished {
    Mapped {
        object: ObjectId,
        layout: Layout,
        /// Why it can't be read past the page cache, if so.
        refusal: Option<Why>,
    },
    Read {
        read: ReadId,
        span: Span,
        lease: Option<Lease>,
        result: Result<u64, ReadError>,
        service_us: u64,
    },
}

/// The threads and their queues. Each queue holds at most one message for each read in flight and each stream with a
/// want; the machine sees to that.
pub(super) struct Readers {
    orders: Sender<ReaderJob>,
    finished: Receiver<Finished>,
}

impl Readers {
    pub fn start(index: u16, waker: Arc<ThreadWaker>, context: &Context) -> io::Result<Readers> {
        let (orders, work) = unbounded::<ReaderJob>();
        let (done, finished) = unbounded();
        for n in 0..READERS_MAX {
            let thread = ReadingThread {
                reader: Reader::open(),
                index,
                devices: Arc::clone(&context.devices),
                clock: context.clock,
                direct: context.settings.direct,
                done: done.clone(),
            };
            let (work, waker) = (work.clone(), Arc::clone(&waker));
            thread::Builder::new()
                .name(format!("read-{index}.{n}"))
                .spawn(move || {
                    sched::give_way();
                    for job in work {
                        thread.perform(job);
                        waker.wake();
                    }
                })?;
        }
        Ok(Readers { orders, finished })
    }

    #[cfg(test)]
    pub fn by_hand() -> (Readers, Receiver<ReaderJob>, Sender<Finished>) {
        let ((orders, work), (done, finished)) = (unbounded(), unbounded());
        (Readers { orders, finished }, work, done)
    }

    /// Hands over a job; the threads live as long as the caller.
    pub fn submit(&self, job: ReaderJob) {
        let sent = self.orders.send(job);
        debug_assert!(
            sent.is_ok(),
            "the reading threads live as long as the process"
        );
    }

    pub fn finished(&self) -> Option<Finished> {
        self.finished.try_recv().ok()
    }
}

struct ReadingThread {
    reader: Reader,
    index: u16,
    devices: Arc<Devices>,
    clock: Clock,
    /// Files are to be read past the page cache.
    direct: bool,
    done: Sender<Finished>,
}

impl ReadingThread {
    fn perform(&self, job: ReaderJob) {
        let begun = self.clock.now();
        let service_us = || self.clock.now().since_us(begun);
        let finished = match job {
            ReaderJob::Map(file) => {
                let device = self.devices.get(self.index);
                let _under_way = device.map(Device::look_up);
                let refusal = self.direct.then(|| file.open_direct().err()).flatten();
                Finished::Mapped {
                    object: file.id,
                    layout: layout(&file, &self.devices),
                    // Another reason may not last.
                    refusal: refusal.filter(|why| why.is_of_file_system()),
                }
            }
            ReaderJob::Promote { read, file, span } => {
                let device = self.devices.get(self.index);
                let result = device.map_or(Ok(span.len_bytes), |device: &Device| {
                    self.reader.promote(&file, device, span)
                });
                Finished::Read {
                    read,
                    span,
                    lease: None,
                    result,
                    service_us: service_us(),
                }
            }
            ReaderJob::Direct {
                read,
                file,
                span,
                mut lease,
            } => {
                let result = match file.open_direct() {
                    Ok(direct) => self.reader.read_direct(&*direct, span, &mut lease),
                    Err(_) => self.reader.read_direct(&*file, span, &mut lease),
                };
                Finished::Read {
                    read,
                    span,
                    lease: Some(lease),
                    result,
                    service_us: service_us(),
                }
            }
        };
        let _ = self.done.send(finished);
    }
}

/// Extents of one file that are asked for. More: what lies behind them counts as following the last one that is kept of these
/// ([`Layout::new`]).
const EXTENTS_MAX: usize = 64;

/// Where the file lies among all that is on its device.
fn layout(file: &File, devices: &Devices) -> Layout {
    let base_bytes = devices.of(&file.fd, file.fd.file_system()).base_bytes;
    let found = extents(&file.fd, EXTENTS_MAX).unwrap_or_default();
    let known = found.into_iter().filter_map(|extent| {
        Some(Extent {
            file_bytes: extent.file_offset_bytes,
            device_bytes: extent.phys_offset_bytes?.saturating_add(base_bytes),
            len_bytes: extent.len_bytes,
        })
    });
    Layout::new(known.collect())
}
