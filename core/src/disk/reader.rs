//! Who reads from a device.

use crate::conn::StreamId;

/// Who reads from this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReaderId {
    /// A stream, by its worker and its slot in the table of connections. A slot has one stream at a time: a message of a later
    /// stream supersedes those of earlier ones.
    Stream(u16, u32),
    /// A stream that left and whose read is made all the same (`cancel` off), by a number of its own.
    Left(u64),
}

impl ReaderId {
    /// The reader that this stream is.
    pub fn of(stream: StreamId) -> ReaderId {
        ReaderId::Stream(stream.worker, stream.conn.index)
    }

    /// Whether it is gone, and nobody waits for its read.
    pub fn is_gone(self) -> bool {
        matches!(self, ReaderId::Left(_))
    }
}
