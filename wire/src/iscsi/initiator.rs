//! The session of an initiator, after its login: tasks in, PDUs and answers out.
//!
//! The caller
//! - gives it tasks ([`Initiator::ask`]) and sends what [`Initiator::poll`] hands out, each PDU whole and in this order;
//! - receives where [`Initiator::wants`] says, shows the bytes to [`Initiator::receive`], and then takes all events from
//!   [`Initiator::event`].
//!
//! A target is not trusted: data is placed only inside the range that its task asked for, each byte of it once and in order
//! (DataPDUInOrder and DataSequenceInOrder are Yes). Whatever else comes is a [`Fault`] and ends the session.
//!
//! # Repeating what was unanswered
//!
//! A lost connection ends the session. [`Initiator::unanswered`] gives all tasks back; after the next login they are asked
//! again, reads and writes alike. A write that may have been carried out already is repeated safely because
//! - the next login has the same names and ISID, so the target ends the old session with all its tasks before it answers
//!   (session reinstatement, RFC 7143 section 6.3.5): no write of the old session comes after one of the new session;
//! - it writes the same bytes to the same blocks: the caller keeps both as they are until the answer;
//! - nobody has been told that it is done, so nobody relies on what the blocks hold meanwhile.
//!
//! Writes of the same blocks that are under way at the same time have no order, repeated or not; the caller has one at a time.
//!
//! There is no clock here. The caller decides when to ping, and when to ask again for what the target put off ([`Later`]). A
//! task that lasts too long is aborted, and a connection whose target does not even answer that is closed. What counts is the
//! progress of tasks: a target can send pings and empty data without end.

mod outcome;
mod receiving;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

pub use self::outcome::{Failure, Later, Outcome};
pub use self::sending::{Payload, Send, Tail};

use self::receiving::Current;
use self::sending::Burst;
use super::fault::Fault;
use super::login::Agreed;
use super::pdu::{Header, NO_TAG};
use super::reader::{Part, Reader};
use super::scsi::sense::Sense;
use super::scsi::{self, Cdb};
use crate::limits::{ISCSI_IO_BYTES_MAX, ISCSI_TASKS_MAX};

/// A task, by a number that the caller never uses twice in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads blocks.
    Read {
        /// The first block.
        lba: u64,
        /// How many; at least one.
        blocks: u32,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// Writes blocks.
    Write {
        /// The first block.
        lba: u64,
        /// How many; at least one.
        blocks: u32,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// Makes blocks last that were written before.
    Synchronize {
        /// The first block.
        lba: u64,
        /// How many; 0: all from `lba` on.
        blocks: u32,
    },
    /// Asks whether the unit is ready.
    TestUnitReady,
    /// Asks what the unit is: [`scsi::Inquiry`], or a page such as [`scsi::SERIAL_PAGE`].
    Inquiry {
        /// The page of vital product data; `None`: the standard answer.
        page: Option<u8>,
    },
    /// Asks how large the unit is: [`scsi::Capacity`].
    ReadCapacity,
    /// Asks which units the target has: [`scsi::luns`].
    ReportLuns,
}

impl Command {
    /// Bytes that it brings at most.
    pub fn in_bytes(&self) -> u32 {
        match *self {
            Command::Read {
                blocks,
                block_bytes,
                ..
            } => blocks.saturating_mul(block_bytes),
            Command::Inquiry { .. } => scsi::INQUIRY_LEN_BYTES,
            Command::ReadCapacity => scsi::CAPACITY_LEN_BYTES,
            Command::ReportLuns => scsi::LUNS_LEN_BYTES,
            Command::Write { .. } | Command::Synchronize { .. } | Command::TestUnitReady => 0,
        }
    }

    /// Bytes that it sends.
    pub fn out_bytes(&self) -> u32 {
        match *self {
            Command::Write {
                blocks,
                block_bytes,
                ..
            } => blocks.saturating_mul(block_bytes),
            _ => 0,
        }
    }

    /// Whether it moves whole blocks, at least one and not too many.
    pub(super) fn has_length(&self) -> bool {
        match self {
            Command::Read { .. } => (1..=ISCSI_IO_BYTES_MAX).contains(&self.in_bytes()),
            Command::Write { .. } => (1..=ISCSI_IO_BYTES_MAX).contains(&self.out_bytes()),
            _ => true,
        }
    }

    fn cdb(&self) -> Cdb {
        match *self {
            Command::Read { lba, blocks, .. } => scsi::read(lba, blocks),
            Command::Write { lba, blocks, .. } => scsi::write(lba, blocks),
            Command::Synchronize { lba, blocks } => scsi::synchronize(lba, blocks),
            Command::TestUnitReady => scsi::test_unit_ready(),
            Command::Inquiry { page } => scsi::inquiry(page),
            Command::ReadCapacity => scsi::read_capacity(),
            Command::ReportLuns => scsi::report_luns(),
        }
    }
}

/// Why a task is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are [`ISCSI_TASKS_MAX`] already.
    Full,
    /// No bytes, or more than [`ISCSI_IO_BYTES_MAX`].
    Length,
    /// The session ends, or has ended.
    Over,
}

/// A place in the memory of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The task.
    pub task: TaskId,
    /// Bytes from the beginning of what it reads.
    pub offset_bytes: u32,
}

/// The next bytes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Where they belong; `None`: to no task. Any buffer does, and they are of no use after they were shown.
    pub place: Option<Place>,
    /// How many there are, at most; never 0. For a place, they lie inside what its task asked for.
    pub len_bytes: usize,
}

/// What the caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Payload of a task has come, and its digest is right, or there is none. Before, its bytes may be wrong.
    Data {
        /// Where it was placed.
        place: Place,
        /// Bytes of it.
        len_bytes: u32,
        /// CRC32C of these bytes, where the digests of data are on.
        crc: Option<u32>,
    },
    /// A task has ended. Its bytes are sent no more after a PDU that is being sent.
    Done {
        /// The task.
        task: TaskId,
        /// How.
        outcome: Outcome,
    },
    /// Something about the unit changed, such as its size ([`Sense::is_capacity_changed`]). Tasks that met this are repeated
    /// unasked.
    Attention(Sense),
    /// The target asks for the end of the session: call [`Initiator::log_out`].
    LogoutRequested {
        /// After so many seconds it drops the connection.
        within_s: u16,
    },
    /// The session has ended in order. Close the connection.
    LoggedOut,
    /// The answer to a ping.
    Pong,
}

/// A task that has a tag.
#[derive(Clone, Debug)]
struct Task {
    id: TaskId,
    command: Command,
    cmd_sn: u32,
    /// Unit attentions that it met.
    attentions: u8,
    /// Bytes of data that have come.
    came_bytes: u32,
    /// DataSN of the next data.
    data_sn: u32,
    /// Bytes of a write that may be sent: those that need no R2T, and those of all R2Ts.
    asked_bytes: u32,
    /// Bytes of a write that were handed out.
    sent_bytes: u32,
    /// R2TSN of the next R2T.
    r2t_sn: u32,
    /// Open R2Ts.
    r2ts: u32,
    is_aborting: bool,
}

/// A task that was not sent yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: TaskId,
    command: Command,
    attentions: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    /// What is under way is waited for, then the logout is sent.
    Drains,
    /// The logout has this tag.
    LoggingOut(u32),
    Over,
}

/// One session with one logical unit, over one connection.
#[derive(Debug)]
pub struct Initiator {
    agreed: Agreed,
    lun: [u8; 8],
    reader: Reader,
    current: Current,
    /// By their tags. With `waiting` at most [`ISCSI_TASKS_MAX`].
    tasks: BTreeMap<u32, Task>,
    waiting: VecDeque<Waiting>,
    /// Data that was asked for, in order. For each task at most [`ISCSI_R2TS_MAX`](crate::limits::ISCSI_R2TS_MAX) and one.
    bursts: VecDeque<Burst>,
    /// Answers to the target's pings.
    pongs: VecDeque<Header>,
    /// Tags of tasks to abort. A tag is in here once.
    aborts: VecDeque<u32>,
    /// The request that aborts a task, and the task.
    abort: Option<(u32, u32)>,
    wants_ping: bool,
    ping: Option<u32>,
    /// Empty before bytes are received, so it holds what one PDU causes, and [`Initiator::abort`] calls.
    events: VecDeque<Event>,
    state: State,
    fault: Option<Fault>,
    cmd_sn: u32,
    stat_sn: u32,
    max_cmd_sn: u32,
    next_tag: u32,
}

impl Initiator {
    /// The session of a login with a logical unit (at most [`ISCSI_LUN_MAX`](crate::limits::ISCSI_LUN_MAX)).
    pub fn new(agreed: Agreed, lun: u16) -> Initiator {
        let Agreed {
            header_digests,
            data_digests,
            receive_segment_bytes,
            ..
        } = agreed;
        Initiator {
            agreed,
            lun: scsi::lun(lun),
            reader: Reader::new(header_digests, data_digests, receive_segment_bytes),
            current: Current::Nothing,
            tasks: BTreeMap::new(),
            waiting: VecDeque::new(),
            bursts: VecDeque::new(),
            pongs: VecDeque::new(),
            aborts: VecDeque::new(),
            abort: None,
            wants_ping: false,
            ping: None,
            events: VecDeque::new(),
            state: State::Runs,
            fault: None,
            cmd_sn: agreed.cmd_sn,
            stat_sn: agreed.stat_sn,
            max_cmd_sn: agreed.max_cmd_sn,
            next_tag: 0,
        }
    }

    /// What both sides have agreed on.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Tasks that are under way or wait.
    pub fn load(&self) -> usize {
        self.tasks.len() + self.waiting.len()
    }

    /// Takes a task. It ends with an [`Event::Done`], or is among the [`unanswered`](Self::unanswered) ones.
    ///
    /// # Errors
    /// It is not taken.
    pub fn ask(&mut self, id: TaskId, command: Command) -> Result<(), Refused> {
        if self.state != State::Runs || self.fault.is_some() {
            return Err(Refused::Over);
        }
        if !command.has_length() {
            return Err(Refused::Length);
        }
        if self.load() >= ISCSI_TASKS_MAX {
            return Err(Refused::Full);
        }
        self.waiting.push_back(Waiting {
            id,
            command,
            attentions: 0,
        });
        Ok(())
    }

    /// Nobody wants this task any more. It still ends with an [`Event::Done`], and its memory has to stay until then, but
    /// nothing is placed into it from now on.
    pub fn abort(&mut self, id: TaskId) {
        let waited = self.waiting.len();
        self.waiting.retain(|waiting| waiting.id != id);
        if self.waiting.len() < waited {
            self.tell_done(id, Outcome::Aborted);
            return;
        }
        let task = self.tasks.iter_mut().find(|(_, task)| task.id == id);
        if let Some((tag, task)) = task.filter(|(_, task)| !task.is_aborting) {
            task.is_aborting = true;
            self.aborts.push_back(*tag);
            if let Current::Data(data) = &mut self.current {
                data.abort(id);
            }
        }
    }

    /// Asks the target for a sign of life: [`Event::Pong`]. One is under way at a time.
    pub fn ping(&mut self) {
        self.wants_ping = self.ping.is_none();
    }

    /// Ends the session in order: what is under way is waited for, the rest stays among the
    /// [`unanswered`](Self::unanswered) ones. Some targets just close then, without an [`Event::LoggedOut`].
    pub fn log_out(&mut self) {
        if self.state == State::Runs {
            self.state = State::Drains;
        }
    }

    /// What the next bytes of the connection are.
    pub fn wants(&self) -> Wants {
        let (part, len_bytes) = self.reader.wants();
        let place = match (part, &self.current) {
            (Part::Data, Current::Data(data)) => data.place(),
            _ => None,
        };
        Wants { place, len_bytes }
    }

    /// The next thing to tell. All have to be taken before more is received.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What broke the session.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// All tasks without an answer, in the order in which they were sent, then those that waited: to be asked again, whole,
    /// after the next login. Those that were to be aborted are left out: they end with the session.
    pub fn unanswered(self) -> Vec<(TaskId, Command)> {
        let sent = self.tasks.into_values().filter(|task| !task.is_aborting);
        let sent = sent.map(|task| (task.id, task.command));
        let waiting = self.waiting.into_iter();
        sent.chain(waiting.map(|waiting| (waiting.id, waiting.command)))
            .collect()
    }

    fn tell_done(&mut self, task: TaskId, outcome: Outcome) {
        self.events.push_back(Event::Done { task, outcome });
    }

    /// A tag that nothing has.
    fn new_tag(&mut self) -> u32 {
        loop {
            let tag = self.next_tag;
            self.next_tag = tag.wrapping_add(1);
            let others = [self.ping, self.abort.map(|(tag, _)| tag)];
            if tag != NO_TAG && !self.tasks.contains_key(&tag) && !others.contains(&Some(tag)) {
                return tag;
            }
        }
    }
}
