//! What of a machine's settings bears on a process that receives. Everything here reads; nothing is changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use ackpace_host_base::fields::is_unsafe;

/// Policies of sched(7), as far as they matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// SCHED_OTHER, with nice values.
    Other,
    /// SCHED_BATCH.
    Batch,
    /// SCHED_IDLE.
    Idle,
    /// SCHED_FIFO, SCHED_RR or SCHED_DEADLINE.
    RealTime,
}

/// How a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Its class.
    pub class: Class,
    /// Its nice value.
    pub nice: i32,
    /// Its slice; `None`: this kernel does not tell (before 6.12).
    pub slice_ns: Option<u64>,
}

/// The CPU cgroup of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Where its files are.
    pub path: PathBuf,
    /// `cpu.weight` (of 100), or of version 1 `cpu.shares` (of 1024).
    pub weight: Option<String>,
    /// `cpu.max`, or of version 1 `cpu.cfs_quota_us`: what bounds it, if anything does.
    pub quota: Option<String>,
    /// How often the bound stopped it (`cpu.stat`).
    pub throttled: Option<u64>,
}

/// A process that receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Of its main thread; `Err`: why it is not known.
    pub scheduling: Result<Scheduling, String>,
    /// Its cgroup, if the CPU controller has one.
    pub group: Option<Group>,
    /// Its autogroup (sched(7)), such as `/autogroup-71 nice 0`.
    pub autogroup: Option<String>,
}

/// All of it. `Err` says why something can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `none`, `voluntary`, `lazy` or `full`.
    pub preemption: Result<String, String>,
    /// Whether slices end on time.
    pub hrtick: Result<bool, String>,
    /// The slice of everybody without one of its own.
    pub slice_ns: Result<u64, String>,
    /// Whether nice values count within a session only.
    pub autogroups: bool,
    /// `net.core.busy_read`, microseconds.
    pub busy_read_us: Option<u64>,
    /// Processors that are on.
    pub cpus: usize,
    /// The process that was asked about.
    pub process: Option<Process>,
}

/// Reads them.
pub fn read(pid: Option<u32>) -> Facts {
    let number = |path: &str| text(Path::new(path)).ok()?.parse::<u64>().ok();
    Facts {
        preemption: preemption(),
        hrtick: text(Path::new("/sys/kernel/debug/sched/features")).map(|text| has_hrtick(&text)),
        slice_ns: slice_ns(),
        autogroups: number("/proc/sys/kernel/sched_autogroup_enabled") == Some(1),
        busy_read_us: number("/proc/sys/net/core/busy_read"),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        process: pid.map(process),
    }
}

/// The slice of everybody without one of its own.
///
/// # Errors
/// Why it is not known.
pub fn slice_ns() -> Result<u64, String> {
    let text = text(Path::new("/sys/kernel/debug/sched/base_slice_ns"))?;
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

fn text(path: &Path) -> Result<String, String> {
    let read = fs::read_to_string(path);
    read.map(|text| text.trim().to_owned())
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn preemption() -> Result<String, String> {
    let path = "/sys/kernel/debug/sched/preempt";
    let told = text(Path::new(path)).and_then(|told| {
        let mode = in_brackets(&told).ok_or_else(|| format!("{path} names no mode"));
        mode.map(str::to_owned)
    });
    told.or_else(|why| built_preemption().ok_or(why))
}

/// What the kernel was built with, if /proc/config.gz tells. The command line may have chosen another one.
fn built_preemption() -> Option<String> {
    let config = Path::new("/proc/config.gz");
    let told = Command::new("gzip").arg("-dc").arg(config).output().ok()?;
    Some(format!(
        "{}, as it was built",
        built(&String::from_utf8_lossy(&told.stdout))?
    ))
}

fn built(config: &str) -> Option<&'static str> {
    let modes = [
        ("CONFIG_PREEMPT_NONE=y", "none"),
        ("CONFIG_PREEMPT_VOLUNTARY=y", "voluntary"),
        ("CONFIG_PREEMPT_LAZY=y", "lazy"),
        ("CONFIG_PREEMPT=y", "full"),
    ];
    let is_set = |option: &str| config.lines().any(|line| line == option);
    modes
        .into_iter()
        .find(|(option, _)| is_set(option))
        .map(|(_, mode)| mode)
}

/// `none voluntary (full)`: the one that is chosen.
fn in_brackets(text: &str) -> Option<&str> {
    text.split_once('(')?
        .1
        .split_once(')')
        .map(|(mode, _)| mode)
}

fn has_hrtick(features: &str) -> bool {
    features.split_whitespace().any(|word| word == "HRTICK")
}

fn process(pid: u32) -> Process {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let groups = text(&proc.join("cgroup")).unwrap_or_default();
    let mounts = text(Path::new("/proc/self/mounts")).unwrap_or_default();
    Process {
        pid,
        name: text(&proc.join("comm"))
            .unwrap_or_default()
            .replace(is_unsafe, "?"),
        scheduling: scheduling(pid).map_err(|error| error.to_string()),
        group: group_path(&groups, &mounts).map(group),
        autogroup: text(&proc.join("autogroup")).ok(),
    }
}

/// `struct sched_attr` (sched_setattr(2)), without utilization clamps.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// How a thread is scheduled.
///
/// # Errors
/// As sched_getattr(2).
pub fn scheduling(tid: u32) -> io::Result<Scheduling> {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel writes at most `size` bytes, which `attributes` has.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attributes, size, 0) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    let class = match attributes.policy as i32 {
        libc::SCHED_OTHER => Class::Other,
        libc::SCHED_BATCH => Class::Batch,
        libc::SCHED_IDLE => Class::Idle,
        _ => Class::RealTime,
    };
    let is_fair = class != Class::RealTime;
    Ok(Scheduling {
        class,
        nice: attributes.nice,
        slice_ns: (is_fair && attributes.runtime_ns > 0).then_some(attributes.runtime_ns),
    })
}

/// Where the CPU controller's files of a process are, by /proc/PID/cgroup and the mounts.
fn group_path(groups: &str, mounts: &str) -> Option<PathBuf> {
    let mounted = |wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            let (at, kind, options) = (fields.nth(1)?, fields.next()?, fields.next()?);
            wanted(kind, options).then(|| PathBuf::from(at))
        })
    };
    let of = |line: &str| -> Option<PathBuf> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let has_cpu = |list: &str| list.split(',').any(|word| word == "cpu");
        let top = match controllers {
            "" => mounted(&|kind, _| kind == "cgroup2"),
            list if has_cpu(list) => mounted(&|kind, options| kind == "cgroup" && has_cpu(options)),
            _ => None,
        };
        Some(top?.join(path.trim_start_matches('/')))
    };
    let v1 = groups.lines().filter(|line| !line.contains("::"));
    v1.filter_map(of)
        .next()
        .or_else(|| groups.lines().find_map(of))
}

fn group(path: PathBuf) -> Group {
    let read = |name: &str| text(&path.join(name)).ok();
    let stat = read("cpu.stat").unwrap_or_default();
    let throttled = stat
        .lines()
        .find_map(|line| line.strip_prefix("nr_throttled "));
    let quota = read("cpu.max").or_else(|| read("cpu.cfs_quota_us"));
    Group {
        weight: read("cpu.weight").or_else(|| read("cpu.shares")),
        quota: quota.filter(|quota| !quota.starts_with("max") && quota != "-1"),
        throttled: throttled.and_then(|count| count.parse().ok()),
        path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_features_are_read() {
        assert_eq!(in_brackets("none voluntary (full) lazy"), Some("full"));
        assert_eq!(in_brackets("none"), None);
        assert!(has_hrtick("PLACE_LAG HRTICK"));
        assert!(!has_hrtick("PLACE_LAG NO_HRTICK"));
    }

    #[test]
    fn the_built_preemption_is_read() {
        let config =
            "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_BUILD=y\nCONFIG_PREEMPT_LAZY=y\n";
        assert_eq!(built(config), Some("lazy"));
        assert_eq!(built("CONFIG_HZ=250\n"), None);
    }

    #[test]
    fn the_cpu_controller_is_found_in_both_versions() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let first = "5:memory:/m\n2:cpu,cpuacct:/web\n0::/x\n";
        assert_eq!(
            group_path(first, mounts),
            Some("/sys/fs/cgroup/cpu/web".into())
        );
        let second = "0::/system.slice/nginx.service\n";
        let path = "/sys/fs/cgroup/unified/system.slice/nginx.service";
        assert_eq!(group_path(second, mounts), Some(path.into()));
        assert_eq!(group_path("", mounts), None);
        assert_eq!(group_path(second, ""), None);
    }

    #[test]
    fn this_process_is_scheduled_somehow() {
        let own = read(Some(std::process::id())).process.expect("asked for");
        assert!(own.scheduling.is_ok(), "{own:?}");
        assert!(!own.name.is_empty());
        assert!(scheduling(u32::MAX >> 1).is_err(), "no such thread");
    }
}
