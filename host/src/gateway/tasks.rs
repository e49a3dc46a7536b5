//! What the kernel asks, as tasks of the session, and the answers. A request stays in its slot from read(2) to its answer, with its
//! payload, of which there is no other copy here.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ackpace_wire::fuse::{Ask, Geometry, Range, Reply, Request, WRITE_HEAD_BYTES};
use ackpace_wire::iscsi::session::{End, Told};
use ackpace_wire::iscsi::{Command, Failure, Payload, Place, Session, TaskId};
use rustix::io::Errno;

use super::memory::{Counters, SLOTS, Slots};
use super::messages::{Kernel, Said, Unit};

/// Requests that one turn reads. More: the target is heard first.
const REQUESTS_A_TURN: usize = 4 * SLOTS;
/// What waits to be said. More: dropped, since the line is full then.
const SAYS_MAX: usize = 64;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EINVAL: i32 = 22;

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Free,
    Read(TaskId, u64, Range),
    Write(TaskId, u64, Range),
    Sync(TaskId, u64),
    /// Answered, but a part of its payload is still being sent.
    Leaving,
}

impl Work {
    fn task(&self) -> Option<TaskId> {
        match self {
            Work::Read(task, ..) | Work::Write(task, ..) | Work::Sync(task, _) => Some(*task),
            Work::Free | Work::Leaving => None,
        }
    }
}

/// All requests that are under way.
pub struct Tasks {
    fuse: OwnedFd,
    slots: Slots,
    counters: Counters,
    work: [Work; SLOTS],
    /// Tasks so far.
    count: u64,
    /// The unit as it was found first.
    unit: Option<Unit>,
    geometry: Option<Geometry>,
    /// Another unit answers, or one of another form.
    is_elsewhere: bool,
    is_read_only: bool,
    /// The kernel has asked FUSE_INIT.
    kernel: Option<Kernel>,
    /// FUSE has ended: it was unmounted, or aborted.
    is_over: bool,
    /// The last failure that was said.
    failure: Option<String>,
    patience_s: u32,
    says: VecDeque<Said>,
}

impl Tasks {
    /// None yet. `unit` and `kernel`: what an answerer before this one knew.
    pub fn new(
        fuse: OwnedFd,
        slots: Slots,
        counters: Counters,
        begin: &super::messages::Begin,
    ) -> Tasks {
        let mut tasks = Tasks {
            fuse,
            slots,
            counters,
            work: [Work::Free; SLOTS],
            count: 0,
            unit: begin.unit.clone(),
            geometry: None,
            is_elsewhere: false,
            is_read_only: begin.is_read_only,
            kernel: begin.kernel,
            is_over: false,
            failure: None,
            patience_s: begin.patience_s,
            says: VecDeque::with_capacity(SAYS_MAX),
        };
        tasks.geometry = begin.unit.as_ref().map(|unit| tasks.geometry_of(unit));
        tasks
    }

    /// For poll(2); `None`: all slots are taken, so nothing more is read.
    pub fn wants(&self) -> Option<BorrowedFd<'_>> {
        self.free().map(|_| self.fuse.as_fd())
    }

    /// FUSE has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Another unit answers than before: nothing may be written there.
    pub fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// The next thing for the supervisor.
    pub fn says(&mut self) -> Option<Said> {
        self.says.pop_front()
    }

    /// Has something said.
    pub fn say(&mut self, said: Said) {
        if self.says.len() < SAYS_MAX {
            self.says.push_back(said);
        }
    }

    /// Has the kernel hand out again what an answerer has taken that has died.
    pub fn resend(&mut self) {
        self.answer(&Reply::resend(), None);
    }

    /// Where bytes that come belong.
    pub fn place_mut(&mut self, place: Place, len_bytes: usize) -> Option<&mut [u8]> {
        let slot = self.slot_of(place.task)?;
        let from = place.offset_bytes as usize;
        let range = from..from.checked_add(len_bytes)?;
        self.slots.payload_mut(slot).get_mut(range)
    }

    /// Bytes that are sent, of a task whose PDU the session hands out or the link still sends.
    pub fn payload(&self, payload: Payload) -> &[u8] {
        let from = payload.offset_bytes as usize;
        let range = from..from + payload.len_bytes as usize;
        let slot = (payload.task.0 % SLOTS as u64) as usize;
        self.slots.payload(slot).get(range).unwrap_or_default()
    }

    /// The payload that was being sent is gone, or the connection is.
    pub fn sent(&mut self) {
        for work in &mut self.work {
            if *work == Work::Leaving {
                *work = Work::Free;
            }
        }
    }

    fn free(&self) -> Option<usize> {
        self.work.iter().position(|work| *work == Work::Free)
    }

    fn slot_of(&self, task: TaskId) -> Option<usize> {
        let slot = (task.0 % SLOTS as u64) as usize;
        (self.work[slot].task() == Some(task)).then_some(slot)
    }

    /// Reads requests and gives them to the session, while there are slots.
    pub fn take(&mut self, session: &mut Session) {
        for _ in 0..REQUESTS_A_TURN {
            let Some(slot) = self.free() else {
                return;
            };
            match rustix::io::read(&self.fuse, self.slots.request_mut(slot)) {
                Ok(len_bytes) => self.asked(slot, len_bytes, session),
                Err(Errno::AGAIN) => return,
                // NOENT: it was given up before it was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(_) => {
                    self.is_over = true;
                    return;
                }
            }
        }
    }

    fn asked(&mut self, slot: usize, len_bytes: usize, session: &mut Session) {
        let bytes = &self.slots.request_mut(slot)[..len_bytes];
        let Request { unique, ask } = match Request::parse(bytes) {
            Ok(request) => request,
            Err(ackpace_wire::fuse::Bad::Body { unique }) => {
                return self.answer(&Reply::error(unique, EINVAL), None);
            }
            Err(ackpace_wire::fuse::Bad::Head) => return,
        };
        match ask {
            Ask::Init(kernel) => self.introduced(unique, kernel),
            Ask::Attributes => match self.geometry {
                Some(geometry) => self.answer(&Reply::attributes(unique, geometry), None),
                None => self.answer(&Reply::io_error(unique), None),
            },
            Ask::Open => self.answer(&Reply::opened(unique), None),
            Ask::Nothing => self.answer(&Reply::done(unique), None),
            Ask::Forget => {}
            Ask::Other(_) => self.answer(&Reply::not_here(unique), None),
            Ask::Sync => {
                let all = Command::Synchronize { lba: 0, blocks: 0 };
                let work = Work::Sync(self.new_task(slot), unique);
                self.begin(slot, work, all, session);
            }
            Ask::Read(range) => self.read(slot, unique, range, session),
            Ask::Write(range) => self.write(slot, unique, range, session),
        }
    }

    fn introduced(&mut self, unique: u64, kernel: ackpace_wire::fuse::Kernel) {
        if !kernel.is_known() {
            let (major, minor) = (kernel.major, kernel.minor);
            let why = format!(
                "this kernel's FUSE is {major}.{minor}, and 7.28 is needed: Linux 4.20 or newer has it"
            );
            self.say(Said::End(why));
            return self.answer(&Reply::io_error(unique), None);
        }
        let known = Kernel {
            minor: kernel.minor,
            has_resend: kernel.has_resend(),
        };
        self.kernel = Some(known);
        self.say(Said::Kernel(known));
        self.answer(&Reply::init(unique, kernel, SLOTS as u16), None);
    }

    fn read(&mut self, slot: usize, unique: u64, range: Range, session: &mut Session) {
        let Some(geometry) = self.geometry else {
            return self.answer(&Reply::io_error(unique), None);
        };
        let end_bytes = range.end_bytes().min(geometry.len_bytes);
        let len_bytes = end_bytes.saturating_sub(range.offset_bytes) as u32;
        if len_bytes == 0 {
            return self.answer(&Reply::data(unique, 0), None);
        }
        let range = Range { len_bytes, ..range };
        let Some(Extent { lba, blocks }) = extent(range, geometry) else {
            return self.answer(&Reply::error(unique, EINVAL), None);
        };
        let block_bytes = geometry.block_bytes;
        let command = Command::Read {
            lba,
            blocks,
            block_bytes,
        };
        let work = Work::Read(self.new_task(slot), unique, range);
        self.begin(slot, work, command, session);
    }

    fn write(&mut self, slot: usize, unique: u64, range: Range, session: &mut Session) {
        let Some(geometry) = self.geometry else {
            return self.answer(&Reply::io_error(unique), None);
        };
        if geometry.is_read_only {
            return self.answer(&Reply::error(unique, EROFS), None);
        }
        if range.end_bytes() > geometry.len_bytes {
            return self.answer(&Reply::error(unique, ENOSPC), None);
        }
        let Some(Extent { lba, blocks }) = extent(range, geometry) else {
            return self.answer(&Reply::error(unique, EINVAL), None);
        };
        let block_bytes = geometry.block_bytes;
        let command = Command::Write {
            lba,
            blocks,
            block_bytes,
        };
        self.counters.count(range);
        let work = Work::Write(self.new_task(slot), unique, range);
        self.begin(slot, work, command, session);
    }

    /// A number that no task had, which names the slot.
    fn new_task(&mut self, slot: usize) -> TaskId {
        self.count += 1;
        TaskId(self.count * SLOTS as u64 + slot as u64)
    }

    fn begin(&mut self, slot: usize, work: Work, command: Command, session: &mut Session) {
        let Some(task) = work.task() else { return };
        self.work[slot] = work;
        if session.ask(task, command).is_err() {
            // It is ending. There are fewer slots than the session has room for.
            self.done(slot, End::Unreachable, false);
        }
    }

    /// Takes what the session tells. `sends`: the task whose payload is being sent.
    pub fn hear(&mut self, session: &mut Session, sends: Option<TaskId>) {
        while let Some(told) = session.told() {
            match told {
                Told::Ready(unit) => self.ready(Unit {
                    len_bytes: unit.capacity.len_bytes(),
                    block_bytes: unit.capacity.block_bytes,
                    name: unit.name,
                    serial: unit.serial.unwrap_or_default(),
                }),
                Told::Done { task, end } => {
                    if let Some(slot) = self.slot_of(task) {
                        self.done(slot, end, sends == Some(task));
                    }
                }
                Told::Trouble(why) => self.say(Said::Trouble(why)),
                Told::Data { .. } | Told::LoggedOut => {}
            }
        }
    }

    fn ready(&mut self, unit: Unit) {
        let before = self.unit.get_or_insert_with(|| unit.clone());
        let is_same = before.serial == unit.serial && before.block_bytes == unit.block_bytes;
        if !is_same || unit.len_bytes < before.len_bytes {
            self.is_elsewhere = true;
            let why = format!(
                "another unit answers at this address ({unit}; before: {before}): nothing is written to it; look at the target, then \
                 start again"
            );
            return self.say(Said::End(why));
        }
        if unit.len_bytes > before.len_bytes {
            let grown = format!(
                "the unit has grown from {} to {} bytes: restart this service, then run resize2fs on its loop device",
                before.len_bytes, unit.len_bytes
            );
            self.fails(grown);
        }
        let geometry = self.geometry_of(&unit);
        self.geometry.get_or_insert(geometry);
        self.failure = None;
        self.say(Said::Ready(unit));
    }

    fn geometry_of(&self, unit: &Unit) -> Geometry {
        Geometry {
            len_bytes: unit.len_bytes,
            block_bytes: unit.block_bytes,
            is_read_only: self.is_read_only,
        }
    }

    /// A task has ended: counts a write, answers, and gives its slot back.
    fn done(&mut self, slot: usize, end: End, is_being_sent: bool) {
        let work = self.work[slot];
        if let Work::Write(_, _, range) = work {
            self.counters.count(range);
        }
        match (work, end) {
            (Work::Read(_, unique, range), End::Good { .. }) => {
                self.answer(
                    &Reply::data(unique, range.len_bytes),
                    Some((slot, range.len_bytes)),
                );
            }
            (Work::Write(_, unique, range), End::Good { .. }) => {
                self.answer(&Reply::written(unique, range.len_bytes), None);
            }
            (Work::Sync(_, unique), End::Good { .. }) => self.answer(&Reply::done(unique), None),
            (Work::Read(_, unique, _) | Work::Write(_, unique, _) | Work::Sync(_, unique), end) => {
                self.fails(self.why(end));
                self.answer(&Reply::io_error(unique), None);
            }
            (Work::Free | Work::Leaving, _) => {}
        }
        self.work[slot] = match is_being_sent {
            true => Work::Leaving,
            false => Work::Free,
        };
    }

    fn why(&self, end: End) -> String {
        match end {
            End::Failed(Failure::Sense(sense)) if sense.is_write_protected() => {
                "the unit is write-protected: start with --read-only, or make it writable at the target".to_owned()
            }
            End::Failed(Failure::Sense(sense)) if sense.is_full() => {
                "the target has no room left for the unit (thin provisioning): give it more, then restart this service"
                    .to_owned()
            }
            End::Failed(failure) => {
                format!("the target does not read or write: {failure}; look at the target")
            }
            End::Good { .. } | End::Aborted | End::Unreachable => format!(
                "the target has been away for longer than --patience ({} s), so requests end with EIO and ext4 becomes \
                 read-only: restart this service when the target is back",
                self.patience_s
            ),
        }
    }

    /// Says each failure once, until another one or a new session.
    fn fails(&mut self, why: String) {
        if self.failure.as_ref() != Some(&why) {
            self.failure = Some(why.clone());
            self.say(Said::Line(why));
        }
    }

    /// ENOENT: who asked has given up. ENODEV: read(2) will say so, too.
    fn answer(&mut self, reply: &Reply, data: Option<(usize, u32)>) {
        let data = data.map_or(&[][..], |(slot, len_bytes)| {
            &self.slots.payload(slot)[..len_bytes as usize]
        });
        let all = [IoSlice::new(reply.bytes()), IoSlice::new(data)];
        let all = if data.is_empty() { &all[..1] } else { &all };
        match rustix::io::writev(&self.fuse, all) {
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(error) => {
                let line = format!("an answer was not taken by /dev/fuse: {error}");
                self.fails(line);
            }
        }
    }
}

const _: () = assert!(WRITE_HEAD_BYTES < 4096);

struct Extent {
    lba: u64,
    blocks: u32,
}

/// Whole blocks; `None`: it is none, or no whole ones.
fn extent(range: Range, geometry: Geometry) -> Option<Extent> {
    let block_bytes = geometry.block_bytes;
    let is_whole =
        range.offset_bytes % u64::from(block_bytes) == 0 && range.len_bytes % block_bytes == 0;
    (is_whole && range.len_bytes > 0).then(|| Extent {
        lba: range.offset_bytes / u64::from(block_bytes),
        blocks: range.len_bytes / block_bytes,
    })
}

#[cfg(test)]
mod tests;
