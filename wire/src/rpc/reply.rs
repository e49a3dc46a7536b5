//! Replies (RFC 5531 section 9), each one record of one fragment.

use super::xdr::Put;

const LAST: u32 = 1 << 31;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const SUCCESS: u32 = 0;
const AUTH_NONE: u32 = 0;

/// Why a call has no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The program is not served here (PROG_UNAVAIL).
    ProgramUnavailable,
    /// Only these versions of it are (PROG_MISMATCH).
    ProgramMismatch {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// It has no such procedure (PROC_UNAVAIL).
    ProcedureUnavailable,
    /// The arguments can't be read (GARBAGE_ARGS).
    GarbageArgs,
    /// The server failed (SYSTEM_ERR), for want of memory.
    SystemError,
    /// The version of RPC is not 2 (RPC_MISMATCH).
    RpcMismatch,
    /// The credentials don't do (AUTH_ERROR).
    Auth(Auth),
}

/// What is wrong with credentials (auth_stat).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Auth {
    /// They can't be read, or are of another flavor.
    BadCred = 1,
    /// The verifier can't be read.
    BadVerf = 3,
    /// They don't do for what is asked.
    TooWeak = 5,
}

/// Begins a reply with results, which are appended next; then comes [`end`]. Returns where it starts.
pub fn begin(xid: u32, to: &mut Vec<u8>) -> usize {
    let start = to.len();
    header(xid, ACCEPTED, to);
    no_verifier(to);
    to.put_u32(SUCCESS);
    start
}

/// Ends the reply that starts there. So many bytes of it follow that are not in `to`: payload and what pads it.
pub fn end(start: usize, behind_bytes: u32, to: &mut [u8]) {
    let len = (to.len() - start - 4) as u32 + behind_bytes; // a reply is far below 2^31 bytes
    to[start..start + 4].copy_from_slice(&(LAST | len).to_be_bytes());
}

/// Appends a reply without results.
pub fn refuse(xid: u32, why: Refusal, to: &mut Vec<u8>) {
    let start = to.len();
    if let Refusal::RpcMismatch | Refusal::Auth(_) = why {
        header(xid, DENIED, to);
    } else {
        header(xid, ACCEPTED, to);
        no_verifier(to);
    }
    let numbers: &[u32] = match why {
        Refusal::ProgramUnavailable => &[1],
        Refusal::ProgramMismatch { low, high } => &[2, low, high],
        Refusal::ProcedureUnavailable => &[3],
        Refusal::GarbageArgs => &[4],
        Refusal::SystemError => &[5],
        Refusal::RpcMismatch => &[0, super::VERSION, super::VERSION],
        Refusal::Auth(auth) => &[1, auth as u32],
    };
    for number in numbers {
        to.put_u32(*number);
    }
    end(start, 0, to);
}

fn header(xid: u32, state: u32, to: &mut Vec<u8>) {
    for number in [0, xid, REPLY, state] {
        to.put_u32(number);
    }
}

fn no_verifier(to: &mut Vec<u8>) {
    to.put_u32(AUTH_NONE);
    to.put_u32(0);
}
