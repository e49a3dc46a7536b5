//! From a path in a request to an open file, never leaving the root.
//!
//! The kernel keeps the promise: openat2(2) with RESOLVE_BENEATH refuses `..`, absolute links and
//! links that leave, whatever happens to the tree meanwhile. Nothing is opened for reading before
//! fstat has said that it is a regular file or a directory: opening a fifo or a device can have effects.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, openat2, readlinkat};
use rustix::io::Errno;

use crate::limits::RACES_MAX;
use crate::options::FollowSymlinks;

/// What is served: a directory, or one file.
#[derive(Debug)]
pub struct Root {
    place: Place,
    /// The one file that is served, if it is not a directory.
    only: Option<Vec<u8>>,
    follow: FollowSymlinks,
    allowed: Vec<Place>,
}

/// An open directory and its real path.
#[derive(Debug)]
struct Place {
    dir: OwnedFd,
    path: PathBuf,
}

/// May the search wait for the disk?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No: what is not in the kernel's caches is [`Miss::Cold`].
    No,
    /// Yes.
    Yes,
}

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    /// A regular file, open for reading.
    File(OwnedFd, Stat),
    /// A directory, open as a place (O_PATH).
    Directory(OwnedFd),
}

/// Why there is nothing to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The search would have to wait: try again with [`Wait::Yes`].
    Cold,
    /// There is no such file.
    NotFound,
    /// There is a link that is not followed. For the client nothing is there; the text says why, for the log.
    Astray(&'static str),
    /// There is something, but not for the client. The text says why, for the log.
    Forbidden(&'static str),
    /// The process has no descriptor or memory left for it.
    Exhausted,
    /// The file system failed.
    Failed(Errno),
}

/// Why a root cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It is not there, or not for us.
    #[error("{path}: {error}; name a directory or a file that this user may read")]
    Open {
        /// As the operator wrote it.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// It is no directory (and, for the root itself, no file).
    #[error("{path} is neither a directory nor a regular file; name one of these")]
    Kind {
        /// As the operator wrote it.
        path: PathBuf,
    },
    /// The kernel does not offer what safety needs.
    #[error(
        "openat2(2): {0}; it keeps requests inside the root and needs Linux 5.12, and a container runtime whose seccomp \
         profile allows it (Docker since 20.10)"
    )]
    Openat2(io::Error),
}

impl Root {
    /// Opens the directory, or the directory of the file, and the other places that links may lead to.
    ///
    /// # Errors
    /// See [`RootError`].
    pub fn open(
        path: &Path,
        follow: FollowSymlinks,
        allowed: &[PathBuf],
    ) -> Result<Root, RootError> {
        let allowed = allowed
            .iter()
            .map(|path| Place::open(path))
            .collect::<Result<_, _>>()?;
        let failed = |error: Errno| RootError::Open {
            path: path.to_owned(),
            error: error.into(),
        };
        let stat = rustix::fs::stat(path).map_err(failed)?;
        let (dir, only) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => (path.to_owned(), None),
            FileType::RegularFile => {
                let real = path.canonicalize().map_err(|error| RootError::Open {
                    path: path.to_owned(),
                    error,
                })?;
                let name = path.file_name().or(real.file_name()).unwrap_or_default();
                let real_name = real.file_name().unwrap_or_default();
                // The link's directory may be elsewhere: serve the file where it really is.
                let same = name == real_name;
                let dir = real.parent().unwrap_or(Path::new("/")).to_owned();
                (
                    dir,
                    Some(if same {
                        name.as_bytes().to_vec()
                    } else {
                        real_name.as_bytes().to_vec()
                    }),
                )
            }
            _ => {
                return Err(RootError::Kind {
                    path: path.to_owned(),
                });
            }
        };
        let root = Root {
            place: Place::open(&dir)?,
            only,
            follow,
            allowed,
        };
        match root.look(b"", Wait::Yes) {
            Err(Miss::Failed(error @ (Errno::NOSYS | Errno::PERM))) => {
                Err(RootError::Openat2(error.into()))
            }
            Err(Miss::Forbidden(_)) => Err(failed(Errno::ACCESS)),
            Err(_) | Ok(_) => Ok(root),
        }
    }

    /// The directory that is served, or that holds the one file.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Everything that may be served: the root and the other places that links may lead to.
    pub fn places(&self) -> impl Iterator<Item = (&Path, &OwnedFd)> {
        let all = std::iter::once(&self.place).chain(&self.allowed);
        all.map(|place| (place.path.as_path(), &place.dir))
    }

    /// The one file that is served, if it is not a directory.
    pub fn only(&self) -> Option<&[u8]> {
        self.only.as_deref()
    }

    /// Finds `path`, which is relative to the root, has no `.` or `..`, and may end with a slash.
    ///
    /// # Errors
    /// See [`Miss`].
    pub fn find(&self, path: &[u8], wait: Wait) -> Result<Found, Miss> {
        if self.only.as_deref().is_some_and(|only| only != path) {
            return Err(Miss::NotFound);
        }
        for _ in 0..RACES_MAX {
            let (place, stat, real) = match self.look(path, wait) {
                Ok((place, stat)) => (place, stat, None),
                Err(Miss::Failed(Errno::XDEV)) => self.look_outside(path, wait)?,
                Err(miss) => return Err(miss),
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => return Ok(Found::Directory(place)),
                FileType::RegularFile => {}
                _ => return Err(Miss::Forbidden("it is neither a file nor a directory")),
            }
            let opened = match &real {
                None => self.open_at(&self.place.dir, path, READ, self.resolve(wait))?,
                Some((dir, path)) => self.open_at(
                    dir,
                    path,
                    READ,
                    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
                )?,
            };
            let now = rustix::fs::fstat(&opened).map_err(Miss::Failed)?;
            if (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino) {
                return Ok(Found::File(opened, now));
            }
        }
        Err(Miss::NotFound) // renamed under us again and again: it is not there at any one time
    }

    /// What a name in the listing of a directory is; a link counts as what it leads to.
    ///
    /// # Errors
    /// See [`Miss`].
    pub fn stat(&self, path: &[u8]) -> Result<Stat, Miss> {
        match self.look(path, Wait::Yes) {
            Err(Miss::Failed(Errno::XDEV)) => {
                self.look_outside(path, Wait::Yes).map(|(_, stat, _)| stat)
            }
            looked => looked.map(|(_, stat)| stat),
        }
    }

    /// The directory at `path` as a place, if the kernel's caches know the way there.
    pub fn cached_directory(&self, path: &[u8]) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.open_at(&self.place.dir, path, flags, self.resolve(Wait::No))
            .ok()
    }

    fn look(&self, path: &[u8], wait: Wait) -> Result<(OwnedFd, Stat), Miss> {
        let place = self.open_at(&self.place.dir, path, OFlags::PATH, self.resolve(wait))?;
        let stat = rustix::fs::fstat(&place).map_err(Miss::Failed)?;
        Ok((place, stat))
    }

    /// A link leads out of the root. Follow it, then see where we are: the descriptor can't be moved
    /// under us, so its real path decides, inside the root or one of the other places.
    #[expect(
        clippy::type_complexity,
        reason = "a place, what it is, and where it really lies"
    )]
    fn look_outside(
        &self,
        path: &[u8],
        wait: Wait,
    ) -> Result<(OwnedFd, Stat, Option<(&OwnedFd, Vec<u8>)>), Miss> {
        if wait == Wait::No {
            return Err(Miss::Cold);
        }
        let place = self.open_at(
            &self.place.dir,
            path,
            OFlags::PATH,
            ResolveFlags::NO_MAGICLINKS,
        )?;
        let stat = rustix::fs::fstat(&place).map_err(Miss::Failed)?;
        let real = real_path(&place).map_err(Miss::Failed)?;
        let inside = std::iter::once(&self.place)
            .chain(&self.allowed)
            .find_map(|place| {
                let inside = real.strip_prefix(&place.path).ok()?;
                Some((&place.dir, inside.as_os_str().as_bytes().to_vec()))
            });
        match inside {
            Some(real) => Ok((place, stat, Some(real))),
            None => Err(Miss::Astray("a link leads out of the root")),
        }
    }

    fn resolve(&self, wait: Wait) -> ResolveFlags {
        let links = match self.follow {
            FollowSymlinks::Inside => ResolveFlags::BENEATH,
            FollowSymlinks::None => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            FollowSymlinks::All => ResolveFlags::empty(),
        };
        let cached = if wait == Wait::No {
            ResolveFlags::CACHED
        } else {
            ResolveFlags::empty()
        };
        links | cached | ResolveFlags::NO_MAGICLINKS
    }

    fn open_at(
        &self,
        dir: &OwnedFd,
        path: &[u8],
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd, Miss> {
        let path = if path.is_empty() { &b"."[..] } else { path };
        let Ok(path) = CString::new(path) else {
            return Err(Miss::NotFound);
        };
        let flags = flags | OFlags::CLOEXEC;
        loop {
            return match openat2(dir, path.as_c_str(), flags, Mode::empty(), resolve) {
                Ok(fd) => Ok(fd),
                Err(Errno::INTR) => continue,
                Err(error) => Err(Miss::of(error, resolve)),
            };
        }
    }
}

/// O_NONBLOCK: should a fifo take the file's place in this moment, opening it does not wait.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

impl Miss {
    fn of(error: Errno, resolve: ResolveFlags) -> Miss {
        match error {
            Errno::AGAIN if resolve.contains(ResolveFlags::CACHED) => Miss::Cold,
            // A rename raced with the search (openat2(2)).
            Errno::AGAIN => Miss::NotFound,
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Miss::NotFound,
            Errno::ACCESS => Miss::Forbidden("permission denied"),
            Errno::LOOP => Miss::Astray("a symbolic link is in the way"),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Miss::Exhausted,
            error => Miss::Failed(error),
        }
    }
}

impl Place {
    fn open(path: &Path) -> Result<Place, RootError> {
        let failed = |error: Errno| RootError::Open {
            path: path.to_owned(),
            error: error.into(),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir =
            rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|error| match error {
                Errno::NOTDIR => RootError::Kind {
                    path: path.to_owned(),
                },
                error => failed(error),
            })?;
        let readable =
            rustix::fs::accessat(&dir, ".", rustix::fs::Access::EXEC_OK, AtFlags::EACCESS);
        readable.map_err(failed)?;
        let path = path.canonicalize().map_err(|error| RootError::Open {
            path: path.to_owned(),
            error,
        })?;
        Ok(Place { dir, path })
    }
}

fn real_path(place: &impl AsFd) -> rustix::io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    let path = readlinkat(CWD, link, Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes())))
}

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
