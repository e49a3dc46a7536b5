//! The table of files: one descriptor and one id for all streams that send the same file now.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;

use ackpace_core::conn::ObjectId;
use ackpace_core::limits::OBJECTS_REMEMBERED_MAX;
use rustix::fs::{Advice, Stat, fadvise};

use super::attributes::FileSystemId;
use super::closing::Descriptor;
use super::device::{Devices, Met};
use super::door::Wait;
use super::file::File;

/// Memory of what is known of a file, open or remembered.
pub const KNOWN_BYTES: u64 = (2 * size_of::<(Identity, (ObjectId, Weak<File>))>()
    + 2 * size_of::<Identity>()
    + size_of::<File>()) as u64;

/// Two opens with the same identity are the same file with the same content. Inode numbers are reused; the time of the
/// inode's last change tells the files apart. Numbers of file systems are reused, too, and images may have the same times;
/// their mounts tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    file_system: FileSystemId,
    st_ino: u64,
    changed_s: i64,
    changed_ns: u32,
}

/// All files of the process that are open or were lately. It names them. The ids of closed files are kept, so that what is known of their residency is found again.
///
/// It has many parts, each with a lock of its own, so that threads seldom want the same one. A lock is held to look up or to
/// enter a file, and never during a system call.
#[derive(Default)]
pub struct Files {
    parts: [Mutex<Part>; PARTS],
    named: AtomicU64,
}

/// Parts of the table: two of 16 busy workers seldom meet in one.
const PARTS: usize = 32;
const _: () = assert!(OBJECTS_REMEMBERED_MAX % PARTS == 0);

/// Files whose identities have the same hash.
#[derive(Default)]
struct Part {
    known: HashMap<Identity, (ObjectId, Weak<File>)>,
    by_age: VecDeque<Identity>,
}

impl Files {
    fn part(&self, key: &Identity) -> &Mutex<Part> {
        // Inode numbers are consecutive, or multiples of a power of two: the upper bits of the product depend on all.
        let mixed = (key.st_ino ^ key.file_system.st_dev.rotate_left(32))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.parts[(mixed >> 32) as usize % PARTS]
    }

    fn name(&self, device: u16) -> ObjectId {
        let named = self.named.fetch_add(1, Relaxed) + 1;
        ObjectId {
            device,
            index: named as u32,
            generation: (named >> 32) as u32,
        }
    }
}

/// The lock, which nobody holds during a system call; `None` if another thread has it and this one may not wait.
pub fn lock<T>(part: &Mutex<T>, wait: Wait) -> Option<MutexGuard<'_, T>> {
    match (wait, part.try_lock()) {
        (_, Ok(part)) => Some(part),
        (_, Err(TryLockError::Poisoned(part))) => Some(part.into_inner()),
        (Wait::No, Err(TryLockError::WouldBlock)) => None,
        (Wait::Yes | Wait::Long, Err(TryLockError::WouldBlock)) => {
            Some(part.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}

impl Files {
    /// The file of a descriptor that was just opened: the one that is open already, if there is one. May wait for other
    /// threads, and for the file server of a file system that nobody has met before.
    pub fn intern(&self, fd: Descriptor, stat: &Stat, path: &[u8], devices: &Devices) -> Arc<File> {
        let met = devices.of(&fd, fd.file_system());
        let file = self.file(fd, stat, path, met, Wait::Yes);
        file.unwrap_or_else(|| unreachable!("it waited"))
    }

    /// As [`Files::intern`], for a thread that must not wait. `None`: it would have to, since another thread is just looking
    /// up or entering a file nearby, or since nobody has met the file system.
    pub fn try_intern(
        &self,
        fd: Descriptor,
        stat: &Stat,
        path: &[u8],
        devices: &Devices,
    ) -> Option<Arc<File>> {
        let met = devices.known(fd.file_system())?;
        self.file(fd, stat, path, met, Wait::No)
    }

    fn file(
        &self,
        fd: Descriptor,
        stat: &Stat,
        path: &[u8],
        Met {
            device, is_here, ..
        }: Met<'_>,
        wait: Wait,
    ) -> Option<Arc<File>> {
        let key = Identity {
            file_system: fd.file_system(),
            st_ino: stat.st_ino,
            changed_s: stat.st_ctime,
            changed_ns: stat.st_ctime_nsec as u32, // less than a second
        };
        let part = self.part(&key);
        let name = || self.name(device.index);
        let id = match lock(part, wait)?.look_up(key, name) {
            Ok(open) => return Some(open),
            Err(id) => id,
        };
        // No lock is held here.
        // The kernel's own readahead would read without the disk machine's knowledge.
        let _ = fadvise(&fd, 0, None, Advice::Random);
        let residency = device.residency(&fd);
        let latency = is_here.then(|| Arc::clone(&device.latency));
        let file = Arc::new(File::new(fd, id, residency, path, latency));
        let faster = lock(part, wait)?.enter(key, &file);
        let file = faster.unwrap_or(file);
        measure(&file, stat);
        Some(file)
    }
}

/// Has a thread measure the latency of the file's device, if it is time to.
fn measure(file: &Arc<File>, stat: &Stat) {
    let len_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    let latency = file.latency().filter(|of| of.is_to_be_measured(len_bytes));
    if let Some(latency) = latency.map(Arc::clone) {
        let (of, file) = (Arc::clone(&latency), Arc::clone(file));
        let thread = thread::Builder::new().name("latency".to_owned());
        let started = thread.spawn(move || {
            // A file system that refuses such reads stays unknown.
            match file.open_direct() {
                Ok(direct) => of.measure(&direct, len_bytes),
                Err(why) if why.is_of_file_system() => {}
                Err(_) => of.is_not_measured(),
            }
        });
        if started.is_err() {
            latency.is_not_measured();
        }
    }
}

impl Part {
    /// The file, if it is open, and else its id.
    fn look_up(
        &mut self,
        key: Identity,
        name: impl FnOnce() -> ObjectId,
    ) -> Result<Arc<File>, ObjectId> {
        match self.known.get(&key) {
            Some((id, file)) => file.upgrade().ok_or(*id),
            None => {
                let id = name();
                self.put(key, id, Weak::new());
                Err(id)
            }
        }
    }

    /// Enters an open file. Returns the one that another thread has entered meanwhile, if it is open still.
    fn enter(&mut self, key: Identity, file: &Arc<File>) -> Option<Arc<File>> {
        let other = self.known.get(&key).and_then(|(_, other)| other.upgrade());
        if other.is_none() {
            self.put(key, file.id, Arc::downgrade(file));
        }
        other
    }

    fn put(&mut self, key: Identity, id: ObjectId, file: Weak<File>) {
        if self.known.insert(key, (id, file)).is_none() {
            self.by_age.push_back(key);
            self.forget_some();
        }
    }

    /// Checks two entries for each one added, so that the table shrinks again when files are closed.
    fn forget_some(&mut self) {
        for _ in 0..2 {
            if self.known.len() <= OBJECTS_REMEMBERED_MAX / PARTS {
                return;
            }
            let Some(key) = self.by_age.pop_front() else {
                return;
            };
            match self.known.get(&key) {
                Some((_, file)) if file.strong_count() > 0 => self.by_age.push_back(key),
                _ => drop(self.known.remove(&key)),
            }
        }
    }
}

#[cfg(test)]
impl Files {
    /// The file of a descriptor, by the path `name`.
    pub fn of(&self, fd: impl Into<std::os::fd::OwnedFd>, devices: &Devices) -> Arc<File> {
        let fd = fd.into();
        let stat = rustix::fs::fstat(&fd).expect("an open descriptor");
        let fd = Descriptor::of(fd).expect("an open file");
        self.intern(fd, &stat, b"name", devices)
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
