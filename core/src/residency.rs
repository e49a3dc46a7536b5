//! Residency: how bytes that are believed to be in the page cache are sent, so that no worker waits long for a disk.
//!
//! The shell asks the kernel whether a window is in the page cache, and the answer is believed for a second
//! ([`cache`](crate::cache)). A page may be dropped meanwhile, and sendfile(2) would wait for it. On a device whose reads are
//! known to be short ([`Latency`]), that is over soon. Elsewhere bytes are copied by reads that never wait ([`means`]).
//! The reasons and the measurements are in docs/decisions/0002-residency.md.

use crate::conn::ResidencySource;
use crate::limits::READ_ALIGN_BYTES;
use crate::units::{KIB, MIB, US_PER_S};

/// Reads after which a device may count as fast. Fewer: a disk with an arm that reads from its own cache looks fast.
const LATENCY_READS: u16 = 16;
/// As many short reads outweigh a long one. More: a device counts as slow for longer after a busy hour. Fewer: one whose reads
/// mostly come from the memory of a controller, or of another machine, counts as fast.
const LONG_READ_WEIGHT: u16 = 500;
/// What all long reads weigh at most.
const LONG_READS_WEIGH_MAX: u16 = 4 * LONG_READ_WEIGHT;
/// How long a read of a fast device takes, microseconds, without its bytes. Longer: a send whose pages were dropped reads 2 MiB
/// in 32 requests and keeps a worker for long. Shorter: solid-state disks that are busy count as slow.
const SHORT_READ_US: u64 = 2_000;
/// A read that took less, and less than its bytes at [`MEMORY_BYTES_PER_S`], asked no device: there is a hole in its file.
const DEVICE_READ_US_MIN: u64 = 20;
/// How fast memory is filled with zeroes at least.
const MEMORY_BYTES_PER_S: u64 = 8_000_000_000;
/// How fast the bytes of a read of a fast device come at least.
const SHORT_READ_BYTES_PER_S: u64 = 200_000_000;
/// How much is read at once to find out.
pub const LATENCY_READ_BYTES: u64 = 64 * KIB;
/// The least length of a file that shows it: sixteen places so far apart that a disk with an arm has not read the next one
/// by itself. Shorter: it looks fast.
pub const LATENCY_FILE_BYTES_MIN: u64 = 16 * MIB;
/// A send that takes so long counts as a long read of its device, microseconds. Shorter: a worker that lost its processor, too.
const SEND_WAITED_LONG_US: u64 = 50_000;

/// How bytes of the page cache reach the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// By sendfile(2), which waits for a page that was dropped.
    Sendfile,
    /// By preadv2(RWF_NOWAIT) into our own memory, which never waits.
    Copy,
}

/// How to send bytes of a file whose device has this `wait`.
pub fn means(residency: ResidencySource, wait: PageWait) -> Means {
    match (residency, wait) {
        (ResidencySource::Always, _) | (_, PageWait::Short) => Means::Sendfile,
        (_, PageWait::Long) => Means::Copy,
    }
}

/// Whether a send took so long that its device is none of the fast ones. A worker that only lost its processor is back sooner.
pub fn has_waited_long(took_us: u64) -> bool {
    took_us >= SEND_WAITED_LONG_US
}

/// The wait for a page that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageWait {
    /// As long as a few short reads of a fast device.
    Short,
    /// Clients would notice it, or nothing is known of the device.
    Long,
}

/// How a read reached the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Past the page cache: all its bytes came from the device.
    Past,
    /// Through the page cache, in which another program may have had its bytes.
    Through,
}

/// What a device's reads have shown. Disks below another machine's or a controller's memory answer at once or late: so a read
/// that took long weighs as much as hundreds that did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Reads that are known, [`LATENCY_READS`] at most.
    reads: u16,
    /// [`LONG_READ_WEIGHT`] for each that took long, less one for each that did not, [`LONG_READS_WEIGH_MAX`] at most.
    weight: u16,
}

impl Latency {
    /// The same with one more read, of so many bytes. A short one through the page cache says nothing, nor does one of a hole.
    #[must_use]
    pub fn with(self, len_bytes: u64, took_us: u64, way: Way) -> Latency {
        let weight = match (is_long(len_bytes, took_us), way) {
            (true, _) => self.weight.saturating_add(LONG_READ_WEIGHT),
            (false, Way::Past) if asked_device(len_bytes, took_us) => self.weight.saturating_sub(1),
            (false, _) => return self,
        };
        Latency {
            reads: (self.reads + 1).min(LATENCY_READS),
            weight: weight.min(LONG_READS_WEIGH_MAX),
        }
    }

    /// How long a dropped page is waited for, as far as it is known. One long read is an accident.
    pub fn wait(self) -> PageWait {
        match self.reads == LATENCY_READS && self.weight <= LONG_READ_WEIGHT {
            true => PageWait::Short,
            false => PageWait::Long,
        }
    }

    /// Whether it is slow for certain, whatever the next few reads show.
    pub fn is_slow(self) -> bool {
        self.weight > LONG_READ_WEIGHT + LATENCY_READS
    }

    /// As one number.
    pub fn to_bits(self) -> u32 {
        u32::from(self.reads) << 16 | u32::from(self.weight)
    }

    /// From such a number.
    pub fn from_bits(bits: u32) -> Latency {
        Latency {
            reads: ((bits >> 16) as u16).min(LATENCY_READS),
            weight: (bits as u16).min(LONG_READS_WEIGH_MAX),
        }
    }
}

/// Where to read a file of this length: all over it, and never where a disk that has just read would go on.
pub fn places(file_bytes: u64) -> impl Iterator<Item = u64> {
    let count = u64::from(LATENCY_READS);
    let step_bytes = file_bytes / count / READ_ALIGN_BYTES * READ_ALIGN_BYTES;
    (0..count).map(move |nth| nth * 7 % count * step_bytes)
}

/// Whether a read took so long that its bytes may have come from a device, and not from a hole in the file.
fn asked_device(len_bytes: u64, took_us: u64) -> bool {
    took_us >= DEVICE_READ_US_MIN + len_bytes.saturating_mul(US_PER_S) / MEMORY_BYTES_PER_S
}

/// Whether a read took longer than a fast device needs, with a fast medium's time for its bytes. A send from the page cache that
/// takes so long has probably read some of its bytes.
pub fn is_long(len_bytes: u64, took_us: u64) -> bool {
    took_us > SHORT_READ_US + len_bytes.saturating_mul(US_PER_S) / SHORT_READ_BYTES_PER_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_dropped_is_copied_where_a_wait_for_it_may_be_long() {
        use ResidencySource::{Always, Ask, Remember};
        for residency in [Ask, Remember] {
            assert_eq!(means(residency, PageWait::Short), Means::Sendfile);
            assert_eq!(means(residency, PageWait::Long), Means::Copy);
        }
        assert_eq!(means(Always, PageWait::Long), Means::Sendfile);
    }

    use crate::units::{KIB, MIB};

    fn after(reads: impl IntoIterator<Item = (u64, u64)>) -> Latency {
        let learn = |latency: Latency, (len_bytes, us)| latency.with(len_bytes, us, Way::Past);
        reads.into_iter().fold(Latency::default(), learn)
    }

    #[test]
    fn devices_are_told_apart_by_sixteen_reads() {
        // (64 KiB, 1 MiB) in microseconds: a disk with an arm, one of 2 MB/s, a solid-state disk, NVMe.
        for (short_us, long_us, expected) in [
            (8_500, 13_500, PageWait::Long),
            (33_000, 525_000, PageWait::Long),
            (250, 2_200, PageWait::Short),
            (90, 450, PageWait::Short),
        ] {
            let reads = [(64 * KIB, short_us), (MIB, long_us)];
            let latency = after(reads.into_iter().cycle().take(16));
            assert_eq!(latency.wait(), expected, "{short_us} {long_us}");
        }
    }

    #[test]
    fn nothing_is_believed_to_be_fast_before_sixteen_reads() {
        let latency = after([(4096, 100); 15]);
        assert_eq!(latency.wait(), PageWait::Long);
        let latency = latency.with(4096, 100, Way::Past);
        assert_eq!(latency.wait(), PageWait::Short);
    }

    #[test]
    fn one_long_read_is_an_accident_and_of_two_a_device_recovers_slowly() {
        let fast = after([(4096, 100); 16]);
        let once = fast.with(4096, 7_000, Way::Past);
        assert_eq!((once.wait(), once.is_slow()), (PageWait::Short, false));
        let twice = once.with(4096, 7_000, Way::Through);
        assert_eq!((twice.wait(), twice.is_slow()), (PageWait::Long, true));
        let short = |latency: Latency, times| {
            (0..times).fold(latency, |latency: Latency, _| {
                latency.with(4096, 100, Way::Past)
            })
        };
        let later = short(twice, LONG_READ_WEIGHT - 1);
        assert_eq!(later.wait(), PageWait::Long);
        assert_eq!(short(later, 1).wait(), PageWait::Short);
        let slow = (0..999).fold(fast, |latency, _| latency.with(4096, 7_000, Way::Past));
        let again = short(slow, LONG_READS_WEIGH_MAX - LONG_READ_WEIGHT);
        assert_eq!(again.wait(), PageWait::Short, "not for ever");
    }

    #[test]
    fn what_another_program_may_have_read_is_no_sign_of_a_fast_device() {
        let through = |latency: Latency, us| latency.with(4096, us, Way::Through);
        let cached = (0..99).fold(Latency::default(), |latency, _| through(latency, 3));
        assert_eq!(cached, Latency::default());
        let slow = [9_000, 3, 9_000]
            .into_iter()
            .fold(after([(4096, 100); 16]), through);
        assert_eq!(slow.wait(), PageWait::Long);
    }

    #[test]
    fn the_places_are_distinct_and_far_from_each_other() {
        let places: Vec<u64> = places(LATENCY_FILE_BYTES_MIN + 5).collect();
        let far = |pair: &[u64]| pair[0].abs_diff(pair[1]) >= 7 << 20;
        assert!(places.windows(2).all(far), "{places:?}");
        let mut sorted = places.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), usize::from(LATENCY_READS));
        let fits = |at: &u64| at + LATENCY_READ_BYTES <= LATENCY_FILE_BYTES_MIN;
        assert!(sorted.iter().all(fits) && sorted.iter().all(|at| at % READ_ALIGN_BYTES == 0));
    }

    #[test]
    fn a_hole_is_no_sign_of_a_fast_device() {
        // What O_DIRECT takes for a hole of ext4, and for zeroes of a MiB.
        let holes = [(64 * KIB, 3), (MIB, 90)].into_iter().cycle().take(99);
        assert_eq!(after(holes), Latency::default());
        assert_eq!(after([(64 * KIB, 45); 16]).wait(), PageWait::Short, "NVMe");
    }

    #[test]
    fn it_goes_through_a_number_unchanged() {
        let mut latency = Latency::default();
        for n in 0..40u64 {
            assert_eq!(Latency::from_bits(latency.to_bits()), latency);
            latency = latency.with(4096, n % 3 * 5_000, Way::Past);
        }
        let most = Latency::from_bits(u32::MAX);
        assert_eq!(
            (most.reads, most.weight),
            (LATENCY_READS, LONG_READS_WEIGH_MAX)
        );
    }
}
