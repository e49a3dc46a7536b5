//! The cache folder: that it is ours alone, and the files in it by their names.
//!
//! A file has a name of 32 hexadecimal digits, in one of 256 folders that are called like the first two of them.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use ackpace_core::tier::Name;
use rustix::fs::{
    Access, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, access, flock, fstat, fstatvfs,
    linkat, mkdirat, openat, statat, unlinkat,
};
use rustix::io::Errno;

/// Two instances must not remove each other's files: whoever uses the folder holds this file locked (flock(2)).
const LOCK: &str = "lock";
/// A file that is made and removed at the start.
const PROBE: &str = "probe";
/// Names in the folder itself that need no word.
const KNOWN: [&str; 3] = [LOCK, PROBE, "lost+found"];
const OF_OWNER: Mode = Mode::RWXU;

/// Why a folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    /// It can't be opened, made or written to.
    #[error("{}: {error}; name a folder that this user may write to, or a new one in such a folder", dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// It belongs to somebody else.
    #[error("{} belongs to user {owner}, who could change what is sent; chown it to user {own}, or name another folder", dir.display())]
    Foreign {
        /// The folder.
        dir: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        own: u32,
    },
    /// Others could change what is sent.
    #[error("{} may be written to by others, who could change what is sent; chmod go-w {}", dir.display(), dir.display())]
    Shared {
        /// The folder.
        dir: PathBuf,
    },
    /// Another instance uses it.
    #[error("{} is used by another instance; give each instance a folder of its own", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// Its file system can't keep files that are whole at any moment.
    #[error("{} is on a file system without nameless files (O_TMPFILE: {error}); name a folder on ext4, XFS, btrfs or tmpfs", dir.display())]
    NoTmpfile {
        /// The folder.
        dir: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

impl TierError {
    /// Whether a later start may find it mended.
    pub fn may_pass(&self) -> bool {
        matches!(self, TierError::InUse { .. } | TierError::Folder { .. })
    }
}

/// Whether a folder that is there could be used, without a trace in it; or could be made.
///
/// # Errors
/// It belongs to others, or they may write to it, or it is no folder, or the one in which it would be made is none.
pub fn inspect(dir: &Path) -> Result<(), TierError> {
    match open_folder(dir) {
        Err(Errno::NOENT) => {
            let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
            let may = Access::WRITE_OK | Access::EXEC_OK;
            access(parent.unwrap_or(Path::new(".")), may).map_err(|error| failed(dir, error))
        }
        opened => check_owner(dir, &opened.map_err(|error| failed(dir, error))?),
    }
}

fn failed(dir: &Path, error: Errno) -> TierError {
    TierError::Folder {
        dir: dir.to_owned(),
        error: error.into(),
    }
}

fn open_folder(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    openat(CWD, dir, flags, Mode::empty())
}

fn check_owner(dir: &Path, fd: &OwnedFd) -> Result<(), TierError> {
    let stat = fstat(fd).map_err(|error| failed(dir, error))?;
    let own = rustix::process::geteuid().as_raw();
    let dir = dir.to_owned();
    if stat.st_uid != own {
        let owner = stat.st_uid;
        return Err(TierError::Foreign { dir, owner, own });
    }
    match Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        true => Err(TierError::Shared { dir }),
        false => Ok(()),
    }
}

/// The folder, as long as nobody else may use it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    dir: OwnedFd,
    _lock: OwnedFd,
}

/// What one of the 256 folders holds.
#[derive(Debug, Default)]
pub struct Listed {
    /// Our files, and their lengths.
    pub files: Vec<(Name, u64)>,
    /// How many others there are, and the path of one.
    pub others: usize,
    pub other: Option<String>,
}

impl Listed {
    /// Something that is not ours.
    fn add_other(&mut self, path: String) {
        self.others += 1;
        self.other.get_or_insert(path);
    }
}

impl Folder {
    pub fn open(path: &Path) -> Result<Folder, TierError> {
        let failed = |error| failed(path, error);
        match mkdirat(CWD, path, OF_OWNER) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        let dir = open_folder(path).map_err(failed)?;
        check_owner(path, &dir)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&dir, LOCK, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(TierError::InUse {
                    dir: path.to_owned(),
                });
            }
            Err(error) => return Err(failed(error)),
        }
        let folder = Folder {
            path: path.to_owned(),
            dir,
            _lock: lock,
        };
        match folder.probe() {
            Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(folder),
            Err(error) => Err(TierError::NoTmpfile {
                dir: path.to_owned(),
                error: error.into(),
            }),
        }
    }

    /// Whether files can be made that have no name at first.
    fn probe(&self) -> rustix::io::Result<()> {
        let file = self.nameless()?;
        let _ = unlinkat(&self.dir, PROBE, AtFlags::empty()); // of a start that was killed
        self.link(&file, PROBE)?;
        unlinkat(&self.dir, PROBE, AtFlags::empty())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of its file system.
    pub fn file_system_bytes(&self) -> Result<u64, TierError> {
        let stat = fstatvfs(&self.dir).map_err(|error| failed(&self.path, error))?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }

    /// A file without a name, to be written. It is gone when it is closed.
    pub fn nameless(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        openat(&self.dir, ".", flags, Mode::RUSR | Mode::WUSR)
    }

    /// Gives a nameless file its name. Says whether it is new: one that is there already stays.
    pub fn name(&self, file: &OwnedFd, name: Name) -> rustix::io::Result<bool> {
        let path = path_of(name);
        let linked = match self.link(file, &path) {
            Err(Errno::NOENT) => {
                match mkdirat(&self.dir, &path[..2], OF_OWNER) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                self.link(file, &path)
            }
            linked => linked,
        };
        match linked {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn link(&self, file: &OwnedFd, path: &str) -> rustix::io::Result<()> {
        let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, nameless, &self.dir, path, AtFlags::SYMLINK_FOLLOW)
    }

    pub fn read(&self, name: Name) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(&self.dir, path_of(name), flags, Mode::empty())
    }

    /// Removes a file, if it is there and can be removed.
    pub fn remove(&self, name: Name) {
        let _ = unlinkat(&self.dir, path_of(name), AtFlags::empty());
    }

    /// What is in one of the 256 folders. What can't be read counts as not there.
    pub fn list(&self, nth: u8) -> Listed {
        let mut listed = Listed::default();
        let folder = format!("{nth:02x}");
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(dir) = openat(&self.dir, &folder, flags, Mode::empty()) else {
            return listed;
        };
        for name in names_in(&dir) {
            let parsed = parse(&name).filter(|_| name.starts_with(&folder));
            let stat = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat
                .ok()
                .filter(|it| FileType::from_raw_mode(it.st_mode).is_file());
            match (parsed, stat) {
                (Some(name), Some(stat)) => listed.files.push((name, stat.st_size as u64)),
                _ => listed.add_other(format!("{folder}/{name}")),
            }
        }
        listed
    }

    /// What is in the folder itself that is not ours.
    pub fn others(&self) -> Listed {
        let mut listed = Listed::default();
        for name in names_in(&self.dir) {
            let is_folder = name.len() == 2 && name.bytes().all(is_digit);
            if !is_folder && !KNOWN.contains(&&*name) {
                listed.add_other(name);
            }
        }
        listed
    }
}

fn names_in(dir: &OwnedFd) -> impl Iterator<Item = String> {
    let entries = rustix::fs::Dir::read_from(dir).into_iter().flatten();
    let names = entries.map_while(Result::ok);
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "." && name != "..")
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

/// Where a file is below the folder.
fn path_of(name: Name) -> String {
    let mut path = String::with_capacity(35);
    let _ = write!(path, "{:02x}/{:032x}", name.0 >> 120, name.0);
    path
}

/// The name of our own that this is.
fn parse(name: &str) -> Option<Name> {
    let is_ours = name.len() == 32 && name.bytes().all(is_digit);
    let number = is_ours.then(|| u128::from_str_radix(name, 16).ok());
    number.flatten().map(Name)
}
