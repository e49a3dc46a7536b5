//! What a session asks of its unit before the caller's tasks: is it ready, what is it, how large is it.

use crate::iscsi::initiator::{Command, Failure, Initiator, Outcome, Place, TaskId};
use crate::iscsi::scsi::{self, Capacity, INQUIRY_LEN_BYTES, Inquiry, SERIAL_PAGE};

/// Tasks that it has under way at most: one, and a look at the size meanwhile.
pub const TASKS: usize = 2;
/// Its tasks have this number and those behind it.
const FIRST: u64 = 1 << 63;
const READY: TaskId = TaskId(FIRST);
const WHAT: TaskId = TaskId(FIRST + 1);
const SERIAL: TaskId = TaskId(FIRST + 2);
const SIZE: TaskId = TaskId(FIRST + 3);

/// The target has none of this number, or something else than a disk.
const NO_DISK: &str =
    "there is no disk at this number (LUN): check the number at the end of the URL";

/// Whether a task is one of the session's own.
pub fn is_own(id: TaskId) -> bool {
    id.0 >= FIRST
}

/// A logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its size.
    pub capacity: Capacity,
    /// Vendor, product and revision, for people.
    pub name: String,
    /// Its serial number, if it has one.
    pub serial: Option<String>,
}

/// How far it is.
#[derive(Debug)]
pub struct Bringing {
    name: String,
    serial: Option<String>,
    is_done: bool,
    /// A look at the size is under way.
    is_looking: bool,
    /// What its task under way has brought.
    answer: [u8; INQUIRY_LEN_BYTES as usize],
}

impl Default for Bringing {
    fn default() -> Bringing {
        Bringing {
            name: String::new(),
            serial: None,
            is_done: false,
            is_looking: false,
            answer: [0; INQUIRY_LEN_BYTES as usize],
        }
    }
}

impl Bringing {
    /// The unit is known.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Asks the first question.
    pub fn begin(&mut self, initiator: &mut Initiator) {
        self.ask(READY, Command::TestUnitReady, initiator);
    }

    /// The size has changed: asks for it again.
    pub fn look_again(&mut self, initiator: &mut Initiator) {
        if self.is_done && !std::mem::replace(&mut self.is_looking, true) {
            self.ask(SIZE, Command::ReadCapacity, initiator);
        }
    }

    fn ask(&mut self, id: TaskId, command: Command, initiator: &mut Initiator) {
        self.answer.fill(0);
        // There is room: the caller's tasks leave some. A session that ends is begun anew, and so is this.
        let _ = initiator.ask(id, command);
    }

    /// Bytes of an answer came, which belong here.
    pub fn receive(&mut self, place: Place, bytes: &[u8]) {
        let from = place.offset_bytes as usize;
        if let Some(into) = self.answer.get_mut(from..from + bytes.len()) {
            into.copy_from_slice(bytes);
        }
    }

    /// One of its tasks has ended. Gives the unit once all is known.
    ///
    /// # Errors
    /// The unit can't be used, for this reason.
    pub fn done(
        &mut self,
        task: TaskId,
        outcome: Outcome,
        initiator: &mut Initiator,
    ) -> Result<Option<Unit>, String> {
        let answer = match outcome {
            Outcome::Good { len_bytes } => {
                &self.answer[..(len_bytes as usize).min(self.answer.len())]
            }
            Outcome::Failed(_) if task == SERIAL => &[],
            Outcome::Failed(Failure::Sense(sense)) if sense.is_no_unit() => {
                return Err(NO_DISK.to_owned());
            }
            Outcome::Failed(failure) => return Err(format!("the unit can't be used: {failure}")),
            Outcome::Later(later) => return Err(format!("the unit is not ready: {later}")),
            Outcome::Aborted => return Ok(None),
        };
        match task {
            READY => self.ask(WHAT, Command::Inquiry { page: None }, initiator),
            WHAT => {
                let inquiry = Inquiry::parse(answer).filter(|inquiry| inquiry.is_disk);
                self.name = inquiry.ok_or(NO_DISK)?.name;
                let page = Some(SERIAL_PAGE);
                self.ask(SERIAL, Command::Inquiry { page }, initiator);
            }
            SERIAL => {
                self.serial = scsi::serial(answer);
                self.ask(SIZE, Command::ReadCapacity, initiator);
            }
            _ => {
                let capacity = Capacity::parse(answer);
                let capacity = capacity.ok_or("the unit tells no size that a disk can have")?;
                if capacity.is_protected {
                    return Err("the unit has protection information (T10 PI) behind each block, which is not supported; format it without".to_owned());
                }
                (self.is_done, self.is_looking) = (true, false);
                return Ok(Some(Unit {
                    capacity,
                    name: self.name.clone(),
                    serial: self.serial.clone(),
                }));
            }
        }
        Ok(None)
    }
}
