//! System calls that the standard library lacks: socket options, limits, watches for opens, mounts.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn check(result: libc::c_int, what: &str) {
    assert!(result >= 0, "{what}: {}", io::Error::last_os_error());
}

fn set_option<T>(stream: &TcpStream, option: libc::c_int, value: &T, what: &str) {
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result, what);
}

/// Makes a drop of the stream send RST instead of FIN (SO_LINGER with 0 seconds, socket(7)).
pub fn reset_on_drop(stream: &TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    set_option(stream, libc::SO_LINGER, &linger, "SO_LINGER");
}

/// Drops two of a hundred segments for this socket at random, as a bad link does (SO_ATTACH_FILTER, socket(7)). Returns whether
/// the kernel lets this user do that.
#[must_use]
pub fn lossy(stream: &TcpStream) -> bool {
    const RANDOM: u32 = (libc::SKF_AD_OFF + 56) as u32; // SKF_AD_RANDOM
    let line = |code: u32, jt, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let mut lines = [
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, RANDOM),
        line(
            libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K,
            1,
            u32::MAX / 50,
        ),
        line(libc::BPF_RET | libc::BPF_K, 0, 0),
        line(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
    ];
    let program = libc::sock_fprog {
        len: lines.len() as u16,
        filter: lines.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    let error = io::Error::last_os_error();
    if result != 0 && error.raw_os_error() == Some(libc::EPERM) {
        return false;
    }
    assert_eq!(result, 0, "{error}");
    true
}

/// Makes a reader's receive window small, so that a server soon has to wait for it.
pub fn limit_receive_buffer(stream: &TcpStream, len_bytes: usize) {
    let len_bytes = len_bytes as libc::c_int;
    set_option(stream, libc::SO_RCVBUF, &len_bytes, "SO_RCVBUF");
}

/// Connects from this address, if one is given, with a receive buffer of about this size from the start: a window that
/// shrinks after the SYN drops data that it had room for before. A socket with SOCK_NONBLOCK has only begun to connect.
pub fn connect_with(
    to: SocketAddr,
    from: Option<Ipv4Addr>,
    receive_bytes: Option<usize>,
    flags: libc::c_int,
) -> io::Result<TcpStream> {
    let SocketAddr::V4(to) = to else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags;
    // SAFETY: no pointers; the descriptor is new and has no other owner.
    let stream = unsafe {
        let fd = libc::socket(libc::AF_INET, kind, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        TcpStream::from_raw_fd(fd)
    };
    if let Some(bytes) = receive_bytes {
        limit_receive_buffer(&stream, bytes);
    }
    let address = |ip: Ipv4Addr, port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(ip).to_be(),
        },
        sin_zero: [0; 8],
    };
    let len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    let (from, to) = (from.map(|ip| address(ip, 0)), address(*to.ip(), to.port()));
    // SAFETY: both addresses live until the calls return.
    let connected = unsafe {
        let is_bound = |from: &libc::sockaddr_in| {
            libc::bind(stream.as_raw_fd(), std::ptr::from_ref(from).cast(), len) == 0
        };
        from.as_ref().is_none_or(is_bound)
            && libc::connect(stream.as_raw_fd(), (&raw const to).cast(), len) == 0
    };
    let error = io::Error::last_os_error();
    match connected || error.raw_os_error() == Some(libc::EINPROGRESS) {
        true => Ok(stream),
        false => Err(error),
    }
}

/// Raises this process's descriptor limit to its hard limit, and returns it.
pub fn raise_own_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live rlimit, in both calls.
    unsafe {
        check(
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit),
            "getrlimit",
        );
        limit.rlim_cur = limit.rlim_max;
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), "setrlimit");
    }
    limit.rlim_max
}

/// The start of a file, mapped (MAP_SHARED).
#[derive(Debug)]
pub struct Mapped {
    start: *mut libc::c_void,
    len: usize,
}

impl Mapped {
    /// Maps the first `len` bytes, for writing. The kernel tells nobody of a store to a page that is dirty already.
    pub fn new(file: &File, len: usize) -> Mapped {
        Mapped::with(file, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Maps a whole file and keeps it in the page cache as long as this lives. Some machines page out what is hardly
    /// used (DAMON), and a test that wants the file cached would cause disk reads.
    pub fn locked(file: &File) -> Mapped {
        let mapped = Mapped::with(file, len_of(file), libc::PROT_READ);
        // SAFETY: the mapping just made.
        check(unsafe { libc::mlock(mapped.start, mapped.len) }, "mlock");
        mapped
    }

    fn with(file: &File, len: usize, access: libc::c_int) -> Mapped {
        let null = std::ptr::null_mut();
        // SAFETY: the kernel chooses the place; nothing that exists is touched.
        let start = unsafe { libc::mmap(null, len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(start, libc::MAP_FAILED, "mmap");
        Mapped { start, len }
    }

    /// Stores bytes at the start of a mapping that is for writing.
    pub fn store(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY: so much is mapped, for writing, until `self` is dropped.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.cast(), bytes.len()) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nobody else knows the place.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

fn len_of(file: &File) -> usize {
    file.metadata().expect("an open file").len() as usize
}

/// Asks the kernel to drop a file's pages from the page cache; pages that are being sent stay.
pub fn forget_cached(file: &File) {
    file.sync_data()
        .expect("clean pages, which can be forgotten");
    // SAFETY: no pointers.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(result, 0, "posix_fadvise");
}

/// Allocates space for a file without writing to it (fallocate(2)).
pub fn allocate(file: &File, len_bytes: u64) {
    // SAFETY: no pointers.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len_bytes as libc::off_t) };
    check(result, "fallocate");
}

/// Bytes of a file in the page cache, by mincore(2), which works for the owner of the file.
pub fn cached_bytes(file: &File) -> usize {
    const PAGE: usize = 4096;
    let mapped = Mapped::with(file, len_of(file), libc::PROT_NONE);
    let mut pages = vec![0u8; mapped.len.div_ceil(PAGE)];
    // SAFETY: the mapping is as long as it says, and the vector has a byte for each of its pages.
    let result = unsafe { libc::mincore(mapped.start, mapped.len, pages.as_mut_ptr()) };
    assert_eq!(result, 0, "mincore");
    pages.iter().filter(|page| **page & 1 == 1).count() * PAGE
}

/// Whether the file system of a file claims to support O_DIRECT.
pub fn has_direct(path: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    let direct = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path);
    // tmpfs accepts the flag and has no disk; overlayfs passes it on to another file system.
    let mut fs = std::mem::MaybeUninit::<libc::statfs>::uninit();
    direct.is_ok_and(|file| {
        // SAFETY: an open descriptor and memory for the answer, which is looked at only if there is one.
        let told = unsafe { libc::fstatfs(file.as_raw_fd(), fs.as_mut_ptr()) == 0 };
        if !told {
            return false;
        }
        // SAFETY: as above.
        let kind = unsafe { fs.assume_init_ref() }.f_type as u64;
        !matches!(kind, 0x0102_1994 | 0x794c_7630)
    })
}

/// Detects opens of a file (inotify(7); an open with O_PATH does not count).
pub struct OpenWatch(OwnedFd);

impl OpenWatch {
    /// Watches a file from now on.
    pub fn new(path: &Path) -> OpenWatch {
        let path = CString::new(path.as_os_str().as_bytes()).expect("a path without NUL");
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        check(fd, "inotify_init1");
        // SAFETY: the descriptor is new and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the path is a live C string.
        let watch =
            unsafe { libc::inotify_add_watch(fd.as_raw_fd(), path.as_ptr(), libc::IN_OPEN) };
        check(watch, "inotify_add_watch");
        OpenWatch(fd)
    }

    /// Whether the file has been opened since the last call.
    pub fn opened(&self) -> bool {
        let mut events = [0_u8; 4096];
        // SAFETY: the pointer and the length describe `events`.
        let read =
            unsafe { libc::read(self.0.as_raw_fd(), events.as_mut_ptr().cast(), events.len()) };
        read > 0
    }
}

/// Hides what is in these directories from the child, by empty file systems. To be called in a child.
pub fn hide_from_child(dirs: &[&CStr]) -> io::Result<()> {
    mounts_apart()?;
    let tmpfs = c"tmpfs".as_ptr();
    for dir in dirs {
        // SAFETY: the data may be null, and all other pointers lead to C strings that live.
        done(unsafe { libc::mount(tmpfs, dir.as_ptr(), tmpfs, 0, std::ptr::null()) })?;
    }
    Ok(())
}

/// Makes the mounts of a child private to it, so that they end with it. To be called in the child.
pub fn mounts_apart() -> io::Result<()> {
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let none = std::ptr::null();
    // SAFETY: all pointers are null where mount(2) allows it, or to live C strings.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNS))?;
        done(libc::mount(none, c"/".as_ptr(), none, private, none.cast()))
    }
}

/// Shows a directory of another mount namespace at `to`. To be called in a child. `space` is a descriptor of the
/// namespace, and `root` one of the root directory of a process there: setns(2) leads to the namespace's own root,
/// which differs where we are in a chroot.
pub fn bind_for_child(
    (space, root): (libc::c_int, libc::c_int),
    from: &CString,
    to: &CString,
) -> io::Result<()> {
    // SAFETY: the descriptors are open in the parent, so here, too; these are plain system calls.
    unsafe {
        done(libc::setns(space, libc::CLONE_NEWNS))?;
        done(libc::fchdir(root))?;
        done(libc::chroot(c".".as_ptr()))?;
        mounts_apart()?;
        let none = std::ptr::null();
        done(libc::mount(
            from.as_ptr(),
            to.as_ptr(),
            none,
            libc::MS_BIND,
            none.cast(),
        ))
    }
}

/// The result of a system call.
pub fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
