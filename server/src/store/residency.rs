//! Whether bytes of a file are in the page cache, asked without disturbing it.

use std::os::fd::{AsFd, AsRawFd};

use ackpace_core::conn::{Oracle, Span};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// `struct cachestat_range` and `struct cachestat` of linux/mman.h.
#[repr(C)]
struct Range {
    off: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Stat {
    nr_cache: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    nr_evicted: u64,
    nr_recently_evicted: u64,
}

/// The same number on every architecture (5.2 unified new calls).
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of the span that are in the page cache, by cachestat(2).
///
/// # Errors
/// ENOSYS before Linux 6.5; EPERM for files that we neither own nor may write.
pub fn cached_pages(file: &impl AsFd, span: Span) -> Result<u64, Errno> {
    let range = Range {
        off: span.offset_bytes,
        len: span.len_bytes,
    };
    let mut stat = Stat::default();
    // SAFETY: both structs live until the call returns and have the kernel's layout; the descriptor is open.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_fd().as_raw_fd(),
            &range,
            &mut stat,
            0,
        )
    };
    if result == 0 {
        return Ok(stat.nr_cache);
    }
    Err(std::io::Error::last_os_error()
        .raw_os_error()
        .map_or(Errno::NOSYS, Errno::from_raw_os_error))
}

/// Whether cachestat(2) answers for this file.
pub fn may_ask(file: &impl AsFd) -> bool {
    cached_pages(
        file,
        Span {
            offset_bytes: 0,
            len_bytes: 1,
        },
    )
    .is_ok()
}

/// How many bytes of the span, from its start, can be sent without waiting for the disk: all or none.
/// Only for spans that are believed to be in memory where the oracle can but remember.
pub fn resident_bytes(file: &impl AsFd, oracle: Oracle, span: Span) -> u64 {
    let resident = match oracle {
        Oracle::Always => true,
        Oracle::Ask => cached_pages(file, span).is_ok_and(|pages| pages >= pages_of(span)),
        Oracle::Remember => {
            let mut byte = [0u8];
            let mut into = [std::io::IoSliceMut::new(&mut byte)];
            preadv2(file, &mut into, span.offset_bytes, ReadWriteFlags::NOWAIT).is_ok()
        }
    };
    if resident { span.len_bytes } else { 0 }
}

/// Whether the pages of a span, which are in the page cache, hold something: those that are being read, or could not be,
/// are there, too, and whoever sends them waits for the disk. Looks at one page in 64 KiB and at the last one: less than a
/// device is asked for at once.
pub fn is_read(file: &impl AsFd, span: Span) -> bool {
    let last_bytes = span.end_bytes().saturating_sub(1);
    let mut places = (span.offset_bytes..last_bytes)
        .step_by(64 << 10)
        .chain([last_bytes]);
    places.all(|offset_bytes| {
        let mut byte = [0u8];
        let mut into = [std::io::IoSliceMut::new(&mut byte)];
        let read = preadv2(file, &mut into, offset_bytes, ReadWriteFlags::NOWAIT);
        read != Err(Errno::AGAIN) // where the flag is refused, nobody can say
    })
}

/// Pages that a span touches.
pub fn pages_of(span: Span) -> u64 {
    let page_bytes = rustix::param::page_size() as u64;
    span.end_bytes().div_ceil(page_bytes) - span.offset_bytes / page_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_touches_the_pages_at_both_its_ends() {
        let page = rustix::param::page_size() as u64;
        let pages = |offset_bytes, len_bytes| {
            pages_of(Span {
                offset_bytes,
                len_bytes,
            })
        };
        assert_eq!(
            [
                pages(0, 1),
                pages(0, page),
                pages(0, page + 1),
                pages(page - 1, 2)
            ],
            [1, 1, 2, 2]
        );
    }

    #[test]
    fn what_was_just_written_is_in_memory_by_every_oracle_that_answers() {
        use std::io::Write;
        let path = std::env::temp_dir().join(format!("ackpace-residency-{}", std::process::id()));
        let mut file = std::fs::File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .read(true)
            .open(&path)
            .expect("a file");
        file.write_all(&[7; 20_000]).expect("room for 20 KB");
        let span = Span {
            offset_bytes: 0,
            len_bytes: 20_000,
        };
        // Where the pages belong to another inode (overlayfs) cachestat(2) answers and sees none of them.
        if cached_pages(&file, span).is_ok_and(|pages| pages > 0) {
            assert_eq!(resident_bytes(&file, Oracle::Ask, span), 20_000);
            let behind = Span {
                offset_bytes: 1 << 30,
                len_bytes: 4096,
            };
            assert_eq!(resident_bytes(&file, Oracle::Ask, behind), 0);
        }
        // overlayfs refuses RWF_NOWAIT: there, each window goes by way of the disk thread again after a moment.
        let mut byte = [0u8];
        let mut into = [std::io::IoSliceMut::new(&mut byte)];
        let asked = preadv2(&file, &mut into, 0, ReadWriteFlags::NOWAIT);
        let expected = if asked == Err(Errno::OPNOTSUPP) {
            0
        } else {
            20_000
        };
        assert_eq!(resident_bytes(&file, Oracle::Remember, span), expected);
        std::fs::remove_file(&path).expect("our own file");
    }
}
