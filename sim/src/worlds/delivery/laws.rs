//! Laws of every run: each response's bytes leave once and in order, slots hold what is sent from them, and a response
//! ends early only for a reason.

use ackpace_core::conn::Span;
use ackpace_core::why::Why;

/// Slots of one read, lent to one response.
pub(super) struct Lease {
    /// The bytes that it was answered with.
    pub span: Span,
    pub slots: u32,
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

/// Checks that slots hold every byte of the span.
pub(super) fn check_slots(leases: &[Lease], span: Span) {
    let mut at_bytes = span.offset_bytes;
    for lease in leases {
        if lease.span.contains(at_bytes) {
            at_bytes = lease.span.end_bytes();
        }
    }
    assert!(
        at_bytes >= span.end_bytes(),
        "slots hold nothing at {at_bytes}, but {span:?} is sent"
    );
}
