//! Epochs of the page cache: while one lasts, no page is dropped that stands in a process's page tables.
//!
//! The kernel scans such pages before it drops them, and counts that (`pgscan_file` in /proc/vmstat, of all processes and control
//! groups). posix_fadvise(2) and drop_caches spare them. DAMON takes out what nobody has used for a minute or two without
//! counting it, so an epoch ends by itself after some seconds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ackpace_core::residency::limits::{DOUBT_READ_US, EPOCH_US_MAX};
use ackpace_core::residency::scans_hold_us;
use ackpace_core::units::Instant;

use crate::clock::Clock;

/// The last reading, for all threads.
static LAST: Reading = Reading::new();

/// The number of the epoch; that of an earlier one does not come back for months. `None`: the kernel does not count, or another
/// thread is just reading.
pub fn epoch() -> Option<u64> {
    let now = now();
    let scanned = LAST.get(now).or_else(|| LAST.renew(now, read))?;
    // Both only grow, and a page that was scanned weighs more than any number of tens of seconds.
    Some(
        scanned
            .wrapping_mul(1_000_003)
            .wrapping_add(now.us / EPOCH_US_MAX),
    )
}

/// Opens what is read, so that no descriptor is lacking later.
pub fn start() {
    epoch();
}

/// Whether the number was read within [`DOUBT_READ_US`], or is now.
pub fn is_fresh() -> bool {
    let now = now();
    let read_at = Instant {
        us: LAST.read_at_us.load(Ordering::Acquire),
    };
    now.since_us(read_at) < DOUBT_READ_US || LAST.renew(now, read).is_some()
}

/// Microseconds since the first call.
fn now() -> Instant {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::start).now()
}

/// Reads the number: some 40 us, and more on a machine with many processors, whose counts are added up. Waits for nobody.
fn read() -> Option<u64> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| File::open("/proc/vmstat").ok());
    let mut text = [0; 16 << 10];
    let mut len = 0;
    loop {
        match file.as_ref()?.read_at(&mut text[len..], len as u64).ok()? {
            0 => break,
            read => len += read,
        }
    }
    field(&text[..len], b"pgscan_file ")
}

/// The number behind this name at the start of a line.
fn field(text: &[u8], name: &[u8]) -> Option<u64> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let number = lines.find_map(|line| line.strip_prefix(name))?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// A number that is read again when it is old.
struct Reading {
    /// The number plus 1; 0: there is none.
    number_and_one: AtomicU64,
    /// When it was read, microseconds of [`now`].
    read_at_us: AtomicU64,
    /// How long it may be relied on, microseconds of [`now`].
    until_us: AtomicU64,
    /// A thread is reading.
    is_busy: AtomicBool,
}

impl Reading {
    const fn new() -> Reading {
        Reading {
            number_and_one: AtomicU64::new(0),
            read_at_us: AtomicU64::new(0),
            until_us: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
        }
    }

    fn get(&self, now: Instant) -> Option<u64> {
        // The time comes first: a number that is newer than its time is believed for too short, and never for too long.
        let until_us = self.until_us.load(Ordering::Acquire);
        let number = self.number_and_one.load(Ordering::Acquire).checked_sub(1)?;
        (now.us < until_us).then_some(number)
    }

    fn renew(&self, began: Instant, read: impl Fn() -> Option<u64>) -> Option<u64> {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return None;
        }
        let number = read();
        if let Some(number) = number {
            let until = began.plus_us(scans_hold_us(now().since_us(began)));
            let number_and_one = number.saturating_add(1);
            self.number_and_one.store(number_and_one, Ordering::Release);
            self.read_at_us.store(began.us, Ordering::Release);
            self.until_us.store(until.us, Ordering::Release);
        }
        self.is_busy.store(false, Ordering::Release);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stands_behind_its_whole_name() {
        let text = b"pgscan_anon 3\npgscan_file 4711\npgsteal_file 9\n";
        assert_eq!(field(text, b"pgscan_file "), Some(4711));
        assert_eq!(field(text, b"scan_file "), None);
        assert_eq!(field(b"pgscan_file many\n", b"pgscan_file "), None);
        assert_eq!(field(b"", b"pgscan_file "), None);
    }

    #[test]
    fn a_number_is_relied_on_for_a_while_and_then_read_again() {
        let reading = Reading::new();
        let began = now();
        assert_eq!(reading.get(began), None, "nothing was read");
        assert_eq!(reading.renew(began, || Some(5)), Some(5));
        assert_eq!(reading.get(began), Some(5));
        assert_eq!(reading.get(began.plus_us(10_000_000)), None, "old");
        assert_eq!(reading.renew(began, || None), None, "/proc is gone");
        reading.is_busy.store(true, Ordering::Relaxed);
        assert_eq!(reading.renew(began, || Some(6)), None, "another reads it");
    }

    #[test]
    fn this_kernel_says_how_much_it_has_scanned() {
        let Some(first) = read() else {
            println!("skipped: no pgscan_file in /proc/vmstat here");
            return;
        };
        assert!(read() >= Some(first));
    }
}
