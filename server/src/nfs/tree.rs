//! From a file handle to its file, and back.
//!
//! A file is found by the path that is known of it ([`super::handles`]); if another file is there now, by the path that its descriptor
//! tells; and a server that does not know the handle searches by its hints ([`super::identity`]). Whatever path it is, the file is
//! opened by it through [`crate::store::door`]: so a file that was moved out of the served directory, or to a hidden name, is
//! stale. No symbolic link is followed.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use ackpace_core::conn::Version;
use ackpace_wire::files::Known;
use ackpace_wire::nfs3::handle::{self, Key, Sealed};
use ackpace_wire::nfs3::{Attributes, Kind, Status};
use rustix::fs::{Mode, OFlags, Statx, openat};
use rustix::io::Errno;

use super::attributes::{attributes, kind};
use super::eyes::Eyes;
use super::fail::Fail;
use super::handles::{Entry, Handles, Kept};
use super::identity::{self, Body, Hints, Identity};
use super::search::{Indexes, Search, joined};
use crate::front::site::Site;
use crate::store::attributes::{FileSystemId, file_system, known, known_version, version};
use crate::store::closing::{self, Descriptor};
use crate::store::door::{Miss, Wait};
use crate::store::file::File;
use crate::store::root::{READ, real_path};
use crate::store::served::Presence;

/// How long a file is used after it was found by its path. Longer: one that was moved to a hidden name is served for so long.
/// Shorter: each call looks for it anew, which costs some 3 us.
const FRESH: Duration = Duration::from_secs(1);
/// Retries of a file that is renamed while it is looked for. More: it is searched by its hints.
const RACES_MAX: u32 = 3;
/// File systems whose numbers are remembered. More: all are forgotten, and asked again.
const FILE_SYSTEMS_MAX: usize = 256;

/// A file that was found.
#[derive(Clone, Debug)]
pub struct Node {
    /// Which one it is.
    pub identity: Identity,
    /// Below the served directory, empty for that itself.
    pub path: Arc<[u8]>,
    /// Open as a place.
    pub place: Arc<Descriptor>,
    /// What the kernel tells of it.
    pub told: Statx,
    /// The body of its handle.
    body: Body,
    /// Open for reading, if it is.
    file: Option<(Arc<File>, Version)>,
}

impl Node {
    /// Its attributes.
    pub fn attributes(&self) -> Attributes {
        attributes(&self.told, self.identity.file_system)
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        kind(&self.told)
    }

    /// Its attributes now.
    pub fn now(&self) -> Option<Attributes> {
        let told = known(&*self.place).ok()?;
        Some(attributes(&told, self.identity.file_system))
    }

    /// The same for the broker.
    pub fn known(&self) -> Known {
        Known {
            path: self.path.to_vec(),
            device: self.place.st_dev(),
            inode: self.told.stx_ino,
        }
    }

    /// Its handle in an export.
    pub fn seal(&self, key: &Key, export: u32) -> Result<Sealed, Fail> {
        let file = handle::File {
            export,
            file_system: self.identity.file_system,
            body: self.body.as_bytes(),
        };
        handle::seal(key, &file).ok_or(Fail::Is(Status::ServerFault))
    }
}

/// A file at a path.
struct Found {
    identity: Identity,
    place: Arc<Descriptor>,
    told: Statx,
}

/// All files that are served.
pub struct Tree {
    /// What is served.
    pub site: Arc<Site>,
    handles: Handles,
    indexes: Indexes,
    /// How long a file is used after it was found by its path.
    pub fresh: Duration,
    /// File systems by what the kernel tells of their mounts now.
    file_systems: RwLock<HashMap<FileSystemId, u64>>,
}

impl Tree {
    /// The files of a site, of which so many are kept open.
    pub fn new(site: Arc<Site>, open_max: usize) -> Tree {
        Tree {
            site,
            handles: Handles::new(open_max),
            indexes: Indexes::default(),
            fresh: FRESH,
            file_systems: RwLock::default(),
        }
    }

    /// Closes what nobody needs ([`Handles::sweep`]). A file system that is mounted below the served directory can be unmounted
    /// when none of its files is in use.
    pub fn sweep(&self) {
        let is_here = self.site.root.presence() == Presence::Here;
        let own = known(self.top()).map(|told| file_system(&told)).ok();
        self.handles.sweep(|open| {
            let is_of_root = Some(open.place.file_system()) == own;
            is_here && (is_of_root || !open.is_idle())
        });
    }

    /// The file of an opened handle.
    pub fn find<'e>(
        &self,
        file: &handle::File<'_>,
        eyes: impl Into<Eyes<'e>>,
    ) -> Result<Node, Fail> {
        let eyes = eyes.into();
        let read = identity::read(file.file_system, file.body);
        let (identity, hints) = read.ok_or(Fail::Is(Status::Stale))?;
        let entry = self.handles.get(&identity, eyes.wait).ok_or(Fail::Cold)?;
        match entry
            .as_ref()
            .and_then(|entry| self.fresh(&identity, entry))
        {
            Some(node) => Ok(node),
            None => self.find_anew(&identity, hints, entry.as_ref(), eyes),
        }
    }

    /// A file that is not where it was found. Waits for the disk.
    pub fn find_again(&self, node: &Node, eyes: Eyes<'_>) -> Result<Node, Fail> {
        let read = identity::read(node.identity.file_system, node.body.as_bytes());
        let (file, hints) = read.ok_or(Fail::Is(Status::Stale))?;
        let entry = self.handles.get(&file, Wait::Yes).flatten();
        self.find_anew(&file, hints, entry.as_ref(), eyes)
    }

    /// The file, if it was found by its path a moment ago and has a name still.
    fn fresh(&self, identity: &Identity, entry: &Entry) -> Option<Node> {
        let open = entry.open.as_ref()?;
        if Instant::now().duration_since(open.found_at) >= self.fresh {
            return None;
        }
        let told = known(&*open.place).ok().filter(|told| told.stx_nlink > 0)?;
        Some(Node {
            identity: *identity,
            path: Arc::clone(&entry.path),
            place: Arc::clone(&open.place),
            told,
            body: entry.body,
            file: open.file.clone(),
        })
    }

    fn find_anew(
        &self,
        file: &Identity,
        hints: Hints<'_>,
        entry: Option<&Entry>,
        eyes: Eyes<'_>,
    ) -> Result<Node, Fail> {
        self.presence()?;
        if let Some(entry) = entry {
            if let Some(node) = self.is_at(file, &entry.path, eyes)? {
                return Ok(node);
            }
            if eyes.wait == Wait::No {
                return Err(Fail::Cold);
            }
            if let Some(node) = self.moved(file, entry, eyes)? {
                return Ok(node);
            }
            self.handles.close(file, eyes.wait);
        }
        self.search(file, hints, eyes)
    }

    /// The file of a name in a folder, which is neither `.` nor `..`; `is_kept`: it stays open.
    pub fn below<'e>(
        &self,
        folder: &Node,
        name: &[u8],
        is_kept: bool,
        eyes: impl Into<Eyes<'e>>,
    ) -> Result<Node, Fail> {
        let eyes = eyes.into();
        // Not by the folder's path, where another folder may be since it was found.
        let path = joined(&folder.path, name);
        let found = self.at((&folder.place, name), &path, eyes)?;
        self.enter(found, &path, is_kept, eyes.wait)
    }

    /// The file at a path below the served directory.
    pub fn by_path<'e>(&self, path: &[u8], eyes: impl Into<Eyes<'e>>) -> Result<Node, Fail> {
        let eyes = eyes.into();
        self.presence()?;
        let found = self.at((self.top(), path), path, eyes)?;
        self.enter(found, path, true, eyes.wait)
    }

    /// Whether there is a folder at a path that begins with a slash. Waits for the disk.
    pub fn has_folder(&self, path: &[u8]) -> bool {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let found = self.by_path(path, Wait::Yes);
        found.is_ok_and(|node| node.kind() == Kind::Folder)
    }

    /// The file, open for reading.
    pub fn open<'e>(&self, node: &Node, eyes: impl Into<Eyes<'e>>) -> Result<Arc<File>, Fail> {
        let eyes = eyes.into();
        let now = known_version(&node.told);
        let kept = node.file.as_ref().filter(|(_, then)| *then == now);
        if let Some((file, _)) = kept {
            return Ok(Arc::clone(file));
        }
        let jukebox = Err(Fail::Is(Status::Jukebox));
        match self.open_by_name(node, eyes)? {
            Some(file) => Ok(file),
            None if eyes.wait == Wait::No => Err(Fail::Cold),
            // Renamed since it was found by its path.
            None => {
                let body = identity::read(node.identity.file_system, node.body.as_bytes());
                let (file, hints) = body.ok_or(Fail::Is(Status::Stale))?;
                let entry = self.handles.get(&file, eyes.wait).flatten();
                let node = self.find_anew(&file, hints, entry.as_ref(), eyes)?;
                self.open_by_name(&node, eyes)?.map_or(jukebox, Ok)
            }
        }
    }

    /// The file, open for reading; `None`: another one has its name now.
    fn open_by_name(&self, node: &Node, eyes: Eyes<'_>) -> Result<Option<Arc<File>>, Fail> {
        let (site, path, wait) = (&self.site, &node.path, eyes.wait);
        let door = site.root.door();
        let name = match door.name(self.top(), path) {
            Err(Miss::Hidden) => return Ok(None),
            name => name?,
        };
        if closing::is_full(node.place.st_dev()) {
            return Err(Fail::Is(Status::Jukebox));
        }
        let opened = door.open_quietly(node.told.stx_uid, |quiet| name.open(READ | quiet, wait));
        let opened = opened.or_else(|error| match error {
            Errno::ACCESS => eyes.read(error, node.known()),
            error => Err(missed(error, wait)),
        });
        let fd = match opened {
            Ok(fd) => Descriptor::of(fd).map_err(Miss::Failed)?,
            Err(Miss::NotFound | Miss::Astray(_)) => return Ok(None),
            Err(miss) => return Err(miss.into()),
        };
        let stat = rustix::fs::fstat(&fd).map_err(Miss::Failed)?;
        if (stat.st_ino, fd.st_dev()) != (node.told.stx_ino, node.place.st_dev()) {
            return Ok(None);
        }
        let file = match wait {
            Wait::No => site.files.try_intern(fd, &stat, path, &site.devices),
            Wait::Yes | Wait::Long => Some(site.files.intern(fd, &stat, path, &site.devices)),
        };
        let file = file.ok_or(Fail::Cold)?;
        self.handles
            .keep(&node.identity, &file, version(&stat), wait);
        Ok(Some(file))
    }

    /// A folder, open for reading. Waits for the disk.
    pub fn open_folder(&self, node: &Node, eyes: Eyes<'_>) -> Result<OwnedFd, Fail> {
        let flags = READ | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let door = self.site.root.door();
        let opened = door.open_quietly(node.told.stx_uid, |quiet| {
            openat(&*node.place, c".", flags | quiet, Mode::empty())
        });
        opened.or_else(|error| match error {
            Errno::NOENT => Err(Fail::Is(Status::Stale)), // it was removed
            Errno::ACCESS => Ok(eyes.read(error, node.known())?),
            error => Err(missed(error, Wait::Yes).into()),
        })
    }

    /// Whether clients see no such name.
    pub fn hides(&self, name: &[u8]) -> bool {
        self.site.root.hides(name)
    }

    fn top(&self) -> &OwnedFd {
        match self.site.root.served().next() {
            Some(top) => &top.dir,
            None => unreachable!("the root is the first of the served directories"),
        }
    }

    /// While the root's file system is away, clients try again.
    fn presence(&self) -> Result<(), Fail> {
        match self.site.root.presence() {
            Presence::Here => Ok(()),
            Presence::Away => Err(Fail::Is(Status::Jukebox)),
            Presence::Removed => Err(Fail::Is(Status::Stale)),
        }
    }

    /// What is at a name below a folder now; a symbolic link is itself. `path` is the same below the served directory.
    fn at(
        &self,
        (folder, name): (&OwnedFd, &[u8]),
        path: &[u8],
        eyes: Eyes<'_>,
    ) -> Result<Found, Miss> {
        let wait = eyes.wait;
        let name = self.site.root.door().name(folder, name)?;
        let place = name.open(OFlags::PATH | OFlags::NOFOLLOW, wait);
        let place = place.or_else(|error| eyes.look(error, path))?;
        let told = known(&place).map_err(Miss::Failed)?;
        let mount = file_system(&told);
        let place = Descriptor::new(place, mount);
        let file_system = self.file_system(&place, wait)?;
        let identity = Identity::of(&*place, file_system).map_err(Miss::Failed)?;
        Ok(Found {
            identity,
            place: Arc::new(place),
            told,
        })
    }

    /// The number of a file system that outlives restart (statfs(2)), if there is one. A file system that nobody has met is met
    /// by a thread that may wait; only those whose files are here answer one that may not.
    fn file_system(&self, place: &Descriptor, wait: Wait) -> Result<u64, Miss> {
        let mount = place.file_system();
        if wait == Wait::No && !self.site.devices.is_here(mount) {
            return Err(Miss::Cold);
        }
        let known = match self.file_systems.try_read() {
            Ok(known) => known.get(&mount).copied(),
            Err(TryLockError::Poisoned(known)) => known.into_inner().get(&mount).copied(),
            Err(TryLockError::WouldBlock) => None,
        };
        match known {
            Some(number) => return Ok(number),
            None if wait == Wait::No => return Err(Miss::Cold),
            None => {}
        }
        self.site.devices.of(&**place, mount);
        let told = rustix::fs::fstatvfs(place).map_err(Miss::Failed)?;
        let number = match told.f_fsid {
            0 => place.st_dev(),
            number => number,
        };
        let known = self.file_systems.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if known.len() >= FILE_SYSTEMS_MAX {
            known.clear();
        }
        known.insert(mount, number);
        Ok(number)
    }

    fn enter(&self, found: Found, path: &[u8], is_kept: bool, wait: Wait) -> Result<Node, Fail> {
        let Found {
            identity,
            place,
            told,
        } = found;
        let kept = is_kept.then_some(&place);
        let known = self.handles.found(&identity, path, kept, wait);
        let Kept {
            body,
            place: before,
            file,
        } = known.ok_or(Fail::Cold)?;
        let place = match before.filter(|before| is_kept && !Arc::ptr_eq(before, &place)) {
            Some(before) => {
                close_here(place); // the other one holds the same file
                before
            }
            None => place,
        };
        Ok(Node {
            identity,
            path: path.into(),
            place,
            told,
            body,
            file,
        })
    }

    /// The file, if it is at this path.
    fn is_at(&self, file: &Identity, path: &[u8], eyes: Eyes<'_>) -> Result<Option<Node>, Fail> {
        match self.at((self.top(), path), path, eyes) {
            Ok(found) if found.identity == *file => {
                self.enter(found, path, true, eyes.wait).map(Some)
            }
            Ok(_) | Err(Miss::NotFound | Miss::Hidden | Miss::Astray(_)) => Ok(None),
            Err(miss) => Err(miss.into()),
        }
    }

    /// The file at the path that its descriptor has now.
    fn moved(&self, file: &Identity, entry: &Entry, eyes: Eyes<'_>) -> Result<Option<Node>, Fail> {
        let Some(open) = &entry.open else {
            return Ok(None);
        };
        for _ in 0..RACES_MAX {
            let (Ok(top), Ok(real)) = (real_path(self.top()), real_path(&*open.place)) else {
                return Ok(None);
            };
            let Ok(inside) = real.strip_prefix(top) else {
                return Ok(None);
            };
            let node = self.is_at(file, inside.as_os_str().as_bytes(), eyes)?;
            if node.is_some() {
                return Ok(node);
            }
        }
        Ok(None)
    }

    /// The file by the hints of its handle.
    fn search(&self, file: &Identity, hints: Hints<'_>, eyes: Eyes<'_>) -> Result<Node, Fail> {
        if eyes.wait == Wait::No {
            return Err(Fail::Cold);
        }
        let mut search = Search::new(&self.site.root, &self.indexes, hints, eyes);
        while let Some(path) = search.next()? {
            if let Some(node) = self.is_at(file, &path, eyes)? {
                return Ok(node);
            }
        }
        Err(Fail::Is(Status::Stale))
    }
}

/// Closes a descriptor here and now, unless others have it.
pub fn close_here(place: Arc<Descriptor>) {
    if let Some(place) = Arc::into_inner(place) {
        place.close_here();
    }
}

/// The meaning of an error of open(2) for a file that was there a moment ago.
fn missed(error: Errno, wait: Wait) -> Miss {
    match error {
        Errno::AGAIN if wait != Wait::No => Miss::Leased,
        error => Miss::of(error, wait),
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
