//! A change is on the disk before it is answered (RFC 1813 section 4.8).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fsync, openat, syncfs};
use rustix::io::Errno;

use super::walk::{Found, Stop};

/// The folder that is served, open.
#[derive(Debug)]
pub struct Top {
    /// As a place (O_PATH).
    pub place: OwnedFd,
    /// For reading, by which its whole file system is written out; `None`: the program may not read it.
    whole: Option<OwnedFd>,
}

impl Top {
    /// Opens it with the program's own rights.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(path: &Path) -> Result<Top, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let place = openat(CWD, path, flags | OFlags::PATH, Mode::empty())?;
        let whole = openat(&place, ".", flags | OFlags::RDONLY, Mode::empty()).ok();
        Ok(Top { place, whole })
    }

    /// For searches.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.place.as_fd()
    }

    /// Writes out what has changed of this file or folder. One that the thread's user may neither read nor write takes its whole file
    /// system with it. Links, pipes and devices can't be opened for that: their attributes last a few seconds later.
    ///
    /// # Errors
    /// As fsync(2).
    pub fn keep(&self, file: &Found) -> Result<(), Stop> {
        let opened = match file.kind() {
            FileType::RegularFile | FileType::Directory => {
                let read = file.open(OFlags::RDONLY);
                read.or_else(|_| file.open(OFlags::WRONLY))
            }
            _ => return Ok(()),
        };
        match (opened, &self.whole) {
            (Ok(open), _) => keep_open(&open),
            (Err(_), Some(whole)) => kept(syncfs(whole)),
            (Err(_), None) => Ok(()),
        }
    }
}

/// The same of an open file.
///
/// # Errors
/// As fsync(2).
pub fn keep_open(file: &OwnedFd) -> Result<(), Stop> {
    kept(fsync(file))
}

/// A file system without fsync(2) has nothing to wait for.
fn kept(done: Result<(), Errno>) -> Result<(), Stop> {
    match done {
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::ROFS) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
