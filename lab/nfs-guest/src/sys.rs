//! System calls that std lacks, and what checks say.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Why a check fails.
pub type Why = String;

/// A result whose error says what was tried.
pub trait Doing<T> {
    fn doing(self, what: &str) -> Result<T, Why>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &str) -> Result<T, Why> {
        self.map_err(|error| format!("{what}: {error}"))
    }
}

/// Fails unless it holds.
pub fn holds(it: bool, what: impl FnOnce() -> String) -> Result<(), Why> {
    match it {
        true => Ok(()),
        false => Err(what()),
    }
}

/// Fails unless they are the same.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, should: T) -> Result<(), Why> {
    holds(is == should, || format!("{what} is {is:?}, not {should:?}"))
}

/// Fails unless it was refused with one of these errnos.
pub fn refused<T>(what: &str, result: io::Result<T>, errnos: &[i32]) -> Result<(), Why> {
    match result {
        Ok(_) => Err(format!("{what} succeeds")),
        Err(error) if error.raw_os_error().is_some_and(|of| errnos.contains(&of)) => Ok(()),
        Err(error) => Err(format!("{what} is refused with {error}")),
    }
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no NUL in a path")
}

fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub fn fifo(path: &Path) -> io::Result<()> {
    // SAFETY: the path ends with NUL, and is only read.
    done(unsafe { libc::mkfifo(c(path).as_ptr(), 0o644) })
}

pub fn device(path: &Path, major: u32, minor: u32) -> io::Result<()> {
    let number = libc::makedev(major, minor);
    // SAFETY: as above.
    done(unsafe { libc::mknod(c(path).as_ptr(), libc::S_IFCHR | 0o644, number) })
}

/// Sets access and modification times, in seconds and nanoseconds.
pub fn set_times(path: &Path, times: [(i64, i64); 2]) -> io::Result<()> {
    let times = times.map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    // SAFETY: the path ends with NUL, there are two times, and both are only read.
    done(unsafe { libc::utimensat(libc::AT_FDCWD, c(path).as_ptr(), times.as_ptr(), 0) })
}

/// Takes the identity of another user, with these further groups, until [`as_root`].
pub fn as_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: the list is as long as it says, and is only read. The process has one thread.
    unsafe {
        done(libc::setgroups(groups.len(), groups.as_ptr()))?;
        done(libc::setegid(gid))?;
        done(libc::seteuid(uid))
    }
}

/// Takes the first identity again.
pub fn as_root() {
    // SAFETY: no memory is passed.
    unsafe {
        libc::seteuid(0);
        libc::setegid(0);
        libc::setgroups(0, std::ptr::null());
    }
}

pub fn is_root() -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::getuid() == 0 }
}

/// A lock of all of a file, as fcntl(2) has it. `false`: somebody else has one.
pub fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: all zeros are a lock of a whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    // SAFETY: the lock outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
    match done(result) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

pub fn allocate(file: &File, len: i64) -> io::Result<()> {
    // SAFETY: no memory is passed.
    done(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) })
}

/// Memory that is a file.
pub struct Mapped {
    at: *mut u8,
    len: usize,
}

impl Mapped {
    pub fn new(file: &File, len: usize) -> io::Result<Mapped> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place; the memory is used through this type only.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match at == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Mapped { at: at.cast(), len }),
        }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: it is so long, mapped until this is dropped, and borrowed once.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }

    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is mapped.
        done(unsafe { libc::msync(self.at.cast(), self.len, libc::MS_SYNC) })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped, and nobody has a reference any more.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// Memory at an address as direct I/O wants it.
pub struct Aligned(Vec<u8>, usize, usize);

impl Aligned {
    pub fn new(len: usize) -> Aligned {
        let memory = vec![0; len + 4096];
        let from = memory.as_ptr().align_offset(4096);
        Aligned(memory, from, len)
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.1 + self.2]
    }
}

/// Bytes that tell where they stand.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let byte = |at: usize| {
        let mixed = (at as u64 / 8 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (8 * (at % 8))) as u8
    };
    (0..len).map(byte).collect()
}
