//! A node: six queues, and a cache of files.

use std::collections::{BTreeMap, VecDeque};

use ackpace_core::place::Load;

use super::lru::Lru;

/// What a node has, each with a mailbox of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    Cpu,
    Disk,
    InFromClients,
    InFromNodes,
    OutToClients,
    OutToNodes,
}

const DEVICES: usize = 6;

/// A message in a mailbox: the job that it belongs to, and how long it takes.
pub type Message = (u32, u64);

#[derive(Debug)]
pub struct Node {
    mailboxes: [VecDeque<Message>; DEVICES],
    pub cache: Lru,
    /// What was asked for here lately, as much as would fit into the cache.
    pub asked: Lru,
    /// Files that the disk reads, or will, and the jobs that wait for them beside the one that reads.
    pub reading: BTreeMap<u32, Vec<u32>>,
    /// Forwarded ACKs that the CPU has still to be charged for.
    pub acks_ns: u64,
}

impl Node {
    pub fn new(lengths: &[u32], cache_bytes: u64) -> Node {
        Node {
            mailboxes: Default::default(),
            cache: Lru::new(lengths, cache_bytes),
            asked: Lru::new(lengths, cache_bytes),
            reading: BTreeMap::new(),
            acks_ns: 0,
        }
    }

    /// A message comes; the time of the device, if that is idle and begins with it.
    pub fn put(&mut self, device: Device, mut message: Message) -> Option<u64> {
        if device == Device::Cpu {
            message.1 += std::mem::take(&mut self.acks_ns);
        }
        let mailbox = &mut self.mailboxes[device as usize];
        mailbox.push_back(message);
        (mailbox.len() == 1).then_some(message.1)
    }

    /// A device is done with a message: its job, and the time of the next message.
    pub fn done(&mut self, device: Device) -> (u32, Option<u64>) {
        let mailbox = &mut self.mailboxes[device as usize];
        let (job, _) = mailbox.pop_front().expect("it had one");
        (job, mailbox.front().map(|message| message.1))
    }

    /// Messages in the mailboxes, with those that are being served (4.3). Output adaptors do not count.
    pub fn load(&self) -> Load {
        let messages = |device: Device| self.mailboxes[device as usize].len() as u32;
        let inputs = messages(Device::InFromClients) + messages(Device::InFromNodes);
        Load {
            processing: messages(Device::Cpu) + inputs,
            disk: messages(Device::Disk),
        }
    }
}
