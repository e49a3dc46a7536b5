//! What is kept of a stream that reads from a device.

use super::ReadPath;
use super::reader::ReaderId;
use super::scheduler::{Entry, Position};
use super::sharing::Answer;
use crate::conn::Want;
use crate::units::Instant;

/// A stream that reads from this device.
pub(super) struct Reader {
    pub want: Want,
    /// Where its want is queued; `None`: it waits for its file's layout, or is being read, or is answered.
    pub position: Option<Position>,
    /// Its want is answered, and it has no new one.
    pub answered: Option<Answer>,
    /// The sweep in which it was last read.
    pub served: Option<u64>,
    /// Its want is put off: it becomes due as if the stream ran dry then.
    pub put_off_to: Option<Instant>,
    /// The last read of its bytes was made for it, into the page cache.
    pub fills: bool,
    /// The way of its last read.
    pub way: Option<ReadPath>,
    /// What it counts for in [`Disk::filled_bytes_per_s`].
    pub filled_bytes_per_s: u64,
}

impl Reader {
    /// A stream that begins to read, with its first want.
    pub fn new(want: Want) -> Reader {
        Reader {
            want,
            position: None,
            answered: None,
            served: None,
            put_off_to: None,
            fills: false,
            way: None,
            filled_bytes_per_s: 0,
        }
    }
}

/// What a device's machine keeps of a stream that reads from it: the stream, its turn, and its entry among those of its file.
pub const STREAM_BYTES: u64 =
    2 * (size_of::<(ReaderId, Reader)>() + size_of::<Entry>() + 4 * size_of::<ReaderId>()) as u64;
