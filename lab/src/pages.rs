//! The page cache of single files: fill, empty, and look.

use crate::error::{Doing, LabError, Result};
use rustix::fs::{Advice, fadvise};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads the whole file, and fails unless all of it is in memory afterwards.
pub fn warm(path: &Path) -> Result<()> {
    let what = || path.display().to_string();
    let mut file = File::open(path).doing(what)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer).doing(what)? > 0 {}
    let len_bytes = file.metadata().doing(what)?.len();
    let resident_bytes = resident_bytes(path)?;
    if resident_bytes < len_bytes {
        let path = path.display();
        return Err(LabError::Setup(format!(
            "{path}: only {resident_bytes} of {len_bytes} bytes stay in memory; free some"
        )));
    }
    Ok(())
}

/// Drops the file from memory, and fails if any of it stays.
pub fn drop_cached(path: &Path) -> Result<()> {
    let what = || path.display().to_string();
    let file = File::open(path).doing(what)?;
    file.sync_all().doing(what)?; // dirty pages would stay
    fadvise(&file, 0, None, Advice::DontNeed).doing(what)?;
    match resident_bytes(path)? {
        0 => Ok(()),
        left => Err(LabError::Setup(format!(
            "{}: {left} bytes stay in memory although they were dropped; who reads it?",
            path.display()
        ))),
    }
}

/// Bytes of the file in memory, in whole pages but never more than its length (mincore(2)).
pub fn resident_bytes(path: &Path) -> Result<u64> {
    let what = || path.display().to_string();
    let file = File::open(path).doing(what)?;
    let len_bytes = file.metadata().doing(what)?.len();
    if len_bytes == 0 {
        return Ok(0);
    }
    let (len, page) = (len_bytes as usize, rustix::param::page_size());
    let mut pages = vec![0u8; len.div_ceil(page)];
    // SAFETY: a fresh mapping at a place of the kernel's choice; it is never dereferenced.
    let map = unsafe {
        mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            &file,
            0,
        )
        .doing(what)?
    };
    // SAFETY: the range is the mapping above, the vector has a byte for each of its pages.
    let result = unsafe { libc::mincore(map, len, pages.as_mut_ptr()) };
    let error = std::io::Error::last_os_error();
    // SAFETY: nothing refers to the mapping.
    unsafe { munmap(map, len).doing(what)? };
    if result != 0 {
        return Err(error).doing(what);
    }
    let resident = pages.iter().filter(|state| **state & 1 != 0).count() as u64;
    Ok((resident * page as u64).min(len_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_just_written_is_resident_as_a_whole() {
        let path = std::env::temp_dir().join(format!("ackpace-lab-pages-{}", std::process::id()));
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let resident = resident_bytes(&path);
        warm(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(resident.unwrap(), 10_000);
    }
}
