//! Descriptors of the process: how many it may have, and room for them in time.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for which the kernel makes room at the start: 2 MiB of its memory. More: a worker may have to wait while
/// the kernel makes more.
const DESCRIPTORS_READY_MAX: u64 = 1 << 18;

/// How many descriptors the kernel lets the process have (getrlimit(2)).
pub fn allowed() -> u64 {
    let limit = getrlimit(Resource::Nofile).current;
    limit.unwrap_or(u64::MAX)
}

/// How many descriptors besides the standard ones were left open by who started the process: to be called before it opens any.
/// 0 where /proc is not mounted.
pub fn inherited() -> u64 {
    const STANDARD_AND_THIS: usize = 4;
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    open.saturating_sub(STANDARD_AND_THIS) as u64
}

/// Raises the soft limit of descriptors, which is often 1024 for the sake of select(2). A connection with a response
/// needs up to three: socket, file, and the file past the page cache.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

/// What to do about an error, if it is that no descriptor was left; begins with a semicolon.
pub fn cure(error: Option<i32>) -> &'static str {
    match error.map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => {
            "; set LimitNOFILE= in the unit (or ulimit -n) to what ackpace limits tells"
        }
        Some(Errno::NFILE) => "; the machine has no descriptor left: raise sysctl fs.file-max",
        _ => "",
    }
}

/// Has the kernel make room for so many descriptors now. It doubles a table that is full, and whoever needs the next
/// descriptor then sleeps until every core has passed through the scheduler: a worker of a busy machine for 100 ms and
/// more (expand_files() in fs/file.c).
pub fn reserve(wanted: u64) {
    let most = wanted.min(allowed()).min(DESCRIPTORS_READY_MAX);
    // The descriptor is closed at once; the table keeps its size.
    let _ = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), most.saturating_sub(1) as _);
}
