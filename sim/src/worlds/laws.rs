//! Laws of every run: each response's bytes leave once and in order, slots hold what is sent from them, and a response
//! ends early only for a reason.

use std::collections::BTreeMap;

use ackpace_core::conn::{Span, StreamId};
use ackpace_core::limits::SLOT_BYTES;
use ackpace_core::why::Why;

/// Slots of one read, lent to one response.
pub(super) struct Lease {
    /// The bytes that it was answered with.
    pub span: Span,
    pub slots: u32,
}

/// The slots that are lent to the responses, by connection.
#[derive(Default)]
pub(super) struct Leases(BTreeMap<u32, Vec<Lease>>);

impl Leases {
    /// A response gets slots for the bytes that follow those it has.
    pub fn lend(&mut self, stream: StreamId, lease: Lease) {
        self.0.entry(stream.conn.index).or_default().push(lease);
    }

    /// Takes back, one by one, the slots of which all bytes are before this one in the file. Returns how many.
    pub fn take_back(&mut self, stream: StreamId, before_bytes: u64) -> u32 {
        let Some(leases) = self.0.get_mut(&stream.conn.index) else {
            return 0;
        };
        let mut freed = 0;
        leases.retain_mut(|lease| {
            let left_bytes = lease.span.end_bytes().saturating_sub(before_bytes);
            let slots = left_bytes.div_ceil(SLOT_BYTES).min(lease.slots.into()) as u32;
            freed += lease.slots - slots;
            lease.slots = slots;
            slots > 0
        });
        freed
    }

    /// Checks that slots hold every byte of the span.
    pub fn check(&self, stream: StreamId, span: Span) {
        let mut at_bytes = span.offset_bytes;
        for lease in self.0.get(&stream.conn.index).into_iter().flatten() {
            if lease.span.contains(at_bytes) {
                at_bytes = lease.span.end_bytes();
            }
        }
        assert!(
            at_bytes >= span.end_bytes(),
            "slots hold nothing at {at_bytes}, but {span:?} is sent"
        );
    }
}

/// State of a download at the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Its response has not ended, or it was never asked for.
    #[default]
    Open,
    /// The socket took its last byte.
    Whole,
    /// It ended before that: its client has left, or its file was changed or can't be read.
    Early,
}

/// The progress of one response against its plan: a head and a range of a file.
#[derive(Default)]
pub(super) struct Progress {
    /// Bytes of head and body.
    parts_bytes: [u64; 2],
    /// The next byte: its part and its place in that.
    at: (usize, u64),
    /// Its client has sent RST.
    left: bool,
    pub ending: Ending,
}

impl Progress {
    pub fn new(head_bytes: u64, body_bytes: u64) -> Progress {
        Progress {
            parts_bytes: [head_bytes, body_bytes],
            at: (0, 0),
            left: false,
            ending: Ending::Open,
        }
    }

    /// Checks that these bytes are the next ones.
    pub fn check(&self, part: u16, from_bytes: u64, len_bytes: u64) {
        let part = usize::from(part);
        assert_eq!(
            (part, from_bytes),
            self.at,
            "a byte is sent twice, or never (part, place in it)"
        );
        let left_bytes = self.parts_bytes[part] - from_bytes;
        assert!(
            (1..=left_bytes).contains(&len_bytes),
            "{len_bytes} bytes are sent of {left_bytes}"
        );
        assert_eq!(self.ending, Ending::Open, "bytes behind the end");
    }

    /// The socket took this many bytes.
    pub fn sent(&mut self, taken_bytes: u64) {
        self.at.1 += taken_bytes;
        while self.at.0 < 2 && self.at.1 == self.parts_bytes[self.at.0] {
            self.at = (self.at.0 + 1, 0);
        }
    }

    /// Its client sends RST.
    pub fn leaves(&mut self) {
        self.left = true;
    }

    /// Its response ends, `excused` by what happened to its file or not.
    pub fn ends(&mut self, excused: bool) {
        assert_eq!(self.ending, Ending::Open, "a response ends twice");
        let whole = self.at.0 == 2;
        assert!(
            whole || self.left || excused,
            "a response ends at {:?} of {:?}, though nothing has failed",
            self.at,
            self.parts_bytes
        );
        self.ending = if whole { Ending::Whole } else { Ending::Early };
    }

    /// Its connection closes for this reason.
    pub fn closes(&self, why: Why) {
        assert_ne!(why, Why::Misframed, "a response is not what its head says");
    }
}
