//! Full-speed downloads of a file that is entirely in memory.

use super::paced::BIG;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::Axis;
use crate::workloads::{Downloads, Workload};

/// The cost of a server when nothing stands between memory and socket.
pub fn experiment() -> Experiment {
    let goodput = Limit::RatioAtLeast {
        median: 0.98,
        low_above: 0.95,
    };
    let cost = Limit::RatioAtMost {
        median: 1.03,
        high_below: 1.06,
    };
    Experiment {
        name: "cached",
        title: "A cached file at full speed",
        asks: "A 384 MB file that is in memory is downloaded over loopback, again and again, by 1, 20 and 200 \
            keep-alive connections. The kernel does nearly all of the work (sendfile), so parity is the aim: a server \
            that is slower here does something between memory and socket that it need not do.",
        source: "",
        contenders: ["ackpace", "nginx", "lighttpd"]
            .map(Contender::preset)
            .to_vec(),
        subjects: &[],
        sweep: vec![Axis::new("connections", "connections", &[1.0, 20.0, 200.0]).logarithmic()],
        pace: Pace {
            rounds: 11,
            rounds_quick: 3,
            warm_up_s: 0.5,
            window_s: 2.5,
            window_quick_s: 1.0,
        },
        scenario: |point| Scenario {
            place: Place::memory(&[BIG]),
            workload: Workload::Downloads(Downloads {
                of: BIG,
                connections: point.count("connections"),
                visitor: None,
                sample_queues: false,
            }),
        },
        judged: vec![
            Judge::against("goodput_bytes_per_s", &["nginx"], goodput),
            Judge::against("cpu_s_per_gb", &["nginx"], cost),
            Judge::against("goodput_bytes_per_s", &["lighttpd"], Limit::None),
            Judge::against("cpu_s_per_gb", &["lighttpd"], Limit::None),
        ],
        figures: vec![
            Figure::over("connections", "goodput_bytes_per_s", "Goodput"),
            Figure::over("connections", "cpu_s_per_gb", "CPU time of the server"),
            Figure::over("connections", "voluntary_per_gb", "Wake-ups of the server"),
            Figure::over("connections", "jain", "Fairness among the connections"),
        ],
    }
}
