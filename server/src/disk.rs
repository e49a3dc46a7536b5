//! The thread of one device: drives the disk machine, hands its reads to reading threads, and its
//! news to the workers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread;

use ackpace_core::conn::{ObjectId, Span, StreamId, Want};
use ackpace_core::disk::{Disk, In, Out, ReadError, ReadId};
use ackpace_core::limits::READS_IN_FLIGHT_MAX;
use ackpace_core::machine::Machine;
use crossbeam_queue::ArrayQueue;
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock::Clock;
use crate::mailbox::{Bell, Mailboxes};
use crate::store::device::{Device, Devices};
use crate::store::file::File;
use crate::store::reader::Reader;

/// What a worker asks.
#[derive(Debug)]
pub enum Ask {
    /// A wish, with the file that it is about.
    Want(Want, Arc<File>),
    /// A stream is gone.
    Forget(StreamId),
}

/// What a worker is told.
#[derive(Clone, Copy, Debug)]
pub enum News {
    /// A wish is fulfilled.
    Filled(StreamId, Span),
    /// It can't be.
    Failed(StreamId, ReadError),
}

/// One worker's side of the conversation with all disks.
pub struct Line {
    /// What the disks tell this worker: a connection has one stream, so one box a connection.
    pub news: Mailboxes<News>,
    /// Rung when a stream of the worker stands still for what came.
    pub bell: Arc<Bell>,
}

/// A disk thread as the workers see it.
pub struct Handle {
    asks: Vec<Mailboxes<Ask>>,
    bell: Arc<Bell>,
}

impl Handle {
    /// Leave a message; the disk thread hears of it by [`Handle::ring`].
    pub fn ask(&self, worker: u16, place: u32, ask: Ask) {
        self.asks[usize::from(worker)].put(place, ask);
    }

    /// Wake the disk thread: once a turn is enough.
    pub fn ring(&self) {
        self.bell.ring();
    }
}

/// A finished read.
struct Finished {
    read: ReadId,
    result: Result<(), ReadError>,
    service_us: u64,
}

type Order = (ReadId, Arc<File>, Span);

/// Starts the thread of a device and its readers. They live as long as the process: a read that hangs
/// in the kernel can't be called back.
///
/// # Errors
/// When threads or descriptors are lacking.
pub fn start(
    index: u16,
    devices: Arc<Devices>,
    lines: Arc<Vec<Line>>,
    places: u32,
    clock: Clock,
) -> io::Result<Arc<Handle>> {
    let handle = Arc::new(Handle {
        asks: lines.iter().map(|_| Mailboxes::new(places)).collect(),
        bell: Arc::new(Bell::new()?),
    });
    let (orders, work) = crossbeam_channel::bounded::<Order>(READS_IN_FLIGHT_MAX);
    let finished = Arc::new(ArrayQueue::new(READS_IN_FLIGHT_MAX));
    for n in 0..READS_IN_FLIGHT_MAX {
        let reader = Reader::new()?;
        let (work, devices, finished, bell) = (
            work.clone(),
            Arc::clone(&devices),
            Arc::clone(&finished),
            Arc::clone(&handle.bell),
        );
        thread::Builder::new()
            .name(format!("read-{index}.{n}"))
            .spawn(move || {
                for (read, file, span) in work {
                    let Some(device) = devices.get(index) else {
                        return;
                    };
                    finish(&reader, device, &clock, &finished, (read, file, span));
                    bell.ring();
                }
            })?;
    }
    let shell = Shell {
        disk: Disk::default(),
        files: Wanted::default(),
        handle: Arc::clone(&handle),
        lines,
        orders,
        finished,
        clock,
    };
    thread::Builder::new()
        .name(format!("disk-{index}"))
        .spawn(move || shell.run())?;
    Ok(handle)
}

fn finish(
    reader: &Reader,
    device: &Device,
    clock: &Clock,
    finished: &ArrayQueue<Finished>,
    order: Order,
) {
    let (read, file, span) = order;
    let begun = clock.now();
    let result = reader.promote(&file, device, span);
    let service_us = clock.now().since_us(begun);
    let pushed = finished.push(Finished {
        read,
        result,
        service_us,
    });
    assert!(pushed.is_ok(), "no more reads finish than are in flight");
}

/// The files of living wishes: what the machine's orders refer to.
#[derive(Default)]
struct Wanted {
    /// The wish of each connection's place in its worker's table.
    by_place: HashMap<(u16, u32), ObjectId>,
    by_object: HashMap<ObjectId, (Arc<File>, u32)>,
}

impl Wanted {
    /// A wish replaces the earlier one of its place.
    fn add(&mut self, stream: StreamId, file: Arc<File>) {
        self.remove(stream);
        self.by_place
            .insert((stream.worker, stream.conn.index), file.id);
        self.by_object.entry(file.id).or_insert((file, 0)).1 += 1;
    }

    fn remove(&mut self, stream: StreamId) {
        let Some(object) = self.by_place.remove(&(stream.worker, stream.conn.index)) else {
            return;
        };
        if let Some((_, wishes)) = self.by_object.get_mut(&object) {
            *wishes -= 1;
            if *wishes == 0 {
                self.by_object.remove(&object);
            }
        }
    }

    fn get(&self, object: ObjectId) -> Option<Arc<File>> {
        self.by_object
            .get(&object)
            .map(|(file, _)| Arc::clone(file))
    }
}

struct Shell {
    disk: Disk,
    files: Wanted,
    handle: Arc<Handle>,
    lines: Arc<Vec<Line>>,
    orders: crossbeam_channel::Sender<Order>,
    finished: Arc<ArrayQueue<Finished>>,
    clock: Clock,
}

impl Shell {
    fn run(mut self) {
        loop {
            let mut fds = [PollFd::new(&*self.handle.bell, PollFlags::IN)];
            let _ = poll(&mut fds, None);
            self.handle.bell.heard();
            self.turn();
        }
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        while let Some(Finished {
            read,
            result,
            service_us,
        }) = self.finished.pop()
        {
            self.disk.on(
                In::Done {
                    read,
                    result,
                    service_us,
                },
                now,
            );
        }
        let handle = Arc::clone(&self.handle);
        for asks in &handle.asks {
            while let Some(ask) = asks.take() {
                self.hear(ask, now);
            }
        }
        while let Some(out) = self.disk.poll(now) {
            self.execute(out);
        }
    }

    fn hear(&mut self, ask: Ask, now: ackpace_core::units::Instant) {
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

    fn execute(&mut self, out: Out) {
        match out {
            Out::Read { read, object, span } => {
                let Some(file) = self.files.get(object) else {
                    debug_assert!(false, "a read is ordered for a living wish only");
                    return;
                };
                let sent = self.orders.try_send((read, file, span));
                assert!(
                    sent.is_ok(),
                    "the machine knows how many reads are in flight"
                );
            }
            Out::Filled {
                stream,
                span,
                held: _,
                urgent,
            } => {
                self.files.remove(stream);
                self.tell(stream, News::Filled(stream, span), urgent);
            }
            Out::Failed { stream, error } => {
                self.files.remove(stream);
                self.tell(stream, News::Failed(stream, error), true);
            }
        }
    }

    fn tell(&self, stream: StreamId, news: News, wake: bool) {
        let Some(line) = self.lines.get(usize::from(stream.worker)) else {
            return;
        };
        line.news.put(stream.conn.index, news);
        if wake {
            line.bell.ring();
        }
    }
}
