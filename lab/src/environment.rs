//! The environment of a run: separate network, mount and process namespaces, reno, pinned cores.
//!
//! The run itself is a child, process 1 of a new pid namespace. However it ends, the kernel kills all servers
//! with it, and removes the network, the mounts and the loop devices with the last of them. Its parent only
//! waits: for the child, or for Ctrl-C, upon which it kills the child. The parent removes what outlives
//! processes (cgroups) at the end and again at the next start.

use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Signal};
use rustix::thread::CpuSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Congestion control of every connection on the loopback. The machine's default may be bbr. Without a pacing
/// qdisc, bbr is several times slower on the loopback, and its pacing timer would hide the differences between
/// servers.
pub const CONGESTION_CONTROL: &str = "reno";
/// Niceness of servers and load alike, so that other processes disturb the rounds less.
const NICE: i32 = -10;
/// Where `ackpace-host` keeps what outlives it: locks and sockets, and records of changed sockets (`host/src/place.rs`).
const HOST_RUN_DIR: &str = "/run/ackpace-host";
const BPF_DIR: &str = "/sys/fs/bpf";
const CONGESTION_CONTROL_SYSCTL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Cores of a run.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Cores {
    /// Core of the server under test.
    pub server_core: usize,
    /// Core of the load generator and the probe.
    pub load_core: usize,
}

/// Leaves the machine's namespaces. Returns in the child; the parent waits for it and exits with its code.
/// `remove_leftovers` is called before and after. Must be called before any thread is started.
pub fn enter(remove_leftovers: fn() -> Vec<String>) -> Result<Cores> {
    if !rustix::process::geteuid().is_root() {
        let what = "namespaces, pinned servers and slow disks need root: the same with sudo";
        return Err(LabError::Setup(what.into()));
    }
    let cores = cores()?;
    remove_leftovers();
    let waited = block_signals();
    // Only children enter the new pid namespace; the parent stays outside, where it can clean up.
    unshare(libc::CLONE_NEWPID)?;
    // SAFETY: the process has one thread, so the child may go on as if nothing had happened.
    let child = unsafe { libc::fork() };
    check(child).doing(|| "fork".into())?;
    if child > 0 {
        std::process::exit(guard(child, &waited, remove_leftovers));
    }
    die_with_parent();
    unblock_signals(&waited);
    unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS)?;
    furnish()?;
    pin(cores.load_core)?;
    prefer_us();
    Ok(cores)
}

/// Makes the command start on a core and in groups (their open `cgroup.procs`), and end with us.
pub fn on_core(mut command: Command, core: usize, procs: &[File]) -> Command {
    let procs: Vec<i32> = procs.iter().map(AsRawFd::as_raw_fd).collect();
    let before = move || {
        die_with_parent();
        let mut set = CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set)?;
        for procs in &procs {
            // SAFETY: the groups outlive the spawn; the buffer is static.
            check(unsafe { libc::write(*procs, b"0".as_ptr().cast(), 1) } as i32)?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor locks.
    unsafe { command.pre_exec(before) };
    command
}

/// Gives `ackpace-host tune` places of the run's own, before its first start. If it is killed with the run, what it leaves
/// there goes away with the mounts, as the sockets do that it has changed. On the machine, nobody would ever undo it: their
/// network is gone.
///
/// # Errors
/// They can't be mounted.
pub fn host_places() -> Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    std::fs::create_dir_all(HOST_RUN_DIR).doing(|| HOST_RUN_DIR.into())?;
    let places = [(HOST_RUN_DIR, "tmpfs"), (BPF_DIR, "bpf")];
    // A kernel without BPF has no place for it; `tune` says so.
    let places = places.iter().filter(|(path, _)| Path::new(path).exists());
    places.into_iter().try_for_each(|(path, kind)| {
        mount(*kind, *path, *kind, MountFlags::empty(), None).doing(|| format!("mounting {path}"))
    })
}

/// The first two cores that this process may use.
fn cores() -> Result<Cores> {
    let allowed = rustix::thread::sched_getaffinity(None).doing(|| "sched_getaffinity".into())?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    match (cores.next(), cores.next()) {
        (Some(server_core), Some(load_core)) => Ok(Cores {
            server_core,
            load_core,
        }),
        _ => Err(LabError::Setup(
            "two cores are needed, one for the server and one for the load".into(),
        )),
    }
}

fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).doing(|| format!("pinning to core {core}"))
}

/// Sets the niceness of servers and load. Where the scheduler groups by session (sched(7), autogroup), only the
/// niceness of the group counts, so a new session is needed. A refusal only costs precision.
fn prefer_us() {
    let _ = rustix::process::setsid();
    let _ = std::fs::write("/proc/self/autogroup", NICE.to_string());
    // SAFETY: no pointers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Sets up the namespaces: private mounts, a /proc of the new pids, loopback up, congestion control set.
fn furnish() -> Result<()> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).doing(|| "making mounts private".into())?;
    crate::cpu::keep_machine()?;
    mount("proc", "/proc", "proc", MountFlags::empty(), None).doing(|| "mounting /proc".into())?;
    loopback_up()?;
    let what = || CONGESTION_CONTROL_SYSCTL.into();
    std::fs::write(CONGESTION_CONTROL_SYSCTL, CONGESTION_CONTROL).doing(what)?;
    let got = read_sysctl()?;
    if got != CONGESTION_CONTROL {
        let what = format!("{CONGESTION_CONTROL_SYSCTL} stayed {got}");
        return Err(LabError::Setup(what));
    }
    Ok(())
}

fn read_sysctl() -> Result<String> {
    let text = std::fs::read_to_string(CONGESTION_CONTROL_SYSCTL);
    Ok(text
        .doing(|| CONGESTION_CONTROL_SYSCTL.into())?
        .trim()
        .to_owned())
}

fn loopback_up() -> Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").doing(|| "socket".into())?;
    // SAFETY: ifreq is plain data, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: netdevice(7): SIOCSIFFLAGS reads one ifreq, which lives here.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) })
        .doing(|| "bringing the loopback up".into())
}

/// Runs in the parent: waits for the child to end, and kills it on a signal.
fn guard(
    child: libc::pid_t,
    waited: &libc::sigset_t,
    remove_leftovers: fn() -> Vec<String>,
) -> i32 {
    loop {
        let mut signal = 0;
        // SAFETY: both pointers are to live values.
        unsafe { libc::sigwait(waited, &mut signal) };
        if signal != libc::SIGCHLD {
            let _ = Pid::from_raw(child)
                .map(|child| rustix::process::kill_process(child, Signal::KILL));
        }
        let mut status = 0;
        let options = if signal == libc::SIGCHLD {
            libc::WNOHANG
        } else {
            0
        };
        // SAFETY: the pointer is to a live value.
        if unsafe { libc::waitpid(child, &mut status, options) } != child {
            continue;
        }
        remove_leftovers();
        if signal != libc::SIGCHLD {
            // The terminal may be gone; then nobody reads this.
            let said = "nothing is left behind";
            let _ = writeln!(
                std::io::stderr(),
                "ackpace-lab: stopped by signal {signal}; {said}"
            );
            return 128 + signal;
        }
        return if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            1
        };
    }
}

fn unshare(new: libc::c_int) -> Result<()> {
    // SAFETY: no pointers; the process has one thread.
    check(unsafe { libc::unshare(new) }).doing(|| "unshare of network, mounts and pids".into())
}

/// SIGKILL when the thread that started us ends (prctl(2), PR_SET_PDEATHSIG).
fn die_with_parent() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: a sigset_t is plain data that sigemptyset fills; all pointers are to live values.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    }
}

fn unblock_signals(set: &libc::sigset_t) {
    // SAFETY: the pointer is to a live value; the old set is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, set, std::ptr::null_mut()) };
}

fn check(result: libc::c_int) -> std::io::Result<()> {
    if result < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(())
    }
}
