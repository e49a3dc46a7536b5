//! The thread of one device: drives the disk machine, hands its reads to reading threads, and its
//! news to the workers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use ackpace_core::conn::{ObjectId, Span, StreamId, Want};
use ackpace_core::disk::{Disk, In, Out, ReadError, ReadId};
use ackpace_core::limits::READS_IN_FLIGHT_MAX;
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use crossbeam_queue::ArrayQueue;
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock::Clock;
use crate::mailbox::{Bell, Mailboxes};
use crate::sched;
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
    tally: Tally,
}

/// What the reading threads of a device count together; a read takes longer than these additions by far.
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
}

impl Handle {
    /// Leave a message; the disk thread hears of it by [`Handle::ring`].
    pub fn ask(&self, worker: u16, place: u32, ask: Ask) {
        self.asks[usize::from(worker)].put(place, ask);
    }

    /// What was read.
    pub fn tally(&self) -> &Tally {
        &self.tally
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
        tally: Tally::default(),
    });
    let (orders, work) = crossbeam_channel::bounded::<Order>(READS_IN_FLIGHT_MAX);
    let finished = Arc::new(ArrayQueue::new(READS_IN_FLIGHT_MAX));
    for n in 0..READS_IN_FLIGHT_MAX {
        let reader = Reader::new()?;
        let (work, devices, finished, handle) = (
            work.clone(),
            Arc::clone(&devices),
            Arc::clone(&finished),
            Arc::clone(&handle),
        );
        thread::Builder::new()
            .name(format!("read-{index}.{n}"))
            .spawn(move || {
                sched::give_way();
                for (read, file, span) in work {
                    let Some(device) = devices.get(index) else {
                        return;
                    };
                    let len_bytes = span.len_bytes;
                    let done = finish(&reader, device, &clock, (read, file, span));
                    handle.tally.count(&done, len_bytes);
                    let pushed = finished.push(done);
                    assert!(pushed.is_ok(), "no more reads finish than are in flight");
                    handle.ring();
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
        .spawn(move || {
            sched::give_way();
            shell.run();
        })?;
    Ok(handle)
}

fn finish(reader: &Reader, device: &Device, clock: &Clock, order: Order) -> Finished {
    let (read, file, span) = order;
    let begun = clock.now();
    let result = reader.promote(&file, device, span);
    let service_us = clock.now().since_us(begun);
    Finished {
        read,
        result,
        service_us,
    }
}

impl Tally {
    fn count(&self, done: &Finished, len_bytes: u64) {
        let bytes = if done.result.is_ok() { len_bytes } else { 0 };
        self.reads.fetch_add(1, Relaxed);
        self.failed.fetch_add(done.result.is_err().into(), Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.service_us.fetch_add(done.service_us, Relaxed);
    }
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
            let done = In::Done {
                read,
                result,
                service_us,
            };
            self.disk.on(done, now);
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
            Out::Read { read, object, span } => {
                let Some(file) = self.files.get(object) else {
                    debug_assert!(false, "a read is ordered for a living wish only");
                    // Not lost, whatever went wrong here: its waiters are told, its place in the device is free.
                    let result = Err(ReadError {
                        errno: libc::EBADF,
                        offset_bytes: span.offset_bytes,
                    });
                    let service_us = 0;
                    let done = In::Done {
                        read,
                        result,
                        service_us,
                    };
                    return self.disk.on(done, now);
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

#[cfg(test)]
mod tests {
    use ackpace_core::conn::ConnId;
    use rustix::fs::fstat;

    use super::*;
    use crate::store::file::Files;

    /// The shell without its threads, and the readers' end of its orders.
    fn shell() -> (Shell, crossbeam_channel::Receiver<Order>) {
        let bell = || Arc::new(Bell::new().expect("a descriptor"));
        let line = Line {
            news: Mailboxes::new(4),
            bell: bell(),
        };
        let (orders, work) = crossbeam_channel::bounded(READS_IN_FLIGHT_MAX);
        let handle = Handle {
            asks: vec![Mailboxes::new(4)],
            bell: bell(),
            tally: Tally::default(),
        };
        let shell = Shell {
            disk: Disk::default(),
            files: Wanted::default(),
            handle: Arc::new(handle),
            lines: Arc::new(vec![line]),
            orders,
            finished: Arc::new(ArrayQueue::new(READS_IN_FLIGHT_MAX)),
            clock: Clock::start(),
        };
        (shell, work)
    }

    fn wish(index: u32, dry_at: Instant) -> Ask {
        let fd = std::os::fd::OwnedFd::from(std::fs::File::open("/dev/null").expect("a device"));
        let stat = fstat(&fd).expect("an open descriptor");
        let file = Files::default().intern(fd, &stat, b"name", &Devices::default());
        let conn = ConnId {
            index,
            generation: 0,
        };
        let stream = StreamId {
            worker: 0,
            conn,
            nth: 0,
        };
        let span = Span {
            offset_bytes: 0,
            len_bytes: 4096,
        };
        let want = Want {
            stream,
            object: file.id,
            span,
            dry_at,
        };
        Ask::Want(want, file)
    }

    fn finish(shell: &Shell, order: &Order) {
        let finished = Finished {
            read: order.0,
            result: Ok(()),
            service_us: 1,
        };
        assert!(shell.finished.push(finished).is_ok());
    }

    #[test]
    fn a_wish_that_is_repeated_while_it_is_fulfilled_is_read_again() {
        let (mut shell, work) = shell();
        let later = Instant { us: u64::MAX };
        shell.handle.ask(0, 1, wish(1, later));
        shell.turn();
        let first = work.try_recv().expect("the first read");
        finish(&shell, &first);
        shell.handle.ask(0, 1, wish(1, Instant { us: 0 }));
        shell.turn();
        assert!(matches!(shell.lines[0].news.take(), Some(News::Filled(..))));
        let second = work
            .try_recv()
            .expect("the repeated wish is no less a wish");
        finish(&shell, &second);
        shell.turn();
        assert!(matches!(shell.lines[0].news.take(), Some(News::Filled(..))));
        assert!(shell.files.by_object.is_empty(), "no file is held");
    }

    #[test]
    fn what_is_forgotten_before_its_read_costs_none() {
        let (mut shell, work) = shell();
        let Ask::Want(want, file) = wish(2, Instant { us: 0 }) else {
            return;
        };
        let stream = want.stream;
        shell.handle.ask(0, 2, Ask::Want(want, file));
        shell.handle.ask(0, 2, Ask::Forget(stream));
        shell.turn();
        assert!(work.try_recv().is_err());
        assert!(shell.files.by_object.is_empty() && shell.lines[0].news.take().is_none());
    }
}
