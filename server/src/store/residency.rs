//! Asks whether bytes of a file are in the page cache, without changing it. `core/src/residency.rs` decides how to ask,
//! and when an answer is in doubt.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use ackpace_core::conn::{ResidencySource, Span};
use ackpace_core::residency::latency::PageWait;
use ackpace_core::residency::limits::{COARSE_SAMPLE_BYTES, SAMPLE_BYTES};
use ackpace_core::residency::{self, Doubt, Occasion, Question};
use ackpace_core::units::Instant;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::pages::Pages;

/// When pages of any file that had just been resident were first and last missing, microseconds; 0: never.
static FIRST_MISSED_US: AtomicU64 = AtomicU64::new(0);
static LAST_MISSED_US: AtomicU64 = AtomicU64::new(0);

/// Workers write the two one after the other: a mixture of two spells ends too early or too late, and the next page that
/// is missing mends it. Half of a first spell is none, or it would count from the start of the clock.
fn doubt() -> Option<Doubt> {
    let read = |us: &AtomicU64| Instant {
        us: us.load(Ordering::Relaxed),
    };
    let (first, last) = (read(&FIRST_MISSED_US), read(&LAST_MISSED_US));
    (first.us > 0 && last.us > 0).then_some(Doubt { first, last })
}

/// Pages that had just been resident are missing: a program drops them, or memory is short.
pub fn missed(now: Instant) {
    let Doubt { first, last } = doubt().map_or(Doubt::new(now), |doubt| doubt.missed(now));
    FIRST_MISSED_US.store(first.us.max(1), Ordering::Relaxed);
    LAST_MISSED_US.store(last.us.max(1), Ordering::Relaxed);
}

/// Whether pages go missing these days that had just been resident, in any file.
pub fn in_doubt(now: Instant) -> bool {
    doubt().is_some_and(|doubt| doubt.holds(now))
}

/// `struct cachestat_range` and `struct cachestat` of linux/mman.h.
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
///
/// # Errors
/// ENOSYS before Linux 6.5; EPERM for files that we neither own nor may write.
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

/// How many bytes of the span, from its start, can be sent without waiting for a disk.
///
/// Exact where the kernel reports each page ([`Question::EachPage`]). A count and a sample take pages for there that
/// another process is just reading. `None` where the kernel can't say.
pub fn resident_bytes<'a>(
    file: &impl AsFd,
    pages: impl Fn() -> Option<&'a Pages>,
    (residency, wait, occasion): (ResidencySource, PageWait, Occasion),
    span: Span,
) -> Option<u64> {
    let are_counted = || cached_pages(file, span) == Ok(pages_of(span));
    let are_sampled = || missing_at(file, residency::sample(span, COARSE_SAMPLE_BYTES)) == Ok(None);
    match residency::question(residency, wait, occasion) {
        Question::None => return Some(span.len_bytes),
        Question::Sample => return sampled_bytes(file, span),
        Question::CountAndSample if are_counted() && are_sampled() => return Some(span.len_bytes),
        Question::CountAndSample | Question::EachPage => {}
    }
    match pages().and_then(|pages| pages.resident_bytes(span)) {
        Some(resident_bytes) => Some(resident_bytes),
        None if !are_counted() => Some(0),
        None => sampled_bytes(file, span),
    }
}

/// See [`Question::Sample`]. `None`: some file systems refuse RWF_NOWAIT (overlayfs).
fn sampled_bytes(file: &impl AsFd, span: Span) -> Option<u64> {
    let missing = missing_at(file, residency::sample(span, SAMPLE_BYTES)).ok()?;
    let before = |at_bytes| residency::resident_before(span, at_bytes);
    Some(missing.map_or(span.len_bytes, before))
}

/// The first of these places whose byte can't be read without waiting.
///
/// # Errors
/// EOPNOTSUPP where the file system does not tell.
fn missing_at(file: &impl AsFd, places: impl Iterator<Item = u64>) -> Result<Option<u64>, Errno> {
    for offset_bytes in places {
        let mut byte = [0u8];
        let mut into = [std::io::IoSliceMut::new(&mut byte)];
        match preadv2(file, &mut into, offset_bytes, ReadWriteFlags::NOWAIT) {
            Ok(1..) => {}
            Err(Errno::OPNOTSUPP) => return Err(Errno::OPNOTSUPP),
            Ok(0) | Err(_) => return Ok(Some(offset_bytes)),
        }
    }
    Ok(None)
}

/// Pages that a span touches.
pub fn pages_of(span: Span) -> u64 {
    let page_bytes = rustix::param::page_size() as u64;
    span.end_bytes().div_ceil(page_bytes) - span.offset_bytes / page_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::store::attributes::known;
    use crate::store::closing::Descriptor;
    use crate::store::pages::MappedVersion;

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
    fn after_a_page_was_missed_answers_are_in_doubt() {
        let now = Instant { us: 3_000_000_000 };
        missed(now);
        assert!(in_doubt(now));
    }

    #[test]
    fn what_was_just_written_is_in_memory_by_every_source_that_answers() {
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
        if may_ask(&file) {
            let again = file.try_clone().expect("a descriptor");
            let pages = Pages::new(
                &Arc::new(Descriptor::of(again.into()).expect("an open file")),
                true,
                MappedVersion::of(&known(&file).expect("open")),
            )
            .expect("a file of a temporary folder");
            let resident = |span| {
                let told = |wait, occasion| {
                    let how = (ResidencySource::Ask, wait, occasion);
                    resident_bytes(&file, || Some(&pages), how, span)
                };
                let exact = told(PageWait::Long, Occasion::Send);
                assert_eq!(told(PageWait::Short, Occasion::SendInDoubt), exact);
                assert_eq!(told(PageWait::Short, Occasion::Choice), exact);
                exact
            };
            assert_eq!(resident(span), Some(20_000));
            let inside = Span {
                offset_bytes: 5_000,
                len_bytes: 10_000,
            };
            assert_eq!(resident(inside), Some(10_000));
            let behind = Span {
                offset_bytes: 1 << 30,
                len_bytes: 4096,
            };
            assert_eq!(resident(behind), Some(0));
            let across = Span {
                offset_bytes: 19_000,
                len_bytes: 4_000,
            };
            assert_eq!(resident(across), Some(1_000), "no further than the file");
        }
        // overlayfs refuses RWF_NOWAIT.
        let mut byte = [0u8];
        let mut into = [std::io::IoSliceMut::new(&mut byte)];
        let asked = preadv2(&file, &mut into, 0, ReadWriteFlags::NOWAIT);
        let expected = (asked != Err(Errno::OPNOTSUPP)).then_some(20_000);
        let how = (ResidencySource::Remember, PageWait::Long, Occasion::Send);
        let resident = resident_bytes(&file, || None, how, span);
        assert_eq!(resident, expected);
        std::fs::remove_file(&path).expect("our own file");
    }
}
