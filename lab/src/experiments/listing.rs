//! Listings of a big directory, and a visitor who wants a small file.

use crate::corpus::{PROBE, Set};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::workloads::{Listing, Workload};

/// A server that lists in one go blocks all other clients.
pub fn experiment() -> Experiment {
    let peers: &[&str] = &["nginx", "lighttpd"];
    Experiment {
        name: "listing",
        title: "A visitor beside listings of 50,000 files",
        asks: "Four clients fetch the listing of a directory with 50,000 entries again and again. Beside them a visitor \
            asks for a 4 KB file, again 2 ms after each answer. A server that lists in one go lets everybody wait; \
            ours has to stay under a millisecond in each turn of its loop, by its own count.",
        source: "",
        // It tells the lengths of its turns at this level.
        contenders: vec![
            Contender::preset("ackpace").with("ackpace", &["--log-level", "debug"]),
            Contender::preset("nginx"),
            Contender::preset("lighttpd"),
        ],
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
            place: Place::memory(&[PROBE, Set::Listing]),
            workload: Workload::Listing(Listing { clients: 4 }),
        },
        judged: vec![
            Judge::against("probe_p50_us", peers, Limit::None),
            Judge::against("probe_p99_us", peers, Limit::None),
            Judge::against("probe_max_us", peers, Limit::None),
            Judge::against("listings_per_s", peers, Limit::None),
            Judge::alone("turns", Fold::Sum, Limit::None),
            Judge::alone("turn_max_us", Fold::Max, Limit::None),
            Judge::alone("turns_over_1ms", Fold::Sum, Limit::Zero),
        ],
        figures: vec![
            Figure::plain("probe_p50_us", "The visitor's wait, median").logarithmic(),
            Figure::plain("probe_p99_us", "The visitor's wait, 99th percentile").logarithmic(),
            Figure::plain("listings_per_s", "Listings a second"),
        ],
    }
}
