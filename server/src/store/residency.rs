//! Asks the kernel whether bytes of a file are in the page cache, without changing it.

use std::os::fd::{AsFd, AsRawFd};

use ackpace_core::conn::Span;
use rustix::io::Errno;

#[repr(C)]
struct CachestatRange {
    off: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    nr_cache: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    nr_evicted: u64,
    nr_recently_evicted: u64,
}

/// The same number on every architecture (5.2 unified new calls).
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of the span that are in the page cache, by cachestat(2).
/// Errors: ENOSYS before Linux 6.5; EPERM for files that we neither own nor may write.
pub fn cached_pages(file: &impl AsFd, span: Span) -> Result<u64, Errno> {
    let range = CachestatRange {
        off: span.offset_bytes,
        len: span.len_bytes,
    };
    let mut stat = Cachestat::default();
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

/// Whether all of the span is in the page cache. Pages that another program is just reading count, too.
pub fn is_cached(file: &impl AsFd, span: Span) -> bool {
    cached_pages(file, span) == Ok(pages_of(span))
}

fn pages_of(span: Span) -> u64 {
    let page_bytes = rustix::param::page_size() as u64;
    span.end_bytes().div_ceil(page_bytes) - span.offset_bytes / page_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(offset_bytes: u64, len_bytes: u64) -> Span {
        Span {
            offset_bytes,
            len_bytes,
        }
    }

    #[test]
    fn a_span_touches_the_pages_at_both_its_ends() {
        let page = rustix::param::page_size() as u64;
        let touched = [
            pages_of(span(0, 1)),
            pages_of(span(0, page)),
            pages_of(span(0, page + 1)),
            pages_of(span(page - 1, 2)),
        ];
        assert_eq!(touched, [1, 1, 2, 2]);
    }

    #[test]
    fn what_was_just_written_is_in_memory_and_nothing_else_is() {
        use std::io::Write;
        let path = std::env::temp_dir().join(format!("ackpace-residency-{}", std::process::id()));
        let mut file = std::fs::File::create_new(&path).expect("a file");
        std::fs::remove_file(&path).expect("our own file");
        file.write_all(&[7; 20_000]).expect("room for 20 KB");
        if !may_ask(&file) {
            return; // before Linux 6.5
        }
        assert!(is_cached(&file, span(0, 20_000)));
        assert!(is_cached(&file, span(5_000, 10_000)));
        assert!(!is_cached(&file, span(19_000, 4_000)), "the file ends");
        assert!(!is_cached(&file, span(1 << 30, 4096)));
    }
}
