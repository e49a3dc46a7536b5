//! A worker's thread as the kernel sees it.

use super::WorkerChannel;

/// The kernel's counters of a worker's thread.
pub struct ThreadCounters {
    /// Time on a core.
    pub cpu_us: u64,
    /// Context switches: voluntary, involuntary.
    pub switches: [u64; 2],
}

/// Reads it (proc(5)); `None` for a thread that does not run.
pub fn thread(channel: &WorkerChannel) -> Option<ThreadCounters> {
    let task = format!("/proc/self/task/{}", channel.tally.thread.get());
    let schedstat = std::fs::read_to_string(format!("{task}/schedstat")).ok()?;
    let cpu_ns: u64 = schedstat.split(' ').next()?.parse().ok()?;
    let status = std::fs::read_to_string(format!("{task}/status")).ok()?;
    let switches = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(ThreadCounters {
        cpu_us: cpu_ns / 1000,
        switches: [
            switches("voluntary_ctxt_switches:")?,
            switches("nonvoluntary_ctxt_switches:")?,
        ],
    })
}
