//! Sets attributes, in an order in which none undoes another: length, owner, mode, times.

use std::os::fd::{AsFd, OwnedFd};

use ackpace_wire::nfs3::{SetAttributes, SetTime, Time};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
    chmodat, chownat, ftruncate, utimensat,
};
use rustix::io::Errno;

use super::walk::{Found, Stop, path_of};

/// Bits of a mode that a file can have: the others are not looked at (RFC 1813 section 2.5).
pub const MODE_BITS: u32 = 0o7777;

/// The mode of a file that is made.
pub fn mode_of(set: &SetAttributes, otherwise: u32) -> Mode {
    Mode::from_raw_mode(set.mode.unwrap_or(otherwise) & MODE_BITS)
}

/// Sets these attributes of a file that is there.
///
/// # Errors
/// The first one that can't be set; those before it are.
pub fn set(file: &Found, set: &SetAttributes) -> Result<(), Stop> {
    if let Some(len_bytes) = set.size_bytes {
        match file.kind() {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        truncate(&file.open(OFlags::WRONLY)?, len_bytes)?;
    }
    let mut others = *set;
    // A new length has set the time of writing to now, which only the owner could do alone (utimensat(2)).
    others
        .written_at
        .take_if(|at| set.size_bytes.is_some() && *at == SetTime::Now);
    set_others(&file.place, &others)
}

/// Sets the length.
///
/// # Errors
/// As ftruncate(2); EFBIG for one that no file can have.
pub fn truncate(file: &OwnedFd, len_bytes: u64) -> Result<(), Stop> {
    if i64::try_from(len_bytes).is_err() {
        return Err(Errno::FBIG.into());
    }
    Ok(ftruncate(file, len_bytes)?)
}

/// Sets all but the length.
///
/// # Errors
/// As [`set`].
pub fn set_others(file: &OwnedFd, set: &SetAttributes) -> Result<(), Stop> {
    if set.uid.is_some() || set.gid.is_some() {
        let (uid, gid) = (set.uid.map(id).transpose()?, set.gid.map(id).transpose()?);
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    if set.mode.is_some() {
        chmodat(CWD, path_of(file), mode_of(set, 0), AtFlags::empty())?;
    }
    if set.read_at.is_some() || set.written_at.is_some() {
        let times = Timestamps {
            last_access: timespec(set.read_at),
            last_modification: timespec(set.written_at),
        };
        match set_times(file, &times) {
            // To set one time to now is the owner's alone for Linux, and everybody's who may write for RFC 1813 section 3.3.2.
            // Linux lets all of those set both.
            Err(Stop::Failed(Errno::PERM)) if is_now(set) => set_times(file, &NOW)?,
            done => done?,
        }
    }
    Ok(())
}

/// Both times are now.
const NOW: Timestamps = Timestamps {
    last_access: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    },
    last_modification: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    },
};

/// Whether a time is set to now, and none to another time.
fn is_now(set: &SetAttributes) -> bool {
    let times = [set.read_at, set.written_at];
    times.iter().flatten().all(|time| *time == SetTime::Now)
}

/// The highest number means "leave it" to the kernel.
fn id(number: u32) -> Result<u32, Errno> {
    match number {
        u32::MAX => Err(Errno::INVAL),
        number => Ok(number),
    }
}

/// Sets both times.
///
/// # Errors
/// As utimensat(2).
pub fn set_times(file: impl AsFd, times: &Timestamps) -> Result<(), Stop> {
    Ok(utimensat(file, c"", times, AtFlags::EMPTY_PATH)?)
}

fn timespec(time: Option<SetTime>) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, UTIME_OMIT),
        Some(SetTime::Now) => (0, UTIME_NOW),
        Some(SetTime::At(Time { s, ns })) => (s.into(), ns.into()),
    };
    Timespec { tv_sec, tv_nsec }
}
