//! What an initiator receives: each PDU is checked against the task that it names before anything is placed.

use super::sending::Burst;
use super::{Event, Initiator, Outcome, Place, State, Task, TaskId};
use crate::iscsi::fault::{Fault, Why, same};
use crate::iscsi::pdu::{self, Ending, FINAL, Header, NO_TAG, Pdu, Window, opcode};
use crate::iscsi::reader::{Part, Whole};
use crate::iscsi::scsi::sense::Sense;
use crate::limits::{ISCSI_CONTROL_BYTES_MAX, ISCSI_PINGS_MAX};

/// The PDU whose data segment comes now.
#[derive(Clone, Debug)]
pub(super) enum Current {
    Nothing,
    Data(Data),
    /// Another one, and what has come of it, at most [`ISCSI_CONTROL_BYTES_MAX`].
    Control(Header, Vec<u8>),
}

/// Payload of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    tag: u32,
    task: TaskId,
    offset_bytes: u32,
    len_bytes: u32,
    /// Bytes that were received.
    came_bytes: u32,
    ending: Option<Ending>,
    /// Nobody wants it any more.
    is_unwanted: bool,
}

impl Data {
    /// Its task is aborted: the rest is not placed.
    pub fn abort(&mut self, task: TaskId) {
        self.is_unwanted |= self.task == task;
    }

    /// Where its next bytes belong.
    pub fn place(&self) -> Option<Place> {
        let place = Place {
            task: self.task,
            offset_bytes: self.offset_bytes + self.came_bytes,
        };
        (!self.is_unwanted).then_some(place)
    }
}

impl Initiator {
    /// Takes received bytes, at most those that it [`wants`](Self::wants), and tells how many it used: none while there are
    /// events to take. The bytes of payload are looked at only if it has digests.
    ///
    /// # Errors
    /// The target broke the protocol. The session is at its end.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if !self.events.is_empty() {
            return Ok(0);
        }
        let used = self.take(bytes);
        self.fault = used.err();
        used
    }

    fn take(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let part = self.reader.wants().0;
        let shown = self.reader.show(bytes)?;
        let used = &bytes[..shown.used_bytes];
        match &mut self.current {
            Current::Data(data) if part == Part::Data => data.came_bytes += used.len() as u32,
            Current::Control(_, came) if part == Part::Data => came.extend_from_slice(used),
            _ => {}
        }
        match shown.whole {
            Whole::Nothing => {}
            Whole::Header(header) => self.hear_header(&header)?,
            Whole::Data { crc } => match std::mem::replace(&mut self.current, Current::Nothing) {
                Current::Nothing => {}
                Current::Data(data) => self.hear_data(&data, crc)?,
                Current::Control(header, came) => self.hear_control(&header, &came)?,
            },
        }
        Ok(shown.used_bytes)
    }

    fn hear_header(&mut self, header: &Header) -> Result<(), Fault> {
        let pdu = Pdu::parse(header)?;
        self.hear_window(pdu::window(header));
        if pdu.has_stat_sn(header) {
            same(Why::StatSn, header.tag(), header.u32_at(24), self.stat_sn)?;
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
        let len_bytes = header.data_len_bytes();
        if let Pdu::DataIn {
            data_sn,
            offset_bytes,
            ending,
        } = pdu
        {
            let data = self.data_in(header, data_sn, offset_bytes, ending)?;
            if len_bytes == 0 {
                return self.hear_data(&data, None);
            }
            self.current = Current::Data(data);
            return Ok(());
        }
        let len_bytes_max = match pdu {
            Pdu::Response(_) | Pdu::Async { .. } | Pdu::Reject { .. } => ISCSI_CONTROL_BYTES_MAX,
            _ => 0,
        };
        if len_bytes > len_bytes_max {
            let fault = Fault::of(Why::DataLen, header.tag());
            return Err(fault.came(len_bytes.into()).not(len_bytes_max.into()));
        }
        if len_bytes == 0 {
            return self.hear_control(header, &[]);
        }
        self.current = Current::Control(*header, Vec::with_capacity(len_bytes as usize));
        Ok(())
    }

    /// Serial numbers of 32 bits; a range that is none is ignored (RFC 7143 section 4.2.2.1). The window never shrinks. What
    /// ExpCmdSN counts is not looked at: answers tell what was carried out, and some targets count what is immediate.
    fn hear_window(&mut self, window: Window) {
        let is_after = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
        let is_range = !is_after(window.exp_cmd_sn.wrapping_sub(1), window.max_cmd_sn);
        if is_range && is_after(window.max_cmd_sn, self.max_cmd_sn) {
            self.max_cmd_sn = window.max_cmd_sn;
        }
    }

    fn task(&mut self, header: &Header) -> Result<&mut Task, Fault> {
        let (tag, opcode) = (header.tag(), header.opcode());
        let task = self.tasks.get_mut(&tag);
        task.ok_or_else(|| Fault::of(Why::Tag, tag).came(opcode.into()))
    }

    /// Announced payload: it has to be the next of its task, and inside it.
    fn data_in(
        &mut self,
        header: &Header,
        data_sn: u32,
        offset_bytes: u32,
        ending: Option<Ending>,
    ) -> Result<Data, Fault> {
        let (tag, len_bytes) = (header.tag(), header.data_len_bytes());
        let task = self.task(header)?;
        let in_bytes = task.command.in_bytes();
        if in_bytes == 0 {
            return Err(Fault::of(Why::Direction, tag).came(opcode::DATA_IN.into()));
        }
        same(Why::DataSn, tag, data_sn, task.data_sn)?;
        same(Why::Offset, tag, offset_bytes, task.came_bytes)?;
        let end = u64::from(offset_bytes) + u64::from(len_bytes);
        if end > in_bytes.into() {
            return Err(Fault::of(Why::Beyond, tag).came(end).not(in_bytes.into()));
        }
        task.data_sn = task.data_sn.wrapping_add(1);
        Ok(Data {
            tag,
            task: task.id,
            offset_bytes,
            len_bytes,
            came_bytes: 0,
            ending,
            is_unwanted: task.is_aborting,
        })
    }

    /// Payload is whole.
    fn hear_data(&mut self, data: &Data, crc: Option<u32>) -> Result<(), Fault> {
        if let Some(task) = self.tasks.get_mut(&data.tag) {
            task.came_bytes += data.len_bytes;
            if !task.is_aborting && data.len_bytes > 0 {
                self.events.push_back(Event::Data {
                    place: Place {
                        task: data.task,
                        offset_bytes: data.offset_bytes,
                    },
                    len_bytes: data.len_bytes,
                    crc,
                });
            }
        }
        match data.ending {
            Some(ending) => self.ended(data.tag, ending, &[]),
            None => Ok(()),
        }
    }

    /// A PDU without payload is whole.
    fn hear_control(&mut self, header: &Header, data: &[u8]) -> Result<(), Fault> {
        let tag = header.tag();
        let unknown = || Err(Fault::of(Why::Tag, tag).came(header.opcode().into()));
        match Pdu::parse(header)? {
            Pdu::DataIn { .. } => Ok(()), // it has a way of its own
            Pdu::Response(ending) => {
                self.task(header)?;
                self.ended(tag, ending, data)
            }
            Pdu::R2t {
                transfer_tag,
                r2t_sn,
                offset_bytes,
                len_bytes,
            } => {
                let from_to = (offset_bytes, len_bytes);
                self.hear_r2t(header, transfer_tag, r2t_sn, from_to)
            }
            Pdu::NopIn { lun, transfer_tag } => self.hear_nop(tag, lun, transfer_tag),
            Pdu::TaskResponse { response } => match self.abort {
                Some((abort, task)) if abort == tag => {
                    self.abort = None;
                    self.hear_aborted(task, response);
                    Ok(())
                }
                _ => unknown(),
            },
            Pdu::LogoutResponse { .. } => match self.state {
                State::LoggingOut(logout) if logout == tag => {
                    self.state = State::Over;
                    self.events.push_back(Event::LoggedOut);
                    Ok(())
                }
                _ => unknown(),
            },
            Pdu::Async { event, parameters } => self.hear_async(event, parameters[2], data),
            Pdu::Reject { reason } => Err(Fault::of(Why::Rejected, tag).came(reason.into())),
        }
    }

    /// The target asks for data of a write: it has to be the next of its task, and inside it.
    fn hear_r2t(
        &mut self,
        header: &Header,
        transfer_tag: u32,
        r2t_sn: u32,
        (offset_bytes, len_bytes): (u32, u32),
    ) -> Result<(), Fault> {
        let (tag, agreed) = (header.tag(), self.agreed);
        let task = self.task(header)?;
        let out_bytes = task.command.out_bytes();
        let fault = |why, came: u64, expected: u32| {
            Err(Fault::of(why, tag).came(came).not(expected.into()))
        };
        if out_bytes == 0 {
            return fault(Why::Direction, opcode::R2T.into(), 0);
        }
        same(Why::R2tSn, tag, r2t_sn, task.r2t_sn)?;
        same(Why::Offset, tag, offset_bytes, task.asked_bytes)?;
        let end = u64::from(offset_bytes) + u64::from(len_bytes);
        if end > out_bytes.into() {
            return fault(Why::Beyond, end, out_bytes);
        }
        if !(1..=agreed.burst_bytes).contains(&len_bytes) {
            return fault(Why::Burst, len_bytes.into(), agreed.burst_bytes);
        }
        if task.r2ts >= agreed.r2ts {
            return fault(Why::R2ts, u64::from(task.r2ts) + 1, agreed.r2ts);
        }
        task.r2t_sn += 1;
        task.r2ts += 1;
        task.asked_bytes += len_bytes;
        self.bursts.push_back(Burst {
            tag,
            transfer_tag,
            at_bytes: offset_bytes,
            end_bytes: offset_bytes + len_bytes,
            data_sn: 0,
        });
        Ok(())
    }

    /// The target's ping, the answer to ours, or only the window.
    fn hear_nop(&mut self, tag: u32, lun: [u8; 8], transfer_tag: u32) -> Result<(), Fault> {
        if tag != NO_TAG {
            if self.ping != Some(tag) {
                return Err(Fault::of(Why::Tag, tag).came(opcode::NOP_IN.into()));
            }
            self.ping = None;
            self.events.push_back(Event::Pong);
            return Ok(());
        }
        if transfer_tag == NO_TAG {
            return Ok(());
        }
        if self.pongs.len() == ISCSI_PINGS_MAX {
            return Err(Fault::of(Why::Pings, tag).came(ISCSI_PINGS_MAX as u64 + 1));
        }
        let header = Header::new(opcode::NOP_OUT | opcode::IMMEDIATE, FINAL).with(8, &lun);
        let header = header.with_u32(16, NO_TAG).with_u32(20, transfer_tag);
        self.pongs.push_back(header);
        Ok(())
    }

    /// The target aborted a task (0) or knows none (1): either way it is over. Otherwise it goes on, and its answer comes.
    fn hear_aborted(&mut self, tag: u32, response: u8) {
        if response <= 1 {
            self.leave(tag, Some(Outcome::Aborted));
        }
    }

    /// RFC 7143 section 11.9.1.
    fn hear_async(&mut self, event: u8, within_s: u16, data: &[u8]) -> Result<(), Fault> {
        match event {
            0 => {
                let sense = data.get(2..).and_then(Sense::parse);
                self.events.extend(sense.map(Event::Attention));
                Ok(())
            }
            // 4: it wants to negotiate, which a new login does, too.
            1 | 4 => {
                self.events.push_back(Event::LogoutRequested { within_s });
                Ok(())
            }
            2 | 3 | 5 => Err(Fault::of(Why::Dropped, NO_TAG).came(event.into())),
            _ => Ok(()),
        }
    }
}
