//! Small files on keep-alive connections: the cost of a request.

use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::{Downloads, Swarm, Workload};
use ackpace_lab_swarm::workload::{Arrivals, Choice, Class, Objects, Workload as Clients};

const SMALL: Set = Set::Files {
    name: "small",
    count: 100,
    len_bytes: 4 << 10,
};
const MEDIUM: Set = Set::Files {
    name: "medium",
    count: 100,
    len_bytes: 32 << 10,
};

const ASKED: [&str; 3] = [
    "4 KB, as fast as answered",
    "4 KB, 30,000/s offered",
    "32 KB, as fast as answered",
];
const SMALL_AT_MOST: usize = 0;
const SMALL_OFFERED: usize = 1;
/// About a quarter of the capacity of the slowest peer on one core: no server is at its limit, and neither are
/// the clients, which check every byte.
const OFFERED_PER_S: f64 = 30_000.0;

/// The cost of a request with a negligible body.
pub fn experiment() -> Experiment {
    let peers: &[&str] = &["nginx", "nginx-cache", "lighttpd", "h2o"];
    let at_most = |point: &Point| point.count("asked") == SMALL_AT_MOST;
    let offered = |point: &Point| point.count("asked") == SMALL_OFFERED;
    Experiment {
        name: "small",
        title: "Small files on keep-alive connections",
        asks: "One hundred files of 4 KB, or of 32 KB, that are in memory, asked for on 16 and 256 keep-alive connections. \
            Where each connection asks again as soon as it was answered: how many requests a second does one core give? \
            Where 30,000 requests a second are offered, at random times and whatever the answers do: what does one \
            cost? nginx takes part as it is shipped, and with open_file_cache, which leaves a file open between requests.",
        source: "",
        contenders: ["ackpace", "nginx", "nginx-cache", "lighttpd", "h2o"]
            .map(Contender::preset)
            .to_vec(),
        subjects: &[],
        sweep: vec![
            Axis::named("asked", "asked", &ASKED).quick(&[0.0, 1.0]),
            Axis::new("connections", "connections", &[16.0, 256.0]).logarithmic(),
        ],
        pace: Pace {
            rounds: 7,
            rounds_quick: 3,
            warm_up_s: 0.5,
            window_s: 2.5,
            window_quick_s: 1.0,
        },
        scenario: |point| match point.count("asked") {
            SMALL_AT_MOST => at_most_scenario(SMALL, point),
            SMALL_OFFERED => offered_scenario(point),
            _ => at_most_scenario(MEDIUM, point),
        },
        judged: vec![
            Judge::against("requests_per_s", &["nginx"], Limit::MedianRatioAtLeast(1.3))
                .at(at_most),
            Judge::against(
                "requests_per_s",
                &["nginx-cache", "lighttpd", "h2o"],
                Limit::None,
            )
            .at(at_most),
            Judge::against(
                "cpu_us_per_request",
                &["nginx"],
                Limit::MedianRatioAtMost(0.77),
            )
            .at(offered),
            Judge::against("cpu_us_per_request", &["nginx-cache"], Limit::None).at(offered),
            Judge::best_of(
                "cpu_us_per_request",
                &["lighttpd", "h2o"],
                Limit::MedianRatioAtMost(1.0),
            )
            .at(offered),
            Judge::against("requests_per_s", peers, Limit::None)
                .at(|point| point.count("asked") > SMALL_OFFERED),
            Judge::against("cpu_us_per_request", peers, Limit::None)
                .at(|point| point.count("asked") != SMALL_OFFERED),
        ],
        figures: vec![
            Figure::over("asked", "requests_per_s", "Requests a second").lines("connections"),
            Figure::over("asked", "cpu_us_per_request", "CPU time of a request")
                .lines("connections"),
            Figure::over("asked", "load_core_share", "Use of the clients' core")
                .lines("connections"),
        ],
    }
}

/// Each connection sends its next request as soon as it has an answer; the kernel discards the bodies.
fn at_most_scenario(of: Set, point: &Point) -> Scenario {
    Scenario {
        place: Place::memory(&[of]),
        workload: Workload::Downloads(Downloads {
            of,
            connections: point.count("connections"),
            visitor: None,
            sample_queues: false,
        }),
    }
}

/// Requests arrive at random times, as from independent users.
fn offered_scenario(point: &Point) -> Scenario {
    let objects = Objects {
        digits: 5, // as in corpus::path
        ..Objects::set(Choice::Uniform, "/small-{n}.bin", 100)
    };
    let class = Class {
        arrivals: Some(Arrivals {
            requests_per_s: Some(OFFERED_PER_S),
            ..Arrivals::default()
        }),
        ..Class::new("all", point.count("connections") as u32, objects)
    };
    let clients = Clients {
        seed: 1,
        classes: vec![class],
        ..Clients::default()
    };
    Scenario {
        place: Place::memory(&[SMALL]),
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}
