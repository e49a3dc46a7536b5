//! Carries out the calls of all connections: no socket and no thread is here.

use std::net::IpAddr;

use ackpace_core::conn::Span;
use ackpace_core::why::Why;
use ackpace_wire::nfs3::Request;

use crate::source::Source;
use crate::store::door::Wait;

/// What is exported, shared by all threads.
pub struct Served {}

/// What becomes of a call.
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
    /// Ask again with [`Wait::Yes`], on a thread that may wait.
    Cold,
}

impl Served {
    /// Carries out a call, for a client at this address. [`Wait::No`]: only what the kernel's caches answer, else
    /// [`Outcome::Cold`].
    pub fn carry_out(&self, request: &Request<'_>, from: IpAddr, wait: Wait) -> Outcome {
        let _ = (request, from, wait);
        Outcome::Cold
    }

    /// Appends the reply of a READ whose bytes can't be read.
    pub fn refuse_read(&self, xid: u32, why: Why, to: &mut Vec<u8>) {
        let _ = (xid, why, to);
    }
}

impl Served {
    /// What the options say.
    pub fn of(
        _options: &crate::options::ServeOptions,
        _site: &std::sync::Arc<crate::front::site::Site>,
    ) -> Served {
        Served {}
    }
}
