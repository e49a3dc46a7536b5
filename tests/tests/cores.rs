//! Number of workers: one for each core that the process may use.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::PathBuf;

use ackpace_tests::{Server, Setup, Tree, eventually, skip};

/// Waits until this many threads serve connections. A request that is answered afterwards leaves others time to appear; a thread
/// that a worker starts for it bears the worker's name until it first runs.
fn assert_workers(server: &Server, expected: usize) {
    let workers = || {
        let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
        let name = |thread: io::Result<fs::DirEntry>| {
            fs::read_to_string(thread.ok()?.path().join("comm")).ok()
        };
        let names = threads.filter_map(name);
        names.filter(|name| name.starts_with("worker-")).count()
    };
    eventually("a thread for each worker", || workers() >= expected);
    server.get("/", "");
    eventually("no other worker", || workers() == expected);
}

/// Number of cores that this process may use.
fn cores() -> usize {
    // SAFETY: an all-zero set is valid, and the kernel writes no more than it holds.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(
            libc::sched_getaffinity(0, size_of_val(&set), &raw mut set),
            0
        );
        libc::CPU_COUNT(&set) as usize
    }
}

/// Restricts the calling process to the first of its cores.
fn keep_one_core() -> io::Result<()> {
    // SAFETY: as above; `CPU_SET` stays within the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        let first = (0..libc::CPU_SETSIZE as usize).find(|core| libc::CPU_ISSET(*core, &set));
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first.unwrap_or(0), &mut one);
        match libc::sched_setaffinity(0, size_of_val(&one), &raw const one) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A cgroup whose processes get the CPU time of one core (cpu.max, or cpu.cfs_quota_us of v1); removed when it is
/// dropped.
struct OneCore(PathBuf);

impl OneCore {
    fn new() -> Option<OneCore> {
        let name = format!("ackpace-test-{}", std::process::id());
        let v1 = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].map(PathBuf::from);
        let files = |root: PathBuf, file, text| (root.join(&name), file, text);
        let v1 = v1.map(|root| files(root, "cpu.cfs_quota_us", "100000"));
        // The period of both is 0.1 s by default.
        let v2 = files("/sys/fs/cgroup".into(), "cpu.max", "100000 100000");
        for (dir, file, text) in v1.into_iter().chain([v2]) {
            if fs::create_dir(&dir).is_err() {
                continue;
            }
            let group = OneCore(dir);
            if fs::write(group.0.join(file), text).is_ok() {
                return Some(group);
            }
        }
        None
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Moves the calling process into the cgroup: writes `0` into the file.
fn enter(procs: &CString) -> io::Result<()> {
    // SAFETY: the path is a C string, the text two bytes long.
    let written = unsafe {
        let fd = libc::open(procs.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        let written = libc::write(fd, c"0".as_ptr().cast(), 1);
        libc::close(fd);
        written
    };
    match written {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn there_is_a_worker_for_each_core_of_the_affinity_mask() {
    if cores() == 1 {
        return skip("it needs two cores");
    }
    let tree = Tree::new();
    let all = Server::start(&tree, "");
    assert_workers(&all, cores().min(64));
    all.stop();
    let one = Setup::new(tree.path()).before(keep_one_core).start();
    assert_workers(&one, 1);
    one.stop();
}

#[test]
fn there_are_no_more_workers_than_the_quota_of_the_cgroup_feeds() {
    if cores() == 1 {
        return skip("it needs two cores");
    }
    let Some(group) = OneCore::new() else {
        return skip("it needs a cgroup with the cpu controller that it may write (root)");
    };
    let procs = group
        .0
        .join("cgroup.procs")
        .into_os_string()
        .into_encoded_bytes();
    let procs = CString::new(procs).expect("a path");
    let tree = Tree::new();
    let server = Setup::new(tree.path())
        .before(move || enter(&procs))
        .start();
    assert_workers(&server, 1);
}
