//! What becomes of a call.

use ackpace_core::conn::Span;

use crate::gateway::Ask;
use crate::source::Source;

/// What becomes of a call.
#[derive(Debug)]
pub enum Outcome {
    /// The reply's record, mark included.
    Reply(Vec<u8>),
    /// A READ of bytes that the file has.
    Read {
        /// Where they are.
        source: Source,
        /// The file's length.
        file_len_bytes: u64,
        /// At least one byte.
        span: Span,
        /// The reply before its payload, record mark included.
        head: Vec<u8>,
        /// Zero bytes behind the payload.
        pad_bytes: u32,
    },
    /// Ask again with [`Wait::Yes`](crate::store::door::Wait::Yes), on a thread that may wait.
    Cold,
    /// An origin has to be asked first.
    Asks(Ask),
}
