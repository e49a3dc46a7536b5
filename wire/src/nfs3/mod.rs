//! NFS version 3 and MOUNT version 3 (RFC 1813), on one stream.
//!
//! An [`Incoming`](crate::rpc::Incoming) made with [`payload`] takes records from the stream; [`parse`] makes a [`Request`] of
//! one, or the reply that says why not. [`reply`], [`Listing`] and [`mount_reply`] append replies, which may leave in any
//! order. Payload is never here: a WRITE's stays in the stream ([`Next::Payload`](crate::rpc::Next::Payload)), a READ's follows
//! what [`reply`] has appended. [`handle`] makes and opens file handles.

mod args;
pub mod handle;
mod listing;
mod mount;
mod results;
mod siphash;
mod types;

pub use self::args::{Args, Create, ReadDir, Write, access};
pub use self::listing::{Entry, Listing};
pub use self::mount::{Export, MountArgs, MountResults, MountStatus, mount_reply};
pub use self::results::{
    Behind, Found, FsInfo, FsStat, Made, PathConf, Read, Results, Written, reply,
};
pub use self::types::{
    Attributes, Before, Change, Device, Handle, Kind, Name, Place, SetAttributes, SetTime, Stable,
    Status, Time, Verifier,
};

use crate::rpc::xdr::Reader;
use crate::rpc::{Bad, Call, Credential, NoCall, Record, Refusal, Split, skip_auth, skip_header};

/// The number of NFS.
pub const NFS_PROGRAM: u32 = 100_003;
/// The number of MOUNT.
pub const MOUNT_PROGRAM: u32 = 100_005;
/// The version of both.
pub const VERSION: u32 = 3;

/// A call that can be carried out, borrowed from its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The client's number of the call, repeated in the reply.
    pub xid: u32,
    /// Who says that it calls.
    pub credential: Credential<'a>,
    /// What is asked.
    pub asked: Asked<'a>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// Of NFS.
    Nfs(Args<'a>),
    /// Of MOUNT.
    Mount(MountArgs<'a>),
}

/// Where a record's payload is: that of a WRITE.
pub fn payload(head: &[u8]) -> Split {
    match payload_of_write(head) {
        Ok(split) => split,
        Err(Bad::Short) => Split::More,
        Err(Bad::Long | Bad::Value) => Split::Without,
    }
}

fn payload_of_write(head: &[u8]) -> Result<Split, Bad> {
    let mut rest = Reader(head);
    if skip_header(&mut rest)? != [NFS_PROGRAM, VERSION, args::WRITE] {
        return Ok(Split::Without);
    }
    skip_auth(&mut rest)?;
    let write = Write::read(&mut rest)?;
    Ok(Split::At {
        offset_bytes: head.len() - rest.0.len(),
        len_bytes: write.payload_bytes,
    })
}

/// Reads a record: that of a WRITE when its payload begins, or when it has come.
///
/// # Errors
/// If there is another reply than results, or none. Payload is to be received and dropped then.
pub fn parse<'a>(record: &Record<'a>) -> Result<Request<'a>, NoCall> {
    let call = crate::rpc::parse(record.head)?;
    let asked = match asked(&call) {
        Ok(_) if record.cut => Err(Refusal::GarbageArgs),
        asked => asked,
    };
    match asked {
        Ok(asked) => Ok(Request {
            xid: call.xid,
            credential: call.credential,
            asked,
        }),
        Err(why) => Err(NoCall::Refused { xid: call.xid, why }),
    }
}

fn asked<'a>(call: &Call<'a>) -> Result<Asked<'a>, Refusal> {
    let nfs = || args::read(call.procedure, call.args).map(|args| args.map(Asked::Nfs));
    let mount = || mount::read(call.procedure, call.args).map(|args| args.map(Asked::Mount));
    let args = match (call.program, call.version) {
        (NFS_PROGRAM, VERSION) => nfs(),
        (MOUNT_PROGRAM, VERSION) => mount(),
        (NFS_PROGRAM | MOUNT_PROGRAM, _) => {
            return Err(Refusal::ProgramMismatch {
                low: VERSION,
                high: VERSION,
            });
        }
        _ => return Err(Refusal::ProgramUnavailable),
    };
    let args = args.ok_or(Refusal::ProcedureUnavailable)?;
    args.map_err(|_| Refusal::GarbageArgs)
}

#[cfg(test)]
mod tests;
