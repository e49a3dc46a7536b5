//! Writing files, setting their times, and finding them on their device.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::content::State;
use crate::Rng;

/// Writes a state into its file, from this offset on.
pub fn write_all(out: &File, state: &State, from: u64) -> io::Result<()> {
    let mut piece = vec![0; 256 << 10];
    let mut at = from;
    while at < state.len_bytes() {
        let here = piece.len().min((state.len_bytes() - at) as usize);
        state.fill(at, &mut piece[..here]);
        out.write_all_at(&piece[..here], at)?;
        at += here as u64;
    }
    Ok(())
}

/// Sets its time of modification to this long ago.
pub fn set_time(path: &Path, ago: Duration) -> io::Result<()> {
    let time = SystemTime::now() - ago;
    File::options().write(true).open(path)?.set_modified(time)
}

/// A day or so, and at least this many seconds.
pub fn some_age(rng: &mut Rng, least_s: u64) -> Duration {
    let s = least_s + rng.below(100_000) as u64;
    Duration::new(s, rng.below(1_000_000_000) as u32)
}

/// Its time of modification, in ns since 1970.
pub fn modified_ns(path: &Path) -> Option<i128> {
    let metadata = fs::metadata(path).ok()?;
    Some(i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()))
}

/// Offset on the device of this byte of a file (FIBMAP, ioctl_list(2)).
pub fn device_offset(file: &File, offset: u64) -> Option<u64> {
    const FIBMAP: libc::c_ulong = 1;
    const BLOCK: u64 = 4096;
    let mut block = (offset / BLOCK) as libc::c_int;
    // SAFETY: the pointer is to a live int, which the call reads and writes.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FIBMAP as _, &mut block) };
    (result == 0 && block > 0).then(|| block as u64 * BLOCK)
}
