//! Kinds of file systems, by the magic number that statfs(2) tells.

use std::os::fd::AsFd;

/// The magic number of a kind of file system (linux/magic.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Magic(u32);

impl Magic {
    /// tmpfs.
    pub const TMPFS: Magic = Magic(0x0102_1994);
    /// ramfs.
    pub const RAMFS: Magic = Magic(0x8584_58f6);
    /// hugetlbfs.
    pub const HUGETLBFS: Magic = Magic(0x9584_58f6);
    /// overlayfs.
    pub const OVERLAYFS: Magic = Magic(0x794c_7630);

    /// That of a file's file system; `None` where the kernel does not say. It may wait for a daemon or a file server.
    pub fn of(file: &impl AsFd) -> Option<Magic> {
        let told = rustix::fs::fstatfs(file).ok()?;
        Some(Magic(told.f_type as u64 as u32)) // 32 bits, which some architectures extend by the sign
    }

    pub fn is_memory(self) -> bool {
        self == Magic::TMPFS || self == Magic::RAMFS
    }

    /// Why none of this machine's disks has its files: a daemon or a file server does, which each system call may ask.
    /// `None`: the files are here.
    pub fn elsewhere(self) -> Option<&'static str> {
        match self.0 {
            0x6969 => Some("NFS has its disks elsewhere"),
            0xff53_4d42 | 0xfe53_4d42 | 0x517b => Some("SMB has its disks elsewhere"),
            0x00c3_6400 => Some("Ceph has its disks elsewhere"),
            0x0bd0_0bd0 => Some("Lustre has its disks elsewhere"),
            0x0102_1997 => Some("9p has its disks elsewhere"),
            0x5346_414f | 0x6b41_4653 => Some("AFS has its disks elsewhere"),
            0x6573_5546 => Some("FUSE has its disks elsewhere"),
            0x7375_7245 => Some("Coda has its disks elsewhere"),
            0x2003_0528 => Some("OrangeFS has its disks elsewhere"),
            0x786f_4256 => Some("vboxsf has its disks elsewhere"),
            _ => None,
        }
    }
}
