//! From a path below the served folder to the file that is meant.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use ackpace_wire::files::Known;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

/// Why there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Another one is at its path, or none.
    Moved,
    /// As the system call says.
    Failed(Errno),
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Stop {
        Stop::Failed(error)
    }
}

/// A file that was found, open as a place (O_PATH).
#[derive(Debug)]
pub struct Found {
    /// The descriptor.
    pub place: OwnedFd,
    /// What the kernel tells of it.
    pub stat: Stat,
}

impl Found {
    /// What is at a path. A link is itself; none on the way is followed.
    ///
    /// # Errors
    /// It is not there, or the thread's user may not pass.
    pub fn look(root: BorrowedFd<'_>, path: &[u8]) -> Result<Found, Stop> {
        let path = match path {
            b"" => b".",
            path => path,
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = openat2(root, path, flags, Mode::empty(), resolve);
        match opened {
            Ok(place) => Found::at(place),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Err(Stop::Moved),
            Err(error) => Err(error.into()),
        }
    }

    /// The file that is known by its path.
    ///
    /// # Errors
    /// As above, and if it is another one.
    pub fn of(root: BorrowedFd<'_>, known: &Known) -> Result<Found, Stop> {
        let found = Found::look(root, &known.path)?;
        match (found.stat.st_dev, found.stat.st_ino) == (known.device, known.inode) {
            true => Ok(found),
            false => Err(Stop::Moved),
        }
    }

    /// The same, of a folder.
    ///
    /// # Errors
    /// As above, and ENOTDIR.
    pub fn folder(root: BorrowedFd<'_>, known: &Known) -> Result<Found, Stop> {
        let found = Found::of(root, known)?;
        match found.kind() {
            FileType::Directory => Ok(found),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// The file of a name in this folder; a link is itself.
    ///
    /// # Errors
    /// As openat(2).
    pub fn below(&self, name: &[u8]) -> Result<Found, Stop> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Found::at(openat(&self.place, name, flags, Mode::empty())?)
    }

    fn at(place: OwnedFd) -> Result<Found, Stop> {
        let stat = fstat(&place)?;
        Ok(Found { place, stat })
    }

    /// What it is.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Its name for calls that take no descriptor of a place (proc(5)).
    pub fn path(&self) -> String {
        path_of(&self.place)
    }

    /// Opens it, with the rights of the thread's user. Never waits for the other end of a pipe, or for a lease.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, flags: OFlags) -> Result<OwnedFd, Stop> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(openat(CWD, self.path(), flags, Mode::empty())?)
    }
}

/// The name of an open file.
pub fn path_of(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
