//! A directory that is served from, and whether it is still there.
//!
//! It stays open, so renaming it, or making another one under its name, changes nothing for clients. But its file system
//! can end: its disk is pulled, its daemon dies, or somebody unmounts it although it is busy (`umount -l`). A thread that
//! may hang looks once a second ([`ServedDirectory::look`]), and opens the path again when a file system is mounted there
//! anew. The new directory takes the number of the old descriptor (dup3(2)), so searches need no lock.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;

/// An open directory and its real path.
#[derive(Debug)]
pub struct ServedDirectory {
    /// Opened as a place (O_PATH).
    pub dir: OwnedFd,
    /// Its path when the server started, without links.
    pub path: PathBuf,
    /// The mount point of its file system.
    mounted_at: PathBuf,
    /// Its file system counts the links of a directory: some FUSE file systems tell of none.
    counts_links: bool,
    /// Its file system is on a disk that sysfs knows.
    has_disk: bool,
    presence: AtomicU8,
}

/// Whether a directory is there, as the last look tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    Here,
    /// Its file system is gone, and may come back.
    Away,
    /// It was removed. No directory comes back from that: one that is made anew under its name is another one.
    Removed,
}

/// Why a directory is not there.
enum Absence {
    Removed,
    Unmounted,
    NoDisk,
    Failed(Errno),
}

impl ServedDirectory {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// It is none, or this user may not enter it.
    pub fn open(path: &Path) -> io::Result<ServedDirectory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        rustix::fs::accessat(&dir, ".", rustix::fs::Access::EXEC_OK, AtFlags::empty())?;
        let path = path.canonicalize()?;
        let now = asked(&dir, Path::new(""));
        Ok(ServedDirectory {
            mounted_at: mount_point(&path),
            counts_links: now.is_ok_and(|now| now.stx_nlink > 0),
            has_disk: now.is_ok_and(|now| disk_is_there(&now)),
            presence: AtomicU8::new(Presence::Here as u8),
            dir,
            path,
        })
    }

    /// What the last [`ServedDirectory::look`] found.
    pub fn presence(&self) -> Presence {
        match self.presence.load(Relaxed) {
            here if here == Presence::Here as u8 => Presence::Here,
            away if away == Presence::Away as u8 => Presence::Away,
            _ => Presence::Removed,
        }
    }

    /// Looks whether it is there, and opens it again if it is back. Tells the log what has changed. Asks daemons and file
    /// servers, so the caller may wait for long.
    pub fn look(&self) {
        let before = self.presence();
        if before == Presence::Removed {
            return;
        }
        let absence = self.absence();
        let now = match &absence {
            None => Presence::Here,
            Some(Absence::Removed) => Presence::Removed,
            Some(_) if self.reopen() => Presence::Here,
            Some(_) => Presence::Away,
        };
        self.presence.store(now as u8, Relaxed);
        let path = self.path.display();
        match (absence, now) {
            (Some(_), Presence::Here) => tracing::warn!("{path}: mounted and opened again"),
            (None, _) if now != before => tracing::warn!("{path}: it answers again"),
            (Some(absence), _) if now != before => tracing::error!("{path}: {absence}"),
            _ => {}
        }
    }

    /// Why it is not there.
    fn absence(&self) -> Option<Absence> {
        let own = match asked(&self.dir, Path::new("")) {
            Ok(own) => own,
            Err(error) => return Some(Absence::Failed(error)),
        };
        if self.counts_links && own.stx_nlink == 0 {
            return Some(Absence::Removed);
        }
        if self.has_disk && !disk_is_there(&own) {
            return Some(Absence::NoDisk);
        }
        let mounted = asked(CWD, &self.mounted_at);
        let is_mounted = match mounted {
            Ok(mounted) => mounted.stx_mnt_id == own.stx_mnt_id,
            Err(error) => error != Errno::NOENT,
        };
        (!is_mounted).then_some(Absence::Unmounted)
    }

    /// Opens its path anew, if that leads to a directory that is there, below the same mount point. So what lies below a
    /// mount point where nothing is mounted is never served.
    fn reopen(&self) -> bool {
        let Ok(anew) = ServedDirectory::open(&self.path) else {
            return false;
        };
        let same = anew.path == self.path && anew.mounted_at == self.mounted_at;
        if !same || anew.absence().is_some() {
            return false;
        }
        // SAFETY: both descriptors are open for as long as their owners live. The number of ours stays open, for another
        // directory: who uses it meanwhile gets the old one or the new one.
        let replaced =
            unsafe { libc::dup3(anew.dir.as_raw_fd(), self.dir.as_raw_fd(), libc::O_CLOEXEC) };
        replaced >= 0
    }
}

/// The end of a line for the log, with what to do.
impl fmt::Display for Absence {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            Absence::Removed => {
                return to.write_str(
                    "the directory was removed: make it anew, and restart the server to serve that",
                );
            }
            Absence::Unmounted => "its file system was unmounted",
            Absence::NoDisk => "the disk below it is gone",
            Absence::Failed(error) => &error.to_string(),
        };
        write!(
            to,
            "{why}; mount it anew at the same place (after umount -l, if it is still mounted): the server opens it by itself"
        )
    }
}

/// What the file system itself says of a file now: a daemon or a file server is asked.
fn asked(from: impl std::os::fd::AsFd, path: &Path) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    statx(from, path, flags, wanted)
}

/// Whether sysfs has the disk of a file system.
fn disk_is_there(of: &Statx) -> bool {
    let disk = format!("/sys/dev/block/{}:{}", of.stx_dev_major, of.stx_dev_minor);
    Path::new(&disk).is_symlink()
}

/// Where the file system is mounted that has this path.
fn mount_point(path: &Path) -> PathBuf {
    let is_mounted = |path: &&Path| {
        let stat = asked(CWD, path);
        stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    };
    let mounted = path.ancestors().find(is_mounted);
    mounted.unwrap_or(Path::new("/")).to_owned()
}
