//! A file's version and its file system, by what stat(2) and statx(2) show.

use std::os::fd::AsFd;

use ackpace_core::conn::Version;
use rustix::fs::{AtFlags, Stat, Statx, StatxFlags, StatxTimestamp, makedev, statx};

/// The attributes of an open file as the kernel knows them. Those of a local file system are the present ones. Those of
/// a FUSE or a network file system are as old as the last look-up or read (AT_STATX_DONT_SYNC): a question to the daemon
/// or the file server would have the worker wait for it.
pub fn known(file: &impl AsFd) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, c"", flags, KNOWN)
}

const KNOWN: StatxFlags = StatxFlags::BASIC_STATS
    .union(StatxFlags::MNT_ID)
    .union(STATX_MNT_ID_UNIQUE);

/// linux/stat.h: the mount by a number that is never given out again. Linux before 6.8 ignores the flag, and tells the
/// number of STATX_MNT_ID.
const STATX_MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// A file system as one mount shows it. Linux gives the number of a file system out again when it is unmounted, so
/// that number alone does not tell whether it is the same one. Bind mounts of one file system have an id each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileSystemId {
    /// Its number, as stat(2) names it.
    pub st_dev: u64,
    /// Its mount.
    pub mount_id: u64,
}

/// The file system that such attributes show.
pub fn file_system(known: &Statx) -> FileSystemId {
    FileSystemId {
        st_dev: makedev(known.stx_dev_major, known.stx_dev_minor),
        mount_id: known.stx_mnt_id,
    }
}

/// The version of the file that a stat shows.
#[allow(
    clippy::useless_conversion,
    reason = "the number of links is shorter on other architectures"
)]
pub fn version(stat: &Stat) -> Version {
    Version {
        len_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mtime_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
        ctime_ns: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
        links: u64::from(stat.st_nlink),
    }
}

/// The version of the file that such attributes show.
pub fn known_version(stat: &Statx) -> Version {
    let time_ns =
        |time: &StatxTimestamp| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    Version {
        len_bytes: stat.stx_size,
        mtime_ns: time_ns(&stat.stx_mtime),
        ctime_ns: time_ns(&stat.stx_ctime),
        links: stat.stx_nlink.into(),
    }
}
