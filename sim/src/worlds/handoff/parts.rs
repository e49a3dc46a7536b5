//! What travels: packets, letters, the state of a socket, and the events that bring them.

use ackpace_core::handoff::{In, Message};

/// A unit of a response, of connection `conn`, at this place of its stream.
pub(super) fn content(conn: usize, at: u64) -> u64 {
    (at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ conn as u64
}

/// A machine: home's without an epoch, a guest's with that of its tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub conn: usize,
    pub flow: u64,
    pub home: usize,
    pub home_boot: u32,
    pub epoch: Option<u32>,
}

/// The state of a socket that travels, or that home keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    pub una: u64,
    pub nxt: u64,
    /// Requests that it has.
    pub rcv: u64,
    /// Which unit of the responses stands at `una`.
    pub unit: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Socket {
    pub tcp: Saved,
    /// A unit has been acknowledged since it was made.
    pub acked: bool,
    pub frozen: bool,
    /// It has left repair.
    pub started: bool,
    /// When something was acknowledged or repeated last.
    pub moved_us: u64,
    /// It probes the client once it starts.
    pub probed: bool,
}

impl Socket {
    pub fn new(tcp: Saved, now_us: u64) -> Socket {
        Socket {
            tcp,
            acked: false,
            frozen: false,
            started: false,
            moved_us: now_us,
            probed: false,
        }
    }
}

/// From a node to a client; `content` is of the unit at `at`, and `None` in a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub conn: usize,
    pub at: u64,
    pub content: Option<u64>,
    pub acked: u64,
    pub rst: bool,
}

/// From a client: requests `from..to` and an ACK.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub conn: usize,
    pub from: u64,
    pub to: u64,
    pub ack: u64,
    pub fin: bool,
    pub rst: bool,
    pub hops: u32,
}

/// Between nodes. Each end knows the start (`boot`) of the other that its stream leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter {
    pub from: usize,
    pub to: usize,
    pub boots: [u32; 2],
    pub key: Key,
    pub message: Message,
    pub saved: Option<Saved>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Act,
    Client {
        conn: usize,
    },
    Pump {
        node: usize,
    },
    Segment(Segment),
    Packet(Packet),
    Letter(Letter),
    Wake {
        node: usize,
    },
    Die {
        node: usize,
    },
    Restart {
        node: usize,
    },
    Heal {
        a: usize,
        b: usize,
    },
    /// A node learns that a start of another has ended.
    Proof {
        node: usize,
        of: usize,
        boot: u32,
    },
    Broken {
        node: usize,
        of: usize,
    },
    /// An order is answered.
    Answer {
        node: usize,
        boot: u32,
        key: Key,
        answer: In,
    },
}
