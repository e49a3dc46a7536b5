//! What serving needs of the kernel, and of what a container or a chroot has to mount: each is tried once, at a start and by
//! `ackpace check` and `ackpace doctor`. What the configuration names is tried where it is opened.

use std::fs;
use std::io;

/// The system calls that a start does not make itself, and serving can't do without.
const CALLS: [(&str, libc::c_long); 14] = [
    ("openat2", libc::SYS_openat2),
    ("statx", libc::SYS_statx),
    ("getdents64", libc::SYS_getdents64),
    ("readlinkat", libc::SYS_readlinkat),
    ("pread64", libc::SYS_pread64),
    ("preadv", libc::SYS_preadv),
    ("preadv2", libc::SYS_preadv2),
    ("sendfile", libc::SYS_sendfile),
    ("accept4", libc::SYS_accept4),
    ("recvfrom", libc::SYS_recvfrom),
    ("sendto", libc::SYS_sendto),
    ("sendmsg", libc::SYS_sendmsg),
    ("shutdown", libc::SYS_shutdown),
    ("sysinfo", libc::SYS_sysinfo),
];

/// Checks that no system call is missing or refused.
/// Errors: One line that names all that are.
pub fn check() -> Result<(), String> {
    let refused = |(name, call): (&'static str, _)| Some((name, refusal(call)?));
    let (names, errors): (Vec<_>, Vec<_>) = CALLS.into_iter().filter_map(refused).unzip();
    let Some(error) = errors.first() else {
        return Ok(());
    };
    Err(format!(
        "{}: {error}; files can't be served without: use Linux 5.14 or later, and a seccomp profile that allows it (Docker since 20.10, \
         with libseccomp 2.5); a unit of systemd must have neither RestrictSUIDSGID= nor DynamicUser=",
        names.join(", ")
    ))
}

/// Why the kernel would refuse this call, whatever it is called with.
fn refusal(call: libc::c_long) -> Option<io::Error> {
    const NONE: libc::c_long = -1;
    // SAFETY: -1 is no descriptor, no address and no length, so each of these calls fails before it reads or writes anything.
    unsafe { libc::syscall(call, NONE, NONE, NONE, NONE, NONE, NONE) };
    let error = io::Error::last_os_error();
    // None of these is an answer to wrong arguments.
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES)
    )
    .then_some(error)
}

/// What is missing and makes serving worse: a line for each, with what it costs.
pub fn lost() -> Vec<String> {
    let proc = fs::read_link("/proc/self/fd/2").map(drop); // standard error, which each process has
    let sys = fs::metadata("/sys/dev/block").map(drop);
    let lost = [
        (
            "/proc",
            proc,
            "symbolic links get 404, and files are read through the page cache",
        ),
        (
            "/sys",
            sys,
            "each file system counts as a disk of its own, which rotates",
        ),
    ];
    let line = |(name, tried, cost): (_, io::Result<()>, _)| {
        let error = tried.err()?;
        Some(format!(
            "lost: {name}: {error}. Until it is mounted in this container or chroot, {cost}"
        ))
    };
    lost.into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::store::ring::Ring;

    /// The result of `act` in a thread for which the kernel refuses `call` with `errno`.
    fn where_refused<T: Send + 'static>(
        call: libc::c_long,
        errno: i32,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
        let thread = thread::spawn(move || {
            // Loads the number; if it is the call, returns the error, and allows anything else.
            let mut steps = [
                step(0x20, 0, 0),
                step(0x15, 1, call as u32),
                step(0x06, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
                step(0x06, 0, libc::SECCOMP_RET_ALLOW),
            ];
            let filter = libc::sock_fprog {
                len: steps.len() as u16,
                filter: steps.as_mut_ptr(),
            };
            // SAFETY: the filter lives until the calls return; it is for this thread, which ends soon.
            let set = unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                    && libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const filter, 0, 0) == 0
            };
            assert!(set, "{}", io::Error::last_os_error());
            act()
        });
        thread.join().expect("it does not panic")
    }

    #[test]
    fn each_call_that_a_seccomp_profile_refuses_is_named() {
        assert!(check().is_ok(), "{:?}", check());
        for (name, call) in CALLS {
            for errno in [libc::EPERM, libc::ENOSYS] {
                let told = where_refused(call, errno, check).expect_err(name);
                let error = io::Error::from_raw_os_error(errno);
                let begin = format!("{name}: {error}; files can't be served without");
                assert!(told.starts_with(&begin), "{told}");
            }
        }
    }

    #[test]
    fn a_ring_that_may_not_be_entered_is_none() {
        let ring = || Ring::<()>::new(1).map(drop);
        let refused = where_refused(libc::SYS_io_uring_enter, libc::EPERM, ring);
        assert!(refused.is_err());
    }
}
