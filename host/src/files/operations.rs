//! What is done at each request, after the thread has the user's rights. Names are one component each, as the codec has checked.

use std::os::fd::{BorrowedFd, OwnedFd};

use ackpace_wire::files::{For, How, Known, Node, Operation, Reply, Spot, User};
use ackpace_wire::nfs3::{Device, SetAttributes, Time, Verifier};
use rustix::fs::{
    AtFlags, CWD, FileType, OFlags, Stat, Timespec, Timestamps, linkat, makedev, mkdirat, mknodat,
    openat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::attributes::{mode_of, set, set_others, set_times, truncate};
use super::lasting::{Top, keep_open};
use super::walk::{Found, Stop};

/// Of a file or folder whose maker names no mode.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// Bits of a mode that open(2), mkdir(2) and mknod(2) may leave out.
const SPECIAL_BITS: u32 = 0o7000;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// What it says.
    pub reply: Reply,
    /// What travels beside.
    pub descriptor: Option<OwnedFd>,
}

impl Answer {
    /// Without a descriptor.
    pub fn of(reply: Reply) -> Answer {
        Answer {
            reply,
            descriptor: None,
        }
    }

    /// A system call has failed.
    pub fn failed(error: Errno) -> Answer {
        Answer::of(Reply::Failed {
            errno: error.raw_os_error(),
        })
    }

    fn opened(file: OwnedFd, is_new: bool) -> Answer {
        Answer {
            reply: Reply::Opened { is_new },
            descriptor: Some(file),
        }
    }
}

/// Does what is asked, below this folder, with the rights that the thread has.
pub fn carry_out(top: &Top, user: &User, operation: &Operation) -> Answer {
    match attempt(top, user, operation) {
        Ok(answer) => answer,
        Err(Stop::Moved) => Answer::of(Reply::Moved),
        Err(Stop::Failed(error)) => Answer::failed(error),
    }
}

fn attempt(top: &Top, user: &User, operation: &Operation) -> Result<Answer, Stop> {
    let root = top.fd();
    let changed = match operation {
        Operation::Look(path) => {
            let found = Found::look(root, path)?;
            return Ok(Answer::opened(found.place, false));
        }
        Operation::Open(file, aim) => return open(root, file, *aim),
        Operation::Create(spot, how) => return create(top, user, spot, how),
        Operation::MakeFolder(spot, attributes) => {
            let folder = Found::folder(root, &spot.folder)?;
            mkdirat(&folder.place, &*spot.name, mode_of(attributes, FOLDER_MODE))?;
            dress(top, &folder, &spot.name, attributes)?;
            folder
        }
        Operation::MakeLink(spot, target, attributes) => {
            let folder = Found::folder(root, &spot.folder)?;
            symlinkat(&**target, &folder.place, &*spot.name)?;
            let attributes = SetAttributes {
                mode: None, // a link has none of its own
                ..*attributes
            };
            dress(top, &folder, &spot.name, &attributes)?;
            folder
        }
        Operation::MakeNode(spot, node, attributes) => {
            let folder = Found::folder(root, &spot.folder)?;
            let (kind, device) = kind_of(node);
            let mode = mode_of(attributes, FILE_MODE);
            mknodat(&folder.place, &*spot.name, kind, mode, device)?;
            dress(top, &folder, &spot.name, attributes)?;
            folder
        }
        Operation::Remove(spot) => {
            let folder = Found::folder(root, &spot.folder)?;
            unlinkat(&folder.place, &*spot.name, AtFlags::empty())?;
            folder
        }
        Operation::RemoveFolder(spot) => {
            let folder = Found::folder(root, &spot.folder)?;
            unlinkat(&folder.place, &*spot.name, AtFlags::REMOVEDIR)?;
            folder
        }
        Operation::Rename(from, into) => rename(top, from, into)?,
        Operation::AddName(file, spot) => {
            let file = Found::of(root, file)?;
            let folder = Found::folder(root, &spot.folder)?;
            if file.kind() == FileType::Directory {
                return Err(Errno::ISDIR.into());
            }
            let flags = AtFlags::SYMLINK_FOLLOW; // that of /proc
            linkat(CWD, file.path(), &folder.place, &*spot.name, flags)?;
            folder
        }
        Operation::Set(file, attributes, guard) => {
            let file = Found::of(root, file)?;
            if guard.is_some_and(|guard| guard != changed_at(&file.stat)) {
                return Ok(Answer::of(Reply::NotSync));
            }
            set(&file, attributes)?;
            file
        }
    };
    top.keep(&changed)?;
    Ok(Answer::of(Reply::Done))
}

/// Gives the folder of the new name, which is to be kept; the other one is.
fn rename(top: &Top, from: &Spot, into: &Spot) -> Result<Found, Stop> {
    let before = Found::folder(top.fd(), &from.folder)?;
    let after = Found::folder(top.fd(), &into.folder)?;
    renameat(&before.place, &*from.name, &after.place, &*into.name)?;
    if before.stat.st_ino != after.stat.st_ino {
        top.keep(&before)?;
    }
    Ok(after)
}

fn open(root: BorrowedFd<'_>, file: &Known, aim: For) -> Result<Answer, Stop> {
    let file = Found::of(root, file)?;
    let opened = match (aim, file.kind()) {
        (For::Reading, FileType::RegularFile | FileType::Directory) => file.open(OFlags::RDONLY)?,
        (For::Writing, FileType::RegularFile) => file.open(OFlags::WRONLY)?,
        (For::Writing, FileType::Directory) => return Err(Errno::ISDIR.into()),
        _ => return Err(Errno::INVAL.into()),
    };
    Ok(Answer::opened(opened, false))
}

fn create(top: &Top, user: &User, spot: &Spot, how: &How) -> Result<Answer, Stop> {
    let folder = Found::folder(top.fd(), &spot.folder)?;
    let none = SetAttributes::default();
    let attributes = match how {
        How::Unchecked(attributes) | How::Guarded(attributes) => attributes,
        How::Exclusive(_) => &none,
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = mode_of(attributes, FILE_MODE);
    let made = openat(&folder.place, &*spot.name, flags, mode);
    match (made, how) {
        (Ok(file), How::Exclusive(verifier)) => {
            set_times(&file, &times_of(*verifier))?;
            keep_open(&file)?;
            top.keep(&folder)?;
            Ok(Answer::opened(file, true))
        }
        (Ok(file), _) => {
            if let Some(len_bytes) = attributes.size_bytes.filter(|len_bytes| *len_bytes > 0) {
                truncate(&file, len_bytes)?;
            }
            set_others(&file, &left_of(attributes))?;
            keep_open(&file)?;
            top.keep(&folder)?;
            Ok(Answer::opened(file, true))
        }
        (Err(Errno::EXIST), How::Unchecked(attributes)) => {
            found(&folder.below(&spot.name)?, attributes.size_bytes)
        }
        (Err(Errno::EXIST), How::Exclusive(verifier)) => {
            let file = folder.below(&spot.name)?;
            match was_made_by(&file, user, *verifier) {
                true => {
                    let opened = file.open(OFlags::WRONLY)?;
                    keep_open(&opened)?; // who made it may have died before
                    top.keep(&folder)?;
                    Ok(Answer::opened(opened, false))
                }
                false => Err(Errno::EXIST.into()),
            }
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// A file that is there is the one that was to be made, of this length.
fn found(file: &Found, len_bytes: Option<u64>) -> Result<Answer, Stop> {
    if file.kind() != FileType::RegularFile {
        return Err(Errno::EXIST.into());
    }
    let opened = match file.open(OFlags::WRONLY) {
        // It may be looked up, and nothing was to be changed.
        Err(Stop::Failed(Errno::ACCESS | Errno::ROFS | Errno::PERM)) if len_bytes.is_none() => {
            return Ok(Answer::of(Reply::Found));
        }
        opened => opened?,
    };
    if let Some(len_bytes) = len_bytes {
        truncate(&opened, len_bytes)?;
        keep_open(&opened)?;
    }
    Ok(Answer::opened(opened, false))
}

/// The times by which a file is known that was made with this number, as Linux' own server has them. Times before 1970 are avoided.
fn times_of(verifier: Verifier) -> Timestamps {
    let [a, b, c, d, e, f, g, h] = verifier;
    let at = |bytes| Timespec {
        tv_sec: (u32::from_be_bytes(bytes) & 0x7fff_ffff).into(),
        tv_nsec: 0,
    };
    Timestamps {
        last_access: at([a, b, c, d]),
        last_modification: at([e, f, g, h]),
    }
}

fn was_made_by(file: &Found, user: &User, verifier: Verifier) -> bool {
    let times = times_of(verifier);
    let stat = &file.stat;
    file.kind() == FileType::RegularFile
        && stat.st_uid == user.uid
        && stat.st_size == 0
        && stat.st_atime == times.last_access.tv_sec
        && stat.st_mtime == times.last_modification.tv_sec
}

/// What is set after a file was made with a mode.
fn left_of(attributes: &SetAttributes) -> SetAttributes {
    SetAttributes {
        mode: attributes.mode.filter(|mode| mode & SPECIAL_BITS != 0),
        size_bytes: None,
        ..*attributes
    }
}

/// Gives attributes to what was just made at a name. If another file is there meanwhile, it gets none.
fn dress(top: &Top, folder: &Found, name: &[u8], attributes: &SetAttributes) -> Result<(), Stop> {
    let left = left_of(attributes);
    if left == SetAttributes::default() {
        return Ok(());
    }
    let made = folder.below(name)?;
    set_others(&made.place, &left)?;
    top.keep(&made)
}

fn kind_of(node: &Node) -> (FileType, u64) {
    let number = |device: &Device| makedev(device.major, device.minor);
    match node {
        Node::Pipe => (FileType::Fifo, 0),
        Node::Socket => (FileType::Socket, 0),
        Node::Block(device) => (FileType::BlockDevice, number(device)),
        Node::Character(device) => (FileType::CharacterDevice, number(device)),
    }
}

/// The ctime as the protocol tells it.
fn changed_at(stat: &Stat) -> Time {
    let s = stat.st_ctime.clamp(0, u32::MAX.into());
    Time {
        s: s as u32, // clamped
        ns: if s == stat.st_ctime {
            stat.st_ctime_nsec as u32
        } else {
            0
        }, // below 10^9
    }
}
