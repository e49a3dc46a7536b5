//! Send memory for programs that know nothing of it: nginx and Apache, with and without `ackpace-host tune`.

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

const FAST: &str = "goodput_bytes_per_s@fast";
const ALL: &str = "goodput_bytes_per_s";
const QUEUE: &str = "send_queue_mean_bytes";
const MEMORY: [&str; 2] = ["16 MB for sockets", "ample"];
/// In the cgroup of the server; what the slow ones' sockets hold without `tune` is more.
const SHORT_BYTES: u64 = 16 << 20;
const SLOW: u32 = 200;
const FAST_MBIT_PER_S: f64 = 200.0;
const SLOW_MBIT_PER_S: f64 = 1.0;
/// A slow path's queue, as home routers have: the kernel fills it.
const SLOW_QUEUE_MS: f64 = 1_000.0;
/// What the processes and threads of Apache take beside their sockets, at most.
const APACHE_BYTES: u64 = 96 << 20;
const TUNE: &[&str] = &["--budget", "10MiB"];

/// A server that is measured with and without.
struct TunedServer {
    /// Its preset.
    preset: &'static str,
    /// The same, tuned.
    tuned: &'static str,
    name: &'static str,
    title: &'static str,
    against: &'static [&'static str],
    subjects: &'static [&'static str],
    scenario: fn(&Point) -> Scenario,
}

const ASKS: &str = "The server is not changed. It sends to one client behind 200 Mbit/s and to 200 behind 1 Mbit/s with a second of \
    queue, round trips of 20 ms. The kernel has 16 MB for its sockets (the limit of its cgroup), or as much as it likes. `ackpace-host \
    tune --budget 10MiB` divides 10 MiB of what all of them hold in flight and unsent. Does the fast one get more where memory is \
    short, and how much smaller are the queues where it is not?";

/// One fast client of nginx beside many slow ones.
pub fn nginx() -> Experiment {
    experiment(&TunedServer {
        preset: "nginx",
        tuned: "nginx tuned",
        name: "tune-nginx",
        title: "nginx, with and without `ackpace-host tune`",
        against: &["nginx"],
        subjects: &["nginx tuned"],
        scenario: |at| scenario(at, SHORT_BYTES),
    })
}

/// The same of Apache, with the MPM that distributions choose.
pub fn apache() -> Experiment {
    experiment(&TunedServer {
        preset: "apache-event",
        tuned: "apache-event tuned",
        name: "tune-apache",
        title: "Apache, with and without `ackpace-host tune`",
        against: &["apache-event"],
        subjects: &["apache-event tuned"],
        scenario: |at| scenario(at, SHORT_BYTES + APACHE_BYTES),
    })
}

fn experiment(server: &TunedServer) -> Experiment {
    let short: fn(&Point) -> bool = |at| at.count("memory") == 0;
    let ample: fn(&Point) -> bool = |at| at.count("memory") == 1;
    let over = |metric, title| Figure::over("memory", metric, title);
    let judge = |metric, limit| Judge::against(metric, server.against, limit);
    Experiment {
        name: server.name,
        title: server.title,
        asks: ASKS,
        source: "SSBT, section 4",
        contenders: vec![
            Contender::preset(server.preset).tuned(server.tuned, TUNE),
            Contender::preset(server.preset),
        ],
        subjects: server.subjects,
        sweep: vec![Axis::named("memory", "memory", &MEMORY)],
        pace: Pace {
            rounds: 5,
            rounds_quick: 2,
            warm_up_s: 14.0, // estimates are of some ten seconds
            window_s: 10.0,
            window_quick_s: 8.0,
        },
        scenario: server.scenario,
        judged: vec![
            judge(FAST, Limit::MedianRatioAtLeast(1.5)).at(short),
            judge(FAST, Limit::None).at(ample),
            judge(ALL, Limit::MedianRatioAtLeast(0.98)).at(ample),
            judge(QUEUE, Limit::MedianRatioAtMost(0.5)).at(ample),
            judge(QUEUE, Limit::None).at(short),
            judge("cpu_s_per_gb", Limit::None),
            judge("voluntary_per_gb", Limit::None),
            judge("jain", Limit::None),
        ],
        figures: vec![
            over(FAST, "The fast client"),
            over(ALL, "All together"),
            over(QUEUE, "Send queues"),
        ],
    }
}

/// `memory_limit_bytes`: of the server, where the kernel is short of memory for its sockets.
fn scenario(at: &Point, memory_limit_bytes: u64) -> Scenario {
    let fast = paced::range(0, 1);
    let slow = paced::range(1, SLOW);
    let slow_link = paced::link("slow", &slow, SLOW_MBIT_PER_S);
    let down = LinkSpec {
        queue_ms: Some(SLOW_QUEUE_MS),
        ..slow_link.down.clone()
    };
    let topology = Topology {
        run_us: RUN_US,
        grain_us: GRAIN_US,
        path: vec![
            paced::link("fast", &fast, FAST_MBIT_PER_S),
            PathSpec { down, ..slow_link },
        ],
        ..Topology::default()
    };
    let clients = Clients {
        seed: 1,
        classes: vec![class("fast", 1, fast), class("slow", SLOW, slow)],
        ..Clients::default()
    };
    let place = Place::wan(&[BIG, PROBE], topology);
    let place = match at.count("memory") {
        0 => Place {
            memory_limit_bytes: Some(memory_limit_bytes),
            sockets_limit_bytes: Some(SHORT_BYTES),
            ..place
        },
        _ => place,
    };
    Scenario {
        place,
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}

fn class(name: &str, clients: u32, source: String) -> Class {
    Class {
        source: Some(source),
        receive_at_least_bytes: Some(READ_BYTES),
        start: Some(Start {
            over_s: 1.0,
            ..Start::default()
        }),
        ..paced::downloads(name, clients)
    }
}
