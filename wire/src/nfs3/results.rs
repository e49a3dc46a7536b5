//! Results of the procedures (RFC 1813 section 3.3). Those of READDIR and READDIRPLUS are in [`super::listing`].

use super::types::{Attributes, Change, Handle, Stable, Status, Time, Verifier, put_attributes};
use crate::rpc::xdr::Put;
use crate::rpc::{self, pad_bytes};

const OK: u32 = 0;

/// What a procedure answers: what succeeded or why not, and what is told of files in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    /// NULL.
    Null,
    /// GETATTR.
    GetAttr(Result<Attributes, Status>),
    /// SETATTR.
    SetAttr(Result<(), Status>, Change),
    /// LOOKUP; the last is of the folder.
    Lookup(Result<Found<'a>, Status>, Option<Attributes>),
    /// ACCESS: bits that the caller may ([`super::access`]).
    Access(Result<u32, Status>, Option<Attributes>),
    /// READLINK: what it says.
    ReadLink(Result<&'a [u8], Status>, Option<Attributes>),
    /// READ: the payload follows what [`reply`] appends.
    Read(Result<Read, Status>, Option<Attributes>),
    /// WRITE.
    Write(Result<Written, Status>, Change),
    /// CREATE, MKDIR, SYMLINK and MKNOD; the last is of the folder.
    Make(Result<Made<'a>, Status>, Change),
    /// REMOVE and RMDIR; the last is of the folder.
    Remove(Result<(), Status>, Change),
    /// RENAME; the last are of the folders from which and to which.
    Rename(Result<(), Status>, Change, Change),
    /// LINK; the last are of the file and of the folder.
    Link(Result<(), Status>, Option<Attributes>, Change),
    /// READDIR and READDIRPLUS, where they fail.
    ReadDir(Status, Option<Attributes>),
    /// FSSTAT.
    FsStat(Result<FsStat, Status>, Option<Attributes>),
    /// FSINFO.
    FsInfo(Result<FsInfo, Status>, Option<Attributes>),
    /// PATHCONF.
    PathConf(Result<PathConf, Status>, Option<Attributes>),
    /// COMMIT: the verifier of [`Written`].
    Commit(Result<Verifier, Status>, Change),
}

/// What LOOKUP found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The file.
    pub file: Handle<'a>,
    /// Its attributes.
    pub attributes: Option<Attributes>,
}

/// What READ has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Bytes of the payload.
    pub len_bytes: u32,
    /// They reach to the file's end.
    pub is_end: bool,
}

/// What WRITE has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// So many bytes.
    pub len_bytes: u32,
    /// As sure as this, at least as was asked.
    pub stable: Stable,
    /// Of this run of the server: with another one, what was not committed is written again.
    pub verifier: Verifier,
}

/// What was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made<'a> {
    /// The file. Without: the client looks it up.
    pub file: Option<Handle<'a>>,
    /// Its attributes.
    pub attributes: Option<Attributes>,
}

/// Room in a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    /// All bytes.
    pub bytes: u64,
    /// Free ones.
    pub free_bytes: u64,
    /// Those that the caller can have.
    pub available_bytes: u64,
    /// Files that there can be.
    pub files: u64,
    /// That there can still be.
    pub free_files: u64,
    /// That the caller can make.
    pub available_files: u64,
    /// For so long nothing of it changes; 0: unknown.
    pub constant_s: u32,
}

/// What the server can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsInfo {
    /// Bytes of one READ at most.
    pub read_bytes_max: u32,
    /// Bytes of one WRITE at most.
    pub write_bytes_max: u32,
    /// Bytes that a READ or WRITE should be a multiple of.
    pub multiple_bytes: u32,
    /// Bytes of one READDIR.
    pub listing_bytes: u32,
    /// The longest file.
    pub file_bytes_max: u64,
    /// How exactly it knows times.
    pub resolution: Time,
    /// Whether files can have several names (FSF3_LINK).
    pub links: bool,
    /// Whether there can be symbolic links (FSF3_SYMLINK).
    pub sym_links: bool,
    /// Whether times can be set (FSF3_CANSETTIME).
    pub sets_times: bool,
}

/// What names are possible. None is cut, none is changed, and only an owner who may gives a file away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathConf {
    /// Names of one file at most.
    pub links_max: u32,
    /// Bytes of a name at most.
    pub name_bytes_max: u32,
    /// Only root can give a file away.
    pub chown_restricted: bool,
    /// Upper and lower case are the same.
    pub case_insensitive: bool,
}

/// What follows a reply's appended bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// Zero bytes behind it, at most 3.
    pub pad_bytes: u32,
}

/// Appends a reply; a READ's up to its payload.
pub fn reply(xid: u32, results: &Results<'_>, to: &mut Vec<u8>) -> Behind {
    let start = rpc::begin(xid, to);
    put(results, to);
    let payload_bytes = match results {
        Results::Read(Ok(read), _) => read.len_bytes,
        _ => 0,
    };
    let pad_bytes = pad_bytes(payload_bytes as usize) as u32;
    rpc::end(start, payload_bytes + pad_bytes, to);
    Behind {
        payload_bytes,
        pad_bytes,
    }
}

fn put(results: &Results<'_>, to: &mut Vec<u8>) {
    match results {
        Results::Null => {}
        Results::GetAttr(result) => {
            put_status(result, to);
            if let Ok(attributes) = result {
                attributes.put(to);
            }
        }
        Results::SetAttr(result, change) | Results::Remove(result, change) => {
            put_status(result, to);
            change.put(to);
        }
        Results::Lookup(result, folder) => put_found(result, folder.as_ref(), to),
        Results::Access(result, file) => put_after(result, file, to, |to, bits| to.put_u32(*bits)),
        Results::ReadLink(result, file) => {
            put_after(result, file, to, |to, target| to.put_opaque(target));
        }
        Results::Read(result, file) => put_after(result, file, to, |to, read| {
            to.put_u32(read.len_bytes);
            to.put_bool(read.is_end);
            to.put_u32(read.len_bytes);
        }),
        Results::Write(result, change) => put_written(result, change, to),
        Results::Make(result, folder) => put_made(result, folder, to),
        Results::Rename(result, from, into) => {
            put_status(result, to);
            from.put(to);
            into.put(to);
        }
        Results::Link(result, file, folder) => {
            put_after(result, file, to, |_, ()| {});
            folder.put(to);
        }
        Results::ReadDir(status, folder) => put_after::<()>(&Err(*status), folder, to, |_, ()| {}),
        Results::FsStat(result, file) => put_after(result, file, to, put_fs_stat),
        Results::FsInfo(result, file) => put_after(result, file, to, put_fs_info),
        Results::PathConf(result, file) => put_after(result, file, to, put_path_conf),
        Results::Commit(result, change) => {
            put_status(result, to);
            change.put(to);
            to.extend(result.iter().flatten());
        }
    }
}

fn put_status<T>(result: &Result<T, Status>, to: &mut Vec<u8>) {
    to.put_u32(match result {
        Ok(_) => OK,
        Err(status) => *status as u32,
    });
}

/// Status, the file's attributes, and what succeeded.
fn put_after<T>(
    result: &Result<T, Status>,
    file: &Option<Attributes>,
    to: &mut Vec<u8>,
    put: impl FnOnce(&mut Vec<u8>, &T),
) {
    put_status(result, to);
    put_attributes(file.as_ref(), to);
    if let Ok(value) = result {
        put(to, value);
    }
}

fn put_found(result: &Result<Found<'_>, Status>, folder: Option<&Attributes>, to: &mut Vec<u8>) {
    put_status(result, to);
    if let Ok(found) = result {
        to.put_opaque(found.file.0);
        put_attributes(found.attributes.as_ref(), to);
    }
    put_attributes(folder, to);
}

fn put_written(result: &Result<Written, Status>, change: &Change, to: &mut Vec<u8>) {
    put_status(result, to);
    change.put(to);
    if let Ok(written) = result {
        to.put_u32(written.len_bytes);
        to.put_u32(written.stable as u32);
        to.extend(written.verifier);
    }
}

fn put_made(result: &Result<Made<'_>, Status>, folder: &Change, to: &mut Vec<u8>) {
    put_status(result, to);
    if let Ok(made) = result {
        to.put_optional(made.file, |to, file| to.put_opaque(file.0));
        put_attributes(made.attributes.as_ref(), to);
    }
    folder.put(to);
}

fn put_fs_stat(to: &mut Vec<u8>, stat: &FsStat) {
    let bytes = [stat.bytes, stat.free_bytes, stat.available_bytes];
    let files = [stat.files, stat.free_files, stat.available_files];
    for number in bytes.into_iter().chain(files) {
        to.put_u64(number);
    }
    to.put_u32(stat.constant_s);
}

/// FSF3_HOMOGENEOUS is always set: PATHCONF is the same for all files of a file system.
fn put_fs_info(to: &mut Vec<u8>, info: &FsInfo) {
    for bytes_max in [info.read_bytes_max, info.write_bytes_max] {
        to.put_u32(bytes_max);
        to.put_u32(bytes_max); // preferred
        to.put_u32(info.multiple_bytes);
    }
    to.put_u32(info.listing_bytes);
    to.put_u64(info.file_bytes_max);
    info.resolution.put(to);
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    to.put_u32(bit(info.links, 1) | bit(info.sym_links, 2) | 8 | bit(info.sets_times, 16));
}

fn put_path_conf(to: &mut Vec<u8>, conf: &PathConf) {
    to.put_u32(conf.links_max);
    to.put_u32(conf.name_bytes_max);
    to.put_bool(true); // no_trunc
    to.put_bool(conf.chown_restricted);
    to.put_bool(conf.case_insensitive);
    to.put_bool(true); // case_preserving
}
