//! The file of a slab: where it comes from, its mapping, and the memory of its segments.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr::{self, NonNull};

use ackpace_core::payload::{Row, SEGMENT_BYTES};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, fallocate, fstat, fstatvfs, ftruncate, memfd_create,
    open,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::SlabError;
use super::private::{nameless, private_file};
use crate::store::magic::Magic;

/// Signals that may interrupt one call. More: it failed.
const INTERRUPTED_MAX: u32 = 100;

/// The file and its mapping.
#[derive(Debug)]
pub struct Memory {
    pub file: OwnedFd,
    /// At a multiple of a segment, so that huge pages are mapped as such.
    base: NonNull<u8>,
    segments: u32,
}

// SAFETY: the mapping belongs to this and is as long-lived; who may reach which of its bytes is up to leases and pins.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Gives the file the length of so many segments, and maps it. It has no memory yet.
    pub fn new(file: OwnedFd, segments: u32) -> io::Result<Memory> {
        ftruncate(&file, u64::from(segments) * SEGMENT_BYTES)?;
        let base = map(&file, segments)?;
        Ok(Memory {
            file,
            base,
            segments,
        })
    }

    /// Gives a segment memory, so that writing to it can't fail. No room: the segment has none.
    pub fn allocate(&self, segment: u32) -> io::Result<()> {
        self.fallocate(segment, FallocateFlags::empty())
    }

    /// Takes the memory of a segment out of the file. Packets may go on referring to it.
    pub fn punch(&self, segment: u32) -> io::Result<()> {
        self.fallocate(
            segment,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        )
    }

    fn fallocate(&self, segment: u32, how: FallocateFlags) -> io::Result<()> {
        let offset_bytes = u64::from(segment) * SEGMENT_BYTES;
        for _ in 0..INTERRUPTED_MAX {
            match fallocate(&self.file, how, offset_bytes, SEGMENT_BYTES) {
                Err(rustix::io::Errno::INTR) => {}
                done => return done.map_err(io::Error::from),
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Where a row begins in the mapping.
    pub fn at(&self, row: Row) -> *mut u8 {
        let is_inside =
            row.segment < self.segments && row.at_bytes + row.len_bytes <= SEGMENT_BYTES;
        assert!(is_inside, "{row:?} of {self:?}");
        let offset_bytes = u64::from(row.segment) * SEGMENT_BYTES + row.at_bytes;
        // SAFETY: the row lies inside the mapping, as was just checked.
        unsafe { self.base.as_ptr().add(offset_bytes as usize) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let len_bytes = self.segments as usize * SEGMENT_BYTES as usize;
        // SAFETY: this is the mapping that `new` made; leases and pins hold the slab, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), len_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Maps the file at a multiple of a segment: room for one more segment is reserved first and given back around it.
fn map(file: &OwnedFd, segments: u32) -> io::Result<NonNull<u8>> {
    let segment_bytes = SEGMENT_BYTES as usize;
    let len_bytes = (segments as usize).checked_mul(segment_bytes);
    let long_bytes = len_bytes.and_then(|len| len.checked_add(segment_bytes));
    let (Some(len_bytes), Some(long_bytes)) = (len_bytes, long_bytes) else {
        return Err(io::ErrorKind::OutOfMemory.into());
    };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let how = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at a place that the kernel chooses; nobody else knows of it, and all that is done to it here lies
    // inside: `front_bytes` is less than a segment.
    unsafe {
        let start = mmap_anonymous(ptr::null_mut(), long_bytes, ProtFlags::empty(), how)?;
        let front_bytes = start.cast::<u8>().align_offset(segment_bytes);
        let base = start.byte_add(front_bytes);
        let mapped = mmap(
            base,
            len_bytes,
            access,
            MapFlags::SHARED | MapFlags::FIXED,
            file,
            0,
        );
        if mapped.is_err() {
            munmap(start, long_bytes)?;
        }
        let base = mapped?;
        if front_bytes > 0 {
            munmap(start, front_bytes)?;
        }
        munmap(base.byte_add(len_bytes), segment_bytes - front_bytes)?;
        NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory.into())
    }
}

/// A file for so many bytes, which nobody else has, and what is lost if its pages are small.
pub fn file(dir: Option<&Path>, bytes: u64) -> Result<(OwnedFd, Option<String>), SlabError> {
    let memory = |error| SlabError::Memory { bytes, error };
    if let Some(dir) = dir {
        let file = file_in(dir, bytes)?;
        let why = || format!("the tmpfs of {} has none", dir.display());
        let is_huge = is_huge(&file).map_err(memory)?;
        let cure = || format!("mount -o remount,huge=always {}", dir.display());
        let lost = (!is_huge).then(|| lost(&why(), &cure()));
        return Ok((file, lost));
    }
    let why = match private_file(bytes) {
        Ok(file) if is_huge(&file).map_err(memory)? => return Ok((file, None)),
        Ok(_) => "this kernel gives a tmpfs none".to_owned(),
        Err(refused) => refused.to_string(),
    };
    let file = memfd_create("ackpace-slab", MemfdFlags::CLOEXEC);
    let file = file.map_err(|error| memory(error.into()))?;
    let is_huge = is_huge(&file).map_err(memory)?;
    let cure = format!("mount -t tmpfs -o huge=always,size={bytes} tmpfs DIR, and --slab-dir DIR");
    Ok((file, (!is_huge).then(|| lost(&why, &cure))))
}

fn lost(why: &str, cure: &str) -> String {
    format!(
        "lost: huge pages for payload of origins: {why}. Until then it is copied when it is sent; {cure}"
    )
}

/// A nameless file of this tmpfs.
fn file_in(dir: &Path, bytes: u64) -> Result<OwnedFd, SlabError> {
    let folder = |error: rustix::io::Errno| SlabError::Folder {
        dir: dir.to_owned(),
        error: error.into(),
    };
    let opened = open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(folder)?;
    if Magic::of(&opened) != Some(Magic::TMPFS) {
        let dir = dir.to_owned();
        return Err(SlabError::NoTmpfs { dir, bytes });
    }
    let told = fstatvfs(&opened).map_err(folder)?;
    let free_bytes = told.f_bavail.saturating_mul(told.f_frsize);
    // A tmpfs without a limit says that it has no blocks.
    if told.f_blocks > 0 && free_bytes < bytes {
        let dir = dir.to_owned();
        return Err(SlabError::NoRoom {
            dir,
            free_bytes,
            bytes,
        });
    }
    nameless(opened).map_err(folder)
}

/// Whether the memory of a tmpfs file comes in huge pages, as its preferred size for I/O tells.
pub fn is_huge(file: &OwnedFd) -> io::Result<bool> {
    Ok(fstat(file)?.st_blksize as u64 == SEGMENT_BYTES)
}
