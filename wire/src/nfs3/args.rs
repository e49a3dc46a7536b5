//! Arguments of the 22 procedures (RFC 1813 section 3.3), borrowed from the record. Bytes behind them are ignored.

use super::types::{Device, Handle, Kind, Place, SetAttributes, Stable, Time, Verifier};
use crate::limits::RPC_HEAD_BYTES_MAX;
use crate::rpc::Bad;
use crate::rpc::xdr::Reader;

/// The number of WRITE.
pub(super) const WRITE: u32 = 7;

/// What a client asks. Handles and names are as the client gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Args<'a> {
    /// Nothing; it shows that the server is there.
    Null,
    /// Attributes.
    GetAttr(Handle<'a>),
    /// Sets attributes.
    SetAttr {
        /// Of this file.
        file: Handle<'a>,
        /// These.
        set: SetAttributes,
        /// Only if this is its ctime; otherwise NFS3ERR_NOT_SYNC.
        guard: Option<Time>,
    },
    /// The file of a name.
    Lookup(Place<'a>),
    /// What may the caller do?
    Access {
        /// With this file.
        file: Handle<'a>,
        /// Of these ([`access`]).
        mask: u32,
    },
    /// What a symbolic link says.
    ReadLink(Handle<'a>),
    /// Content.
    Read {
        /// Of this file.
        file: Handle<'a>,
        /// From this byte on.
        offset_bytes: u64,
        /// At most so many, which may be more than the server sends at once.
        len_bytes: u32,
    },
    /// New content, which is the record's payload.
    Write(Write<'a>),
    /// Makes a regular file.
    Create {
        /// Where.
        place: Place<'a>,
        /// How.
        how: Create,
    },
    /// Makes a folder.
    MkDir {
        /// Where.
        place: Place<'a>,
        /// With these attributes.
        set: SetAttributes,
    },
    /// Makes a symbolic link.
    SymLink {
        /// Where.
        place: Place<'a>,
        /// With these attributes.
        set: SetAttributes,
        /// What it says. Above 4 KiB, or with a zero byte, no file can say it.
        target: &'a [u8],
    },
    /// Makes a device, a socket or a pipe.
    MkNod {
        /// Where.
        place: Place<'a>,
        /// Which. Of the others the RFC has NFS3ERR_BADTYPE.
        kind: Kind,
        /// With these attributes. None of those others.
        set: SetAttributes,
        /// Of a device: its number.
        device: Device,
    },
    /// Removes a file that is no folder.
    Remove(Place<'a>),
    /// Removes a folder.
    RmDir(Place<'a>),
    /// Renames.
    Rename {
        /// From there.
        from: Place<'a>,
        /// To there.
        to: Place<'a>,
    },
    /// Gives a file one more name.
    Link {
        /// This one.
        file: Handle<'a>,
        /// There.
        place: Place<'a>,
    },
    /// Names in a folder: READDIR and READDIRPLUS.
    ReadDir(ReadDir<'a>),
    /// Room in the file system of this file.
    FsStat(Handle<'a>),
    /// What the server can do, for this file system.
    FsInfo(Handle<'a>),
    /// What names it can have.
    PathConf(Handle<'a>),
    /// Has written bytes on the disk.
    Commit {
        /// Of this file.
        file: Handle<'a>,
        /// From this byte on.
        offset_bytes: u64,
        /// So many; 0: all.
        len_bytes: u32,
    },
}

/// WRITE, up to its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Into this file.
    pub file: Handle<'a>,
    /// From this byte on.
    pub offset_bytes: u64,
    /// So many bytes. Other than `payload_bytes`: NFS3ERR_INVAL.
    pub len_bytes: u32,
    /// When they have to be on the disk.
    pub stable: Stable,
    /// Bytes of the payload, which follow in the stream.
    pub payload_bytes: u32,
}

/// How a file is made (createhow3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// With these attributes. A file that is there gets this length (UNCHECKED).
    Unchecked(SetAttributes),
    /// With these attributes. A file that is there is NFS3ERR_EXIST (GUARDED).
    Guarded(SetAttributes),
    /// Once, however often it is asked: a file that was made with the same number is success (EXCLUSIVE).
    Exclusive(Verifier),
}

/// READDIR and READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDir<'a> {
    /// With attributes and handles: READDIRPLUS.
    pub has_attributes: bool,
    /// This folder.
    pub folder: Handle<'a>,
    /// Behind the name that came with this cookie; 0: from the first one.
    pub cookie: u64,
    /// That of the reply with the cookie; 0 with 0.
    pub verifier: Verifier,
    /// Bytes of names: the caller's `dircount`, or `count` of READDIR.
    pub names_bytes_max: u32,
    /// Bytes of all: the caller's `maxcount`, or `count` of READDIR.
    pub len_bytes_max: u32,
}

/// Bits of ACCESS.
pub mod access {
    /// Read a file or a folder.
    pub const READ: u32 = 1;
    /// Look up in a folder.
    pub const LOOKUP: u32 = 2;
    /// Rewrite a file, or change what is in a folder.
    pub const MODIFY: u32 = 4;
    /// Write new bytes, or new names in a folder.
    pub const EXTEND: u32 = 8;
    /// Remove names from a folder.
    pub const DELETE: u32 = 16;
    /// Execute a file.
    pub const EXECUTE: u32 = 32;
}

/// Reads the arguments of a procedure; `None`: there is no such procedure.
pub(super) fn read<'a>(procedure: u32, bytes: &'a [u8]) -> Option<Result<Args<'a>, Bad>> {
    let mut from = Reader(bytes);
    let from = &mut from;
    Some(match procedure {
        0 => Ok(Args::Null),
        1 => Handle::read(from).map(Args::GetAttr),
        2 => set_attr(from),
        3 => Place::read(from).map(Args::Lookup),
        4 => access_of(from),
        5 => Handle::read(from).map(Args::ReadLink),
        6 => read_of(from),
        WRITE => Write::read(from).map(Args::Write),
        8 => create(from),
        9 => mk_dir(from),
        10 => sym_link(from),
        11 => mk_nod(from),
        12 => Place::read(from).map(Args::Remove),
        13 => Place::read(from).map(Args::RmDir),
        14 => rename(from),
        15 => link(from),
        16 => ReadDir::read(from, false).map(Args::ReadDir),
        17 => ReadDir::read(from, true).map(Args::ReadDir),
        18 => Handle::read(from).map(Args::FsStat),
        19 => Handle::read(from).map(Args::FsInfo),
        20 => Handle::read(from).map(Args::PathConf),
        21 => commit(from),
        _ => return None,
    })
}

fn set_attr<'a>(from: &mut Reader<'a>) -> Result<Args<'a>, Bad> {
    Ok(Args::SetAttr {
        file: Handle::read(from)?,
        set: SetAttributes::read(from)?,
        guard: from.optional(Time::read)?,
    })
}

fn access_of<'a>(from: &mut Reader<'a>) -> Result<Args<'a>, Bad> {
    Ok(Args::Access {
        file: Handle::read(from)?,
        mask: from.u32()?,
    })
}

fn read_of<'a>(from: &mut Reader<'a>) -> Result<Args<'a>, Bad> {
    Ok(Args::Read {
        file: Handle::read(from)?,
        offset_bytes: from.u64()?,
        len_bytes: from.u32()?,
    })
}

impl<'a> Write<'a> {
    /// Leaves what follows the length of the payload.
    pub(super) fn read(from: &mut Reader<'a>) -> Result<Write<'a>, Bad> {
        Ok(Write {
            file: Handle::read(from)?,
            offset_bytes: from.u64()?,
            len_bytes: from.u32()?,
            stable: Stable::read(from)?,
            payload_bytes: from.u32()?,
        })
    }
}

fn create<'a>(from: &mut Reader<'a>) -> Result<Args<'a>, Bad> {
    let place = Place::read(from)?;
    let how = match from.u32()? {
        0 => Create::Unchecked(SetAttributes::read(from)?),
        1 => Create::Guarded(SetAttributes::read(from)?),
        2 => Create::Exclusive(from.fixed()?),
        _ => return Err(Bad::Value),
    };
    Ok(Args::Create { place, how })
}

fn mk_dir<'a>(from: &mut Reader<'a>) -> Result<Args<'a>, Bad> {
    Ok(Args::MkDir {
        place: Place::read(from)?,
        set: SetAttributes::read(from)?,
    })
}

fn sym_link<'a>(from: &mut Reader<'a>) -> Result<Args<'a>, Bad> {
    Ok(Args::SymLink {
        place: Place::read(from)?,
        set: SetAttributes::read(from)?,
        target: from.opaque(RPC_HEAD_BYTES_MAX)?,
    })
}

fn mk_nod<'a>(from: &mut Reader<'a>) -> Result<Args<'a>, Bad> {
    let (place, kind) = (Place::read(from)?, Kind::read(from)?);
    let (mut set, mut device) = (SetAttributes::default(), Device::default());
    if let Kind::Block | Kind::Character | Kind::Socket | Kind::Pipe = kind {
        set = SetAttributes::read(from)?;
    }
    if let Kind::Block | Kind::Character = kind {
        (device.major, device.minor) = (from.u32()?, from.u32()?);
    }
    Ok(Args::MkNod {
        place,
        kind,
        set,
        device,
    })
}

fn rename<'a>(from: &mut Reader<'a>) -> Result<Args<'a>, Bad> {
    Ok(Args::Rename {
        from: Place::read(from)?,
        to: Place::read(from)?,
    })
}

fn link<'a>(from: &mut Reader<'a>) -> Result<Args<'a>, Bad> {
    Ok(Args::Link {
        file: Handle::read(from)?,
        place: Place::read(from)?,
    })
}

impl<'a> ReadDir<'a> {
    fn read(from: &mut Reader<'a>, has_attributes: bool) -> Result<ReadDir<'a>, Bad> {
        let (folder, cookie, verifier) = (Handle::read(from)?, from.u64()?, from.fixed()?);
        let names_bytes_max = from.u32()?;
        Ok(ReadDir {
            has_attributes,
            folder,
            cookie,
            verifier,
            names_bytes_max,
            len_bytes_max: match has_attributes {
                true => from.u32()?,
                false => names_bytes_max,
            },
        })
    }
}

fn commit<'a>(from: &mut Reader<'a>) -> Result<Args<'a>, Bad> {
    Ok(Args::Commit {
        file: Handle::read(from)?,
        offset_bytes: from.u64()?,
        len_bytes: from.u32()?,
    })
}
