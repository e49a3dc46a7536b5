//! Connections through routers with random early detection (RED), as in SSBT's Figure 14.

use super::paced::{self, BIG};
use super::send_memory::{class, delay, divided, kernel, limited, scenario};
use crate::believed::ADMIN_SOCKET;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::workloads::Workload;
use ackpace_lab_swarm::workload::{Class, Start};
use ackpace_lab_wan::topology::{PathSpec, RedSpec};
use ackpace_lab_wan::{LinkSpec, Topology};

const ALL: &str = "goodput_bytes_per_s";
const VARIATION: &str = "share_variation";
/// The connections of Figure 15: name, router, and start in seconds of the window.
const CONNECTIONS: [(&str, &str, f64); 4] = [
    ("1", "router-1", 0.0),
    ("2", "router-1", 0.0),
    ("3", "router-2", 5.0),
    ("4", "router-1", 10.0),
];
const NAMES: [&str; 4] = ["1", "2", "3", "4"];
/// The window begins with the first second of the swarm after this.
const WARM_UP_S: f64 = 0.5;
/// Twenty seconds after the last connection began: its estimate is of some ten seconds, and takes as long to grow.
const STEADY_S: f64 = 30.0;
/// The paper doesn't print the rates of its routers. With these, four connections can use about the whole pool.
const ROUTER_MBIT_PER_S: f64 = 50.0;
const RTT_MS: f64 = 30.0;
/// Targets for the variation of B_i, and for its ratio to that of a division by window: a third.
const VARIATION_AT_MOST: f64 = 0.08;
const OVER_WINDOW_AT_MOST: f64 = 0.333;

/// What [`rates`] asks: clients of these access links, at each of two routers.
const ACCESS: [(&str, f64); 3] = [("slow", 3.0), ("middle", 12.0), ("fast", 100.0)];
const ROUTERS: [(&str, f64); 2] = [("router-1", 60.0), ("router-2", 15.0)];
const CLASSES: [[&str; 3]; 2] = [
    ["slow-1", "middle-1", "fast-1"],
    ["slow-2", "middle-2", "fast-2"],
];

/// B_i over time.
pub fn fig15() -> Experiment {
    let told = |metric| Judge::against(metric, &["window", "equal"], Limit::None);
    let within = Limit::ValueAtMost(VARIATION_AT_MOST);
    let steadier = Limit::MedianRatioAtMost(OVER_WINDOW_AT_MOST);
    Experiment {
        name: "ssbt-fig15",
        title: "Shares of the send memory over time, behind two RED routers",
        asks: "Connections 1, 2 and 4 go through one router, connection 3 through another; each has 50 Mbit/s with random early \
            detection, and the round trip is 30 ms. 1 and 2 begin at 0 s, 3 at 5 s, 4 at 10 s. All share a pool of 512 KB. How steady is \
            the share (B_i) of each? The variation is that from 30 s on. The paper doesn't print the rates of its routers.",
        source: "SSBT, Figure 15",
        contenders: ["by-need", "window", "equal"]
            .map(|share| watched(share, "512KiB"))
            .to_vec(),
        subjects: &["by-need"],
        sweep: Vec::new(),
        pace: Pace {
            rounds: 5,
            rounds_quick: 2,
            warm_up_s: WARM_UP_S,
            window_s: 50.0,
            window_quick_s: 45.0,
        },
        scenario: |_| scenario_of_fig15(),
        judged: vec![
            Judge::alone(VARIATION, Fold::Median, within),
            Judge::against(VARIATION, &["window"], steadier),
            told("share_variation@3"),
            told("share_variation@4"),
            told("share_mean_bytes@1"),
            told("share_mean_bytes@3"),
            told(ALL),
            told("goodput_bytes_per_s@3"),
        ],
        figures: vec![
            Figure::curves(
                &NAMES,
                "share_mean_bytes",
                "B_i of each connection (Figure 15)",
            ),
            Figure::plain(VARIATION, "Variation of B_i in steady state"),
            Figure::curves(&NAMES, ALL, "Goodput of each connection"),
        ],
    }
}

/// What connections with different access links get through RED routers.
pub fn rates() -> Experiment {
    let contenders = ["by-need", "window", "equal"].map(|share| watched(share, "256KiB"));
    let told = |metric| Judge::against(metric, &["equal", "window", "kernel"], Limit::None);
    let share = |metric| Judge::against(metric, &["equal", "window"], Limit::None);
    let class = |metric, title| Figure::plain(metric, title);
    Experiment {
        name: "ssbt-red",
        title: "Access links of 3 to 100 Mbit/s behind two RED routers",
        asks: "At each of two routers, of 60 and 15 Mbit/s with random early detection, three pairs of connections have access links of 3, 12 \
            and 100 Mbit/s; the round trip is 20 ms. This is the model of the paper's estimator. All share a pool of 256 KB. What does each \
            kind get, by need, by window, in equal parts, or without a pool?",
        source: "SSBT, section 3.1",
        contenders: contenders.into_iter().chain([kernel()]).collect(),
        subjects: &["by-need"],
        sweep: Vec::new(),
        pace: Pace {
            rounds: 5,
            rounds_quick: 2,
            warm_up_s: 12.0, // estimates are of some ten seconds
            window_s: 12.0,
            window_quick_s: 8.0,
        },
        scenario: |_| scenario_of_rates(),
        judged: vec![
            told(ALL),
            told("goodput_bytes_per_s@fast-1"),
            told("goodput_bytes_per_s@fast-2"),
            told("goodput_bytes_per_s@middle-1"),
            told("goodput_bytes_per_s@slow-1"),
            told("goodput_bytes_per_s@slow-2"),
            told("link_drop_share"),
            share("share_mean_bytes@fast-1"),
            share("share_mean_bytes@middle-1"),
            share("share_mean_bytes@slow-1"),
        ],
        figures: vec![
            class(ALL, "All together"),
            class(
                "goodput_bytes_per_s@fast-1",
                "100 Mbit/s at the first router",
            ),
            class(
                "goodput_bytes_per_s@middle-1",
                "12 Mbit/s at the first router",
            ),
            class("goodput_bytes_per_s@slow-1", "3 Mbit/s at the first router"),
            class(
                "goodput_bytes_per_s@fast-2",
                "100 Mbit/s at the second router",
            ),
            class(
                "goodput_bytes_per_s@slow-2",
                "3 Mbit/s at the second router",
            ),
        ],
    }
}

/// A division of a pool that tells its shares.
fn watched(share: &str, pool: &str) -> Contender {
    divided(share, pool).with(share, &["--admin", ADMIN_SOCKET])
}

/// A router: from 5 ms of queue on, it drops at random; from 25 ms on, more and more.
fn router(rate_mbit_per_s: f64) -> LinkSpec {
    let queue_bytes = (rate_mbit_per_s * 1e6 / 8.0 * 0.1) as u64;
    LinkSpec {
        rate_mbit_per_s: Some(rate_mbit_per_s),
        queue_bytes: Some(queue_bytes),
        red: Some(RedSpec {
            min_bytes: queue_bytes / 20,
            max_bytes: queue_bytes / 4,
            p_max: 0.1,
            weight: 0.002,
            ecn: false,
            gentle: true,
        }),
        ..LinkSpec::default()
    }
}

fn through(router: &str, name: &str, clients: &str, down: LinkSpec, rtt_ms: f64) -> PathSpec {
    PathSpec {
        down,
        up: delay(rtt_ms),
        down_through: vec![router.into()],
        ..PathSpec::new(name, clients)
    }
}

fn scenario_of_fig15() -> Scenario {
    let mut topology = Topology {
        link: ["router-1", "router-2"]
            .map(|name| (name.to_owned(), router(ROUTER_MBIT_PER_S)))
            .into(),
        ..Topology::default()
    };
    let mut classes = Vec::new();
    for (nth, (name, router, begins_s)) in CONNECTIONS.into_iter().enumerate() {
        let client = format!("10.{}.0.1", nth + 1);
        let path = through(router, name, &client, delay(RTT_MS), RTT_MS);
        topology.path.push(path);
        let after_s = match begins_s {
            0.0 => 0.0,           // so that there is somebody to look at before the window
            later => 1.0 + later, // the window begins at 1 s
        };
        classes.push(Class {
            start: Some(Start {
                after_s,
                ..Start::default()
            }),
            ..class(name, 1, &client)
        });
    }
    let mut scenario = scenario(&[BIG], topology, classes);
    if let Workload::Swarm(swarm) = &mut scenario.workload {
        (swarm.curves, swarm.shares_steady_s) = (true, Some(STEADY_S));
    }
    scenario
}

fn scenario_of_rates() -> Scenario {
    const PAIR: u32 = 2;
    let mut topology = Topology {
        link: ROUTERS
            .map(|(name, mbit_per_s)| (name.to_owned(), router(mbit_per_s)))
            .into(),
        ..Topology::default()
    };
    let mut classes = Vec::new();
    for (at, (router, _)) in ROUTERS.into_iter().enumerate() {
        for (nth, (_, mbit_per_s)) in ACCESS.into_iter().enumerate() {
            let (name, clients) = (CLASSES[at][nth], paced::range(at * 3 + nth, PAIR));
            let access = limited(mbit_per_s, 50.0, 20.0);
            let path = PathSpec {
                per_client: true,
                ..through(router, name, &clients, access, 20.0)
            };
            topology.path.push(path);
            classes.push(class(name, PAIR, &clients));
        }
    }
    let mut scenario = scenario(&[BIG], topology, classes);
    if let Workload::Swarm(swarm) = &mut scenario.workload {
        swarm.shares_steady_s = Some(0.0);
    }
    scenario
}
