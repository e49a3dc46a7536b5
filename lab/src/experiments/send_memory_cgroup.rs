//! A server whose cgroup has little memory, with more fast clients than their sockets would fit it.

use super::paced::{self, BIG, GRAIN_US, READ_BYTES, RUN_US};
use crate::corpus::PROBE;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Class, Start, Workload as Clients};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

const CLIENTS: u32 = 2_000;
const MEMORY_BYTES: u64 = 256 << 20;
/// A quarter of ackpace's own memory there.
const POOL: &str = "48MiB";
/// Where the first of these paths stands on the axis.
const LINKS: usize = 0;
const PATHS: [&str; 2] = ["links of .5 Mbit/s, a second of queue", "loopback"];
/// All of them are a gigabit a second, which the emulator can carry beside 2,000 clients on one core.
const MBIT_PER_S: f64 = 0.5;
/// Windows grow until such a queue is full: 60 KB a client.
const QUEUE_MS: f64 = 1_000.0;
/// "1.0" to the precision of the target.
const EQUAL_AT_LEAST: f64 = 0.995;

/// Who stays alive, and what they deliver.
pub fn experiment() -> Experiment {
    const PEERS: &[&str] = &["nginx", "kernel"];
    let ours = |name, memory| Contender::preset("ackpace").with(name, &["--send-memory", memory]);
    let told = |metric| Judge::against(metric, PEERS, Limit::None);
    let over = |metric, title| Figure::over("path", metric, title);
    Experiment {
        name: "send-memory-cgroup",
        title: "2,000 fast clients of a server that has 256 MB",
        asks: "The server is in a memory cgroup of 256 MB. In a v2 group what sockets hold counts; in a v1 group it has a limit of its \
            own, here of the same size. 2,000 clients download a file in memory: behind links of .5 Mbit/s whose queues hold a second, \
            so that windows grow and send buffers with them, or over loopback, as fast as they can. Who stays alive, what do they \
            deliver, and what do their sockets hold? Whom the kernel kills for want of memory is told below the table.",
        source: "",
        contenders: vec![
            ours("by-need", POOL),
            ours("kernel", "kernel"),
            Contender::preset("nginx"),
        ],
        subjects: &["by-need"],
        sweep: vec![Axis::named("path", "paths", &PATHS)],
        pace: Pace {
            rounds: 5,
            rounds_quick: 2,
            warm_up_s: 12.0, // estimates are of some ten seconds
            window_s: 10.0,
            window_quick_s: 6.0,
        },
        scenario,
        judged: vec![
            Judge::against(
                "goodput_bytes_per_s",
                &["nginx"],
                Limit::MedianRatioAtLeast(EQUAL_AT_LEAST),
            )
            .at(|point| point.count("path") == LINKS),
            told("goodput_bytes_per_s"),
            told("socket_memory_bytes"),
            told("send_queue_mean_bytes"),
            told("memory_peak_bytes"),
            told("jain"),
            told("cpu_s_per_gb"),
        ],
        figures: vec![
            over("goodput_bytes_per_s", "Goodput"),
            over("socket_memory_bytes", "What sockets hold").logarithmic(),
            over("jain", "Fairness"),
        ],
    }
}

fn scenario(at: &Point) -> Scenario {
    let (place, clients) = match at.count("path") {
        LINKS => linked(),
        _ => (
            Place::memory(&[BIG, PROBE]),
            paced::downloads("fast", CLIENTS),
        ),
    };
    let clients = Clients {
        seed: 1,
        classes: vec![clients],
        ..Clients::default()
    };
    Scenario {
        place: Place {
            memory_limit_bytes: Some(MEMORY_BYTES),
            sockets_limit_bytes: Some(MEMORY_BYTES),
            ..place
        },
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}

/// A link for each client, and the clients.
fn linked() -> (Place, Class) {
    let source = paced::range(0, CLIENTS);
    let link = paced::link("fast", &source, MBIT_PER_S);
    let down = LinkSpec {
        queue_ms: Some(QUEUE_MS),
        ..link.down.clone()
    };
    let topology = Topology {
        run_us: RUN_US,
        grain_us: GRAIN_US,
        frame_packets_min: Some(4), // as in `paced`, for the clients' core
        path: vec![PathSpec { down, ..link }],
        ..Topology::default()
    };
    let clients = Class {
        source: Some(source),
        receive_at_least_bytes: Some(READ_BYTES),
        start: Some(Start {
            over_s: 2.0,
            ..Start::default()
        }),
        ..paced::downloads("fast", CLIENTS)
    };
    (Place::wan(&[BIG, PROBE], topology), clients)
}
