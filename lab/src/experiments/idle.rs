//! Ten thousand connections that send one request and stay open.

use crate::corpus::PROBE;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::Axis;
use crate::workloads::{Idle, Workload};

/// The cost of an idle visitor.
pub fn experiment() -> Experiment {
    let peers: &[&str] = &["nginx", "lighttpd", "h2o"];
    Experiment {
        name: "idle",
        title: "10,000 idle connections",
        asks: "Ten thousand keep-alive connections each ask once for a 4 KB file and then stay open. How much memory of \
            the server's processes does each cost (the kernel's own not counted), how much CPU do they take while \
            they do nothing, and how long does a visitor wait beside them?",
        source: "",
        contenders: ["ackpace", "nginx", "lighttpd", "h2o"]
            .map(Contender::preset)
            .to_vec(),
        subjects: &[],
        sweep: vec![
            Axis::new("connections", "connections", &[1000.0, 10_000.0])
                .quick(&[10_000.0])
                .logarithmic(),
        ],
        pace: Pace {
            rounds: 5,
            rounds_quick: 2,
            warm_up_s: 1.0,
            window_s: 3.0,
            window_quick_s: 1.0,
        },
        scenario: |point| Scenario {
            place: Place::memory(&[PROBE]),
            workload: Workload::Idle(Idle {
                connections: point.count("connections"),
            }),
        },
        judged: vec![
            Judge::alone(
                "resident_per_connection_bytes",
                Fold::Median,
                Limit::ValueAtMost(1024.0),
            )
            .at(|point| point.count("connections") >= 10_000),
            Judge::against("resident_per_connection_bytes", peers, Limit::None),
            Judge::against("resident_bytes", peers, Limit::None),
            Judge::against("idle_cpu_share", peers, Limit::None),
            Judge::against("probe_p50_us", peers, Limit::None),
        ],
        figures: vec![
            Figure::over(
                "connections",
                "resident_per_connection_bytes",
                "Memory of a connection",
            ),
            Figure::over("connections", "resident_bytes", "Memory of the server"),
            Figure::over("connections", "probe_p50_us", "A visitor's wait, median"),
        ],
    }
}
