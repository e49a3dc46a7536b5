//! What an initiator sends: commands as the window allows, data as it was asked for, and short answers first.

use super::{Initiator, State, Task, TaskId, Waiting};
use crate::iscsi::crc;
use crate::iscsi::pdu::{FINAL, HEADER_LEN_BYTES, Header, NO_TAG, opcode, pad_len_bytes};

/// Bytes of a task that follow a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The task, which writes.
    pub task: TaskId,
    /// Bytes from the beginning of what it writes.
    pub offset_bytes: u32,
    /// How many bytes, at least one.
    pub len_bytes: u32,
}

/// One PDU to send: its header, the bytes of a task if it has any, and what stands behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    header: [u8; HEADER_LEN_BYTES + 4],
    header_len_bytes: usize,
    payload: Option<Payload>,
    data_digest: bool,
}

/// What stands behind the bytes of a task: padding and digest. It may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    bytes: [u8; 7],
    len_bytes: usize,
}

impl Tail {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }
}

impl Send {
    fn new(initiator: &Initiator, header: Header, payload: Option<Payload>) -> Send {
        let len_bytes = payload.map_or(0, |payload| payload.len_bytes);
        let header = header.with_data_len(len_bytes).0;
        let mut bytes = [0; HEADER_LEN_BYTES + 4];
        bytes[..HEADER_LEN_BYTES].copy_from_slice(&header);
        bytes[HEADER_LEN_BYTES..].copy_from_slice(&crc::of(&header).to_le_bytes());
        Send {
            header: bytes,
            header_len_bytes: match initiator.agreed.header_digests {
                true => HEADER_LEN_BYTES + 4,
                false => HEADER_LEN_BYTES,
            },
            payload,
            data_digest: initiator.agreed.data_digests && payload.is_some(),
        }
    }

    /// The header, with its digest.
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_len_bytes]
    }

    /// The bytes that follow it.
    pub fn payload(&self) -> Option<Payload> {
        self.payload
    }

    /// Whether data of the same sequence follows, which [`Initiator::poll`] gives at once: what is sent may wait for it.
    pub fn goes_on(&self) -> bool {
        self.header[1] & FINAL == 0
    }

    /// Whether [`Send::tail`] needs the checksum of the payload.
    pub fn needs_crc(&self) -> bool {
        self.data_digest
    }

    /// What follows the payload, of which `payload_crc` is the CRC32C; where that is not needed, any number does.
    pub fn tail(&self, payload_crc: u32) -> Tail {
        let pad = pad_len_bytes(self.payload.map_or(0, |payload| payload.len_bytes));
        let mut tail = Tail {
            bytes: [0; 7],
            len_bytes: pad,
        };
        if self.data_digest {
            let digest = crc::append(payload_crc, &[0; 3][..pad]).to_le_bytes();
            tail.bytes[pad..pad + 4].copy_from_slice(&digest);
            tail.len_bytes += 4;
        }
        tail
    }
}

/// Data of one task that may be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub tag: u32,
    /// The target's tag of the R2T; [`NO_TAG`]: nobody asked.
    pub transfer_tag: u32,
    pub at_bytes: u32,
    pub end_bytes: u32,
    /// DataSN of the next PDU.
    pub data_sn: u32,
}

/// Bytes of a write that go without an R2T.
#[derive(Clone, Copy, Debug)]
struct Unasked {
    /// In the PDU of the command.
    immediate_bytes: u32,
    /// With those.
    all_bytes: u32,
}

impl Initiator {
    /// The next PDU to send; `None`: nothing before more is asked for or received.
    pub fn poll(&mut self) -> Option<Send> {
        if self.fault.is_some() || self.state == State::Over {
            return None;
        }
        let short = self.pongs.pop_front().map(|pong| self.stamped(pong));
        let header = short
            .or_else(|| self.send_ping())
            .or_else(|| self.send_abort());
        if let Some(header) = header {
            return Some(Send::new(self, header, None));
        }
        // Commands first: one PDU each, and a read does not wait for the data of a write.
        self.send_command()
            .or_else(|| self.send_data())
            .or_else(|| self.send_logout())
    }

    /// A header with this side's counters: CmdSN for what is immediate does not advance.
    fn stamped(&self, header: Header) -> Header {
        header.with_u32(24, self.cmd_sn).with_u32(28, self.stat_sn)
    }

    fn send_ping(&mut self) -> Option<Header> {
        if !std::mem::take(&mut self.wants_ping) {
            return None;
        }
        let tag = self.new_tag();
        self.ping = Some(tag);
        let header = Header::new(opcode::NOP_OUT | opcode::IMMEDIATE, FINAL);
        let header = header.with(8, &self.lun).with_u32(16, tag);
        Some(self.stamped(header.with_u32(20, NO_TAG)))
    }

    /// ABORT TASK, one at a time: immediate requests have no window.
    fn send_abort(&mut self) -> Option<Header> {
        if self.abort.is_some() {
            return None;
        }
        let task_tag = self.aborts.pop_front()?;
        let cmd_sn = self.tasks.get(&task_tag)?.cmd_sn;
        let tag = self.new_tag();
        self.abort = Some((tag, task_tag));
        let header = Header::new(opcode::TASK | opcode::IMMEDIATE, FINAL | 1);
        let header = header.with(8, &self.lun).with_u32(16, tag);
        let header = header.with_u32(20, task_tag).with_u32(32, cmd_sn);
        Some(self.stamped(header))
    }

    /// One PDU of the oldest burst: data without an R2T follows in the order of its commands.
    fn send_data(&mut self) -> Option<Send> {
        let mut burst = self.bursts.pop_front()?;
        let left_bytes = burst.end_bytes - burst.at_bytes;
        let len_bytes = left_bytes.min(self.agreed.send_segment_bytes);
        let is_last = len_bytes == left_bytes;
        let task = self.tasks.get_mut(&burst.tag)?;
        task.sent_bytes += len_bytes;
        if is_last && burst.transfer_tag != NO_TAG {
            task.r2ts = task.r2ts.saturating_sub(1);
        }
        let payload = Payload {
            task: task.id,
            offset_bytes: burst.at_bytes,
            len_bytes,
        };
        let header = Header::new(opcode::DATA_OUT, if is_last { FINAL } else { 0 })
            .with(8, &self.lun)
            .with_u32(16, burst.tag)
            .with_u32(20, burst.transfer_tag)
            .with_u32(28, self.stat_sn)
            .with_u32(36, burst.data_sn)
            .with_u32(40, burst.at_bytes);
        if !is_last {
            burst.at_bytes += len_bytes;
            burst.data_sn += 1;
            self.bursts.push_front(burst);
        }
        Some(Send::new(self, header, Some(payload)))
    }

    fn send_command(&mut self) -> Option<Send> {
        let is_open = self.max_cmd_sn.wrapping_sub(self.cmd_sn) as i32 >= 0;
        if self.state != State::Runs || !is_open {
            return None;
        }
        let waiting = self.waiting.pop_front()?;
        let tag = self.new_tag();
        let command = waiting.command;
        let (in_bytes, out_bytes) = (command.in_bytes(), command.out_bytes());
        let unasked = self.unasked(out_bytes);
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let flags = flag(unasked.immediate_bytes == unasked.all_bytes, FINAL)
            | flag(in_bytes > 0, 0x40)
            | flag(out_bytes > 0, 0x20)
            | 1; // a simple task: the unit may change the order
        let header = Header::new(opcode::COMMAND, flags)
            .with(8, &self.lun)
            .with_u32(16, tag)
            .with_u32(20, in_bytes.max(out_bytes))
            .with(32, &command.cdb());
        let header = self.stamped(header);
        self.begin(tag, waiting, unasked);
        let payload = (unasked.immediate_bytes > 0).then_some(Payload {
            task: waiting.id,
            offset_bytes: 0,
            len_bytes: unasked.immediate_bytes,
        });
        Some(Send::new(self, header, payload))
    }

    /// A task gets its tag and its CmdSN.
    fn begin(&mut self, tag: u32, waiting: Waiting, unasked: Unasked) {
        let task = Task {
            id: waiting.id,
            command: waiting.command,
            cmd_sn: self.cmd_sn,
            attentions: waiting.attentions,
            came_bytes: 0,
            data_sn: 0,
            asked_bytes: unasked.all_bytes,
            sent_bytes: unasked.immediate_bytes,
            r2t_sn: 0,
            r2ts: 0,
            is_aborting: false,
        };
        self.tasks.insert(tag, task);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        if unasked.all_bytes > unasked.immediate_bytes {
            self.bursts.push_back(Burst {
                tag,
                transfer_tag: NO_TAG,
                at_bytes: unasked.immediate_bytes,
                end_bytes: unasked.all_bytes,
                data_sn: 0,
            });
        }
    }

    fn unasked(&self, out_bytes: u32) -> Unasked {
        let agreed = &self.agreed;
        let first_bytes = out_bytes.min(agreed.first_burst_bytes);
        let immediate_bytes = match agreed.immediate_data {
            true => first_bytes.min(agreed.send_segment_bytes),
            false => 0,
        };
        let all_bytes = match agreed.initial_r2t {
            true => immediate_bytes,
            false => first_bytes,
        };
        Unasked {
            immediate_bytes,
            all_bytes,
        }
    }

    /// The logout follows the last answer.
    fn send_logout(&mut self) -> Option<Send> {
        if self.state != State::Drains || !self.tasks.is_empty() {
            return None;
        }
        let tag = self.new_tag();
        self.state = State::LoggingOut(tag);
        let header = Header::new(opcode::LOGOUT | opcode::IMMEDIATE, FINAL);
        let header = self.stamped(header.with_u32(16, tag));
        Some(Send::new(self, header, None))
    }
}
