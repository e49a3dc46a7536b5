//! How a task ends: from status, sense data and residual count to an outcome.

use std::fmt;

use super::{Command, Event, Initiator, Task, Waiting};
use crate::iscsi::fault::{Fault, Why};
use crate::iscsi::pdu::{Ending, Residual};
use crate::iscsi::scsi::sense::{Cure, Sense};
use crate::limits::ISCSI_ATTENTIONS_MAX;

/// The end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out. Reads and writes are whole.
    Good {
        /// Bytes that came.
        len_bytes: u32,
    },
    /// The target puts it off: ask again after a while.
    Later(Later),
    /// It was not carried out; asking again would not help. To whom the bytes matter, that is EIO, but for those that
    /// [`Sense`] tells apart.
    Failed(Failure),
    /// It was to be aborted. Whether it was carried out is unknown.
    Aborted,
}

/// Why a task was put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// The unit is busy.
    Busy,
    /// The queue of the unit is full.
    TaskSetFull,
    /// Another initiator aborted it.
    TaskAborted,
    /// The unit is not ready yet, or gave the command up.
    Sense(Sense),
}

/// Why a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The unit says why.
    Sense(Sense),
    /// The unit says this status and no more (SAM-5 section 5.3.1).
    Status(u8),
    /// The target could not carry it out; RFC 7143 section 11.4.3.
    Response(u8),
    /// A read brought fewer bytes than it asked for.
    Short {
        /// Bytes that came.
        len_bytes: u32,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Sense(sense) => sense.fmt(f),
            Failure::Status(0x18) => f.write_str("the unit is reserved for another initiator"),
            Failure::Status(status) => write!(f, "the unit has the status {status:#04x}"),
            Failure::Response(response) => {
                write!(f, "the target failed (response {response:#04x})")
            }
            Failure::Short { len_bytes } => write!(f, "a read brought {len_bytes} bytes only"),
        }
    }
}

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Later::Busy => f.write_str("the unit is busy"),
            Later::TaskSetFull => f.write_str("the queue of the unit is full"),
            Later::TaskAborted => f.write_str("another initiator aborted the task"),
            Later::Sense(sense) => sense.fmt(f),
        }
    }
}

impl Initiator {
    /// The target has ended a task. One that it ended against the rules stays, to be repeated.
    pub(super) fn ended(&mut self, tag: u32, ending: Ending, data: &[u8]) -> Result<(), Fault> {
        let sense = sense(tag, data)?;
        let Some(task) = self.tasks.get(&tag) else {
            return Ok(());
        };
        let cure = sense.filter(|_| (ending.response, ending.status) == (0, 0x02));
        let cure = cure.map(|sense| (sense, sense.cure()));
        let is_repeated = !task.is_aborting && task.attentions < ISCSI_ATTENTIONS_MAX;
        let outcome = match (ending.response, ending.status, cure) {
            _ if task.is_aborting => Some(Outcome::Aborted),
            (0, 0x00, _) | (.., Some((_, Cure::Done))) => Some(good(tag, task, ending.residual)?),
            (.., Some((_, Cure::Repeat))) if is_repeated => None,
            (.., Some((sense, Cure::Wait))) => Some(Outcome::Later(Later::Sense(sense))),
            (.., Some((sense, _))) => Some(Outcome::Failed(Failure::Sense(sense))),
            (0, 0x08, _) => Some(Outcome::Later(Later::Busy)),
            (0, 0x28, _) => Some(Outcome::Later(Later::TaskSetFull)),
            (0, 0x40, _) => Some(Outcome::Later(Later::TaskAborted)),
            (0, status, _) => Some(Outcome::Failed(Failure::Status(status))),
            (response, ..) => Some(Outcome::Failed(Failure::Response(response))),
        };
        if let Some((sense, Cure::Repeat)) = cure {
            self.events.push_back(Event::Attention(sense));
        }
        self.leave(tag, outcome);
        Ok(())
    }

    /// A task goes, with this outcome; `None`: to come again before all that was not sent yet.
    pub(super) fn leave(&mut self, tag: u32, outcome: Option<Outcome>) {
        self.bursts.retain(|burst| burst.tag != tag);
        self.aborts.retain(|abort| *abort != tag);
        match (self.tasks.remove(&tag), outcome) {
            (Some(task), Some(outcome)) => self.tell_done(task.id, outcome),
            (Some(task), None) => self.waiting.push_front(Waiting {
                id: task.id,
                command: task.command,
                attentions: task.attentions + 1,
            }),
            (None, _) => {}
        }
    }
}

/// The sense data in the data segment of a response: its length (u16), then itself.
fn sense(tag: u32, data: &[u8]) -> Result<Option<Sense>, Fault> {
    let Some((len, rest)) = data.split_first_chunk() else {
        return Ok(None);
    };
    let len_bytes = usize::from(u16::from_be_bytes(*len));
    let fault = || {
        let fault = Fault::of(Why::Sense, tag);
        fault.came(len_bytes as u64).not(rest.len() as u64)
    };
    Ok(Sense::parse(rest.get(..len_bytes).ok_or_else(fault)?))
}

/// A good status: is what it is for complete?
fn good(tag: u32, task: &Task, residual: Residual) -> Result<Outcome, Fault> {
    let (in_bytes, out_bytes) = (task.command.in_bytes(), task.command.out_bytes());
    if task.sent_bytes < out_bytes {
        let fault = Fault::of(Why::Early, tag);
        return Err(fault.came(task.sent_bytes.into()).not(out_bytes.into()));
    }
    let len_bytes = task.came_bytes;
    let missing_bytes = in_bytes - len_bytes;
    if !matches!(task.command, Command::Read { .. } | Command::Write { .. }) {
        return Ok(Outcome::Good { len_bytes }); // its answer says itself how long it is
    }
    let (is_right, told) = match residual {
        Residual::None => (missing_bytes == 0, 0),
        Residual::Under(told) => (missing_bytes == told, told),
        // There was more than was asked for, which can't be with whole blocks.
        Residual::Over(told) => (missing_bytes == 0 && told == 0, told),
    };
    if !is_right {
        let fault = Fault::of(Why::Residual, tag);
        return Err(fault.came(told.into()).not(missing_bytes.into()));
    }
    Ok(match missing_bytes > 0 {
        true => Outcome::Failed(Failure::Short { len_bytes }),
        false => Outcome::Good { len_bytes },
    })
}
