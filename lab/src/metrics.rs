//! The list of metrics: each figure of a round has a key, and each key a label for readers.

use crate::belief_metrics::BELIEF_METRICS;
use crate::disk_metrics::DISK_METRICS;
pub use crate::metric::Metric;
use crate::metric::metric;
use crate::share_metrics::SHARE_METRICS;
use std::collections::BTreeMap;

/// Figures of one contender in one round, by the keys of [`all`]. "KEY@NAME" is the figure of one class of
/// clients, or of one set of files.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[serde(transparent)]
pub struct Values(BTreeMap<String, f64>);

impl Values {
    /// Sets a figure; a later value replaces an earlier one.
    pub fn set(&mut self, key: &str, value: f64) {
        self.0.insert(key.to_owned(), value);
    }

    /// Sets a figure if there is one.
    pub fn set_some(&mut self, key: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Adds all figures of `others`.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The figure of a key.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.0.get(key).copied()
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// All metrics of all workloads, in the order of tables.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let more = BELIEF_METRICS.iter().chain(SHARE_METRICS);
    METRICS.iter().chain(more).chain(DISK_METRICS)
}

/// The first part of [`all`].
const METRICS: &[Metric] = &[
    metric(
        "goodput_bytes_per_s",
        "goodput MB/s",
        1e-6,
        "bytes of bodies that clients got, a second",
    ),
    metric(
        "cpu_s_per_gb",
        "CPU-s/GB",
        1.0,
        "CPU time of all threads of the server per 10^9 bytes of bodies (schedstat); what the kernel does in softirq while they run counts as theirs",
    ),
    metric(
        "softirq_s_per_gb",
        "softirq-s/GB",
        1.0,
        "softirq time of the server's core per 10^9 bytes of bodies (/proc/stat, ticks)",
    ),
    metric(
        "voluntary_per_gb",
        "wake-ups/GB",
        1.0,
        "voluntary context switches of the server per 10^9 bytes of bodies: each is a sleep and a wake-up",
    ),
    metric(
        "involuntary_per_gb",
        "preemptions/GB",
        1.0,
        "involuntary context switches of the server per 10^9 bytes of bodies",
    ),
    metric(
        "switches_per_s",
        "switches/s",
        1.0,
        "context switches of the server of both kinds, a second",
    ),
    metric(
        "server_core_share",
        "server's core",
        1.0,
        "share of its core that the server used: near 1 it is the bottleneck",
    ),
    metric(
        "server_waited_share",
        "disturbed",
        1.0,
        "share of the window in which the server's busiest thread was ready and another program or the hypervisor had its core",
    ),
    metric(
        "load_core_share",
        "clients' core",
        1.0,
        "share of its core that the clients used",
    ),
    metric(
        "lab_core_share",
        "lab's part of a core",
        1.0,
        "share of a core that the lab's own process used: the emulated network or disk, looking at queues, clients that are not a process of their own",
    ),
    metric(
        "load_core_full_share",
        "clients' core in use",
        1.0,
        "share of the clients' core that clients and lab used together: near 1 they are the bottleneck",
    ),
    metric(
        "send_queue_mean_bytes",
        "send queue MB",
        1e-6,
        "sk_wmem_queued of all sockets of the server (INET_DIAG_SKMEMINFO), mean of the samples",
    ),
    metric(
        "send_queue_p99_bytes",
        "send queue p99 MB",
        1e-6,
        "the same, 99th percentile of the samples",
    ),
    metric(
        "unsent_per_connection_bytes",
        "unsent KB a connection",
        1e-3,
        "bytes written and not yet sent (SIOCOUTQNSD), mean over samples and connections: the paper's PB",
    ),
    metric(
        "resident_bytes",
        "resident MB",
        1e-6,
        "memory of all processes of the server (Pss of smaps_rollup)",
    ),
    metric(
        "resident_per_connection_bytes",
        "resident B a connection",
        1.0,
        "growth of the server's memory by opening the connections, divided by them",
    ),
    metric(
        "memory_peak_bytes",
        "memory peak MB",
        1e-6,
        "highest use of the contender's memory cgroup, page cache included",
    ),
    metric(
        "socket_memory_bytes",
        "memory of sockets MB",
        1e-6,
        "what the kernel charges the contender's memory cgroup for sockets at the end of the window; a v1 group counts it only where it is limited",
    ),
    metric(
        "requests_per_s",
        "requests/s",
        1.0,
        "responses that ended in the window, a second",
    ),
    metric(
        "cpu_us_per_request",
        "CPU us/request",
        1.0,
        "CPU time of the server per response",
    ),
    metric(
        "idle_cpu_share",
        "CPU while idle",
        1.0,
        "share of its core that the server used while no client asked for anything",
    ),
    metric(
        "probe_idle_p50_us",
        "idle probe p50 ms",
        1e-3,
        "median of the probe before the load began: what the machine itself takes",
    ),
    metric(
        "probe_p50_us",
        "probe p50 ms",
        1e-3,
        "time to a whole small file, median",
    ),
    metric(
        "probe_p99_us",
        "probe p99 ms",
        1e-3,
        "time to a whole small file, 99th percentile",
    ),
    metric(
        "probe_max_us",
        "probe max ms",
        1e-3,
        "time to a whole small file, longest",
    ),
    metric(
        "probes",
        "probes",
        1.0,
        "probes answered: a server that stands still gets few",
    ),
    metric(
        "listings_per_s",
        "listings/s",
        1.0,
        "listings of the big directory completed, a second",
    ),
    metric(
        "turns",
        "turns",
        1.0,
        "turns of ackpace's worker, by its own count",
    ),
    metric(
        "turn_max_us",
        "longest turn ms",
        1e-3,
        "longest turn of ackpace's worker, by its own count",
    ),
    metric(
        "turns_over_1ms",
        "turns over 1 ms",
        1.0,
        "turns of ackpace's worker over a millisecond, by its own count",
    ),
    metric(
        "jain",
        "Jain's index",
        1.0,
        "fairness of the bytes per connection in the window: 1 = all got the same",
    ),
    metric(
        "jain_window",
        "Jain's index (window)",
        1.0,
        "fairness of the goodput of the clients over all of the window; Jain's index alone is, for clients of the swarm, that of the worst two seconds",
    ),
    metric(
        "multiplications_per_s",
        "multiplications/s",
        1.0,
        "products of two matrices of 128 x 128 that a process beside the server, on its core, made a second",
    ),
    metric(
        "multiplications_left_share",
        "multiplications left",
        1.0,
        "multiplications over what there would have been at the pace of the median row of each 512, a millisecond or two, which nothing disturbs",
    ),
    metric(
        "multiplying_core_share",
        "multiplying",
        1.0,
        "share of the server's core that the multiplying process had; softirqs on top of it are in it",
    ),
    metric(
        "multiplying_waited_share",
        "waiting to multiply",
        1.0,
        "share of the window in which that process was ready and another had the core",
    ),
    metric(
        "responses",
        "responses",
        1.0,
        "responses that ended in the window",
    ),
    metric(
        "reconnects",
        "reconnects",
        1.0,
        "connections opened anew since the server had closed them",
    ),
    metric(
        "errors",
        "errors",
        1.0,
        "responses that were wrong, broken off or missing",
    ),
    metric(
        "client_goodput_min_bytes_per_s",
        "slowest client KB/s",
        1e-3,
        "goodput of the slowest client over the time in which it wanted bytes",
    ),
    metric(
        "client_goodput_p50_bytes_per_s",
        "median client KB/s",
        1e-3,
        "goodput of the median client over the time in which it wanted bytes",
    ),
    metric(
        "client_goodput_mean_bytes_per_s",
        "mean client KB/s",
        1e-3,
        "goodput of a client over the time in which it wanted bytes, mean",
    ),
    metric(
        "demand_met_p1",
        "demand met p1",
        1.0,
        "what a client got over what its rate would have given, first percentile of the clients",
    ),
    metric(
        "demand_met_p50",
        "demand met p50",
        1.0,
        "what a client got over what its rate would have given, median of the clients",
    ),
    metric(
        "ttfb_p50_us",
        "first byte p50 ms",
        1e-3,
        "time from a request (an open loop: from when it was due) to the first byte of its answer, median",
    ),
    metric(
        "ttfb_p99_us",
        "first byte p99 ms",
        1e-3,
        "the same, 99th percentile",
    ),
    metric(
        "completion_p50_us",
        "whole answer p50 ms",
        1e-3,
        "time from a request to the last byte of its answer, median",
    ),
    metric(
        "completion_p99_us",
        "whole answer p99 ms",
        1e-3,
        "the same, 99th percentile",
    ),
    metric(
        "stalls",
        "stalls",
        1.0,
        "times that a client waited for a byte longer than a second",
    ),
    metric(
        "jain_demand",
        "Jain's index (demand)",
        1.0,
        "fairness of the share of its demand that each client got, in the worst two seconds",
    ),
    metric(
        "clients_late_p99_us",
        "clients late p99 ms",
        1e-3,
        "lateness of the clients' own timers: above a few ms they were too busy to be believed",
    ),
    metric(
        "link_idle_share",
        "links idle",
        1.0,
        "share of the window in which the clients' links sent nothing, mean of the links that carried anything",
    ),
    metric(
        "link_idle_us",
        "link idle ms",
        1e-3,
        "time of the window in which a path's link to its client sent nothing",
    ),
    metric(
        "link_drop_share",
        "packets dropped",
        1.0,
        "packets to clients that were dropped or lost, of those offered",
    ),
    metric(
        "disk_busy_share",
        "disk busy",
        1.0,
        "share of the window in which the emulated disk worked on a request",
    ),
    metric(
        "disk_seek_share",
        "disk seeking",
        1.0,
        "share of the window in which the emulated disk moved its arm or waited for the platter",
    ),
    metric(
        "disk_queue_mean",
        "disk queue",
        1.0,
        "requests that waited in the emulated disk, mean over time",
    ),
    metric(
        "disk_bytes_per_s",
        "disk MB/s",
        1e-6,
        "bytes read from the emulated disk, a second",
    ),
    metric(
        "disk_read_mean_bytes",
        "disk read KB",
        1e-3,
        "mean length of a read",
    ),
    metric(
        "disk_read_bytes",
        "disk read MB",
        1e-6,
        "bytes read from the emulated disk in the window",
    ),
    metric(
        "disk_again_bytes",
        "read again MB",
        1e-6,
        "bytes read from the emulated disk that had been read before in this round",
    ),
    metric(
        "page_residence_s",
        "page residence s",
        1.0,
        "how long a page read from the disk stays in memory: page cache of the contender over the rate at which the disk fills it",
    ),
    metric(
        "profile_copy_share",
        "copying",
        1.0,
        "share of the samples on the server's core in copying to and from programs (perf)",
    ),
    metric(
        "profile_scheduling_share",
        "scheduling and wake-ups",
        1.0,
        "share of the samples in the scheduler and in wake-ups",
    ),
    metric(
        "profile_memory_share",
        "memory",
        1.0,
        "share of the samples in allocating and freeing memory and in the page cache",
    ),
    metric(
        "profile_tcp_share",
        "TCP",
        1.0,
        "share of the samples in TCP and sockets",
    ),
    metric(
        "profile_ip_share",
        "IP and devices",
        1.0,
        "share of the samples in IP, netfilter and network devices",
    ),
    metric(
        "profile_program_share",
        "the program itself",
        1.0,
        "share of the samples outside the kernel",
    ),
    metric(
        "profile_other_share",
        "rest of the kernel",
        1.0,
        "share of the samples elsewhere in the kernel",
    ),
];

/// The metric of a key, also of the key of a class or set. `None` for an unknown name.
pub fn find(key: &str) -> Option<&'static Metric> {
    let key = key.split('@').next().unwrap_or(key);
    all().find(|metric| metric.key == key)
}

/// The label of a key: "goodput MB/s", "goodput MB/s (films)".
pub fn label(key: &str) -> String {
    let label = find(key).map_or(key, |metric| metric.label);
    match key.split_once('@') {
        None => label.to_owned(),
        Some((_, class)) => format!("{label} ({class})"),
    }
}

/// The factor from the measured to the shown value.
pub fn scale(key: &str) -> f64 {
    find(key).map_or(1.0, |metric| metric.scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_listed_once() {
        let mut keys: Vec<_> = all().map(|metric| metric.key).collect();
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert_eq!(find("jain").unwrap().label, "Jain's index");
        assert!(find("no_such").is_none());
        assert_eq!(label("goodput_bytes_per_s@films"), "goodput MB/s (films)");
        assert_eq!(scale("goodput_bytes_per_s@films"), 1e-6);
    }
}
