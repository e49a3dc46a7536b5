//! A target in memory that keeps to the protocol, with every freedom that it has: the order of tasks, the cuts of data, and
//! where the status stands. It checks what it is sent.

use std::collections::{BTreeMap, VecDeque};

use crate::iscsi::login::Agreed;
use crate::iscsi::pdu::{FINAL, Header, NO_TAG, opcode};
use crate::iscsi::reader::{Part, Reader, Whole};
use crate::iscsi::testing::{Rng, pdu};

pub const BLOCK_BYTES: u32 = 512;

/// A write under way.
#[derive(Debug)]
struct Write {
    at: usize,
    len_bytes: u32,
    came_bytes: u32,
    asked_bytes: u32,
    r2t_sn: u32,
    /// Transfer tags, ends of the data asked for, and the DataSN that comes next.
    open: VecDeque<(u32, u32, u32)>,
}

#[derive(Debug)]
pub struct Target {
    agreed: Agreed,
    reader: Reader,
    header: Header,
    data: Vec<u8>,
    pub disk: Vec<u8>,
    pub rng: Rng,
    stat_sn: u32,
    exp_cmd_sn: u32,
    exp_stat_sn: u32,
    /// Commands that it lets be under way.
    window: u32,
    writes: BTreeMap<u32, Write>,
    /// What each task still sends, in order.
    queues: BTreeMap<u32, VecDeque<(Header, Vec<u8>)>>,
    /// One command in so many is put off, or meets a unit attention; 0: none.
    pub trouble: u32,
    transfer_tag: u32,
}

fn header(opcode: u8, flags: u8, tag: u32) -> Header {
    Header::new(opcode, flags).with_u32(16, tag)
}

impl Target {
    pub fn new(agreed: Agreed, disk: Vec<u8>, seed: u64) -> Target {
        Target {
            reader: Reader::new(agreed.header_digests, agreed.data_digests, 1 << 24),
            header: Header::new(0, 0),
            data: Vec::new(),
            disk,
            rng: Rng(seed),
            stat_sn: agreed.stat_sn,
            exp_cmd_sn: agreed.cmd_sn,
            exp_stat_sn: agreed.stat_sn,
            window: agreed.max_cmd_sn.wrapping_sub(agreed.cmd_sn) + 1,
            writes: BTreeMap::new(),
            queues: BTreeMap::new(),
            trouble: 0,
            transfer_tag: 100,
            agreed,
        }
    }

    /// Takes what the initiator sends.
    pub fn hear(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let part = self.reader.wants().0;
            let shown = self.reader.show(bytes).expect("an initiator is right");
            if part == Part::Data {
                self.data.extend_from_slice(&bytes[..shown.used_bytes]);
            }
            bytes = &bytes[shown.used_bytes..];
            match shown.whole {
                Whole::Nothing => {}
                Whole::Header(header) => {
                    self.header = header;
                    if header.data_len_bytes() == 0 {
                        self.hear_pdu();
                    }
                }
                Whole::Data { .. } => self.hear_pdu(),
            }
        }
    }

    fn hear_pdu(&mut self) {
        let (header, data) = (self.header, std::mem::take(&mut self.data));
        let ahead = self.stat_sn.wrapping_sub(header.u32_at(28)) as i32;
        assert!(
            ahead >= 0 && header.u32_at(28).wrapping_sub(self.exp_stat_sn) as i32 >= 0,
            "ExpStatSN"
        );
        self.exp_stat_sn = header.u32_at(28);
        let is_immediate = header.0[0] & opcode::IMMEDIATE != 0;
        match header.opcode() {
            opcode::COMMAND => {
                assert!(!is_immediate);
                assert_eq!(header.u32_at(24), self.exp_cmd_sn, "CmdSN");
                self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
                self.hear_command(&header, &data);
            }
            opcode::DATA_OUT => self.hear_data(&header, &data),
            other => {
                assert!(is_immediate && data.is_empty());
                assert_eq!(
                    header.u32_at(24),
                    self.exp_cmd_sn,
                    "CmdSN of what is immediate"
                );
                self.hear_immediate(other, &header);
            }
        }
    }

    fn hear_immediate(&mut self, opcode: u8, request: &Header) {
        let tag = request.tag();
        match opcode {
            opcode::NOP_OUT if tag == NO_TAG => {
                assert_eq!(request.u32_at(20), 77, "the transfer tag")
            }
            opcode::NOP_OUT => {
                let pong = header(opcode::NOP_IN, FINAL, tag).with_u32(20, NO_TAG);
                self.queue(tag, pong, vec![]);
            }
            opcode::TASK => {
                let task = request.u32_at(20);
                self.writes.remove(&task);
                let known = self.queues.remove(&task).is_some();
                let response = header(opcode::TASK_RESPONSE, FINAL, tag);
                self.queue(tag, response.with(2, &[u8::from(!known)]), vec![]);
            }
            opcode::LOGOUT => self.queue(tag, header(opcode::LOGOUT_RESPONSE, FINAL, tag), vec![]),
            other => panic!("opcode {other:#x}"),
        }
    }

    fn hear_command(&mut self, request: &Header, data: &[u8]) {
        let tag = request.tag();
        let cdb = &request.0[32..];
        let lba = u64::from_be_bytes(cdb[2..10].try_into().expect("8 bytes"));
        let blocks = u32::from_be_bytes(cdb[10..14].try_into().expect("4 bytes"));
        assert_eq!(request.lun(), [0, 3, 0, 0, 0, 0, 0, 0]);
        let at = lba as usize * BLOCK_BYTES as usize;
        let expected_bytes = request.u32_at(20);
        let flags = request.flags();
        if self.trouble > 0 && self.rng.below(self.trouble) == 0 && flags & FINAL != 0 {
            return self.refuse(tag);
        }
        match cdb[0] {
            0x88 => {
                assert_eq!((flags & 0x60, expected_bytes), (0x40, blocks * BLOCK_BYTES));
                self.read(tag, at, expected_bytes);
            }
            0x8a => {
                assert_eq!((flags & 0x60, expected_bytes), (0x20, blocks * BLOCK_BYTES));
                self.disk[at..at + data.len()].copy_from_slice(data);
                let came_bytes = data.len() as u32;
                let most = self
                    .agreed
                    .first_burst_bytes
                    .min(self.agreed.send_segment_bytes);
                assert!(came_bytes <= most && (self.agreed.immediate_data || data.is_empty()));
                let is_final = flags & FINAL != 0;
                assert!(is_final || !self.agreed.initial_r2t);
                let unasked_bytes = match is_final {
                    true => came_bytes,
                    false => expected_bytes.min(self.agreed.first_burst_bytes),
                };
                let open = (!is_final).then_some((NO_TAG, unasked_bytes, 0));
                let write = Write {
                    at,
                    len_bytes: expected_bytes,
                    came_bytes,
                    asked_bytes: unasked_bytes,
                    r2t_sn: 0,
                    open: open.into_iter().collect(),
                };
                self.writes.insert(tag, write);
                self.go_on(tag);
            }
            _ => {
                assert_eq!((flags & 0x60, expected_bytes), (0, 0));
                self.respond(tag);
            }
        }
    }

    fn read(&mut self, tag: u32, at: usize, len_bytes: u32) {
        let (mut offset, mut data_sn) = (0, 0);
        let has_status = self.rng.below(2) == 0;
        while offset < len_bytes {
            let most = self.agreed.receive_segment_bytes.min(len_bytes - offset);
            let cut = 1 + self.rng.below(most);
            let is_last = offset + cut == len_bytes;
            let flags = match (is_last, has_status) {
                (true, true) => FINAL | 1,
                (true, false) => FINAL,
                _ => 0,
            };
            let from = at + offset as usize;
            let data = self.disk[from..from + cut as usize].to_vec();
            let header = header(opcode::DATA_IN, flags, tag).with_u32(20, NO_TAG);
            self.queue(tag, header.with_u32(36, data_sn).with_u32(40, offset), data);
            offset += cut;
            data_sn += 1;
        }
        if !has_status {
            self.respond(tag);
        }
    }

    fn hear_data(&mut self, request: &Header, data: &[u8]) {
        let tag = request.tag();
        let Some(write) = self.writes.get_mut(&tag) else {
            return; // it was aborted
        };
        let (transfer_tag, end_bytes, data_sn) = write.open.front_mut().expect("it was asked for");
        assert_eq!(request.u32_at(20), *transfer_tag);
        assert_eq!(request.u32_at(36), *data_sn, "DataSN");
        assert_eq!(request.u32_at(40), write.came_bytes, "the offset");
        assert!(data.len() as u32 <= self.agreed.send_segment_bytes && !data.is_empty());
        *data_sn += 1;
        let from = write.at + write.came_bytes as usize;
        self.disk[from..from + data.len()].copy_from_slice(data);
        write.came_bytes += data.len() as u32;
        let is_last = write.came_bytes == *end_bytes;
        assert_eq!(request.flags() & FINAL != 0, is_last);
        if is_last {
            write.open.pop_front();
            self.go_on(tag);
        }
    }

    /// Asks for more of a write, or ends it.
    fn go_on(&mut self, tag: u32) {
        let Some(write) = self.writes.get_mut(&tag) else {
            return;
        };
        if write.came_bytes == write.len_bytes {
            self.writes.remove(&tag);
            return self.respond(tag);
        }
        let mut asked = Vec::new();
        let may_ask = write
            .open
            .iter()
            .all(|(transfer_tag, ..)| *transfer_tag != NO_TAG);
        while may_ask
            && write.asked_bytes < write.len_bytes
            && write.open.len() < self.agreed.r2ts as usize
        {
            let most = self
                .agreed
                .burst_bytes
                .min(write.len_bytes - write.asked_bytes);
            let len_bytes = 1 + self.rng.below(most);
            self.transfer_tag += 1;
            let header = header(opcode::R2T, FINAL, tag)
                .with_u32(20, self.transfer_tag)
                .with_u32(36, write.r2t_sn)
                .with_u32(40, write.asked_bytes)
                .with_u32(44, len_bytes);
            asked.push(header);
            write.r2t_sn += 1;
            write.asked_bytes += len_bytes;
            write
                .open
                .push_back((self.transfer_tag, write.asked_bytes, 0));
        }
        asked
            .into_iter()
            .for_each(|header| self.queue(tag, header, vec![]));
    }

    fn respond(&mut self, tag: u32) {
        self.queue(tag, header(opcode::RESPONSE, FINAL, tag), vec![]);
    }

    /// A unit attention, or a busy unit.
    fn refuse(&mut self, tag: u32) {
        let response = header(opcode::RESPONSE, FINAL, tag);
        match self.rng.below(2) {
            0 => self.queue(tag, response.with(3, &[0x08]), vec![]),
            _ => {
                let sense = [0, 8, 0x72, 6, 0x29, 0, 0, 0, 0, 0];
                self.queue(tag, response.with(3, &[0x02]), sense.to_vec());
            }
        }
    }

    fn queue(&mut self, tag: u32, header: Header, data: Vec<u8>) {
        self.queues
            .entry(tag)
            .or_default()
            .push_back((header, data));
    }

    /// A ping.
    pub fn ping(&mut self) {
        self.queue(
            NO_TAG,
            header(opcode::NOP_IN, FINAL, NO_TAG).with_u32(20, 77),
            vec![],
        );
    }

    /// The next PDU, of any task.
    pub fn emit(&mut self) -> Option<Vec<u8>> {
        let nth = self.rng.below(self.queues.len() as u32) as usize;
        let tag = *self.queues.keys().nth(nth)?;
        let queue = self.queues.get_mut(&tag)?;
        let (header, data) = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&tag);
        }
        let is_counted = match header.opcode() {
            opcode::DATA_IN => header.flags() & 1 != 0,
            opcode::R2T => false,
            opcode::NOP_IN => tag != NO_TAG,
            _ => true,
        };
        let header = header
            .with_u32(24, self.stat_sn)
            .with_u32(28, self.exp_cmd_sn)
            .with_u32(
                32,
                self.exp_cmd_sn.wrapping_add(self.window).wrapping_sub(1),
            );
        self.stat_sn = self.stat_sn.wrapping_add(is_counted.into());
        let agreed = &self.agreed;
        Some(pdu(
            header,
            &data,
            agreed.header_digests,
            agreed.data_digests,
        ))
    }
}
