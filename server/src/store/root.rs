//! From a path in a request to an open file, never leaving the root.
//!
//! The kernel enforces it: openat2(2) with RESOLVE_BENEATH refuses `..`, absolute links and links that leave, whatever
//! happens to the tree meanwhile. Where a link is on the way, the real name of its target is looked up first, and that
//! is opened ([`super::door`]): so whatever has a hidden name is hidden, whichever link leads to it. Nothing is opened
//! for reading before fstat has said that it is a regular file or a directory: opening a fifo or a device can have
//! effects.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ackpace_wire::hide::Hide;
use rustix::fs::{CWD, FileType, OFlags, ResolveFlags, Stat, readlinkat};
use rustix::io::Errno;

use super::attributes::{file_system, known};
use super::closing::{self, Descriptor};
use super::device::Devices;
use super::door::{Door, VisibleName, c_path, open_at};
pub use super::door::{Miss, Wait};
use super::served::{Presence, ServedDirectory};
pub use crate::options::FollowSymlinks;
use crate::options::shown_path;

/// Retries of a name that changes while it is opened. More: at no one time is it there, so 404.
const RACES_MAX: u32 = 3;

/// The directory or file that is served.
#[derive(Debug)]
pub struct Root {
    place: ServedDirectory,
    /// The name of the one file that is served, if it is not a directory.
    only: Option<Vec<u8>>,
    follow: FollowSymlinks,
    allowed: Vec<ServedDirectory>,
    /// Where else links may lead: `/`, if every link is followed.
    anywhere: Option<ServedDirectory>,
    door: Door,
    devices: Arc<Devices>,
}

/// The file or directory of a path.
#[derive(Debug)]
pub enum Found {
    /// A regular file, open for reading.
    File(Descriptor, Stat),
    /// A directory, open as a place (O_PATH).
    Directory(Descriptor),
}

/// Why a root cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct RootError {
    text: String,
    /// The key of the option whose value it is about.
    pub option: &'static str,
    /// A later start may do: a file system that holds it may not be mounted yet.
    pub may_pass: bool,
}

impl RootError {
    /// It is missing, or this user may not open it.
    fn open(path: &Path, error: &io::Error) -> RootError {
        let path = shown_path(path);
        RootError {
            text: format!("{path}: {error}; name a directory or a file that this user may read"),
            option: "root",
            may_pass: true,
        }
    }
}

impl Root {
    /// Opens the directory, or the directory of the file, and the other places that links may lead to. Names that
    /// match `hide` are not found there.
    pub fn open(
        path: &Path,
        follow: FollowSymlinks,
        allowed: &[PathBuf],
        hide: Hide,
    ) -> Result<Root, RootError> {
        let allow = |path: &PathBuf| {
            ServedDirectory::open(path).map_err(|error| RootError {
                text: format!(
                    "{}: {error}; name a directory that this user may enter",
                    shown_path(path)
                ),
                option: "allow_roots",
                may_pass: true,
            })
        };
        let allowed = allowed.iter().map(allow).collect::<Result<_, _>>()?;
        let failed = |error: io::Error| RootError::open(path, &error);
        let stat = rustix::fs::stat(path).map_err(|error| failed(error.into()))?;
        let mut root = Root {
            place: ServedDirectory::open(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => path,
                FileType::RegularFile => folder(path),
                _ => {
                    return Err(RootError {
                        text: format!(
                            "{} is neither a directory nor a regular file; name one of these",
                            shown_path(path)
                        ),
                        option: "root",
                        may_pass: false,
                    });
                }
            })
            .map_err(failed)?,
            only: None,
            follow,
            allowed,
            anywhere: match follow {
                FollowSymlinks::All => Some(ServedDirectory::open(Path::new("/")).map_err(failed)?),
                FollowSymlinks::Inside | FollowSymlinks::None => None,
            },
            door: Door::new(hide),
            devices: Arc::default(),
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            root.serve_only(path)?;
        }
        match root.stat(b"") {
            Err(Miss::Forbidden(_)) => Err(failed(Errno::ACCESS.into())),
            Err(_) | Ok(_) => Ok(root),
        }
    }

    /// Serves nothing: what is served lies elsewhere.
    pub fn nothing() -> Result<Root, RootError> {
        let root = Root::open(Path::new("/"), FollowSymlinks::None, &[], Hide::default())?;
        let only = Some(b"\0".to_vec()); // no name has a NUL
        Ok(Root { only, ..root })
    }

    /// Serves one file of the place, by the name that the operator gave. Where that is a link, he named what it leads to:
    /// it may lead out of the place to the directory where it leads now.
    fn serve_only(&mut self, path: &Path) -> Result<(), RootError> {
        let failed = |error: io::Error| RootError::open(path, &error);
        let real = path.canonicalize().map_err(failed)?;
        let name = path.file_name().or(real.file_name()).unwrap_or_default();
        self.only = Some(name.as_bytes().to_vec());
        if !path.is_symlink() {
            return Ok(());
        }
        if self.follow == FollowSymlinks::None {
            self.follow = FollowSymlinks::Inside;
        }
        if folder(&real) != self.place.path {
            let place = ServedDirectory::open(folder(&real)).map_err(failed)?;
            self.allowed.push(place);
        }
        Ok(())
    }

    /// The same, with the table of devices of the process: a search that may not wait opens files only of file systems
    /// that stand there.
    pub fn with(self, devices: Arc<Devices>) -> Root {
        Root { devices, ..self }
    }

    /// The directory that is served, or that holds the one file.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Whether the directory is there, as the last [`ServedDirectory::look`] tells.
    pub fn presence(&self) -> Presence {
        self.place.presence()
    }

    /// Everything that may be served: the root and the other places that links may lead to.
    pub fn places(&self) -> impl Iterator<Item = (&Path, &OwnedFd)> {
        let all = self.served();
        all.map(|place| (place.path.as_path(), &place.dir))
    }

    /// The one file that is served, if it is not a directory.
    pub fn only(&self) -> Option<&[u8]> {
        self.only.as_deref()
    }

    /// What all names go through.
    pub fn door(&self) -> &Door {
        &self.door
    }

    /// Whether a name, or a part of a path, is hidden from clients.
    pub fn hides(&self, path: &[u8]) -> bool {
        self.door.hides(path)
    }

    /// Finds `path`, which is relative to the root, has no `.` or `..`, and may end with a slash. With [`Wait::No`], only
    /// file systems are searched that were met and have their files here: any other may ask a daemon or a file server
    /// when it opens a file.
    pub fn find(&self, path: &[u8], wait: Wait) -> Result<Found, Miss> {
        if self.only.as_deref().is_some_and(|only| only != path) {
            return Err(Miss::NotFound);
        }
        let found = self.by_name(path, wait, |name| {
            found(&self.door, name, wait, &self.devices)
        });
        if let Err(Miss::Failed(_)) = found {
            self.served().for_each(ServedDirectory::doubt);
        }
        found
    }

    /// What a name in the listing of a directory is; a link counts as what it leads to.
    pub fn stat(&self, path: &[u8]) -> Result<Stat, Miss> {
        self.by_name(path, Wait::Yes, |name| {
            let place = name.open(OFlags::PATH, Wait::Yes);
            let place = place.map_err(|error| Miss::of(error, Wait::Yes))?;
            rustix::fs::fstat(&place).map_err(Miss::Failed)
        })
    }

    /// The directory at `path`, open as a place (O_PATH), if the kernel's caches hold the path. Nothing is served from
    /// it: it shows which device a search will wait for.
    pub fn cached_directory(&self, path: &[u8]) -> Option<Descriptor> {
        let directory = OFlags::DIRECTORY;
        let place = self.point_at(path, directory, self.links(), Wait::No);
        place.ok()
    }

    /// Opens what `path` leads to. A path without links is its own name; for any other, the real name is looked up, and
    /// that is opened.
    fn by_name<T>(
        &self,
        path: &[u8],
        wait: Wait,
        open: impl Fn(&VisibleName<'_>) -> Result<T, Miss>,
    ) -> Result<T, Miss> {
        match open(&self.door.name(&self.place.dir, path)?) {
            Err(Miss::Astray(_)) if self.follow != FollowSymlinks::None => {}
            opened => return opened,
        }
        for _ in 0..RACES_MAX {
            match open(&self.real_name(path, wait)?) {
                // Renamed, or replaced by a link, since its name was looked up.
                Err(Miss::NotFound | Miss::Astray(_)) => {}
                opened => return opened,
            }
        }
        Err(Miss::NotFound) // renamed again and again: at no one time is it there
    }

    /// The name, without links, of what `path` leads to now, below the first of the places that hold it.
    fn real_name(&self, path: &[u8], wait: Wait) -> Result<VisibleName<'_>, Miss> {
        let pointed = match self.point_at(path, OFlags::empty(), self.links(), wait) {
            // A link leaves the root, and may come back.
            Err(Errno::XDEV) if wait == Wait::No => return Err(Miss::Cold),
            Err(Errno::XDEV) => self.point_at(path, OFlags::empty(), ResolveFlags::empty(), wait),
            pointed => pointed,
        };
        let pointed = pointed.map_err(|error| Miss::of(error, wait))?;
        let real = real_path(&pointed)?;
        for ServedDirectory { dir, .. } in self.served().chain(&self.anywhere) {
            // Looked up anew, since a place may have been renamed.
            let above = real_path(dir)?;
            if let Ok(inside) = real.strip_prefix(above) {
                let mut inside = inside.as_os_str().as_bytes().to_vec();
                if path.ends_with(b"/") && !inside.is_empty() {
                    inside.push(b'/');
                }
                return self.door.name(dir, &inside);
            }
        }
        Err(Miss::Astray("a link leads out of the root"))
    }

    /// st_dev and st_ino of what is served; `None`: it can't be asked.
    pub fn top_id(&self) -> Option<(u64, u64)> {
        let stat = rustix::fs::fstat(&self.place.dir).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// The root, and then the directories of `allow_roots`.
    pub fn served(&self) -> impl Iterator<Item = &ServedDirectory> {
        std::iter::once(&self.place).chain(&self.allowed)
    }

    fn links(&self) -> ResolveFlags {
        match self.follow {
            FollowSymlinks::Inside => ResolveFlags::BENEATH,
            FollowSymlinks::None => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            FollowSymlinks::All => ResolveFlags::empty(),
        }
    }

    /// Opens what `path` leads to as a place (O_PATH): it has a name, but no bytes can be read from it.
    fn point_at(
        &self,
        path: &[u8],
        flags: OFlags,
        links: ResolveFlags,
        wait: Wait,
    ) -> rustix::io::Result<Descriptor> {
        let path = c_path(path).map_err(|_| Errno::NOENT)?;
        let (dir, resolve) = (self.place.dir.as_fd(), links | wait.resolve());
        let place = open_at(dir, &path, OFlags::PATH | flags, resolve)?;
        Descriptor::of(place)
    }
}

/// Opens what the name means. Only regular files are opened for reading.
fn found(
    door: &Door,
    name: &VisibleName<'_>,
    wait: Wait,
    devices: &Devices,
) -> Result<Found, Miss> {
    for _ in 0..RACES_MAX {
        let place = name.open(OFlags::PATH, wait);
        let place = place.map_err(|error| Miss::of(error, wait))?;
        let seen = known(&place).map_err(Miss::Failed)?;
        let file_system = file_system(&seen);
        // If its name is replaced from here on, this may be the last one that has the file: closing it frees the file.
        let place = Descriptor::new(place, file_system);
        if wait == Wait::No && !devices.is_here(file_system) {
            return Err(Miss::Cold);
        }
        match FileType::from_raw_mode(seen.stx_mode.into()) {
            FileType::Directory => return Ok(Found::Directory(place)),
            FileType::RegularFile => {}
            _ => return Err(Miss::Forbidden("it is neither a file nor a directory")),
        }
        if closing::is_full(file_system.st_dev) {
            return Err(Miss::Exhausted);
        }
        let opened = door.open_quietly(seen.stx_uid, |quiet| name.open(READ | quiet, wait));
        let opened = opened.map_err(|error| match error {
            // A name without links has no `..`, so no rename raced with it.
            Errno::AGAIN if wait != Wait::No => Miss::Leased,
            error => Miss::of(error, wait),
        })?;
        let opened = Descriptor::new(opened, file_system);
        let now = rustix::fs::fstat(&opened).map_err(Miss::Failed)?;
        if now.st_dev != file_system.st_dev {
            continue; // mounted or unmounted in this moment
        }
        if now.st_ino == seen.stx_ino {
            place.close_here();
        }
        if FileType::from_raw_mode(now.st_mode) == FileType::RegularFile {
            return Ok(Found::File(opened, now));
        }
    }
    Err(Miss::NotFound)
}

/// O_NONBLOCK: if a fifo takes the file's place in this moment, opening it does not wait.
pub(crate) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

fn folder(file: &Path) -> &Path {
    let parent = file.parent().unwrap_or(Path::new("/"));
    match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    }
}

/// The path by which the kernel knows an open file now.
pub(crate) fn real_path(place: &impl AsFd) -> Result<PathBuf, Miss> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    let path = readlinkat(CWD, link, Vec::new()).map_err(|error| match error {
        Errno::NOENT => Miss::Astray("a symbolic link is followed only where /proc is mounted"),
        error => Miss::Failed(error),
    })?;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes())))
}

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
