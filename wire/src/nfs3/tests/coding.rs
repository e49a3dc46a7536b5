//! The other side: encodes calls and decodes replies, for the tests.

use crate::nfs3::{
    Args, Asked, Attributes, Before, Change, Create, Device, Entry, Found, FsInfo, FsStat, Handle,
    Kind, Made, MountArgs, PathConf, Place, Read, Request, Results, SetAttributes, SetTime, Stable,
    Status, Time, Written,
};
use crate::rpc::xdr::{Put, Reader};
use crate::rpc::{Bad, Credential};

/// A whole call, in one fragment; a WRITE's with this payload.
pub fn call(request: &Request<'_>, payload: &[u8]) -> Vec<u8> {
    let mut to = vec![0; 4];
    let (program, procedure) = match &request.asked {
        Asked::Nfs(args) => (100_003, nfs_procedure(args)),
        Asked::Mount(args) => (100_005, mount_procedure(args)),
    };
    for number in [request.xid, 0, 2, program, 3, procedure] {
        to.put_u32(number);
    }
    match &request.credential {
        Credential::Nobody => to.extend([0; 8]),
        Credential::Sys(sys) => {
            let mut body = vec![0; 4]; // stamp
            body.put_opaque(sys.machine);
            for number in [sys.uid, sys.gid, sys.gids().len() as u32] {
                body.put_u32(number);
            }
            sys.gids().iter().for_each(|gid| body.put_u32(*gid));
            to.put_u32(1);
            to.put_opaque(&body);
        }
    }
    to.extend([0; 8]); // no verifier
    match &request.asked {
        Asked::Nfs(args) => put_args(args, payload, &mut to),
        Asked::Mount(MountArgs::Mount(path) | MountArgs::Unmount(path)) => to.put_opaque(path),
        Asked::Mount(_) => {}
    }
    let len = (to.len() - 4) as u32;
    to[..4].copy_from_slice(&(1 << 31 | len).to_be_bytes());
    to
}

fn mount_procedure(args: &MountArgs<'_>) -> u32 {
    match args {
        MountArgs::Null => 0,
        MountArgs::Mount(_) => 1,
        MountArgs::Dump => 2,
        MountArgs::Unmount(_) => 3,
        MountArgs::UnmountAll => 4,
        MountArgs::Export => 5,
    }
}

fn nfs_procedure(args: &Args<'_>) -> u32 {
    match args {
        Args::Null => 0,
        Args::GetAttr(_) => 1,
        Args::SetAttr { .. } => 2,
        Args::Lookup(_) => 3,
        Args::Access { .. } => 4,
        Args::ReadLink(_) => 5,
        Args::Read { .. } => 6,
        Args::Write(_) => 7,
        Args::Create { .. } => 8,
        Args::MkDir { .. } => 9,
        Args::SymLink { .. } => 10,
        Args::MkNod { .. } => 11,
        Args::Remove(_) => 12,
        Args::RmDir(_) => 13,
        Args::Rename { .. } => 14,
        Args::Link { .. } => 15,
        Args::ReadDir(asked) => 16 + u32::from(asked.has_attributes),
        Args::FsStat(_) => 18,
        Args::FsInfo(_) => 19,
        Args::PathConf(_) => 20,
        Args::Commit { .. } => 21,
    }
}

fn put_args(args: &Args<'_>, payload: &[u8], to: &mut Vec<u8>) {
    match args {
        Args::Null => {}
        Args::GetAttr(file)
        | Args::ReadLink(file)
        | Args::FsStat(file)
        | Args::FsInfo(file)
        | Args::PathConf(file) => to.put_opaque(file.0),
        Args::SetAttr { file, set, guard } => {
            to.put_opaque(file.0);
            put_set(set, to);
            to.put_optional(*guard, |to, time| time.put(to));
        }
        Args::Lookup(place) | Args::Remove(place) | Args::RmDir(place) => put_place(place, to),
        Args::Access { file, mask } => {
            to.put_opaque(file.0);
            to.put_u32(*mask);
        }
        Args::Read {
            file,
            offset_bytes,
            len_bytes,
        }
        | Args::Commit {
            file,
            offset_bytes,
            len_bytes,
        } => {
            to.put_opaque(file.0);
            to.put_u64(*offset_bytes);
            to.put_u32(*len_bytes);
        }
        Args::Write(write) => {
            to.put_opaque(write.file.0);
            to.put_u64(write.offset_bytes);
            to.put_u32(write.len_bytes);
            to.put_u32(write.stable as u32);
            assert_eq!(payload.len(), write.payload_bytes as usize);
            to.put_opaque(payload);
        }
        Args::Create { .. } | Args::MkDir { .. } | Args::SymLink { .. } | Args::MkNod { .. } => {
            put_make(args, to);
        }
        Args::Rename { from, to: into } => {
            put_place(from, to);
            put_place(into, to);
        }
        Args::Link { file, place } => {
            to.put_opaque(file.0);
            put_place(place, to);
        }
        Args::ReadDir(asked) => {
            to.put_opaque(asked.folder.0);
            to.put_u64(asked.cookie);
            to.extend(asked.verifier);
            to.put_u32(asked.names_bytes_max);
            if asked.has_attributes {
                to.put_u32(asked.len_bytes_max);
            }
        }
    }
}

fn put_make(args: &Args<'_>, to: &mut Vec<u8>) {
    match args {
        Args::Create { place, how } => {
            put_place(place, to);
            match how {
                Create::Unchecked(set) => {
                    to.put_u32(0);
                    put_set(set, to);
                }
                Create::Guarded(set) => {
                    to.put_u32(1);
                    put_set(set, to);
                }
                Create::Exclusive(verifier) => {
                    to.put_u32(2);
                    to.extend(verifier);
                }
            }
        }
        Args::MkDir { place, set } => {
            put_place(place, to);
            put_set(set, to);
        }
        Args::SymLink { place, set, target } => {
            put_place(place, to);
            put_set(set, to);
            to.put_opaque(target);
        }
        Args::MkNod {
            place,
            kind,
            set,
            device,
        } => {
            put_place(place, to);
            to.put_u32(*kind as u32);
            if !matches!(kind, Kind::Regular | Kind::Folder | Kind::Link) {
                put_set(set, to);
            }
            if matches!(kind, Kind::Block | Kind::Character) {
                to.put_u32(device.major);
                to.put_u32(device.minor);
            }
        }
        _ => unreachable!("it makes nothing"),
    }
}

fn put_place(place: &Place<'_>, to: &mut Vec<u8>) {
    to.put_opaque(place.folder.0);
    to.put_opaque(place.name.0);
}

fn put_set(set: &SetAttributes, to: &mut Vec<u8>) {
    for number in [set.mode, set.uid, set.gid] {
        to.put_optional(number, Vec::put_u32);
    }
    to.put_optional(set.size_bytes, Vec::put_u64);
    for time in [set.read_at, set.written_at] {
        match time {
            None => to.put_u32(0),
            Some(SetTime::Now) => to.put_u32(1),
            Some(SetTime::At(time)) => {
                to.put_u32(2);
                time.put(to);
            }
        }
    }
}

/// The results in a reply of NFS; without what follows a READ's length.
pub fn results<'a>(procedure: u32, from: &mut Reader<'a>) -> Result<Results<'a>, Bad> {
    Ok(match procedure {
        0 => Results::Null,
        1 => Results::GetAttr(match status(from)? {
            Ok(()) => Ok(attributes(from)?),
            Err(status) => Err(status),
        }),
        2 => Results::SetAttr(status(from)?, change(from)?),
        3 => match status(from)? {
            Ok(()) => {
                let file = Handle::read(from)?;
                let attributes = maybe(from)?;
                Results::Lookup(Ok(Found { file, attributes }), maybe(from)?)
            }
            Err(status) => Results::Lookup(Err(status), maybe(from)?),
        },
        4 => after(from, Reader::u32, Results::Access)?,
        5 => after(from, |from| from.opaque(4096), Results::ReadLink)?,
        6 => after(from, read, Results::Read)?,
        7 => {
            let (status, change) = (status(from)?, change(from)?);
            Results::Write(and(status, || written(from))?, change)
        }
        8..=11 => {
            let status = status(from)?;
            Results::Make(and(status, || made(from))?, change(from)?)
        }
        12 | 13 => Results::Remove(status(from)?, change(from)?),
        14 => Results::Rename(status(from)?, change(from)?, change(from)?),
        15 => Results::Link(status(from)?, maybe(from)?, change(from)?),
        18 => after(from, fs_stat, Results::FsStat)?,
        19 => after(from, fs_info, Results::FsInfo)?,
        20 => after(from, path_conf, Results::PathConf)?,
        21 => {
            let (status, change) = (status(from)?, change(from)?);
            Results::Commit(and(status, || from.fixed())?, change)
        }
        _ => unreachable!("a listing"),
    })
}

/// What is in a listing that succeeded: attributes, verifier, names, and whether it is the folder's end.
pub type Listed<'a> = (Option<Attributes>, [u8; 8], Vec<Entry<'a>>, bool);

/// The results of READDIR or READDIRPLUS.
pub fn listed<'a>(
    has_attributes: bool,
    from: &mut Reader<'a>,
) -> Result<Result<Listed<'a>, Status>, Bad> {
    let (status, folder) = (status(from)?, maybe(from)?);
    and(status, || {
        let (verifier, mut entries) = (from.fixed()?, Vec::new());
        while from.bool()? {
            entries.push(Entry {
                file_id: from.u64()?,
                name: from.opaque(255)?,
                cookie: from.u64()?,
                attributes: if has_attributes { maybe(from)? } else { None },
                file: match has_attributes {
                    true => from.optional(Handle::read)?,
                    false => None,
                },
            });
        }
        Ok((folder, verifier, entries, from.bool()?))
    })
}

fn and<T>(
    status: Result<(), Status>,
    read: impl FnOnce() -> Result<T, Bad>,
) -> Result<Result<T, Status>, Bad> {
    match status {
        Ok(()) => read().map(Ok),
        Err(status) => Ok(Err(status)),
    }
}

fn after<'a, T>(
    from: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Bad>,
    of: impl FnOnce(Result<T, Status>, Option<Attributes>) -> Results<'a>,
) -> Result<Results<'a>, Bad> {
    let (status, file) = (status(from)?, maybe(from)?);
    Ok(of(and(status, || read(from))?, file))
}

fn status(from: &mut Reader<'_>) -> Result<Result<(), Status>, Bad> {
    let code = from.u32()?;
    if code == 0 {
        return Ok(Ok(()));
    }
    let found = STATUSES.into_iter().find(|status| *status as u32 == code);
    found.map(Err).ok_or(Bad::Value)
}

/// Those that the tests make.
pub const STATUSES: [Status; 8] = [
    Status::Perm,
    Status::NoEnt,
    Status::Acces,
    Status::RoFs,
    Status::Stale,
    Status::NotSync,
    Status::TooSmall,
    Status::Jukebox,
];

fn attributes(from: &mut Reader<'_>) -> Result<Attributes, Bad> {
    Ok(Attributes {
        kind: Kind::read(from)?,
        mode: from.u32()?,
        links: from.u32()?,
        uid: from.u32()?,
        gid: from.u32()?,
        size_bytes: from.u64()?,
        used_bytes: from.u64()?,
        device: Device {
            major: from.u32()?,
            minor: from.u32()?,
        },
        file_system: from.u64()?,
        file_id: from.u64()?,
        read_at: Time::read(from)?,
        written_at: Time::read(from)?,
        changed_at: Time::read(from)?,
    })
}

fn maybe(from: &mut Reader<'_>) -> Result<Option<Attributes>, Bad> {
    from.optional(attributes)
}

fn change(from: &mut Reader<'_>) -> Result<Change, Bad> {
    let before = from.optional(|from| {
        Ok(Before {
            size_bytes: from.u64()?,
            written_at: Time::read(from)?,
            changed_at: Time::read(from)?,
        })
    })?;
    let after = maybe(from)?;
    Ok(Change { before, after })
}

fn read(from: &mut Reader<'_>) -> Result<Read, Bad> {
    let read = Read {
        len_bytes: from.u32()?,
        is_end: from.bool()?,
    };
    match from.u32()? == read.len_bytes {
        true => Ok(read),
        false => Err(Bad::Value),
    }
}

fn written(from: &mut Reader<'_>) -> Result<Written, Bad> {
    Ok(Written {
        len_bytes: from.u32()?,
        stable: Stable::read(from)?,
        verifier: from.fixed()?,
    })
}

fn made<'a>(from: &mut Reader<'a>) -> Result<Made<'a>, Bad> {
    Ok(Made {
        file: from.optional(Handle::read)?,
        attributes: maybe(from)?,
    })
}

fn fs_stat(from: &mut Reader<'_>) -> Result<FsStat, Bad> {
    Ok(FsStat {
        bytes: from.u64()?,
        free_bytes: from.u64()?,
        available_bytes: from.u64()?,
        files: from.u64()?,
        free_files: from.u64()?,
        available_files: from.u64()?,
        constant_s: from.u32()?,
    })
}

fn fs_info(from: &mut Reader<'_>) -> Result<FsInfo, Bad> {
    let (read_bytes_max, _, _) = (from.u32()?, from.u32()?, from.u32()?);
    let (write_bytes_max, _, multiple_bytes) = (from.u32()?, from.u32()?, from.u32()?);
    let (listing_bytes, file_bytes_max) = (from.u32()?, from.u64()?);
    let (resolution, bits) = (Time::read(from)?, from.u32()?);
    Ok(FsInfo {
        read_bytes_max,
        write_bytes_max,
        multiple_bytes,
        listing_bytes,
        file_bytes_max,
        resolution,
        links: bits & 1 != 0,
        sym_links: bits & 2 != 0,
        sets_times: bits & 16 != 0,
    })
}

fn path_conf(from: &mut Reader<'_>) -> Result<PathConf, Bad> {
    let (links_max, name_bytes_max, _no_trunc) = (from.u32()?, from.u32()?, from.bool()?);
    let conf = PathConf {
        links_max,
        name_bytes_max,
        chown_restricted: from.bool()?,
        case_insensitive: from.bool()?,
    };
    let _case_preserving = from.bool()?;
    Ok(conf)
}
