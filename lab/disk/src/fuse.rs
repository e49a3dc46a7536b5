//! The FUSE side: a folder with one file, `disk`, whose reads and writes become requests to the engine.

use super::engine::{Engine, lock};
use ackpace_sim::models::disk::request::Kind;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Longest request; the kernel splits longer ones.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel sends before earlier ones are answered: more than any emulated queue holds.
const BACKGROUND_MAX: u16 = 512;
/// Name of the file.
pub const FILE: &str = "disk";

const FILE_INODE: u64 = 2;
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The file system of one disk.
pub struct DiskFile {
    engine: Arc<Engine>,
}

impl DiskFile {
    /// A file system whose requests this engine answers.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    fn attributes(&self, inode: u64) -> FileAttr {
        let file = inode == FILE_INODE;
        let size = if file { self.engine.size_bytes() } else { 0 };
        FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size / 512,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if file {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: if file { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for DiskFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted =
            InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES | InitFlags::FUSE_BIG_WRITES;
        let _ = config.add_capabilities(wanted & config.capabilities());
        let refused = |what: &str| io::Error::other(format!("FUSE refuses {what}"));
        config
            .set_max_write(REQUEST_BYTES_MAX)
            .map_err(|_| refused("max_write"))?;
        let _ = config.set_max_readahead(REQUEST_BYTES_MAX);
        config
            .set_max_background(BACKGROUND_MAX)
            .map_err(|_| refused("max_background"))?;
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == FILE {
            reply.entry(&FOREVER, &self.attributes(FILE_INODE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attributes(inode.0));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&FOREVER, &self.attributes(inode.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let now_ns = self.engine.now_ns();
        let len = u64::from(size).min(self.engine.size_bytes().saturating_sub(offset));
        if len == 0 {
            return reply.data(&[]);
        }
        // Generate the bytes while the device still seeks.
        let mut bytes = vec![0; len as usize];
        lock(&self.engine.store).read(offset, &mut bytes);
        let respond = move |failed: bool| match failed {
            true => reply.error(Errno::EIO),
            false => reply.data(&bytes),
        };
        self.engine
            .submit(now_ns, offset, len, Kind::Read, Box::new(respond));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let now_ns = self.engine.now_ns();
        let len = data.len() as u64;
        let fits = offset + len <= self.engine.size_bytes();
        if !fits || lock(&self.engine.store).write(offset, data).is_err() {
            return reply.error(Errno::ENOSPC);
        }
        if len == 0 {
            return reply.written(0);
        }
        let respond = move |failed: bool| match failed {
            true => reply.error(Errno::EIO),
            false => reply.written(len as u32),
        };
        self.engine
            .submit(now_ns, offset, len, Kind::Write, Box::new(respond));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok(); // an answered write is already on the medium
    }
}
