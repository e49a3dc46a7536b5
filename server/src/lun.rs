//! NFS over an iSCSI target: the payload of READs does not pass the file system that `ackpace-host gateway` has mounted here. It
//! comes from the target over a session of the server's own, stays in the slab by the blocks of the unit, and leaves by sendfile(2).
//! Names, attributes and all that is no plain file go through the mount.
//!
//! - `unit.rs` has the [`Unit`] as all threads know it, and [`Blocks`], a file by its blocks.
//! - `lun/gateway.rs` hears from the gateway program what is mounted, and has its counters.
//! - The thread here is one more device. It takes wants, tells the machine that chooses reads ([`ackpace_core::disk`]), and asks the
//!   target through a session without I/O ([`ackpace_wire::iscsi::Session`]). It decides nothing, and sleeps until the next event.

mod gateway;
mod link;
mod reading;
mod receiving;
mod secrets;
mod start;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ackpace_core::disk::{Disk, In, Layout, Out, ReadId};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_wire::iscsi::session::Order;
use ackpace_wire::iscsi::{Session, TaskId};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};

pub use self::gateway::{ask, listen};
use self::link::Link;
use self::reading::{Asked, Part, Reading};
pub use self::secrets::settings;
pub use self::start::{PATIENCE_US, start};
use crate::clock::Clock;
use crate::disk::{Channel, Completion, DiskAsk, DiskHandle, Question, ReadBytes, Wanted, answer};
use crate::log::Seldom;
use crate::source::Source;
use crate::unit::{Blocks, Unit};
use crate::upstream::Names;

/// Events that are heard in one turn: of the waker and of one connection.
const EVENTS_MAX: usize = 2;

struct Lun {
    unit: Arc<Unit>,
    /// Chooses which bytes are read next.
    disk: Disk,
    session: Session,
    /// Where the target is, and the addresses of that name.
    names: Option<((String, u16), Names)>,
    link: Option<Link>,
    files: Wanted<Blocks>,
    reads: HashMap<ReadId, Reading>,
    /// Parts of reads that are to be asked of the target, in this order.
    queue: VecDeque<Part>,
    /// What was asked.
    asked: HashMap<TaskId, Asked>,
    asked_max: usize,
    /// The number of the last task.
    tasks: u64,
    /// Since when the slab has had no room for the next part.
    starved_since: Option<Instant>,
    /// There is a session.
    is_ready: bool,
    /// More may have come than one turn hears.
    is_eager: bool,
    /// For bytes that belong to no task.
    copied: Box<[u8]>,
    epoll: OwnedFd,
    handle: Arc<DiskHandle>,
    questions: crossbeam_channel::Receiver<Question>,
    channels: Arc<Vec<Channel>>,
    clock: Clock,
    seldom: Arc<Seldom>,
}

impl Lun {
    fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            self.turn(&events);
            events.clear();
            let timeout = self.timeout();
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
        }
    }

    /// How long it may sleep.
    fn timeout(&self) -> Option<Timespec> {
        let now = self.clock.now();
        let session = self.session.deadline_us().map(|us| Instant { us });
        let room = (self.starved_since).map(|_| now.plus_us(reading::ROOM_EACH_US));
        let eager = self.is_eager.then_some(now);
        let due = [self.disk.deadline(), session, room, eager];
        let due = due.into_iter().flatten().min()?;
        let left = Duration::from_micros(due.since_us(now));
        Some(Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        })
    }

    /// One turn: receive, decide, execute.
    fn turn(&mut self, events: &[Event]) {
        let now = self.clock.now();
        self.handle.waker().awake();
        self.is_eager = false;
        if events.iter().any(|event| event.data.u64() == start::LINK) {
            self.hear_link(now);
        }
        self.receive(now);
        self.pump(now);
        self.hear_workers(now);
        self.pump(now);
        self.handle.publish(&self.disk);
        answer(&self.questions, &self.disk, now);
    }

    /// Executes what the machines order, until they order nothing.
    fn pump(&mut self, now: Instant) {
        loop {
            if let Some(out) = self.disk.poll(now) {
                self.execute(out, now);
            } else if let Some(order) = self.session.poll(now.us) {
                self.obey(order, now);
            } else if let Some(told) = self.session.told() {
                self.hear_session(told, now);
            } else if !self.ask_next(now) {
                break;
            }
        }
        self.send(now);
    }

    fn hear_workers(&mut self, now: Instant) {
        let handle = Arc::clone(&self.handle);
        while let Some(ask) = handle.next_ask() {
            match ask {
                DiskAsk::Want(want, Source::Blocks(blocks)) => {
                    self.files.add(want.stream, blocks);
                    self.disk.on(In::Want(want), now);
                }
                DiskAsk::Want(..) => {
                    debug_assert!(false, "files and objects are wanted elsewhere");
                }
                DiskAsk::Forget(stream) => {
                    self.files.remove(stream);
                    self.disk.on(In::Forget(stream), now);
                }
            }
        }
    }

    fn execute(&mut self, out: Out, now: Instant) {
        match out {
            Out::Map(object) => {
                let blocks = self.files.get(object);
                let extents = blocks.as_ref().and_then(|blocks| blocks.map());
                let extents = extents.map(|map| map.extents().to_vec());
                let mapped = In::Mapped {
                    object,
                    layout: Layout::new(extents.unwrap_or_default()),
                    direct: false,
                };
                self.disk.on(mapped, now);
            }
            Out::Read {
                read, object, span, ..
            } => self.read((read, object), span, now),
            Out::Cancel(_) => {} // what is under way is kept
            Out::Fetched {
                stream,
                seq,
                span,
                chosen,
                ..
            } => {
                let bytes = ReadBytes::PageCache; // the slab has them
                let fetched = Completion::Fetched(stream, seq, span, bytes, chosen);
                self.tell(usize::from(stream.worker), fetched);
            }
            Out::Failed { stream, seq, error } => {
                let failed = Completion::Failed(stream, seq, error);
                self.tell(usize::from(stream.worker), failed);
            }
        }
    }

    fn tell(&self, worker: usize, completion: Completion) {
        if let Some(channel) = self.channels.get(worker) {
            channel.tell(completion);
        }
    }

    fn obey(&mut self, order: Order, now: Instant) {
        match order {
            Order::Connect { host, port } => {
                if let Err(why) = self.connect(host, port) {
                    self.session.lost(&why, now.us);
                }
            }
            Order::Close => self.link = None,
        }
    }
}
