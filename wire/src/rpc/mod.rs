//! Calls and replies of remote procedures over a stream (ONC RPC version 2, RFC 5531).
//!
//! [`Incoming`] takes records from the stream and leaves a call's payload to its caller, who receives it where it stays.
//! [`parse`] reads a call's header. [`refuse`] encodes the replies that have no results, [`begin`] and [`end`] what is around
//! results. No call and no credential is believed: what AUTH_SYS claims is checked against the export.

mod record;
mod reply;
pub(crate) mod xdr;

pub use self::record::{BadStream, Incoming, Next, Record, Split};
pub use self::reply::{Auth, Refusal, begin, end, refuse};
pub use self::xdr::{Bad, pad_bytes};

use self::xdr::Reader;
use crate::limits::{RPC_AUTH_BYTES_MAX, RPC_GROUPS_MAX, RPC_MACHINE_BYTES_MAX};

const CALL: u32 = 0;
/// The version of RPC.
const VERSION: u32 = 2;
const AUTH_NONE: u32 = 0;
/// The flavor of [`Credential::Sys`] (RFC 5531 appendix A).
pub const AUTH_SYS: u32 = 1;

/// A call, borrowed from its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The client's number of the call, repeated in the reply.
    pub xid: u32,
    /// The program, such as 100003.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Who calls.
    pub credential: Credential<'a>,
    /// Arguments, not parsed.
    pub args: &'a [u8],
}

/// Who a client says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// Nobody (AUTH_NONE).
    Nobody,
    /// A user of the client's machine (AUTH_SYS, RFC 5531 appendix A).
    Sys(Sys<'a>),
}

/// A user by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sys<'a> {
    /// The client's name for itself, at most 255 bytes of any value.
    pub machine: &'a [u8],
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    gids: [u32; RPC_GROUPS_MAX],
    gids_len: usize,
}

impl<'a> Sys<'a> {
    /// A user with the first 16 of these groups.
    pub fn new(machine: &'a [u8], uid: u32, gid: u32, gids: &[u32]) -> Sys<'a> {
        let mut sys = Sys {
            machine,
            uid,
            gid,
            gids: [0; RPC_GROUPS_MAX],
            gids_len: gids.len().min(RPC_GROUPS_MAX),
        };
        sys.gids[..sys.gids_len].copy_from_slice(&gids[..sys.gids_len]);
        sys
    }

    /// Further groups.
    pub fn gids(&self) -> &[u32] {
        &self.gids[..self.gids_len]
    }
}

/// Why a record is not answered by results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCall {
    /// It is no call of RPC at all. Nobody waits for a reply, and the connection is closed.
    Alien,
    /// This is the reply.
    Refused {
        /// The call's number.
        xid: u32,
        /// Why.
        why: Refusal,
    },
}

/// Reads a call's header.
///
/// # Errors
/// If it is none, or of another version, or if its credentials can't be read.
pub fn parse(head: &[u8]) -> Result<Call<'_>, NoCall> {
    let mut rest = Reader(head);
    let (xid, kind) = (number(&mut rest)?, number(&mut rest)?);
    if kind != CALL {
        return Err(NoCall::Alien);
    }
    let version = number(&mut rest)?;
    let refused = |why| NoCall::Refused { xid, why };
    if version != VERSION {
        return Err(refused(Refusal::RpcMismatch));
    }
    let call = Call {
        xid,
        program: number(&mut rest)?,
        version: number(&mut rest)?,
        procedure: number(&mut rest)?,
        credential: credential(&mut rest).map_err(|_| refused(Refusal::Auth(Auth::BadCred)))?,
        args: &[],
    };
    verifier(&mut rest).map_err(|_| refused(Refusal::Auth(Auth::BadVerf)))?;
    Ok(Call {
        args: rest.0,
        ..call
    })
}

fn number(rest: &mut Reader<'_>) -> Result<u32, NoCall> {
    rest.u32().map_err(|_| NoCall::Alien)
}

/// Other flavors are refused as RFC 9289 section 4.1 has it for AUTH_TLS.
fn credential<'a>(rest: &mut Reader<'a>) -> Result<Credential<'a>, Bad> {
    let flavor = rest.u32()?;
    let body = rest.opaque(RPC_AUTH_BYTES_MAX)?;
    match flavor {
        AUTH_NONE => Ok(Credential::Nobody),
        AUTH_SYS => Ok(Credential::Sys(sys(&mut Reader(body))?)),
        _ => Err(Bad::Value),
    }
}

fn sys<'a>(body: &mut Reader<'a>) -> Result<Sys<'a>, Bad> {
    let _stamp = body.u32()?;
    let machine = body.opaque(RPC_MACHINE_BYTES_MAX)?;
    let (uid, gid, gids_len) = (body.u32()?, body.u32()?, body.u32()? as usize);
    if gids_len > RPC_GROUPS_MAX {
        return Err(Bad::Long);
    }
    let mut sys = Sys::new(machine, uid, gid, &[]);
    for gid in &mut sys.gids[..gids_len] {
        *gid = body.u32()?;
    }
    sys.gids_len = gids_len;
    Ok(sys)
}

/// A verifier proves nothing with these flavors, so whatever it says is ignored.
fn verifier(rest: &mut Reader<'_>) -> Result<(), Bad> {
    let _flavor = rest.u32()?;
    rest.opaque(RPC_AUTH_BYTES_MAX).map(|_| ())
}

/// Steps over the header of a call: program, version and procedure.
pub(crate) fn skip_header(rest: &mut Reader<'_>) -> Result<[u32; 3], Bad> {
    let [_xid, kind, version] = [rest.u32()?, rest.u32()?, rest.u32()?];
    if kind != CALL || version != VERSION {
        return Err(Bad::Value);
    }
    let called = [rest.u32()?, rest.u32()?, rest.u32()?];
    Ok(called)
}

/// Steps over credentials and verifier.
pub(crate) fn skip_auth(rest: &mut Reader<'_>) -> Result<(), Bad> {
    verifier(rest)?; // of the same form
    verifier(rest)
}

#[cfg(test)]
mod tests;
