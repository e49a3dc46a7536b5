//! Downloads from a slow disk, and a visitor who wants a small file that is in memory.

use crate::corpus::{PROBE, Set};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::{Disk, Network, Place};
use crate::workloads::{Downloads, Workload};

/// One file for each download, longer than it can download in the longest window: no byte is read twice.
const COLD: Set = Set::Files {
    name: "cold",
    count: 20,
    len_bytes: 32 << 20,
};

/// A server that reads from the disk in its event loop makes the visitor wait for other clients' reads.
pub fn experiment() -> Experiment {
    Experiment {
        name: "cold-stall",
        title: "A visitor beside downloads from a slow disk",
        asks: "Twenty downloads wait for a device that gives 52 MB/s (throttled by cgroup, without seeks). Beside them \
            a visitor asks for a 4 KB file that is in memory, again 2 ms after each answer. A server that reads the \
            disk in the loop that answers everybody lets the visitor wait for strangers' reads.",
        source: "",
        contenders: ["ackpace", "nginx", "nginx-aio"]
            .map(Contender::preset)
            .to_vec(),
        subjects: &[],
        sweep: Vec::new(),
        pace: Pace {
            rounds: 5,
            rounds_quick: 3,
            warm_up_s: 0.5,
            window_s: 6.0,
            window_quick_s: 2.0,
        },
        scenario: |_| Scenario {
            place: Place {
                files: vec![PROBE, COLD],
                disk: Disk::Throttled {
                    read_bytes_per_s: 52_000_000,
                    read_ahead_kb: 128, // the kernel's default for a disk
                    cached: &["probe"],
                },
                network: Network::Loopback,
                memory_limit_bytes: None,
                sockets_limit_bytes: None,
            },
            workload: Workload::Downloads(Downloads {
                of: COLD,
                connections: 20,
                visitor: Some(PROBE),
                // The sampler would share the core with the probe, and the probe would wait for it.
                sample_queues: false,
            }),
        },
        judged: vec![
            Judge::against(
                "probe_p50_us",
                &["nginx", "nginx-aio"],
                Limit::ValueBelow(0.2),
            ),
            Judge::against(
                "probe_p99_us",
                &["nginx", "nginx-aio"],
                Limit::ValueBelow(1.0),
            ),
            Judge::against("probe_max_us", &["nginx", "nginx-aio"], Limit::None),
            Judge::against("goodput_bytes_per_s", &["nginx", "nginx-aio"], Limit::None),
        ],
        figures: vec![
            Figure::plain("probe_p50_us", "The visitor's wait, median").logarithmic(),
            Figure::plain("probe_p99_us", "The visitor's wait, 99th percentile").logarithmic(),
            Figure::plain("goodput_bytes_per_s", "Goodput of the downloads"),
            Figure::plain("memory_peak_bytes", "Memory, page cache included"),
        ],
    }
}
