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

/// Whether a stream is an earlier one of the slot of `other`: a response of an earlier connection there, or an earlier
/// response of the same connection. Both numbers wrap, so the shorter way round tells which is earlier (as for serial
/// numbers, RFC 1982).
pub(super) fn is_before(stream: StreamId, other: StreamId) -> bool {
    let (conn, of) = (stream.conn.generation, other.conn.generation);
    match conn.wrapping_sub(of) as i32 {
        0 => (stream.nth.wrapping_sub(other.nth) as i16) < 0,
        ahead => ahead < 0,
    }
}
