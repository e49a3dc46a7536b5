//! The page cache of single files: load and pin, drop, and inspect.

use crate::error::{Doing, LabError, Result};
use rustix::fs::{Advice, fadvise};
use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for reads in flight to end.
const DROP_MAX: Duration = Duration::from_secs(10);

/// Keeps a whole file in memory while it exists: mapped and locked. Some machines page out memory that was idle
/// for seconds (DAMON), which would turn a cached round into a cold one.
pub struct Pinned(#[expect(dead_code, reason = "it is held, not read")] Mapped);

impl Pinned {
    /// Reads the file into memory, locks it there (mlock(2)) and checks that all of it is resident.
    ///
    /// # Errors
    /// The file can't be opened, mapped or locked, or does not stay in memory as a whole.
    pub fn new(path: &Path) -> Result<Self> {
        let mapped = Mapped::new(path)?;
        // SAFETY: the range is the mapping that we just made; unmapping unlocks.
        let locked = unsafe { mlock(mapped.map, mapped.len_bytes) };
        locked.doing(|| format!("{}: locking it in memory", path.display()))?;
        match resident_bytes(path)? {
            all if all == mapped.len_bytes as u64 => Ok(Self(mapped)),
            some => Err(LabError::Setup(format!(
                "{}: only {some} of {} bytes stay in memory; free some",
                path.display(),
                mapped.len_bytes
            ))),
        }
    }
}

/// Drops the file from memory. It first waits up to 10 s for reads that a server left in the device when it
/// ended.
///
/// # Errors
/// The file can't be opened or synced, or some of it is still in memory after 10 s.
pub fn drop_cached(path: &Path) -> Result<()> {
    let what = || path.display().to_string();
    let file = File::open(path).doing(what)?;
    file.sync_all().doing(what)?; // fadvise(2) keeps dirty pages
    let start = Instant::now();
    loop {
        fadvise(&file, 0, None, Advice::DontNeed).doing(what)?;
        let left_bytes = resident_bytes(path)?;
        if left_bytes == 0 {
            return Ok(());
        }
        if start.elapsed() > DROP_MAX {
            return Err(LabError::Setup(format!(
                "{}: {left_bytes} bytes stay in memory although they were dropped; who reads it?",
                path.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes of the file in memory: whole pages, but never more than its length (mincore(2)).
///
/// # Errors
/// The file can't be opened or mapped.
pub fn resident_bytes(path: &Path) -> Result<u64> {
    let what = || path.display().to_string();
    let len_bytes = path.metadata().doing(what)?.len();
    if len_bytes == 0 {
        return Ok(0); // an empty file can't be mapped
    }
    let pages = Mapped::new(path)?.pages().doing(what)?;
    let resident = pages.iter().filter(|state| **state & 1 != 0).count();
    Ok(((resident * rustix::param::page_size()) as u64).min(len_bytes))
}

/// Interval at which a [`Keeper`] touches each page: reclaim of idle memory acts on a scale of seconds.
const KEEP_EVERY: Duration = Duration::from_millis(200);

/// Touches pages of files through mappings while it exists, so that a machine that reclaims idle memory (DAMON,
/// a balloon) leaves them alone. Memory pressure within a cgroup counts only accesses by the cgroup's own
/// processes. A server in another group can therefore still displace these pages.
pub struct Keeper {
    ends: Arc<AtomicBool>,
    toucher: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Keeps those pages of these files that are in memory now; it loads nothing.
    ///
    /// # Errors
    /// A file can't be opened or mapped.
    pub fn of(paths: &[PathBuf]) -> Result<Keeper> {
        let mut files = Vec::new();
        for path in paths {
            files.push(Mapped::new(path)?);
        }
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let toucher = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                files.iter().for_each(Mapped::touch);
                std::thread::sleep(KEEP_EVERY);
            }
        });
        Ok(Keeper {
            ends,
            toucher: Some(toucher),
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(toucher) = self.toucher.take() {
            let _ = toucher.join();
        }
    }
}

/// A file mapped into our address space.
struct Mapped {
    map: *mut c_void,
    len_bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(path: &Path) -> Result<Mapped> {
        let what = || path.display().to_string();
        let file = File::open(path).doing(what)?;
        let len_bytes = file.metadata().doing(what)?.len() as usize;
        let map = map(&file, len_bytes).doing(what)?;
        Ok(Mapped { map, len_bytes })
    }

    /// One byte for each page; its lowest bit says whether the page is in memory (mincore(2)).
    fn pages(&self) -> std::io::Result<Vec<u8>> {
        let mut pages = vec![0u8; self.len_bytes.div_ceil(rustix::param::page_size())];
        // SAFETY: the range is the mapping, the vector has a byte for each of its pages.
        match unsafe { libc::mincore(self.map, self.len_bytes, pages.as_mut_ptr()) } {
            0 => Ok(pages),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Reads one byte of each resident page. Pages that are not resident stay out.
    fn touch(&self) {
        let (page, pages) = (rustix::param::page_size(), self.pages());
        let pages = pages.unwrap_or_default().into_iter().enumerate();
        for (nth, _) in pages.filter(|(_, state)| state & 1 != 0) {
            // SAFETY: the page is within the mapping, whose file is never truncated while the lab measures.
            unsafe { self.map.cast::<u8>().add(nth * page).read_volatile() };
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        let _ = unsafe { munmap(self.map, self.len_bytes) };
    }
}

fn map(file: &File, len: usize) -> rustix::io::Result<*mut c_void> {
    let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: a fresh mapping at a place of the kernel's choice; it is never dereferenced.
    unsafe { mmap(std::ptr::null_mut(), len, read, shared, file, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_just_written_is_resident_as_a_whole() {
        let path = std::env::temp_dir().join(format!("ackpace-lab-pages-{}", std::process::id()));
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let resident = resident_bytes(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(resident.unwrap(), 10_000);
    }

    #[test]
    fn inspecting_and_touching_bring_nothing_into_memory() {
        let path = std::env::temp_dir().join(format!("ackpace-lab-keeper-{}", std::process::id()));
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let mapped = Mapped::new(&path).unwrap();
        mapped.touch();
        assert_eq!(resident_bytes(&path).unwrap(), 1 << 20);
        drop(mapped);
        let dropped = drop_cached(&path);
        let resident = Mapped::new(&path).map(|mapped| {
            mapped.touch();
            resident_bytes(&path)
        });
        std::fs::remove_file(&path).unwrap();
        // On a file system in memory nothing can be dropped.
        if dropped.is_ok() {
            assert_eq!(resident.unwrap().unwrap(), 0);
        }
    }
}
