//! Clients limited by the network: the server only has to wake up, so the number of wake-ups decides.

use crate::corpus::{PROBE, Set, path};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::place::{Network, Place, Receive};
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Class, Objects, Start, Workload as Clients};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

/// The file that all clients download, again and again.
pub const BIG: Set = Set::Files {
    name: "big",
    count: 1,
    len_bytes: 384 << 20,
};
const MIXES: [&str; 6] = [
    "100 x 20 Mbit/s",
    "10 x 100 + 500 x 2 Mbit/s",
    "1,000 x 2 Mbit/s",
    "300, Pareto 1-50 Mbit/s, .1 % loss",
    "100 x 15 Mbit/s, ACKs on the other core",
    "200 unpaced",
];
/// Here the kernel builds frames of about a millisecond; splitting them further would take all of the CPU.
pub const RUN_US: u32 = 20_000;
/// The visitor's address, on a direct link: it then waits for the server only, not for the emulator.
pub const VISITOR: &str = "10.200.0.1";
/// Above this load of the clients' core, goodput says more about that core than about the server.
const CLIENTS_CORE_MAX: f64 = 0.9;
/// A hundredth of the round trip; halves the emulator's CPU time.
pub const GRAIN_US: u32 = 200;
const PARETO: usize = 3;
const PARETO_MBIT_PER_S: (f64, f64) = (1.0, 50.0);
const PARETO_SHAPE: f64 = 1.2;
/// "1.0" to the precision of the target: the links are full in both cases, and the rest is noise.
const EQUAL_AT_LEAST: f64 = 0.995;
const EQUAL_AT_MOST: f64 = 1.005;
const THOUSAND: usize = 2;
const ACKS_ELSEWHERE: usize = 4;
/// With frames of two packets, the emulator handles 80,000 frames a second one way and 40,000 the other for a
/// thousand clients, and that alone fills the clients' core. So do 60,000 frames and their ACKs. Windows hold
/// 20 packets or more and queues 100 ms here, so frames of four change nothing else.
const FULL_CORE: [usize; 2] = [THOUSAND, ACKS_ELSEWHERE];
const FRAME_PACKETS: u32 = 4;
const UNPACED: usize = 5;
/// Bytes at which a client that is limited by its link wakes.
pub const READ_BYTES: u32 = 32 << 10;
/// Seconds between two visits. Each visit wakes the server two or three times, so frequent visits hide the cost
/// of downloads.
const SELDOM_S: f64 = 1.0;
const OFTEN_S: f64 = 0.02;

/// With reno, which every machine has.
pub fn experiment() -> Experiment {
    declared("paced", "Clients that the network limits", reno)
}

/// The same with cubic, where network namespaces may use it.
pub fn cubic() -> Experiment {
    declared(
        "paced-cubic",
        "Clients that the network limits, with cubic",
        |at| scenario(at, "cubic", SELDOM_S),
    )
}

/// The first mixes again, with a visitor frequent enough to show the tail of the distribution.
pub fn visited() -> Experiment {
    let shortest = |metric| {
        let limit = Limit::MedianRatioAtMost(EQUAL_AT_MOST);
        [
            Judge::against(metric, &["nginx"], limit),
            Judge::against(metric, &["lighttpd"], Limit::None),
        ]
    };
    let wait = |metric, title| Figure::over("mix", metric, title);
    let paced = declared(
        "paced-visited",
        "A visitor beside clients that the network limits",
        |at| scenario(at, "reno", OFTEN_S),
    );
    Experiment {
        sweep: vec![Axis::named("mix", "mix", &MIXES[..=PARETO])],
        judged: ["ttfb_p50_us@visitor", "ttfb_p99_us@visitor"]
            .map(shortest)
            .concat(),
        figures: vec![
            wait("ttfb_p50_us@visitor", "A new visitor's wait, median"),
            wait("ttfb_p99_us@visitor", "The same, 99th percentile"),
        ],
        pace: Pace {
            window_s: 15.0, // seven of the visits are beyond the 99th percentile
            ..paced.pace
        },
        ..paced
    }
}

/// The mixes with links on a machine whose idle cores halt, which is the default.
pub fn halting() -> Experiment {
    fn scenario_of(at: &Point) -> Scenario {
        let mut scenario = reno(at);
        if let Network::Wan { topology, .. } = &mut scenario.place.network {
            topology.awake = false;
        }
        scenario
    }
    Experiment {
        sweep: vec![Axis::named("mix", "mix", &MIXES[..=ACKS_ELSEWHERE])],
        ..declared(
            "paced-halting",
            "Clients that the network limits, and cores that halt when idle",
            scenario_of,
        )
    }
}

fn reno(at: &Point) -> Scenario {
    scenario(at, "reno", SELDOM_S)
}

fn declared(
    name: &'static str,
    title: &'static str,
    scenario: fn(&Point) -> Scenario,
) -> Experiment {
    Experiment {
        name,
        title,
        asks: "A cached file goes to clients behind links of their own (drop-tail, a queue of 100 ms, 10 to 30 ms of round \
            trip, rates spread by 40 %). Goodput is what the links give; what differs is how often the server wakes up \
            for it, what CPU it takes, how much lies in its send queues, and how long a new visitor waits. The last mix \
            has no links: 200 clients over loopback, where fairness is asked.",
        source: "TPF, section 3.1 (IDSR)",
        contenders: ["ackpace", "nginx", "lighttpd"]
            .map(Contender::preset)
            .to_vec(),
        subjects: &[],
        sweep: vec![Axis::named("mix", "mix", &MIXES).quick(&[0.0, 1.0, 2.0])],
        pace: Pace {
            rounds: 5,
            rounds_quick: 2,
            warm_up_s: 4.0,
            window_s: 5.0,
            window_quick_s: 3.0,
        },
        scenario,
        judged: judged(),
        figures: vec![
            Figure::over("mix", "voluntary_per_gb", "Wake-ups of the server").logarithmic(),
            Figure::over("mix", "cpu_s_per_gb", "CPU time of the server"),
            Figure::over("mix", "send_queue_mean_bytes", "Send queues"),
            Figure::over(
                "mix",
                "ttfb_p99_us@visitor",
                "A new visitor's wait, 99th percentile",
            ),
            Figure::over("mix", "goodput_bytes_per_s", "Goodput"),
            Figure::over("mix", "link_idle_share", "Idle time of the clients' links"),
        ],
    }
}

/// The targets of the send path for each mix, and all other comparisons for information.
fn judged() -> Vec<Judge> {
    const NGINX: &[&str] = &["nginx"];
    let most = Limit::MedianRatioAtMost;
    let wakes = |limit, at| {
        Judge::alone("voluntary_per_gb", Fold::Median, Limit::ValueAtMost(limit)).at(at)
    };
    let cpu = |limit, at| Judge::against("cpu_s_per_gb", NGINX, most(limit)).at(at);
    let told = |metric| Judge::against(metric, &["lighttpd"], Limit::None);
    let two_first: fn(&Point) -> bool = |at| mix(at) < THOUSAND;
    let thousand: fn(&Point) -> bool = |at| mix(at) == THOUSAND;
    let pareto: fn(&Point) -> bool = |at| mix(at) == PARETO;
    let downloads: fn(&Point) -> bool = |at| mix(at) <= PARETO;
    let others: fn(&Point) -> bool = |at| mix(at) > PARETO;
    let acks_elsewhere: fn(&Point) -> bool = |at| mix(at) == ACKS_ELSEWHERE;
    let paced: fn(&Point) -> bool = |at| mix(at) != UNPACED;
    let unpaced: fn(&Point) -> bool = |at| mix(at) == UNPACED;
    let full = Limit::MedianRatioAtLeast(EQUAL_AT_LEAST);
    vec![
        Judge::against("goodput_bytes_per_s", NGINX, full).at(downloads),
        Judge::against("goodput_bytes_per_s", NGINX, Limit::None).at(others),
        told("goodput_bytes_per_s"),
        wakes(70.0, two_first),
        wakes(160.0, thousand),
        wakes(100.0, pareto),
        Judge::against("voluntary_per_gb", NGINX, Limit::None),
        told("voluntary_per_gb"),
        cpu(0.9, two_first),
        cpu(0.6, thousand),
        cpu(0.9, pareto),
        cpu(0.86, acks_elsewhere),
        Judge::against("cpu_s_per_gb", NGINX, Limit::None).at(unpaced),
        told("cpu_s_per_gb"),
        Judge::against("send_queue_mean_bytes", NGINX, most(0.8)).at(downloads),
        Judge::against("send_queue_mean_bytes", NGINX, Limit::None).at(others),
        told("send_queue_mean_bytes"),
        Judge::alone("jain", Fold::Median, Limit::ValueAtLeast(0.98)).at(unpaced),
        Judge::against("jain", &["nginx", "lighttpd"], Limit::None).at(unpaced),
        Judge::alone(
            "load_core_full_share",
            Fold::Max,
            Limit::ValueBelow(CLIENTS_CORE_MAX),
        )
        .at(paced),
    ]
}

fn mix(at: &Point) -> usize {
    at.count("mix")
}

fn scenario(at: &Point, congestion_control: &str, pause_s: f64) -> Scenario {
    let mix = mix(at);
    if mix == UNPACED {
        let clients = Clients {
            seed: 1,
            classes: vec![downloads("film", 200)],
            ..Clients::default()
        };
        return Scenario {
            place: Place::memory(&[BIG, PROBE]),
            workload: Workload::Swarm(Swarm::new(clients)),
        };
    }
    let groups: &[(&str, u32, f64)] = match mix {
        0 => &[("film", 100, 20.0)],
        1 => &[("fast", 10, 100.0), ("slow", 500, 2.0)],
        2 => &[("film", 1000, 2.0)],
        PARETO => &[("film", 300, 0.0)],
        _ => &[("film", 100, 15.0)],
    };
    let mut topology = Topology {
        congestion_control: congestion_control.into(),
        run_us: RUN_US,
        grain_us: GRAIN_US,
        ..Topology::default()
    };
    if FULL_CORE.contains(&mix) {
        topology.frame_packets_min = Some(FRAME_PACKETS);
    }
    let mut classes = Vec::new();
    for (nth, (name, clients, rate)) in groups.iter().enumerate() {
        let source = range(nth, *clients);
        match mix {
            PARETO => topology
                .path
                .extend((0..*clients).map(|nth| lossy(nth, *clients))),
            _ => topology.path.push(link(name, &source, *rate)),
        }
        let mut class = downloads(name, *clients);
        class.source = Some(source);
        // At 2 Mbit/s this means eight wake-ups a second, and saves two thirds of the clients' own work.
        class.receive_at_least_bytes = Some(READ_BYTES);
        class.start = Some(Start {
            over_s: 1.0,
            ..Start::default()
        });
        classes.push(class);
    }
    topology.beside = Some(VISITOR.into());
    classes.push(Class {
        think_s: pause_s,
        ..visitor()
    });
    let mut place = Place::wan(&[BIG, PROBE], topology);
    if let (ACKS_ELSEWHERE, Network::Wan { receive, .. }) = (mix, &mut place.network) {
        *receive = Receive::ClientsCore;
    }
    let clients = Clients {
        seed: 1,
        classes,
        ..Clients::default()
    };
    Scenario {
        place,
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}

/// Addresses of group `nth`: up to 65,535 clients each.
pub fn range(nth: usize, clients: u32) -> String {
    let net = 1 + nth * 4;
    let last = clients; // from 10.NET.0.1 on
    format!("10.{net}.0.1-10.{net}.{}.{}", last / 256, last % 256)
}

/// Clients that download the big file.
pub fn downloads(name: &str, clients: u32) -> Class {
    Class::new(name, clients, Objects::one(&path("big", 0)))
}

/// A link for each client.
pub fn link(name: &str, source: &str, rate_mbit_per_s: f64) -> PathSpec {
    PathSpec {
        per_client: true,
        down: LinkSpec {
            rate_mbit_per_s: Some(rate_mbit_per_s),
            delay_ms: Some(15.0),
            queue_ms: Some(100.0),
            ..LinkSpec::default()
        },
        up: LinkSpec {
            delay_ms: Some(5.0),
            ..LinkSpec::default()
        },
        rate_spread: 0.4,
        delay_spread: 0.66,
        ..PathSpec::new(name, source)
    }
}

/// The link of client `nth` of `of`. The rates are the quantiles of a bounded Pareto distribution instead of
/// random draws, so nothing depends on a seed. The loss is .1 %.
fn lossy(nth: u32, of: u32) -> PathSpec {
    let (low, high) = PARETO_MBIT_PER_S;
    let part = (f64::from(nth) + 0.5) / f64::from(of);
    let tail = 1.0 - part * (1.0 - (low / high).powf(PARETO_SHAPE));
    let address = format!("10.1.{}.{}", (nth + 1) / 256, (nth + 1) % 256);
    let mut path = link(
        &format!("film/{nth}"),
        &address,
        low * tail.powf(-1.0 / PARETO_SHAPE),
    );
    path.per_client = false;
    (path.rate_spread, path.delay_spread) = (0.0, 0.0);
    path.down.loss = Some(0.001);
    path.down.delay_ms = Some(5.0 + f64::from(nth * 7 % 21)); // 5 to 25, unrelated to the rate
    path
}

/// A visitor who opens a new connection for each request of a small file.
pub fn visitor() -> Class {
    Class {
        source: Some(VISITOR.into()),
        think_s: 0.02,
        keep_alive: false,
        apart: true,
        ..Class::new("visitor", 1, Objects::one(&path("probe", 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_an_address_of_its_own_path() {
        assert_eq!(range(0, 100), "10.1.0.1-10.1.0.100");
        assert_eq!(range(1, 1000), "10.5.0.1-10.5.3.232");
        assert_eq!(range(0, 300), "10.1.0.1-10.1.1.44");
        assert_eq!(lossy(299, 300).clients, "10.1.1.44");
    }

    #[test]
    fn rates_lie_between_their_bounds_and_most_are_slow() {
        let rate = |nth| lossy(nth, 300).down.rate_mbit_per_s.unwrap();
        assert!((1.0..1.01).contains(&rate(0)) && (40.0..50.0).contains(&rate(299)));
        assert!((1.7..1.8).contains(&rate(150)), "{}", rate(150));
    }
}
