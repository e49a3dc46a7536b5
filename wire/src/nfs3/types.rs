//! What arguments and results are made of (RFC 1813 sections 2.5 and 2.6).

use crate::limits::{NFS_HANDLE_BYTES_MAX, NFS_NAME_BYTES_MAX, RPC_HEAD_BYTES_MAX};
use crate::rpc::Bad;
use crate::rpc::xdr::{Put, Reader};

/// Why a procedure failed (nfsstat3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // the names of RFC 1813 section 2.6, without NFS3ERR_
pub enum Status {
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    NxIo = 6,
    Acces = 13,
    Exist = 17,
    XDev = 18,
    NoDev = 19,
    NotDir = 20,
    IsDir = 21,
    Inval = 22,
    FBig = 27,
    NoSpc = 28,
    RoFs = 30,
    MLink = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    DQuot = 69,
    Stale = 70,
    Remote = 71,
    BadHandle = 10001,
    NotSync = 10002,
    BadCookie = 10003,
    NotSupp = 10004,
    TooSmall = 10005,
    ServerFault = 10006,
    BadType = 10007,
    Jukebox = 10008,
}

/// What a file is (ftype3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A regular file.
    Regular = 1,
    /// A folder.
    Folder = 2,
    /// A block device.
    Block = 3,
    /// A character device.
    Character = 4,
    /// A symbolic link.
    Link = 5,
    /// A socket.
    Socket = 6,
    /// A named pipe.
    Pipe = 7,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] = [
        Kind::Regular,
        Kind::Folder,
        Kind::Block,
        Kind::Character,
        Kind::Link,
        Kind::Socket,
        Kind::Pipe,
    ];

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Kind, Bad> {
        let code = from.u32()?;
        let found = Kind::ALL.into_iter().find(|kind| *kind as u32 == code);
        found.ok_or(Bad::Value)
    }
}

/// A time since 1970 (nfstime3). Later ones than 2106 can't be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds.
    pub s: u32,
    /// Nanoseconds, below 10^9.
    pub ns: u32,
}

impl Time {
    /// A number of nanoseconds that is none is refused: some mean more than a time to utimensat(2).
    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Time, Bad> {
        let time = Time {
            s: from.u32()?,
            ns: from.u32()?,
        };
        match time.ns {
            0..1_000_000_000 => Ok(time),
            _ => Err(Bad::Value),
        }
    }

    pub(crate) fn put(self, to: &mut Vec<u8>) {
        to.put_u32(self.s);
        to.put_u32(self.ns);
    }
}

/// The handle of a file, as a client gives it: at most 64 bytes of any value. [`super::handle`] tells which are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle<'a>(pub &'a [u8]);

impl<'a> Handle<'a> {
    pub(super) fn read(from: &mut Reader<'a>) -> Result<Handle<'a>, Bad> {
        Ok(Handle(from.opaque(NFS_HANDLE_BYTES_MAX)?))
    }
}

/// A name in a folder, as a client gives it: any bytes. [`Name::check`] tells whether a file can have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a>(pub &'a [u8]);

impl<'a> Name<'a> {
    /// Long names are read, since the reply to them is not GARBAGE_ARGS.
    pub(super) fn read(from: &mut Reader<'a>) -> Result<Name<'a>, Bad> {
        Ok(Name(from.opaque(RPC_HEAD_BYTES_MAX)?))
    }

    /// The name as one component of a path. `.` and `..` are some, and mean what they mean everywhere.
    ///
    /// # Errors
    /// [`Status::NameTooLong`] above 255 bytes; [`Status::Acces`] if it is empty, or has a slash or a zero byte.
    pub fn check(self) -> Result<&'a [u8], Status> {
        let is_bad = self.0.iter().any(|byte| matches!(byte, b'/' | 0));
        match self.0.len() {
            0 => Err(Status::Acces),
            _ if is_bad => Err(Status::Acces),
            1..=NFS_NAME_BYTES_MAX => Ok(self.0),
            _ => Err(Status::NameTooLong),
        }
    }

    /// Whether it is `.` or `..`, which nothing can be created, removed or renamed as.
    pub fn is_dots(self) -> bool {
        matches!(self.0, b"." | b"..")
    }
}

/// A file by its folder and its name (diropargs3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The folder.
    pub folder: Handle<'a>,
    /// The name in it.
    pub name: Name<'a>,
}

impl<'a> Place<'a> {
    pub(super) fn read(from: &mut Reader<'a>) -> Result<Place<'a>, Bad> {
        Ok(Place {
            folder: Handle::read(from)?,
            name: Name::read(from)?,
        })
    }
}

/// The number of a device (specdata3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its major number.
    pub major: u32,
    /// Its minor number.
    pub minor: u32,
}

/// All about a file (fattr3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: Kind,
    /// Permissions: the lowest twelve bits of st_mode.
    pub mode: u32,
    /// Names that it has.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its length.
    pub size_bytes: u64,
    /// What it takes on the disk.
    pub used_bytes: u64,
    /// Of a device: its number.
    pub device: Device,
    /// The file system, by a number that outlives restart.
    pub file_system: u64,
    /// The file in it.
    pub file_id: u64,
    /// Last read.
    pub read_at: Time,
    /// Last change of content.
    pub written_at: Time,
    /// Last change of anything.
    pub changed_at: Time,
}

impl Attributes {
    pub(super) fn put(&self, to: &mut Vec<u8>) {
        for number in [self.kind as u32, self.mode, self.links, self.uid, self.gid] {
            to.put_u32(number);
        }
        to.put_u64(self.size_bytes);
        to.put_u64(self.used_bytes);
        to.put_u32(self.device.major);
        to.put_u32(self.device.minor);
        to.put_u64(self.file_system);
        to.put_u64(self.file_id);
        for time in [self.read_at, self.written_at, self.changed_at] {
            time.put(to);
        }
    }
}

/// Appends attributes that may be missing (post_op_attr).
pub(super) fn put_attributes(attributes: Option<&Attributes>, to: &mut Vec<u8>) {
    to.put_optional(attributes, |to, attributes| attributes.put(to));
}

/// What tells a client whether only it has changed a file (wcc_data): the file before the procedure, taken under its lock, and
/// after it. Either may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Length and last changes before (wcc_attr).
    pub before: Option<Before>,
    /// After.
    pub after: Option<Attributes>,
}

/// A file before a change (wcc_attr).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Its length.
    pub size_bytes: u64,
    /// Last change of content.
    pub written_at: Time,
    /// Last change of anything.
    pub changed_at: Time,
}

impl Change {
    pub(super) fn put(&self, to: &mut Vec<u8>) {
        to.put_optional(self.before, |to, before| {
            to.put_u64(before.size_bytes);
            before.written_at.put(to);
            before.changed_at.put(to);
        });
        put_attributes(self.after.as_ref(), to);
    }
}

/// What is to be set of a file (sattr3). `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions. Any bits: those above the lowest twelve are to be ignored.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size_bytes: Option<u64>,
    /// Last read.
    pub read_at: Option<SetTime>,
    /// Last change of content.
    pub written_at: Option<SetTime>,
}

/// A time to be set (time_how).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's (SET_TO_SERVER_TIME).
    Now,
    /// This one (SET_TO_CLIENT_TIME).
    At(Time),
}

impl SetAttributes {
    pub(crate) fn read(from: &mut Reader<'_>) -> Result<SetAttributes, Bad> {
        Ok(SetAttributes {
            mode: from.optional(Reader::u32)?,
            uid: from.optional(Reader::u32)?,
            gid: from.optional(Reader::u32)?,
            size_bytes: from.optional(Reader::u64)?,
            read_at: SetTime::read(from)?,
            written_at: SetTime::read(from)?,
        })
    }
}

impl SetTime {
    fn read(from: &mut Reader<'_>) -> Result<Option<SetTime>, Bad> {
        match from.u32()? {
            0 => Ok(None),
            1 => Ok(Some(SetTime::Now)),
            2 => Ok(Some(SetTime::At(Time::read(from)?))),
            _ => Err(Bad::Value),
        }
    }
}

/// When written bytes have to be on the disk (stable_how), in order of strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Stable {
    /// At the next COMMIT.
    Unstable = 0,
    /// Before the reply, with what it takes to read them back.
    DataSync = 1,
    /// Before the reply, with all about the file.
    FileSync = 2,
}

impl Stable {
    pub(super) const ALL: [Stable; 3] = [Stable::Unstable, Stable::DataSync, Stable::FileSync];

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Stable, Bad> {
        let code = from.u32()?;
        let found = Stable::ALL.into_iter().find(|one| *one as u32 == code);
        found.ok_or(Bad::Value)
    }
}

/// Tells one state of a folder, or one run of the server, from others (cookieverf3, writeverf3, createverf3).
pub type Verifier = [u8; 8];
