//! How a thread reads a disk: a span of a file into the page cache, or past it into memory of ours. It waits for the
//! bytes.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ackpace_core::conn::Span;
use ackpace_core::disk::ReadError;
use ackpace_core::limits::READ_ALIGN_BYTES;
use rustix::fs::{Advice, Mode, OFlags, fadvise, fstat, open, sendfile};
use rustix::io::{Errno, preadv};

use super::device::Device;
use super::file::File;
use super::pool::Lease;
use super::progress::{Next, Progress};

/// The state of a reading thread.
#[derive(Debug)]
pub struct Reader {
    /// /dev/null; a chroot may have none, or no descriptor may be left. Then each byte is copied, and the copy discarded.
    null: Option<OwnedFd>,
}

impl Reader {
    /// A reader, with what it opens.
    pub fn open() -> Reader {
        Reader {
            null: open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok(),
        }
    }

    /// Reads `span` into the page cache and waits until it is there. Returns the bytes read: fewer than asked for only
    /// where the file ends.
    ///
    /// readahead(2) starts the transfer in the largest requests that the device takes; sendfile(2) to /dev/null waits
    /// for each page and copies none.
    pub fn promote(&self, file: &File, device: &Device, span: Span) -> Result<u64, ReadError> {
        let promoted = self.read_into_cache(file, device, span);
        if let Err(error) = promoted {
            // Pages that could not be read stay in the cache, empty: sending them would wait for the disk.
            let bad_bytes = error.offset_bytes / READ_ALIGN_BYTES * READ_ALIGN_BYTES;
            let left_bytes = NonZeroU64::new(span.end_bytes().saturating_sub(bad_bytes));
            let _ = fadvise(&file.fd, bad_bytes, left_bytes, Advice::DontNeed);
        }
        promoted
    }

    fn read_into_cache(&self, file: &File, device: &Device, span: Span) -> Result<u64, ReadError> {
        let mut at_bytes = span.offset_bytes;
        while at_bytes < span.end_bytes() {
            let len_bytes = device.readahead_bytes().min(span.end_bytes() - at_bytes);
            // A hint: a file system without readahead reads in the next step.
            let _ = readahead(&file.fd, at_bytes, len_bytes as usize);
            at_bytes += len_bytes;
        }
        let mut at_bytes = span.offset_bytes;
        while at_bytes < span.end_bytes() {
            let left_bytes = (span.end_bytes() - at_bytes) as usize;
            let null = self.null.as_ref().ok_or(Errno::INVAL);
            match null.and_then(|null| sendfile(null, &file.fd, Some(&mut at_bytes), left_bytes)) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::INVAL) => match read_away(&file.fd, at_bytes, left_bytes)? {
                    0 => break,
                    read_bytes => at_bytes += read_bytes,
                },
                Err(error) => {
                    return Err(ReadError {
                        errno: error.raw_os_error(),
                        offset_bytes: at_bytes,
                    });
                }
            }
        }
        Ok(at_bytes - span.offset_bytes)
    }

    /// Reads `span` of a file that is open past the page cache (or not, where that is refused) into `lease` from its
    /// start. The span begins and ends at multiples of `READ_ALIGN_BYTES`. Returns the bytes read: fewer than asked for
    /// only where the file ends. What follows them in the lease is undefined.
    /// Errors: The file system's error, with its offset; the bytes before that were read.
    ///
    /// # Panics
    /// If the span is empty, not aligned, or longer than the lease: the disk machine orders no such read.
    pub fn read_direct(
        &self,
        file: &impl AsFd,
        span: Span,
        lease: &mut Lease,
    ) -> Result<u64, ReadError> {
        let len_bytes = || fstat(file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        let (mut progress, mut piece) = Progress::new(span);
        loop {
            let mut into = lease.iovecs(piece.from_bytes, piece.len_bytes);
            let read = preadv(file, &mut into, span.offset_bytes + piece.from_bytes);
            let answer = read.map(|read| read as u64).map_err(Errno::raw_os_error);
            match progress.on(answer, len_bytes) {
                Next::Read(next) => piece = next,
                Next::Done(result) => return result,
            }
        }
    }
}

/// For file systems whose files can't be spliced: reads, and discards the copy. 0: the file ends here.
fn read_away(file: &OwnedFd, offset_bytes: u64, len_bytes: usize) -> Result<u64, ReadError> {
    let mut scratch = [0u8; 16 << 10];
    let len_bytes = len_bytes.min(scratch.len());
    loop {
        return match rustix::io::pread(file, &mut scratch[..len_bytes], offset_bytes) {
            Ok(read) => Ok(read as u64),
            Err(Errno::INTR) => continue,
            Err(error) => Err(ReadError {
                errno: error.raw_os_error(),
                offset_bytes,
            }),
        };
    }
}

fn readahead(file: &OwnedFd, offset_bytes: u64, len_bytes: usize) -> rustix::io::Result<()> {
    let offset = libc::off64_t::try_from(offset_bytes).map_err(|_| Errno::INVAL)?;
    // SAFETY: no memory is passed; the descriptor is open.
    match unsafe { libc::readahead(file.as_fd().as_raw_fd(), offset, len_bytes) } {
        0 => Ok(()),
        _ => Err(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ackpace_core::conn::ResidencySource;

    use super::*;
    use crate::store::device::Devices;
    use crate::store::files::Files;

    fn opened(path: &std::path::Path, devices: &Devices) -> Arc<File> {
        Files::default().of(
            std::fs::File::open(path).expect("the file is there"),
            devices,
        )
    }

    #[test]
    fn a_promoted_span_is_in_memory_and_ends_where_the_file_ends() {
        let path = std::env::temp_dir().join(format!("ackpace-reader-{}", std::process::id()));
        std::fs::write(&path, vec![7u8; 300_000]).expect("a file");
        let devices = Devices::default();
        let file = opened(&path, &devices);
        rustix::fs::fsync(&file.fd).expect("written");
        fadvise(&file.fd, 0, None, Advice::DontNeed).expect("advice");
        let device = devices.get(file.id.device).expect("met");
        let span = Span {
            offset_bytes: 4096,
            len_bytes: 1 << 20,
        };
        let len_bytes = 300_000 - 4096;
        let (reader, without) = (Reader::open(), Reader { null: None });
        assert_eq!(without.promote(&file, device, span), Ok(len_bytes));
        assert_eq!(reader.promote(&file, device, span), Ok(len_bytes));
        let behind = Span {
            offset_bytes: 304_096,
            ..span
        };
        assert_eq!(reader.promote(&file, device, behind), Ok(0));
        let there = Span { len_bytes, ..span };
        assert!(file.residency != ResidencySource::Ask || file.is_resident(there));
        std::fs::remove_file(&path).expect("our own file");
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        let devices = Devices::default();
        let file = opened(std::path::Path::new("/"), &devices);
        let device = devices.get(file.id.device).expect("met");
        let span = Span {
            offset_bytes: 8192,
            len_bytes: 4096,
        };
        let failed = Reader::open().promote(&file, device, span);
        assert_eq!(
            failed,
            Err(ReadError {
                errno: libc::EISDIR,
                offset_bytes: 8192
            })
        );
    }
}
