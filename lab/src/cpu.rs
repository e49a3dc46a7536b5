//! CPU time of a server: all threads of all its processes, in nanoseconds.

use ackpace_lab_base::error::{Doing, LabError, Result};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// CPU and waiting time of each thread of a server, since the thread's start.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    threads: HashMap<i32, ThreadTimes>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ThreadTimes {
    /// Time on a core.
    used_ns: u64,
    /// Time ready to run while another thread had the core.
    waited_ns: u64,
    /// Voluntary context switches: the thread gave up the core to sleep.
    voluntary: u64,
    /// Involuntary context switches: the core was taken away.
    involuntary: u64,
}

/// The difference between two readings of a server's usage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    /// CPU time of all threads.
    pub used_s: f64,
    /// Time for which the busiest thread was ready while another had its core. Other threads do not count,
    /// since threads of a pool on one core wait for each other.
    pub waited_s: f64,
    /// Voluntary context switches of all threads: each is a sleep and a wake-up.
    pub voluntary: u64,
    /// Involuntary context switches of all threads.
    pub involuntary: u64,
}

impl Usage {
    /// The usage added since `before`.
    pub fn since(&self, before: &Self) -> Spent {
        let added = self.threads.iter().map(|(id, now)| {
            let then = before.threads.get(id).copied().unwrap_or_default();
            ThreadTimes {
                used_ns: now.used_ns.saturating_sub(then.used_ns),
                waited_ns: now.waited_ns.saturating_sub(then.waited_ns),
                voluntary: now.voluntary.saturating_sub(then.voluntary),
                involuntary: now.involuntary.saturating_sub(then.involuntary),
            }
        });
        let (mut all, mut busiest) = (ThreadTimes::default(), ThreadTimes::default());
        for thread in added {
            all.used_ns += thread.used_ns;
            all.voluntary += thread.voluntary;
            all.involuntary += thread.involuntary;
            if thread.used_ns >= busiest.used_ns {
                busiest = thread;
            }
        }
        Spent {
            used_s: all.used_ns as f64 / 1e9,
            waited_s: busiest.waited_ns as f64 / 1e9,
            voluntary: all.voluntary,
            involuntary: all.involuntary,
        }
    }
}

/// Usage of the process `root` and all its descendants since their start, from schedstat and status in
/// /proc/PID/task/TID. Ended threads are missing; the contenders keep their threads.
pub fn usage(root: i32) -> Result<Usage> {
    usage_of(&tree(root)?)
}

/// The same of several processes together.
pub fn usage_of_all(roots: &[i32]) -> Result<Usage> {
    let trees = roots.iter().map(|root| tree(*root));
    usage_of(&trees.collect::<Result<Vec<_>>>()?.concat())
}

/// Usage of our own process, without its children.
pub fn own_usage() -> Result<Usage> {
    usage_of(&[std::process::id() as i32])
}

/// The machine's /proc, from before we got one with our own pids.
static MACHINE: OnceLock<File> = OnceLock::new();
/// The parent of the kernel's threads.
const KTHREADD: i32 = 2;

/// Keeps the machine's /proc, in which the kernel's threads are; before another one is mounted.
///
/// # Errors
/// It can't be opened.
pub fn keep_machine() -> Result<()> {
    let proc = File::open("/proc").doing(|| "/proc".into())?;
    MACHINE.get_or_init(|| proc);
    Ok(())
}

/// Usage of all threads of the kernel since the machine's start.
///
/// # Errors
/// They can't be seen, as in a container.
pub fn kernel_usage() -> Result<Usage> {
    let lacking = || LabError::Setup("the kernel's threads can't be seen here".into());
    let proc = MACHINE.get().ok_or_else(lacking)?;
    let proc = PathBuf::from(format!("/proc/self/fd/{}", proc.as_raw_fd()));
    let mut usage = Usage::default();
    for entry in std::fs::read_dir(&proc).doing(|| "the machine's /proc".into())? {
        let entry = entry.doing(|| "the machine's /proc".into())?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name));
        let (Ok(stat), Ok(times)) = (read("stat"), read("schedstat")) else {
            continue; // it has ended
        };
        if parent(&stat) == Some(KTHREADD) {
            let thread = schedstat(&times).ok_or_else(|| unreadable(&entry.path()))?;
            usage.threads.insert(pid, thread);
        }
    }
    match usage.threads.is_empty() {
        true => Err(lacking()),
        false => Ok(usage),
    }
}

fn usage_of(pids: &[i32]) -> Result<Usage> {
    let mut usage = Usage::default();
    for pid in pids {
        let tasks = format!("/proc/{pid}/task");
        for task in std::fs::read_dir(&tasks).doing(|| tasks.clone())? {
            let task = task.doing(|| tasks.clone())?;
            let path = task.path().join("schedstat");
            let id = task.file_name().to_string_lossy().parse();
            if let (Ok(id), Ok(text)) = (id, std::fs::read_to_string(&path)) {
                let mut thread = schedstat(&text).ok_or_else(|| unreadable(&path))?;
                let status = std::fs::read_to_string(task.path().join("status"));
                let status = status.unwrap_or_default(); // the thread ended: no switches
                thread.voluntary = status_number(&status, "voluntary_ctxt_switches");
                thread.involuntary = status_number(&status, "nonvoluntary_ctxt_switches");
                usage.threads.insert(id, thread);
            }
        }
    }
    Ok(usage)
}

/// Memory of the process `root` and all its descendants: the sum of "Pss" in smaps_rollup, where a page shared
/// by n processes counts as 1/n for each.
pub fn resident_bytes(root: i32) -> Result<u64> {
    let mut kb = 0;
    for pid in tree(root)? {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
        kb += status_number(&text.unwrap_or_default(), "Pss"); // a process that ended holds nothing
    }
    Ok(kb * 1024)
}

/// Time of a core outside of threads since boot, in steps of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Core {
    /// Softirqs: the network's share, except for the part that ran on top of a thread.
    pub softirq_s: f64,
    /// Time for which the hypervisor gave the core to other guests. Threads see it only as gaps of
    /// milliseconds.
    pub stolen_s: f64,
}

/// Reads "softirq" and "steal" of proc_stat(5) for one core.
pub fn core(core: usize) -> Result<Core> {
    let stat = std::fs::read_to_string("/proc/stat").doing(|| "/proc/stat".into())?;
    let ticks = |field| core_ticks(&stat, core, field);
    let (Some(softirq), Some(stolen)) = (ticks(6), ticks(7)) else {
        return Err(unreadable(Path::new("/proc/stat")));
    };
    let per_s = rustix::param::clock_ticks_per_second() as f64;
    Ok(Core {
        softirq_s: softirq as f64 / per_s,
        stolen_s: stolen as f64 / per_s,
    })
}

/// Time for which a core had nothing to do since boot, or was others': "idle", "iowait" and "steal" of proc_stat(5), in steps of
/// 10 ms. What lies between is all that ran there, softirqs among it, to the microsecond.
pub fn unused_s(core: usize) -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat").doing(|| "/proc/stat".into())?;
    let ticks = [3, 4, 7].map(|field| core_ticks(&stat, core, field));
    let ticks: Option<u64> = ticks.into_iter().sum();
    let ticks = ticks.ok_or_else(|| unreadable(Path::new("/proc/stat")))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn core_ticks(stat: &str, core: usize, field: usize) -> Option<u64> {
    let name = format!("cpu{core}");
    let line = stat
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut fields| (fields.next()? == name).then_some(fields));
    line?.nth(field)?.parse().ok()
}

/// The process and all its descendants.
pub fn tree(root: i32) -> Result<Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").doing(|| "/proc".into())? {
        let entry = entry.doing(|| "/proc".into())?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        if let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) {
            let parent = parent(&stat).ok_or_else(|| unreadable(&entry.path()))?;
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut tree, mut next) = (vec![root], 0);
    while let Some(pid) = tree.get(next) {
        tree.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    Ok(tree)
}

/// First two fields of schedstat, in ns: time on a core, time on a run queue (kernel:
/// Documentation/scheduler/sched-stats).
fn schedstat(text: &str) -> Option<ThreadTimes> {
    let mut fields = text.split_whitespace();
    Some(ThreadTimes {
        used_ns: fields.next()?.parse().ok()?,
        waited_ns: fields.next()?.parse().ok()?,
        ..ThreadTimes::default()
    })
}

/// The number of a line "NAME: NUMBER"; 0 if there is no such line.
fn status_number(text: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Fourth field of stat (the parent), counted from the end of the name, which may hold any character.
fn parent(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(1)?.parse().ok()
}

fn unreadable(path: &Path) -> LabError {
    LabError::Setup(format!("{}: not in the known form", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_are_read_whatever_the_name() {
        let thread = schedstat("935838 89052 2\n").unwrap();
        assert_eq!((thread.used_ns, thread.waited_ns), (935_838, 89_052));
        assert!(schedstat("935838\n").is_none());
        assert_eq!(parent("17 (a) b) S 42 17 0"), Some(42));
        assert_eq!(parent("nonsense"), None);
    }

    #[test]
    fn softirq_and_steal_are_the_seventh_and_eighth_figure_of_the_core() {
        let stat =
            "cpu  1 2 3 4 5 6 7 8 9 0\ncpu0 1 2 3 4 5 6 7 80 9 0\ncpu1 1 2 3 4 5 6 7 81 9 0\n";
        assert_eq!(core_ticks(stat, 1, 7), Some(81));
        assert_eq!(core_ticks(stat, 0, 6), Some(7));
        assert_eq!(core_ticks(stat, 2, 7), None);
    }

    #[test]
    fn switches_are_read_by_their_whole_name() {
        let status = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t42\nPss:  12 kB\n";
        assert_eq!(status_number(status, "voluntary_ctxt_switches"), 42);
        assert_eq!(status_number(status, "nonvoluntary_ctxt_switches"), 7);
        assert_eq!(status_number(status, "Pss"), 12);
        assert_eq!(status_number(status, "Rss"), 0);
    }

    #[test]
    fn all_threads_count_as_used_and_the_busiest_tells_what_was_waited() {
        let of = |threads: &[(i32, u64, u64)]| Usage {
            threads: threads
                .iter()
                .map(|&(id, used_ns, waited_ns)| {
                    let thread = ThreadTimes {
                        used_ns,
                        waited_ns,
                        voluntary: used_ns / 1_000_000_000,
                        involuntary: 0,
                    };
                    (id, thread)
                })
                .collect(),
        };
        let before = of(&[(1, 1_000_000_000, 5), (2, 0, 0)]);
        let after = of(&[
            (1, 4_000_000_000, 500_000_005),
            (2, 1_000_000_000, 9_000_000_000),
            (3, 7, 7),
        ]);
        let spent = after.since(&before);
        assert_eq!((spent.used_s, spent.waited_s), (4.000_000_007, 0.5));
        assert_eq!(spent.voluntary, 4);
    }
}
