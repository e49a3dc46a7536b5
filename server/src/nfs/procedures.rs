//! The procedures, and how those that change something are refused where the export is read-only.

use ackpace_wire::limits::{NFS_LISTING_BYTES_MAX, NFS_NAME_BYTES_MAX, RPC_PAYLOAD_BYTES_MAX};
use ackpace_wire::nfs3::{
    Args, Change, FsInfo, FsStat, Handle, PathConf, Results, Status, Time, reply,
};
use rustix::fs::fstatvfs;

use super::call::Call;
use super::changing::{self, Work};
use super::fail::Fail;
use super::outcome::Outcome;
use super::reading::{Asked, read};
use super::{listing, lookup};
use crate::store::door::Miss;

/// Bytes that a READ is best a multiple of: a page.
const MULTIPLE_BYTES: u32 = 4096;

/// Carries out a call of NFS.
pub fn carry_out(call: &Call<'_>, args: &Args<'_>) -> Outcome {
    match attempt(call, args) {
        Ok(outcome) => outcome,
        Err(Fail::Cold) => Outcome::Cold,
        Err(Fail::Is(status)) => {
            let mut to = Vec::new();
            reply(call.xid, &failed(args, status, Change::default()), &mut to);
            Outcome::Reply(to)
        }
    }
}

fn attempt(call: &Call<'_>, args: &Args<'_>) -> Result<Outcome, Fail> {
    let mut to = Vec::new();
    match *args {
        Args::Null => {
            reply(call.xid, &Results::Null, &mut to);
        }
        Args::GetAttr(file) => {
            let attributes = call.find(file)?.node.attributes();
            reply(call.xid, &Results::GetAttr(Ok(attributes)), &mut to);
        }
        Args::Lookup(place) => lookup::lookup(call, &place, &mut to)?,
        Args::Access { file, mask } => lookup::access(call, file, mask, &mut to)?,
        Args::ReadLink(file) => lookup::read_link(call, file, &mut to)?,
        Args::Read {
            file,
            offset_bytes,
            len_bytes,
        } => {
            let asked = Asked {
                file,
                offset_bytes,
                len_bytes,
            };
            return read(call, &asked);
        }
        Args::ReadDir(asked) => listing::list(call, &asked, &mut to)?,
        Args::FsStat(file) => fs_stat(call, file, &mut to)?,
        Args::FsInfo(file) => fs_info(call, file, &mut to)?,
        Args::PathConf(file) => path_conf(call, file, &mut to)?,
        Args::SetAttr { file, .. }
        | Args::Write(ackpace_wire::nfs3::Write { file, .. })
        | Args::Commit { file, .. }
        | Args::Link { file, .. } => change(call, args, file, &mut to)?,
        Args::Create { place, .. }
        | Args::MkDir { place, .. }
        | Args::SymLink { place, .. }
        | Args::MkNod { place, .. }
        | Args::Remove(place)
        | Args::RmDir(place)
        | Args::Rename { from: place, .. } => change(call, args, place.folder, &mut to)?,
    }
    Ok(Outcome::Reply(to))
}

/// Changes something, unless the export of this handle, the first one that the call has, is read-only.
fn change(
    call: &Call<'_>,
    args: &Args<'_>,
    file: Handle<'_>,
    to: &mut Vec<u8>,
) -> Result<(), Fail> {
    let Some(writing) = call.changes(file) else {
        return read_only(call, args, file, to);
    };
    call.waits()?;
    if let Some(status) = changing::refusal(args) {
        return Err(Fail::Is(status));
    }
    let work = Work { call, writing };
    match args {
        Args::Write(write) => work.write(write, call.payload, to),
        Args::Commit { file, .. } => work.commit(*file, to),
        args => work.carry_out(args, to),
    }
}

/// NFS3ERR_ROFS, with the attributes of the file that is not changed.
fn read_only(
    call: &Call<'_>,
    args: &Args<'_>,
    file: Handle<'_>,
    to: &mut Vec<u8>,
) -> Result<(), Fail> {
    let change = Change {
        before: None,
        after: Some(call.find(file)?.node.attributes()),
    };
    reply(call.xid, &failed(args, Status::RoFs, change), to);
    Ok(())
}

/// The results of a procedure that failed. `change` is of its file or first folder.
pub fn failed(args: &Args<'_>, status: Status, change: Change) -> Results<'static> {
    let (none, is) = (Change::default(), Err(status));
    match args {
        Args::Null => Results::Null,
        Args::GetAttr(_) => Results::GetAttr(Err(status)),
        Args::SetAttr { .. } => Results::SetAttr(is, change),
        Args::Lookup(_) => Results::Lookup(Err(status), None),
        Args::Access { .. } => Results::Access(Err(status), None),
        Args::ReadLink(_) => Results::ReadLink(Err(status), None),
        Args::Read { .. } => Results::Read(Err(status), None),
        Args::Write(_) => Results::Write(Err(status), change),
        Args::Create { .. } | Args::MkDir { .. } | Args::SymLink { .. } | Args::MkNod { .. } => {
            Results::Make(Err(status), change)
        }
        Args::Remove(_) | Args::RmDir(_) => Results::Remove(is, change),
        Args::Rename { .. } => Results::Rename(is, change, none),
        Args::Link { .. } => Results::Link(is, change.after, none),
        Args::ReadDir(_) => Results::ReadDir(status, None),
        Args::FsStat(_) => Results::FsStat(Err(status), None),
        Args::FsInfo(_) => Results::FsInfo(Err(status), None),
        Args::PathConf(_) => Results::PathConf(Err(status), None),
        Args::Commit { .. } => Results::Commit(Err(status), change),
    }
}

fn fs_stat(call: &Call<'_>, file: Handle<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
    let node = call.find(file)?.node;
    call.waits()?; // a file system may ask its disks
    let told = fstatvfs(&*node.place).map_err(Miss::Failed)?;
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    let room = FsStat {
        bytes: bytes(told.f_blocks),
        free_bytes: bytes(told.f_bfree),
        available_bytes: bytes(told.f_bavail),
        files: told.f_files,
        free_files: told.f_ffree,
        available_files: told.f_favail,
        constant_s: 0,
    };
    let attributes = Some(node.attributes());
    reply(call.xid, &Results::FsStat(Ok(room), attributes), to);
    Ok(())
}

fn fs_info(call: &Call<'_>, file: Handle<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
    let node = call.find(file)?.node;
    let attributes = Some(node.attributes());
    reply(call.xid, &Results::FsInfo(Ok(info()), attributes), to);
    Ok(())
}

/// What FSINFO tells.
pub fn info() -> FsInfo {
    FsInfo {
        read_bytes_max: RPC_PAYLOAD_BYTES_MAX,
        write_bytes_max: RPC_PAYLOAD_BYTES_MAX,
        multiple_bytes: MULTIPLE_BYTES,
        listing_bytes: NFS_LISTING_BYTES_MAX,
        file_bytes_max: i64::MAX as u64,
        resolution: Time { s: 0, ns: 1 },
        links: true,
        sym_links: true,
        sets_times: true,
    }
}

fn path_conf(call: &Call<'_>, file: Handle<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
    let node = call.find(file)?.node;
    let attributes = Some(node.attributes());
    reply(call.xid, &Results::PathConf(Ok(conf()), attributes), to);
    Ok(())
}

/// What PATHCONF tells.
pub fn conf() -> PathConf {
    PathConf {
        links_max: u32::MAX,
        name_bytes_max: NFS_NAME_BYTES_MAX as u32,
        chown_restricted: true,
        case_insensitive: false,
    }
}
