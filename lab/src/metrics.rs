//! What is measured, by name: each figure of a round has a key, and a key says what a reader sees.

use std::collections::BTreeMap;

/// Figures of one contender in one round, by the keys of [`METRICS`].
pub type Values = BTreeMap<&'static str, f64>;

/// A figure that the lab measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Name in the JSON file; its unit stands last.
    pub key: &'static str,
    /// Name in tables and figures, with the unit that it is shown in.
    pub label: &'static str,
    /// Shown value = measured value * scale.
    pub scale: f64,
    /// What it means and where it comes from.
    pub means: &'static str,
}

/// Everything that any workload measures.
pub const METRICS: &[Metric] = &[
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
];

const fn metric(key: &'static str, label: &'static str, scale: f64, means: &'static str) -> Metric {
    Metric {
        key,
        label,
        scale,
        means,
    }
}

/// The metric of a key. `None` for a name that nobody measures.
pub fn find(key: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_listed_once() {
        let mut keys: Vec<_> = METRICS.iter().map(|metric| metric.key).collect();
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert_eq!(find("jain").unwrap().label, "Jain's index");
        assert!(find("no_such").is_none());
    }
}
