//! The counters of `ackpace-host gateway`, which tell when chunks of the unit were written ([`ackpace_core::blocks`]).

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use ackpace_core::blocks::{self, COUNTERS};
use ackpace_core::conn::Span;
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const LEN_BYTES: usize = COUNTERS * size_of::<u32>();

/// The counters, which the other program increments.
#[derive(Debug)]
pub struct Counters {
    base: NonNull<AtomicU32>,
}

// SAFETY: it is a mapping that is there as long as this, and all in it is atomic.
unsafe impl Send for Counters {}
// SAFETY: as above.
unsafe impl Sync for Counters {}

impl Counters {
    /// Those in this memory.
    ///
    /// # Errors
    /// It is shorter than they are, or can't be mapped.
    pub fn map(memory: &OwnedFd) -> io::Result<Counters> {
        let told_bytes = fstat(memory)?.st_size;
        if told_bytes < LEN_BYTES as i64 {
            let text = format!("the counters have {told_bytes} bytes, not {LEN_BYTES}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        // SAFETY: a new mapping, which nobody else has. The other program is trusted not to make the memory shorter.
        let base = unsafe {
            let at = std::ptr::null_mut();
            mmap(at, LEN_BYTES, ProtFlags::READ, MapFlags::SHARED, memory, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Counters { base })
    }

    /// One of them now. What is read of the unit afterwards is not older.
    pub fn get(&self, number: usize) -> u32 {
        assert!(number < COUNTERS, "{number}");
        // SAFETY: inside the mapping, which is aligned to pages.
        let counter = unsafe { self.base.add(number).as_ref() };
        counter.load(Ordering::SeqCst)
    }

    /// A span of the unit by its versions now.
    pub fn versions(&self, span: Span) -> impl Iterator<Item = (u32, Span)> {
        blocks::versions(span, |number| self.get(number))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nobody refers to it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), LEN_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn what_another_program_counts_is_seen() {
        let memory = memfd_create("counters", MemfdFlags::CLOEXEC).expect("memory");
        let too_short = Counters::map(&memory).expect_err("nothing is there");
        assert!(too_short.to_string().contains("0 bytes"), "{too_short}");
        ftruncate(&memory, LEN_BYTES as u64).expect("memory");
        let counters = Counters::map(&memory).expect("they are there");
        let span = Span {
            offset_bytes: 0,
            len_bytes: 3 * blocks::CHUNK_BYTES,
        };
        assert_eq!(counters.versions(span).collect::<Vec<_>>(), [(0, span)]);
        rustix::io::pwrite(&memory, &7u32.to_ne_bytes(), 4).expect("memory");
        let versions: Vec<u32> = counters
            .versions(span)
            .map(|(version, _)| version)
            .collect();
        assert_eq!(versions, [0, 7, 0]);
        assert_eq!(counters.get(COUNTERS - 1), 0);
    }
}
