//! The one entry point to what is served: a name without links and without a hidden part, which the kernel opens.
//!
//! Whatever led to a file (a link, a chain of them, an index, the suffix of a sibling, an entry of a listing), it is
//! opened by a [`VisibleName`], which only [`Door::name`] makes. The kernel follows no link on its way
//! (RESOLVE_NO_SYMLINKS). So the name that was checked is the name of what is opened, however the tree changes
//! meanwhile.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ackpace_wire::hide::Hide;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};

use crate::store::closing;

/// Retries of a search for a name that races with renames elsewhere. More: 503, since it may be there.
const SEARCH_RETRIES_MAX: u32 = 1000;

/// Whether a search may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No: what is not in the kernel's caches is [`Miss::Cold`].
    No,
    /// Yes.
    Yes,
    /// Yes, and for all names of a long directory, too.
    Long,
}

/// Why there is nothing to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The search would have to wait: try again with [`Wait::Yes`], and then with [`Wait::Long`].
    Cold,
    /// There is no such file.
    NotFound,
    /// Its name, or that of a directory above it, is hidden. For clients it does not exist.
    Hidden,
    /// There is a link that is not followed. For clients nothing is there; the text says why, for the log.
    Astray(&'static str),
    /// It is there, but may not be served. The text says why, for the log.
    Forbidden(&'static str),
    /// The process has no descriptor or memory left for it, or renames kept the search from its end.
    Exhausted,
    /// Another program has a lease on it (fcntl(2), F_SETLEASE), and the kernel asks for it now.
    Leased,
    /// The file system failed.
    Failed(Errno),
}

/// Checks names, and makes those that may be opened.
#[derive(Debug)]
pub struct Door {
    hide: Hide,
    /// The user of this process, and whether it has CAP_FOWNER.
    user: u32,
    is_privileged: bool,
}

/// A name below a directory that is served from; no part of it is hidden.
pub struct VisibleName<'a> {
    dir: BorrowedFd<'a>,
    path: CString,
}

impl Door {
    /// An entry point that refuses names which match `hide`.
    pub fn new(hide: Hide) -> Door {
        let effective = capabilities(None).map(|sets| sets.effective);
        Door {
            hide,
            user: rustix::process::geteuid().as_raw(),
            is_privileged: effective.is_ok_and(|sets| sets.contains(CapabilitySet::FOWNER)),
        }
    }

    /// Opens a file or directory of this owner (`st_uid`) for reading. `open` does, with one more flag: O_NOATIME if this
    /// process may leave out a new time of access, since writing it may wait for a disk that hangs.
    pub fn open_quietly<T>(
        &self,
        owner: u32,
        open: impl Fn(OFlags) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        if owner == self.user || self.is_privileged {
            match open(OFlags::NOATIME) {
                Err(Errno::PERM) => {} // CAP_FOWNER of a user namespace that does not know the owner
                opened => return opened,
            }
        }
        open(OFlags::empty())
    }

    /// Whether a name, or a part of a path, is hidden.
    pub fn hides(&self, path: &[u8]) -> bool {
        self.hide.hidden(path)
    }

    /// The name `path` below `dir`.
    pub fn name<'a>(&'a self, dir: &'a OwnedFd, path: &[u8]) -> Result<VisibleName<'a>, Miss> {
        if self.hides(path) {
            return Err(Miss::Hidden);
        }
        let (dir, path) = (dir.as_fd(), c_path(path)?);
        Ok(VisibleName { dir, path })
    }
}

impl VisibleName<'_> {
    /// What this name means now; a link on the way or at its end is ELOOP.
    pub fn open(&self, flags: OFlags, wait: Wait) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | wait.resolve();
        open_at(self.dir, &self.path, flags, resolve)
    }
}

impl Wait {
    /// For openat2(2).
    pub fn resolve(self) -> ResolveFlags {
        match self {
            Wait::No => ResolveFlags::CACHED,
            Wait::Yes | Wait::Long => ResolveFlags::empty(),
        }
    }
}

impl Miss {
    /// The meaning of an error of openat2(2) in a search that may wait for the disk, or may not.
    pub fn of(error: Errno, wait: Wait) -> Miss {
        match error {
            Errno::AGAIN if wait == Wait::No => Miss::Cold,
            // Renames raced with each try of the search: nobody knows whether it is there.
            Errno::AGAIN => Miss::Exhausted,
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Miss::NotFound,
            Errno::ACCESS => Miss::Forbidden("permission denied"),
            Errno::LOOP => Miss::Astray("a symbolic link is in the way"),
            // Files that are being closed give theirs back.
            Errno::MFILE | Errno::NFILE if wait == Wait::No && closing::goes_on() => Miss::Cold,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Miss::Exhausted,
            error => Miss::Failed(error),
        }
    }
}

/// A path for the kernel; the directory itself is `.`.
pub fn c_path(path: &[u8]) -> Result<CString, Miss> {
    let path = if path.is_empty() { &b"."[..] } else { path };
    CString::new(path).map_err(|_| Miss::NotFound)
}

/// openat2(2), restarted when a signal interrupts it. Magic links of /proc are never followed.
///
/// Any rename on this machine, of whatever file, fails a search that meets a `..` meanwhile: that is tried again.
/// Errors: As openat2(2). EAGAIN: the search would have to wait, or renames raced with it `SEARCH_RETRIES_MAX` times.
pub fn open_at(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: OFlags,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let (flags, resolve) = (
        flags | OFlags::CLOEXEC,
        resolve | ResolveFlags::NO_MAGICLINKS,
    );
    let mut retries = match resolve.contains(ResolveFlags::CACHED) {
        true => 0, // who may wait tries again
        false => SEARCH_RETRIES_MAX,
    };
    loop {
        match openat2(dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if retries > 0 => retries -= 1,
            opened => return opened,
        }
    }
}
