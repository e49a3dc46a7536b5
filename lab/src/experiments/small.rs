//! Small files on keep-alive connections: what a request costs.

use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Pace, Scene};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::Axis;
use crate::workloads::{Downloads, Workload};

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

/// The price of a request when the body is next to nothing.
pub fn experiment() -> Experiment {
    let peers: &[&str] = &["nginx", "lighttpd", "h2o"];
    Experiment {
        name: "small",
        title: "Small files on keep-alive connections",
        asks: "One hundred files of 4 KB, or of 32 KB, that are in memory, asked for on 16 and 256 keep-alive connections, each of \
            which asks again as soon as it was answered. How many requests a second does one core give, and what does \
            one cost?",
        source: "",
        contenders: ["ackpace", "nginx", "lighttpd", "h2o"]
            .map(Contender::preset)
            .to_vec(),
        subjects: &[],
        sweep: vec![
            Axis::new("len_kb", "length KB", &[4.0, 32.0]).quick(&[4.0]),
            Axis::new("connections", "connections", &[16.0, 256.0]).logarithmic(),
        ],
        pace: Pace {
            rounds: 7,
            rounds_quick: 3,
            warm_up_s: 0.5,
            window_s: 2.5,
            window_quick_s: 1.0,
        },
        scene: |point| {
            let of = if point.get("len_kb") > 4.0 {
                MEDIUM
            } else {
                SMALL
            };
            Scene {
                place: Place::memory(&[of]),
                workload: Workload::Downloads(Downloads {
                    of,
                    connections: point.count("connections"),
                    visitor: None,
                    sample_queues: false,
                }),
            }
        },
        judged: vec![
            Judge::against("requests_per_s", peers, Limit::None),
            Judge::against("cpu_us_per_request", peers, Limit::None),
        ],
        figures: vec![
            Figure::over("connections", "requests_per_s", "Requests a second").panels("len_kb"),
            Figure::over("connections", "cpu_us_per_request", "CPU time of a request")
                .panels("len_kb"),
            Figure::over("connections", "load_core_share", "Use of the clients' core")
                .lines("len_kb"),
        ],
    }
}
