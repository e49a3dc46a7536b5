//! The memory of the answerer, all of it taken before the first request: slots for requests with their payload, and the counters
//! that it shares with the server.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use ackpace_wire::fuse::{IO_BYTES_MAX, REQUEST_BYTES_MAX, Range, WRITE_HEAD_BYTES};
use ackpace_wire::gateway::{COUNTERS, counters_of};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Requests that are under way at a time: what fills a link of 10 Gbit/s at a round trip of 12 ms. More wait in the kernel.
pub const SLOTS: usize = 16;
/// In front of the payload, which begins with a page.
const PAGE_BYTES: usize = 4096;
const SLOT_BYTES: usize = PAGE_BYTES + IO_BYTES_MAX as usize;
const COUNTERS_BYTES: usize = COUNTERS * size_of::<AtomicU32>();

/// Mapped memory, which is there from the beginning.
struct Mapping {
    at: NonNull<u8>,
    len_bytes: usize,
}

impl Mapping {
    /// Of this process alone, or of a file.
    fn new(len_bytes: usize, of: Option<BorrowedFd<'_>>) -> io::Result<Mapping> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so nothing is replaced.
        let at = unsafe {
            match of {
                None => {
                    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
                    rustix::mm::mmap_anonymous(null_mut(), len_bytes, rights, flags)
                }
                Some(fd) => {
                    let flags = MapFlags::SHARED | MapFlags::POPULATE;
                    rustix::mm::mmap(null_mut(), len_bytes, rights, flags, fd, 0)
                }
            }
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { at, len_bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len_bytes) };
    }
}

/// Places for requests.
pub struct Slots(Mapping);

impl Slots {
    /// All of them.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn new() -> io::Result<Slots> {
        Mapping::new(SLOTS * SLOT_BYTES, None).map(Slots)
    }

    fn all(&self) -> &[u8] {
        // SAFETY: this process alone has the memory, and a shared reference to self lets nobody write.
        unsafe { slice::from_raw_parts(self.0.at.as_ptr(), self.0.len_bytes) }
    }

    fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the reference to self is the only one.
        unsafe { slice::from_raw_parts_mut(self.0.at.as_ptr(), self.0.len_bytes) }
    }

    /// Where a request is read to, below [`SLOTS`]: a payload follows behind [`WRITE_HEAD_BYTES`].
    pub fn request_mut(&mut self, slot: usize) -> &mut [u8] {
        let from = slot * SLOT_BYTES + PAGE_BYTES - WRITE_HEAD_BYTES;
        &mut self.all_mut()[from..from + REQUEST_BYTES_MAX]
    }

    /// The payload of a request.
    pub fn payload(&self, slot: usize) -> &[u8] {
        let from = slot * SLOT_BYTES + PAGE_BYTES;
        &self.all()[from..from + IO_BYTES_MAX as usize]
    }

    /// Likewise, to be filled.
    pub fn payload_mut(&mut self, slot: usize) -> &mut [u8] {
        let from = slot * SLOT_BYTES + PAGE_BYTES;
        &mut self.all_mut()[from..from + IO_BYTES_MAX as usize]
    }
}

/// The counters, as the answerer has them.
pub struct Counters(Mapping);

impl Counters {
    /// A file for them, which nobody can make longer or shorter, and a descriptor of it that only reads.
    ///
    /// # Errors
    /// As memfd_create(2) and what follows.
    pub fn file() -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("ackpace-gateway-counters", flags)?;
        rustix::fs::ftruncate(&file, COUNTERS_BYTES as u64)?;
        let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        // Else whoever has the descriptor that reads could open it anew.
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        let own = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&file));
        let reads = rustix::fs::open(own, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok((file, reads))
    }

    /// Maps them.
    ///
    /// # Errors
    /// As mmap(2); or the file is too short.
    pub fn map(file: impl AsFd) -> io::Result<Counters> {
        let len_bytes = rustix::fs::fstat(&file)?.st_size;
        if len_bytes != COUNTERS_BYTES as i64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Mapping::new(COUNTERS_BYTES, Some(file.as_fd())).map(Counters)
    }

    /// Counts that these bytes are about to change, or have changed.
    pub fn count(&self, range: Range) {
        // SAFETY: so many numbers are mapped, aligned to a page. Other processes use atomic operations, too, or read.
        let all =
            unsafe { slice::from_raw_parts(self.0.at.as_ptr().cast::<AtomicU32>(), COUNTERS) };
        for counter in counters_of(range.offset_bytes, range.len_bytes) {
            all[counter].fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_apart_and_payload_begins_with_a_page() {
        let mut slots = Slots::new().expect("16 MiB");
        for slot in 0..SLOTS {
            slots.request_mut(slot).fill(slot as u8);
        }
        for slot in 0..SLOTS {
            assert!(slots.payload(slot).iter().all(|byte| *byte == slot as u8));
            assert_eq!(slots.payload(slot).as_ptr().addr() % PAGE_BYTES, 0);
            assert_eq!(slots.request_mut(slot).len(), REQUEST_BYTES_MAX);
        }
    }

    #[test]
    fn a_write_is_counted_in_each_chunk_and_others_see_it() {
        let (file, reads) = Counters::file().expect("a memfd");
        let counters = Counters::map(&file).expect("4 MiB");
        let range = Range {
            offset_bytes: 65_535,
            len_bytes: 2,
        };
        counters.count(range);
        counters.count(range);
        let mut seen = [0; 12];
        rustix::io::pread(&reads, &mut seen, 0).expect("it reads");
        assert_eq!(seen, [2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert!(
            rustix::io::pwrite(&reads, &seen, 0).is_err(),
            "it only reads"
        );
        assert!(rustix::fs::ftruncate(&file, 0).is_err(), "it is sealed");
    }
}
