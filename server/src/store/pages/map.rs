//! Bytes of a file as addresses that nobody touches, and the kernel's answer about each of their pages.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use ackpace_core::conn::Span;
use ackpace_core::limits::SEND_BYTES_MAX;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Pages that mincore(2) is asked about in one call: all of a long send, since a call costs as much as some hundred pages.
const PAGES_AT_ONCE: usize = SEND_BYTES_MAX as usize / 4096 + 1;

/// Bytes of a file as addresses.
#[derive(Debug)]
pub struct Map {
    base: NonNull<c_void>,
    pub len_bytes: usize,
}

// SAFETY: the addresses are never read or written; they only name pages to the kernel, which any thread may ask.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Bytes of the file from `offset_bytes`, which begin a page. Takes address space, and no memory.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn new(file: &impl AsFd, offset_bytes: u64, len_bytes: u64) -> Result<Map, Errno> {
        let len_bytes = usize::try_from(len_bytes).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: a new mapping at a place of the kernel's choice, which nobody reads: truncation can't hurt.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                offset_bytes,
            )
        }?;
        Ok(Map {
            base: NonNull::new(base).ok_or(Errno::INVAL)?,
            len_bytes,
        })
    }

    /// The address of the byte there; `None`: behind the mapping.
    pub fn address(&self, offset_bytes: u64) -> Option<*mut c_void> {
        let at = usize::try_from(offset_bytes).ok()?;
        // SAFETY: it is checked that the place lies inside the mapping.
        (at < self.len_bytes).then(|| unsafe { self.base.as_ptr().cast::<u8>().add(at).cast() })
    }

    /// How many bytes of the span, from its start, are in memory and hold what they should; `None` where the kernel does not say.
    pub fn resident_bytes(&self, span: Span) -> Option<u64> {
        let page_bytes = rustix::param::page_size() as u64;
        let first = span.offset_bytes / page_bytes;
        let end_bytes = span.end_bytes().min(self.len_bytes as u64);
        let pages = end_bytes.div_ceil(page_bytes).checked_sub(first)?;
        let mut counted = 0;
        while counted < pages {
            let mut present = [0u8; PAGES_AT_ONCE];
            let count = (pages - counted).min(PAGES_AT_ONCE as u64);
            let len_bytes = (count * page_bytes) as usize;
            let from = self.address((first + counted) * page_bytes)?;
            // SAFETY: the pages lie inside the mapping, and the kernel writes one byte for each into the array.
            if unsafe { libc::mincore(from, len_bytes, present.as_mut_ptr()) } != 0 {
                return None;
            }
            let here = present[..count as usize].iter();
            let here = here.take_while(|present| *present & 1 == 1).count() as u64;
            counted += here;
            if here < count {
                break;
            }
        }
        let until_bytes = ((first + counted) * page_bytes).min(end_bytes);
        Some(until_bytes.saturating_sub(span.offset_bytes))
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `Map::new` made, and it is gone with its owner.
        let _ = unsafe { munmap(self.base.as_ptr(), self.len_bytes) };
    }
}
