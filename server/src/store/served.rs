//! A directory that is served from, and whether it is still there.
//!
//! It stays open, so renaming it, or making another one under its name, changes nothing for clients. But its file system
//! can end: its disk is pulled, its daemon dies, or somebody unmounts it although it is busy (`umount -l`). A thread that
//! may hang looks once a second ([`ServedDirectory::look`]), and opens the path again when a file system is mounted there
//! anew. The new directory takes the number of the old descriptor (dup3(2)), so searches need no lock.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxAttributes, StatxFlags, openat, statx};
use rustix::io::Errno;

use super::magic::Magic;

/// An open directory and its real path.
#[derive(Debug)]
pub struct ServedDirectory {
    /// Opened as a place (O_PATH).
    pub dir: OwnedFd,
    /// Its path when the server started, without links.
    pub path: PathBuf,
    /// What is known of its file system. Only [`ServedDirectory::look`] asks for it.
    known: Mutex<MountFacts>,
    presence: AtomicU8,
    /// Something below it could not be found, since its file system failed.
    doubted: AtomicBool,
}

/// What is known of a directory's file system since that was opened.
#[derive(Clone, Debug)]
struct MountFacts {
    mounted_at: PathBuf,
    /// It is on a disk that sysfs knows.
    has_disk: bool,
    /// It has links, and none when it is removed. Some FUSE file systems tell of none, and a deleted subvolume of btrfs keeps its one.
    has_links: bool,
    /// A daemon or a file server has it, and may let whoever asks wait for ever.
    is_elsewhere: bool,
}

/// Whether a directory is there, as the last look tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
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
    pub fn open(path: &Path) -> io::Result<ServedDirectory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, path, flags, Mode::empty())?;
        openat(&dir, ".", flags, Mode::empty())?; // may it be entered, with the rights that serving has?
        let path = path.canonicalize()?;
        Ok(ServedDirectory {
            known: MountFacts::of(&dir, &path).into(),
            presence: AtomicU8::new(Presence::Here as u8),
            doubted: AtomicBool::new(false),
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

    /// Its file system has failed to find something: the next look asks it.
    pub fn doubt(&self) {
        self.doubted.store(true, Relaxed);
    }

    /// Looks whether it is there, and opens it again if it is back. Tells the log what has changed. A daemon or a file server is
    /// asked only if there is a reason to; then the caller may wait for long.
    pub fn look(&self) {
        let before = self.presence();
        if before == Presence::Removed {
            return;
        }
        let known = self.known().clone();
        let doubted = self.doubted.swap(false, Relaxed);
        let sync = match known.is_elsewhere && !doubted && before == Presence::Here {
            true => AtFlags::STATX_DONT_SYNC,
            false => AtFlags::STATX_FORCE_SYNC,
        };
        let absence = self.absence(&known, sync);
        let is_covered =
            absence.is_none() && !known.is_elsewhere && self.is_covered() && self.reopen();
        let now = match &absence {
            None => Presence::Here,
            Some(Absence::Removed) => Presence::Removed,
            Some(_) if self.reopen() => Presence::Here,
            Some(_) => Presence::Away,
        };
        self.presence.store(now as u8, Relaxed);
        let path = self.path.display();
        match (absence, now) {
            _ if is_covered => {
                tracing::warn!("{path}: a file system was mounted there, and is opened");
            }
            (Some(_), Presence::Here) => tracing::warn!("{path}: mounted and opened again"),
            (None, _) if now != before => tracing::warn!("{path}: it answers again"),
            (Some(absence), _) if now != before => tracing::error!("{path}: {absence}"),
            _ => {}
        }
    }

    fn known(&self) -> MutexGuard<'_, MountFacts> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn absence(&self, known: &MountFacts, sync: AtFlags) -> Option<Absence> {
        let own = match asked(&self.dir, Path::new(""), sync) {
            Ok(own) => own,
            Err(error) => return Some(Absence::Failed(error)),
        };
        if known.has_links && own.stx_nlink == 0 {
            return Some(Absence::Removed);
        }
        if known.has_disk && !disk_is_there(&own) {
            return Some(Absence::NoDisk);
        }
        let mounted = asked(CWD, &known.mounted_at, sync);
        let is_mounted = match mounted {
            Ok(mounted) => mounted.stx_mnt_id == own.stx_mnt_id,
            Err(error) => error != Errno::NOENT,
        };
        (!is_mounted).then_some(Absence::Unmounted)
    }

    /// Whether a file system was mounted over the directory, or above it, since it was opened.
    fn is_covered(&self) -> bool {
        let ask = |from: BorrowedFd<'_>, path| asked(from, path, AtFlags::STATX_FORCE_SYNC);
        let own = ask(self.dir.as_fd(), Path::new(""));
        let there = ask(CWD, &self.path);
        own.is_ok_and(|own| there.is_ok_and(|there| own.stx_mnt_id != there.stx_mnt_id))
    }

    /// Opens its path anew, if that leads to a directory that is there, below the same mount point or a deeper one. So what
    /// lies below a mount point where something was mounted is not served without it.
    fn reopen(&self) -> bool {
        let Ok(anew) = ServedDirectory::open(&self.path) else {
            return false;
        };
        let known = anew.known().clone();
        let below =
            anew.path == self.path && known.mounted_at.starts_with(&self.known().mounted_at);
        if !below || anew.absence(&known, AtFlags::STATX_FORCE_SYNC).is_some() {
            return false;
        }
        // SAFETY: both descriptors are open for as long as their owners live. The number of ours stays open, for another
        // directory: who uses it meanwhile gets the old one or the new one.
        let replaced =
            unsafe { libc::dup3(anew.dir.as_raw_fd(), self.dir.as_raw_fd(), libc::O_CLOEXEC) };
        if replaced >= 0 {
            *self.known() = known;
        }
        replaced >= 0
    }
}

impl MountFacts {
    /// Of the open directory at `path`.
    fn of(dir: &OwnedFd, path: &Path) -> MountFacts {
        let now = asked(dir, Path::new(""), AtFlags::STATX_FORCE_SYNC).ok();
        let magic = Magic::of(dir);
        MountFacts {
            mounted_at: mount_point(path),
            has_disk: now.as_ref().is_some_and(disk_is_there),
            has_links: now.is_some_and(|now| now.stx_nlink > 0),
            is_elsewhere: magic.is_none_or(|magic| magic.elsewhere().is_some()),
        }
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

/// What the kernel says of a file (STATX_DONT_SYNC), or the file system itself now (STATX_FORCE_SYNC): then a daemon or a file server
/// is asked.
fn asked(from: impl AsFd, path: &Path, sync: AtFlags) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | sync;
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
        let stat = asked(CWD, path, AtFlags::STATX_DONT_SYNC);
        stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    };
    let mounted = path.ancestors().find(is_mounted);
    mounted.unwrap_or(Path::new("/")).to_owned()
}
