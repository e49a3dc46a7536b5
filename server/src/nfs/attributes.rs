//! What NFS tells of a file, by what statx(2) tells.

use ackpace_wire::nfs3::{Attributes, Device, Kind, Time};
use rustix::fs::{FileType, Statx};

/// The attributes of a file on this file system.
pub fn attributes(told: &Statx, file_system: u64) -> Attributes {
    Attributes {
        kind: kind(told),
        mode: u32::from(told.stx_mode) & 0o7777,
        links: told.stx_nlink,
        uid: told.stx_uid,
        gid: told.stx_gid,
        size_bytes: told.stx_size,
        used_bytes: told.stx_blocks.saturating_mul(512),
        device: Device {
            major: told.stx_rdev_major,
            minor: told.stx_rdev_minor,
        },
        file_system,
        file_id: told.stx_ino,
        read_at: time(told.stx_atime.tv_sec, told.stx_atime.tv_nsec),
        written_at: time(told.stx_mtime.tv_sec, told.stx_mtime.tv_nsec),
        changed_at: time(told.stx_ctime.tv_sec, told.stx_ctime.tv_nsec),
    }
}

/// What the file is.
pub fn kind(told: &Statx) -> Kind {
    match FileType::from_raw_mode(told.stx_mode.into()) {
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Link,
        FileType::BlockDevice => Kind::Block,
        FileType::CharacterDevice => Kind::Character,
        FileType::Socket => Kind::Socket,
        FileType::Fifo => Kind::Pipe,
        FileType::RegularFile | FileType::Unknown => Kind::Regular,
    }
}

/// Times that the protocol can't tell are its first or its last one.
fn time(told_s: i64, told_ns: u32) -> Time {
    let s = told_s.clamp(0, u32::MAX.into());
    Time {
        s: s as u32, // clamped
        ns: if s == told_s { told_ns } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_cannot_be_told_are_the_nearest_that_can() {
        let of = |tv_sec: i64| {
            let Time { s, ns } = time(tv_sec, 7);
            (s, ns)
        };
        assert_eq!(of(5), (5, 7));
        assert_eq!(of(-1), (0, 0));
        assert_eq!(of(i64::MAX), (u32::MAX, 0));
    }
}
