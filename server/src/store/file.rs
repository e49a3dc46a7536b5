//! An open file: whether its bytes are still those that were promised, and which of them are in memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};

use ackpace_core::conn::{Change, ObjectId, Promise, ResidencySource, Span, Version};
use ackpace_core::residency::has_waited_long;
use ackpace_core::residency::{PageWait, Way};
use ackpace_core::units::Instant;
use rustix::fs::{CWD, readlinkat};
use rustix::io::{ReadWriteFlags, preadv2};

use super::attributes::{known, known_version};
use super::closing::Descriptor;
use super::direct::{Direct, Why, open_direct};
use super::latency::DeviceLatency;
use super::place::Place;
use super::residency;
use crate::limits::UNSETTLED_US;

/// A path that can be opened (PATH_MAX). The kernel refuses longer ones.
const PATH_BYTES_MAX: usize = 4096;

/// An open file, and what is known of it.
#[derive(Debug)]
pub struct File {
    pub fd: Arc<Descriptor>,
    pub id: ObjectId,
    /// How its residency can be known.
    pub residency: ResidencySource,
    /// Its path when it was found, relative to the root: for the log.
    pub path: Box<[u8]>,
    /// How long its device takes for a read; `None`: its file system asks a daemon or a file server.
    latency: Option<Arc<DeviceLatency>>,
    direct: OnceLock<Result<Arc<Direct>, Why>>,
    /// The hash of its name when it was first sent from; `None` inside where /proc is not mounted.
    name: OnceLock<Option<NameHash>>,
    /// Its version and name when its inode was last seen changed.
    known: Mutex<Option<Known>>,
    /// Where it lies on the unit, if it is on one.
    pub place: Place,
}

/// Whether a file is still the version that a response promises, so that its bytes may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionCheck {
    Same,
    /// The file is being written in this moment, or another worker is checking it: to be asked again.
    NotYet,
    Changed,
}

#[derive(Debug)]
struct Known {
    version: Version,
    name: NameHash,
    /// The length at which the file had a new time, and when that was first seen.
    unsettled: Option<(u64, Instant)>,
}

impl Known {
    /// Only the inode changed. A file that was moved or replaced has another name; with the same name, its time was set
    /// back.
    fn renamed(&mut self, version: Version, name: Option<NameHash>) -> VersionCheck {
        match name {
            Some(name) if name != self.name => {
                (self.version, self.name) = (version, name);
                VersionCheck::Same
            }
            _ => VersionCheck::Changed,
        }
    }

    /// The file has a new time and its old length: it is about to grow, or it was changed in place.
    fn unsettled(&mut self, len_bytes: u64, now: Instant) -> VersionCheck {
        let before = self.unsettled.filter(|(known, _)| *known == len_bytes);
        let (_, since) = *self.unsettled.insert(before.unwrap_or((len_bytes, now)));
        match now.since_us(since) < UNSETTLED_US {
            true => VersionCheck::NotYet,
            false => VersionCheck::Changed,
        }
    }
}

/// A hash of a path, enough to tell names apart.
type NameHash = u64;

/// The name of an open file in the kernel's tree of names, which a rename changes at once (proc(5), /proc/self/fd).
fn name_of(fd: &OwnedFd) -> Option<NameHash> {
    let mut link = [0u8; "/proc/self/fd/".len() + 10];
    let mut rest = &mut link[..];
    write!(rest, "/proc/self/fd/{}", fd.as_raw_fd()).ok()?;
    let len = link.iter().position(|&byte| byte == 0)?;
    let name = readlinkat(CWD, &link[..len], Vec::new()).ok()?;
    let mut hasher = DefaultHasher::new();
    name.as_bytes().hash(&mut hasher);
    Some(hasher.finish())
}

/// Memory of an open file at worst: itself, its two descriptors and its path.
pub const FILE_BYTES: u64 = (shared_bytes(size_of::<File>())
    + shared_bytes(size_of::<Descriptor>())
    + shared_bytes(size_of::<Direct>())
    + block_bytes(PATH_BYTES_MAX)) as u64;

/// Memory of a value in an [`Arc`], with its two counts.
const fn shared_bytes(value_bytes: usize) -> usize {
    block_bytes(value_bytes + 2 * size_of::<usize>())
}

/// Memory of a block, with what the allocator notes of it (glibc: its size).
const fn block_bytes(len_bytes: usize) -> usize {
    len_bytes + size_of::<usize>()
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl File {
    /// An open file: its descriptor, id, source of residency, path, and the latency of its device.
    pub fn new(
        fd: Descriptor,
        id: ObjectId,
        residency: ResidencySource,
        path: &[u8],
        latency: Option<Arc<DeviceLatency>>,
    ) -> File {
        File {
            fd: Arc::new(fd),
            id,
            residency,
            path: path.into(),
            latency,
            direct: OnceLock::new(),
            name: OnceLock::new(),
            known: Mutex::new(None),
            place: Place::default(),
        }
    }

    /// Its descriptor for reads past the page cache, if it was opened before.
    pub fn direct(&self) -> Option<&Arc<Direct>> {
        self.direct.get()?.as_ref().ok()
    }

    /// Its descriptor for reads past the page cache, opened now if need be. May wait for the disk.
    pub fn open_direct(&self) -> Result<Arc<Direct>, Why> {
        if let Some(known) = self.direct.get() {
            return known.clone();
        }
        let opened = open_direct(&self.fd).map(Arc::new);
        if matches!(opened, Err(Why::Open(_))) {
            return opened; // descriptors may be short for the moment
        }
        self.direct.get_or_init(|| opened).clone()
    }

    /// The version of the file as the kernel knows it ([`known`]). fstat(2) costs half as much, but asks the daemon of a FUSE file
    /// system, also below an overlay.
    pub fn version(&self) -> rustix::io::Result<Version> {
        known(&self.fd).map(|stat| known_version(&stat))
    }

    /// Whether the file is still the `promised` version, so that its bytes may be sent in this turn ([`Version::change`]). Neither
    /// waits nor locks: where it can't say, the caller asks again later.
    pub fn check_version(
        &self,
        promised: &Version,
        promise: Promise,
        now: Instant,
    ) -> VersionCheck {
        let Ok(version) = self.version() else {
            return VersionCheck::Changed;
        };
        let name = first_of(&self.name, || name_of(&self.fd));
        if version == *promised {
            return VersionCheck::Same;
        }
        let Some(name) = name.copied().flatten() else {
            return VersionCheck::Changed; // without /proc a rename looks like a time that was set back
        };
        let Ok(mut known) = self.known.try_lock() else {
            return VersionCheck::NotYet; // another worker is checking it
        };
        let known = known.get_or_insert_with(|| Known {
            version: *promised,
            name,
            unsettled: None,
        });
        match known.version.change(&version, promise) {
            Change::None if version.mtime_ns != promised.mtime_ns => VersionCheck::Same, // of a prefix
            Change::None => {
                known.version = version;
                VersionCheck::Same
            }
            Change::Inode => known.renamed(version, name_of(&self.fd)),
            Change::Content => VersionCheck::Changed,
            Change::Unsettled => known.unsettled(version.len_bytes, now),
        }
    }

    /// How long its device takes for a read; `None` if it asks a daemon or a file server.
    pub fn latency(&self) -> Option<&Arc<DeviceLatency>> {
        self.latency.as_ref()
    }

    /// A send of so many of its bytes took so long. If that was long its device is slower than it seemed.
    pub fn has_waited(&self, len_bytes: u64, took_us: u64) {
        if let Some(latency) = self.latency.as_ref().filter(|_| has_waited_long(took_us)) {
            latency.has_read(len_bytes, took_us, Way::Through);
        }
    }

    /// What it costs to wait for a page of it: a daemon or a file server may take any time.
    pub fn wait(&self) -> PageWait {
        self.latency.as_ref().map_or(PageWait::Long, |of| of.wait())
    }

    /// Whether the span is in the page cache. Where the kernel does not say, its first byte stands for all: so only of a span that
    /// was there before.
    pub fn is_resident(&self, span: Span) -> bool {
        match self.residency {
            ResidencySource::Always => true,
            ResidencySource::Ask => residency::is_cached(&self.fd, span),
            ResidencySource::Remember => self.read_cached(span.offset_bytes, &mut [0]) == Ok(1),
        }
    }

    /// Copies bytes of the page cache, as many as are there. Never waits for a disk, but may start to read what is
    /// missing.
    /// Errors: As preadv2(2): EAGAIN if the first one is missing, EOPNOTSUPP where the file system can't promise that.
    pub fn read_cached(&self, offset_bytes: u64, into: &mut [u8]) -> rustix::io::Result<usize> {
        let mut into = [IoSliceMut::new(into)];
        preadv2(&self.fd, &mut into, offset_bytes, ReadWriteFlags::NOWAIT)
    }

    /// All bytes of this version of the file, if it is still that and they are in memory. Never waits for a disk.
    pub fn resident(&self, version: &Version) -> Option<Vec<u8>> {
        let len_bytes = usize::try_from(version.len_bytes).ok()?;
        let mut bytes = vec![0; len_bytes];
        let mut at = 0;
        while at < len_bytes {
            match self.read_cached(at as u64, &mut bytes[at..]) {
                Ok(0) | Err(_) => return None,
                Ok(read) => at += read,
            }
        }
        (self.version().ok()? == *version).then_some(bytes)
    }
}

/// What the cell holds, made now if need be. Several threads may make it, and the first one's is kept: `get_or_init` would
/// have the others wait for the first one's system calls.
fn first_of<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> Option<&T> {
    if cell.get().is_none() {
        let _ = cell.set(make());
    }
    cell.get()
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
