//! Clients that limit themselves: their receive windows admit more than they read.

use super::paced::{BIG, GRAIN_US, RUN_US, range};
use crate::corpus::path;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Class, Kind, Objects, Rate, Start, Workload as Clients};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

/// The clients and the rate at which each reads.
const MIXES: [(&str, u32, u64); 3] = [
    ("100 x 1 MB/s", 100, 1_000_000),
    ("300 x 250 KB/s", 300, 250_000),
    ("1,000 x 100 KB/s", 1000, 100_000),
];
/// Receive buffers of the clients. Tuned: from 64 KB to 6 MB, grown by the kernel as the client reads.
const BUFFERS: [(&str, Option<u32>); 3] = [
    ("tuned buffer", None),
    ("buffer of 256 KB", Some(256 << 10)),
    ("buffer of 32 KB", Some(32 << 10)),
];
/// Location of the clients: on the loopback with each of the buffers, and on a WAN with the kernel's default.
const SIDES: [(&str, usize, bool); 4] = [
    ("tuned buffer", 0, false),
    ("buffer of 256 KB", 1, false),
    ("buffer of 32 KB", 2, false),
    ("tuned buffer, WAN", 0, true),
];
/// "1.0" to the precision of the target.
const EQUAL_AT_LEAST: f64 = 0.995;
/// Above this load of the clients' core, goodput says more about that core than about the server.
const CLIENTS_CORE_MAX: f64 = 0.9;

/// Downloads from memory.
pub fn cached() -> Experiment {
    const NGINX: &[&str] = &["nginx"];
    let most = |metric, limit| Judge::against(metric, NGINX, Limit::MedianRatioAtMost(limit));
    let over = |metric, title| Figure::over("mix", metric, title).panels("side");
    Experiment {
        name: "self-paced-cached",
        title: "Clients that pace themselves, and a cached file",
        asks: "100 to 1,000 clients read a cached file steadily, each at a rate of its own, as players, proxies and curl --limit-rate do: nothing \
            between them and the server is slow. Their receive buffers hold 32 KB, 256 KB, or what the kernel finds right. All get their rates; what does that \
            cost a server in CPU time and wake-ups, and how much lies in its send queues? Over loopback and over a WAN with round trips of 7 to 33 ms.",
        source: "TPF, section 3.1 (IDSR)",
        contenders: ["ackpace", "nginx"].map(Contender::preset).to_vec(),
        subjects: &[],
        sweep: vec![
            Axis::named("mix", "mix", &MIXES.map(|(name, ..)| name)),
            Axis::named("side", "clients' side", &SIDES.map(|(name, ..)| name)).quick(&[0.0]),
        ],
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            // A server that fills its sockets sends a client megabytes at first, and then nothing until the
            // client has read a third of them: 10 s and more. A shorter window would miss this behaviour.
            warm_up_s: 15.0,
            window_s: 25.0,
            window_quick_s: 10.0,
        },
        scenario: cached_scenario,
        judged: vec![
            Judge::against(
                "goodput_bytes_per_s",
                NGINX,
                Limit::MedianRatioAtLeast(EQUAL_AT_LEAST),
            ),
            Judge::alone("demand_met_min", Fold::Median, Limit::None),
            most("cpu_s_per_gb", 1.0),
            Judge::alone("voluntary_per_gb", Fold::Median, Limit::ValueAtMost(40.0)),
            Judge::against("voluntary_per_gb", NGINX, Limit::None),
            most("send_queue_mean_bytes", 0.6),
            Judge::alone(
                "load_core_full_share",
                Fold::Max,
                Limit::ValueBelow(CLIENTS_CORE_MAX),
            ),
        ],
        figures: vec![
            over("cpu_s_per_gb", "CPU time of the server"),
            over("voluntary_per_gb", "Wake-ups of the server").logarithmic(),
            over("send_queue_mean_bytes", "Send queues"),
            over("demand_met_min", "Demand met, the worst-off client"),
        ],
    }
}

/// The axis of receive buffers: the kernel's default first, and alone in a quick look.
pub fn buffers() -> Axis {
    let names = BUFFERS.map(|(name, _)| name);
    Axis::named("buffer", "receive buffer", &names).quick(&[0.0])
}

/// SO_RCVBUF at a point on that axis.
pub fn buffer_bytes(at: &Point) -> Option<u32> {
    BUFFERS[at.count("buffer")].1
}

fn cached_scenario(at: &Point) -> Scenario {
    let (_, clients, rate_bytes_per_s) = MIXES[at.count("mix")];
    let (_, buffer, is_wan) = SIDES[at.count("side")];
    let mut class = Class {
        kind: Kind::SelfPaced,
        rate: Some(Rate::fixed(rate_bytes_per_s * 8)),
        receive_buffer_bytes: BUFFERS[buffer].1,
        start: Some(Start {
            over_s: 1.0,
            ..Start::default()
        }),
        ..Class::new("film", clients, Objects::one(&path("big", 0)))
    };
    let place = if is_wan {
        let source = range(0, clients);
        class.source = Some(source.clone());
        Place::wan(&[BIG], wan(&source))
    } else {
        Place::memory(&[BIG])
    };
    let clients = Clients {
        seed: 1,
        classes: vec![class],
        ..Clients::default()
    };
    Scenario {
        place,
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}

/// A network with a noticeable round trip and no rate limit.
pub(super) fn wan(clients: &str) -> Topology {
    let delayed = |delay_ms| LinkSpec {
        delay_ms: Some(delay_ms),
        ..LinkSpec::default()
    };
    let path = PathSpec {
        per_client: true,
        down: delayed(15.0),
        up: delayed(5.0),
        delay_spread: 0.66,
        ..PathSpec::new("film", clients)
    };
    Topology {
        run_us: RUN_US,
        grain_us: GRAIN_US,
        path: vec![path],
        ..Topology::default()
    }
}
