//! System calls that sleep, as behind a file system that does not answer.

use std::io;
use std::ptr;

const PAGE: usize = 4_096;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const MODE_MISSING: u64 = 1;

/// A page of memory on which a system call sleeps until it is released (userfaultfd(2)).
#[derive(Debug)]
pub struct Trap {
    fd: libc::c_int,
    page: *mut u8,
}

impl Trap {
    /// A new one; `None` where the kernel refuses.
    pub fn new() -> Option<Trap> {
        // SAFETY: no pointers; the descriptor is new.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) } as libc::c_int;
        if fd < 0 {
            return None;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the place.
        let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, access, kind, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED, "mmap");
        let trap = Trap {
            fd,
            page: page.cast(),
        };
        let (mut api, mut range) = (
            [0xaa_u64, 0, 0],
            [page as u64, PAGE as u64, MODE_MISSING, 0],
        );
        // SAFETY: each argument has the size that its number names, and lives through the call.
        let is_set = unsafe {
            libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr()) == 0
                && libc::ioctl(fd, UFFDIO_REGISTER, range.as_mut_ptr()) == 0
        };
        is_set.then_some(trap)
    }

    /// Where it is.
    pub fn page_address(&self) -> usize {
        self.page as usize
    }

    /// Whoever sleeps on it goes on.
    pub fn release(&self) {
        let mut range = [self.page as u64, PAGE as u64, 0, 0];
        // SAFETY: as above.
        let done = unsafe { libc::ioctl(self.fd, UFFDIO_ZEROPAGE, range.as_mut_ptr()) };
        assert_eq!(done, 0, "UFFDIO_ZEROPAGE: {}", io::Error::last_os_error());
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        // SAFETY: our own; nobody uses them any more.
        unsafe {
            libc::munmap(self.page.cast(), PAGE);
            libc::close(self.fd);
        }
    }
}
