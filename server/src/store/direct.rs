//! O_DIRECT: reads a file past the page cache. FIEMAP: where it lies on its disk.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ackpace_core::limits::READ_ALIGN_BYTES;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, fcntl_getfl, fstat, open, statx};
use rustix::io::Errno;

use super::attributes::{file_system, known};
use super::closing::Descriptor;
use super::magic::Magic;

/// Calls that ask for the extents of one file, 64 extents each. More: the extents behind them are unknown.
const FIEMAP_CALLS_MAX: u32 = 16;

/// A file that is open for reads past the page cache, in multiples of [`READ_ALIGN_BYTES`].
#[derive(Debug)]
pub struct Direct {
    fd: Descriptor,
}

/// Why a file is read through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its file system has no disk, or not one of this machine.
    FileSystem(&'static str),
    /// The file system refuses it for this file: its data lies in its inode, or it is encrypted.
    Refused,
    /// Reads would have to begin at multiples of this many bytes, more than [`READ_ALIGN_BYTES`].
    Alignment(u32),
    /// It can't be opened with O_DIRECT.
    Open(Errno),
}

impl Why {
    /// Whether it holds for all files of the file system, and permanently: not for this file only, nor while descriptors
    /// are short.
    pub fn is_of_file_system(self) -> bool {
        match self {
            Why::FileSystem(_) | Why::Alignment(_) => true,
            Why::Open(error) => matches!(error, Errno::INVAL | Errno::NOENT),
            Why::Refused => false,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::FileSystem(what) => f.write_str(what),
            Why::Refused => f.write_str("the file system has no O_DIRECT for it"),
            Why::Alignment(bytes) => write!(f, "O_DIRECT would take reads of {bytes} bytes only"),
            Why::Open(Errno::INVAL) => f.write_str("the file system has no O_DIRECT"),
            Why::Open(Errno::NOENT) => f.write_str("O_DIRECT needs /proc, which is not mounted"),
            Why::Open(error) => write!(f, "O_DIRECT: {error}"),
        }
    }
}

/// Opens the file behind `file` once more, past the page cache: the same inode, whatever became of its name. If that was
/// opened without a new time of access, so is this. May wait for the disk.
pub fn open_direct(file: &OwnedFd) -> Result<Direct, Why> {
    if let Some(what) = no_disk_of_ours(file) {
        return Err(Why::FileSystem(what));
    }
    let align_bytes = align_bytes(file).ok_or(Why::Refused)?;
    if !align_bytes.is_power_of_two() || u64::from(align_bytes) > READ_ALIGN_BYTES {
        return Err(Why::Alignment(align_bytes));
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let quiet = fcntl_getfl(file).map_err(Why::Open)? & OFlags::NOATIME;
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOCTTY | quiet;
    let fd = open(link, flags, Mode::empty()).map_err(Why::Open)?;
    let same = |a: &Statx, b: &Statx| (file_system(a), a.stx_ino) == (file_system(b), b.stx_ino);
    match (known(file), known(&fd)) {
        (Ok(before), Ok(now)) if same(&before, &now) => Ok(Direct {
            fd: Descriptor::new(fd, file_system(&now)),
        }),
        (Err(error), _) | (_, Err(error)) => Err(Why::Open(error)),
        _ => Err(Why::Open(Errno::STALE)), // /proc is not ours
    }
}

impl Direct {
    /// The length of the file now.
    pub fn len_bytes(&self) -> u64 {
        fstat(&self.fd).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
    }
}

impl AsFd for Direct {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// File systems that may take O_DIRECT but have no disk whose work we could save, and what to say of them.
fn no_disk_of_ours(file: &OwnedFd) -> Option<&'static str> {
    let magic = Magic::of(file)?;
    match magic {
        Magic::TMPFS | Magic::RAMFS | Magic::HUGETLBFS => Some("the file is in memory (tmpfs)"),
        Magic::OVERLAYFS => Some("overlayfs shows files of another file system"),
        _ => magic.elsewhere(),
    }
}

/// The alignment that memory and offsets need; `None` if the file can't be read with O_DIRECT at all.
fn align_bytes(file: &OwnedFd) -> Option<u32> {
    let unknown = Some(READ_ALIGN_BYTES as u32); // Linux before 6.1, or a file system that does not say
    let Ok(stat) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return unknown;
    };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return unknown;
    }
    match (stat.stx_dio_mem_align, stat.stx_dio_offset_align) {
        (0, _) | (_, 0) => None,
        (memory_bytes, offset_bytes) => Some(memory_bytes.max(offset_bytes)),
    }
}

/// A part of a file that is contiguous on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it starts in the file.
    pub file_offset_bytes: u64,
    /// Where it starts on the device of the file system (the partition). `None` where no data lies there that could be
    /// read as it is: not written yet, kept in the inode, compressed.
    pub phys_offset_bytes: Option<u64>,
    /// How long it is.
    pub len_bytes: u64,
}

impl Extent {
    fn end_bytes(&self) -> u64 {
        self.file_offset_bytes + self.len_bytes // checked when it was made
    }

    /// Whether `next` continues this one, in the file and on the device.
    fn goes_on(&self, next: &Extent) -> bool {
        let phys = match (self.phys_offset_bytes, next.phys_offset_bytes) {
            (Some(at_bytes), Some(next_bytes)) => at_bytes + self.len_bytes == next_bytes,
            (None, None) => true,
            _ => false,
        };
        phys && self.end_bytes() == next.file_offset_bytes
    }
}

/// The first `max` extents of a file, in its order, neighbours joined; holes are left out. What lies behind the last
/// one may be unknown. `None` where the file system does not say, or contradicts itself. May wait for the disk, but for
/// no writing.
pub fn extents(fd: &impl AsFd, max: usize) -> Option<Vec<Extent>> {
    let mut known = KnownExtents::default();
    for _ in 0..FIEMAP_CALLS_MAX {
        // Without FIEMAP_FLAG_SYNC: does not wait for a writer.
        let map = fiemap(fd.as_fd(), known.end_bytes, 0)?;
        let mapped = map.extents.get(..map.mapped_extents as usize)?;
        if known.add(mapped, max)? {
            break;
        }
    }
    Some(known.extents)
}

/// Why the extents of a file can't be read in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPlain {
    /// The file system does not say where they are, or contradicts itself.
    Unknown,
    /// One is not what the file has there: not written, kept in the inode, compressed, shared.
    Kind,
    /// There are too many.
    Many,
}

/// All extents of a file up to this length, in its order, neighbours joined, after what was written to it has reached its device
/// (FIEMAP_FLAG_SYNC). Holes are left out. May wait for the disk for long.
///
/// # Errors
/// More than `max` of them, or one of a kind that can't be read from the device.
pub fn plain_extents(fd: &impl AsFd, len_bytes: u64, max: usize) -> Result<Vec<Extent>, NotPlain> {
    let mut known = KnownExtents::default();
    for _ in 0..=max.div_ceil(EXTENTS_PER_CALL) {
        let map = fiemap(fd.as_fd(), known.end_bytes, SYNC).ok_or(NotPlain::Unknown)?;
        let mapped = map.extents.get(..map.mapped_extents as usize);
        let mapped = mapped.ok_or(NotPlain::Unknown)?;
        let mut inside = mapped.iter().take_while(|raw| raw.logical < len_bytes);
        if inside.any(|raw| raw.flags & !PLAIN != 0) {
            return Err(NotPlain::Kind);
        }
        let is_all = known.add(mapped, max + 1).ok_or(NotPlain::Unknown)?;
        if known.extents.len() > max {
            return Err(NotPlain::Many);
        }
        if is_all || known.end_bytes >= len_bytes {
            return Ok(known.extents);
        }
    }
    Err(NotPlain::Many)
}

/// The extents that the calls so far have returned.
#[derive(Default)]
struct KnownExtents {
    extents: Vec<Extent>,
    /// The end of the last one.
    end_bytes: u64,
}

impl KnownExtents {
    /// Adds the extents of one call; returns whether that is enough, `None` if they contradict.
    fn add(&mut self, mapped: &[RawExtent], max: usize) -> Option<bool> {
        for (nth, raw) in mapped.iter().enumerate() {
            if nth > 0 && raw.logical < self.end_bytes {
                return None; // it overlaps the one before
            }
            let extent = checked(raw, self.end_bytes)?;
            self.end_bytes = extent.end_bytes();
            let full = self.extents.len() == max;
            let last = self.extents.last_mut();
            match last.filter(|last| last.goes_on(&extent)) {
                Some(last) => last.len_bytes += extent.len_bytes,
                None if full => return Some(true),
                None => self.extents.push(extent),
            }
        }
        Some(mapped.last().is_none_or(|raw| raw.flags & LAST != 0))
    }
}

/// An extent as the file system gives it, if it is plausible: it does not begin before `from_bytes`, and nothing
/// overflows.
fn checked(raw: &RawExtent, from_bytes: u64) -> Option<Extent> {
    // Asked for the middle of an extent, the kernel returns the whole one.
    let cut_bytes = from_bytes.saturating_sub(raw.logical);
    let len_bytes = raw.len.checked_sub(cut_bytes).filter(|len| *len > 0)?;
    let file_offset_bytes = raw.logical + cut_bytes;
    file_offset_bytes.checked_add(len_bytes)?;
    let phys_bytes = raw.phys.checked_add(cut_bytes)?;
    phys_bytes.checked_add(len_bytes)?;
    Some(Extent {
        file_offset_bytes,
        phys_offset_bytes: (raw.flags & ELSEWHERE == 0).then_some(phys_bytes),
        len_bytes,
    })
}

/// linux/fiemap.h: the last extent of the file.
const LAST: u32 = 0x1;
/// Its physical offset is unknown, or is not that of its bytes: UNKNOWN, DELALLOC, ENCODED, DATA_ENCRYPTED,
/// NOT_ALIGNED, DATA_INLINE, DATA_TAIL, UNWRITTEN.
const ELSEWHERE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800;
/// What may be said of an extent whose bytes are on the device as the file has them: LAST, MERGED.
const PLAIN: u32 = LAST | 0x1000;
/// linux/fiemap.h: what was written is on the device before the answer (FIEMAP_FLAG_SYNC).
const SYNC: u32 = 0x1;
/// Extents returned by one call: 3.5 KiB of stack.
const EXTENTS_PER_CALL: usize = 64;

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawExtent {
    logical: u64,
    phys: u64,
    len: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap`, and room for its extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    len: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_PER_CALL],
}

/// `struct fiemap` without its flexible array: its size is part of the ioctl number.
type Head = [u64; 4];

fn fiemap(fd: BorrowedFd<'_>, start: u64, flags: u32) -> Option<Fiemap> {
    let request = rustix::ioctl::opcode::read_write::<Head>(b'f', 11);
    let mut map = Fiemap {
        start,
        len: u64::MAX - start,
        flags,
        mapped_extents: 0,
        extent_count: EXTENTS_PER_CALL as u32,
        reserved: 0,
        extents: [RawExtent::default(); EXTENTS_PER_CALL],
    };
    loop {
        // SAFETY: the struct has the kernel's layout, says how many extents it has room for, and outlives the call.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, &mut map) };
        if result == 0 {
            return Some(map);
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw(logical: u64, phys: u64, len: u64, flags: u32) -> RawExtent {
        RawExtent {
            logical,
            phys,
            len,
            flags,
            ..RawExtent::default()
        }
    }

    #[test]
    fn what_holds_for_one_file_or_one_moment_does_not_hold_for_the_file_system() {
        let of_all = [
            Why::FileSystem("in memory"),
            Why::Alignment(65_536),
            Why::Open(Errno::INVAL),
            Why::Open(Errno::NOENT),
        ];
        assert!(of_all.iter().all(|why| why.is_of_file_system()));
        let not = [
            Why::Refused,
            Why::Open(Errno::MFILE),
            Why::Open(Errno::ACCESS),
        ];
        assert!(!not.iter().any(|why| why.is_of_file_system()));
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let good = checked(&raw(8192, 1 << 30, 4096, 0), 8192).expect("a good one");
        assert_eq!(
            (good.file_offset_bytes, good.phys_offset_bytes),
            (8192, Some(1 << 30))
        );
        for (bad, from_bytes) in [
            (raw(0, 0, 0, 0), 0),
            (raw(u64::MAX - 1, 0, 2, 0), 0),
            (raw(0, u64::MAX - 1, 2, 0), 0),
            (raw(0, 0, u64::MAX, 0), u64::MAX),
            (raw(0, 4096, 4096, 0), 4096), // it was returned already
        ] {
            assert_eq!(checked(&bad, from_bytes), None);
        }
        let cut = checked(&raw(0, 4096, 8192, 0), 4096).expect("its second half");
        assert_eq!(
            (cut.file_offset_bytes, cut.phys_offset_bytes, cut.len_bytes),
            (4096, Some(8192), 4096)
        );
    }

    #[test]
    fn data_that_does_not_lie_where_it_says_has_no_place() {
        for bit in 1..32 {
            let flags = 1u32 << bit;
            let extent = checked(&raw(0, 4096, 4096, flags), 0).expect("a good one");
            let merged_or_shared = [0x1000, 0x2000].contains(&flags) || flags > 0x2000;
            let last_reserved = [0x10, 0x20, 0x40].contains(&flags);
            assert_eq!(
                extent.phys_offset_bytes.is_some(),
                merged_or_shared || last_reserved,
                "{flags:#x}"
            );
        }
    }

    #[test]
    fn only_neighbours_in_file_and_device_are_one() {
        let extent = |file_offset_bytes, phys_offset_bytes| Extent {
            file_offset_bytes,
            phys_offset_bytes,
            len_bytes: 4096,
        };
        let first = extent(0, Some(8192));
        assert!(first.goes_on(&extent(4096, Some(12288))));
        assert!(!first.goes_on(&extent(4096, Some(4096))));
        assert!(!first.goes_on(&extent(8192, Some(12288))), "a hole between");
        assert!(!first.goes_on(&extent(4096, None)));
        assert!(extent(0, None).goes_on(&extent(4096, None)));
    }

    /// Small numbers, so that they meet, and such that overflow.
    fn any_number() -> impl Strategy<Value = u64> + Clone {
        prop_oneof![4 => (0..64u64).prop_map(|n| n * 4096), 1 => any::<u64>()]
    }

    fn any_call() -> impl Strategy<Value = Vec<RawExtent>> {
        let raws = (any_number(), any_number(), any_number(), 0..16u32);
        let raws = raws.prop_map(|(logical, phys, len, flags)| raw(logical, phys, len, flags));
        let sorted = |mut raws: Vec<RawExtent>| {
            raws.sort_by_key(|raw| raw.logical);
            raws
        };
        prop_oneof![
            prop::collection::vec(raws.clone(), 0..6),
            prop::collection::vec(raws, 0..6).prop_map(sorted),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]
        #[test]
        fn whatever_is_told_the_extents_are_few_in_order_and_inside_of_64_bits(
            calls in prop::collection::vec(any_call(), 0..5),
            max in 1..8usize,
        ) {
            let mut known = KnownExtents::default();
            for call in calls {
                if known.add(&call, max) != Some(false) {
                    break;
                }
            }
            prop_assert!(known.extents.len() <= max);
            let mut end_bytes = 0;
            for extent in &known.extents {
                prop_assert!(extent.file_offset_bytes >= end_bytes && extent.len_bytes > 0);
                end_bytes = extent.file_offset_bytes.checked_add(extent.len_bytes).expect("no overflow");
                if let Some(phys_bytes) = extent.phys_offset_bytes {
                    prop_assert!(phys_bytes.checked_add(extent.len_bytes).is_some());
                }
            }
            for pair in known.extents.windows(2) {
                prop_assert!(!pair[0].goes_on(&pair[1]), "neighbours are joined");
            }
        }
    }

    #[test]
    fn a_long_file_in_one_piece_is_one_extent_however_many_it_is_told_as() {
        let piece = 128 << 20; // the longest extent that ext4 returns
        let call = |from: u64| -> Vec<RawExtent> {
            let pieces = (from..from + 64).map(|nth| raw(nth * piece, (nth + 5) * piece, piece, 0));
            pieces.collect()
        };
        let mut known = KnownExtents::default();
        assert_eq!(known.add(&call(0), 2), Some(false));
        assert_eq!(known.add(&call(64), 2), Some(false));
        assert_eq!(known.extents.len(), 1);
        assert_eq!(known.extents[0].len_bytes, 128 * piece);
        let apart = [raw(200 * piece, 0, piece, 0), raw(300 * piece, 0, piece, 0)];
        assert_eq!(known.add(&apart, 2), Some(true), "two are enough");
        let overlapping = [
            raw(400 * piece, 0, 2 * piece, 0),
            raw(401 * piece, 0, piece, 0),
        ];
        assert_eq!(known.add(&overlapping, 9), None);
    }

    #[test]
    fn what_tells_no_extents_is_no_error() {
        let pipe = rustix::pipe::pipe().expect("a pipe").0;
        assert_eq!(extents(&pipe, 64), None);
    }

    #[test]
    fn files_in_memory_are_refused_with_their_reason() {
        let Ok(file) = rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC) else {
            return;
        };
        let why = open_direct(&file).map(|_| ()).expect_err("no disk");
        assert_eq!(why.to_string(), "the file is in memory (tmpfs)");
    }
}
