//! A client whose link becomes ten times as fast: does the server keep enough data in its send buffer?

use super::paced::{self, BIG, GRAIN_US, RUN_US, VISITOR, visitor};
use crate::corpus::PROBE;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::workloads::{Event, Swarm, TimedEvent, Workload};
use ackpace_lab_swarm::workload::{Class, Start, Workload as Clients};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

/// Idle time that a server may add to the idle time caused by TCP's own growth.
const IDLE_ADDED_MS: f64 = 5.0;
const RISERS: [&str; 2] = ["riser-1", "riser-2"];

/// Idle time of the faster links in the second after the change.
pub fn experiment() -> Experiment {
    let judge = |metric| Judge::against(metric, &["nginx", "lighttpd"], Limit::None);
    let added = |metric| Judge::against(metric, &["nginx"], Limit::MoreByAtMost(IDLE_ADDED_MS));
    Experiment {
        name: "speedup",
        title: "Two links become ten times as fast",
        asks: "Of 24 clients at 20 Mbit/s, the links of two rise to 200 Mbit/s when the window of one second begins. Their \
            idle time tells whether the server had data at hand: most of it is TCP's own growth, the same for all; what \
            a server adds by waking up late is the difference.",
        source: "TPF, section 3.1 (IDSR)",
        contenders: ["ackpace", "nginx", "lighttpd"]
            .map(Contender::preset)
            .to_vec(),
        subjects: &[],
        sweep: Vec::new(),
        pace: Pace {
            rounds: 7,
            rounds_quick: 3,
            warm_up_s: 4.0,
            window_s: 1.0,
            window_quick_s: 1.0,
        },
        scenario: |_| Scenario {
            place: Place::wan(&[BIG, PROBE], topology()),
            workload: Workload::Swarm(Swarm {
                events: RISERS.map(rises).to_vec(),
                ..Swarm::new(clients())
            }),
        },
        judged: vec![
            added("link_idle_us@riser-1"),
            added("link_idle_us@riser-2"),
            judge("goodput_bytes_per_s"),
            judge("voluntary_per_gb"),
        ],
        figures: vec![
            Figure::plain("link_idle_us@riser-1", "Idle time of the first faster link"),
            Figure::plain(
                "link_idle_us@riser-2",
                "Idle time of the second faster link",
            ),
            Figure::plain("voluntary_per_gb", "Wake-ups of the server"),
        ],
    }
}

fn rises(path: &str) -> TimedEvent {
    TimedEvent {
        after_s: 0.0,
        event: Event::Link {
            path: path.into(),
            change: LinkSpec {
                rate_mbit_per_s: Some(200.0),
                ..LinkSpec::default()
            },
        },
    }
}

fn topology() -> Topology {
    let link = |name: &str, source: &str| paced::link(name, source, 20.0);
    let riser = |(nth, name): (usize, &&str)| PathSpec {
        per_client: false,
        rate_spread: 0.0,
        delay_spread: 0.0,
        ..link(name, &format!("10.2.0.{}", nth + 1))
    };
    let mut path: Vec<PathSpec> = RISERS.iter().enumerate().map(riser).collect();
    path.push(link("steady", "10.1.0.1-10.1.0.22"));
    Topology {
        run_us: RUN_US,
        grain_us: GRAIN_US,
        path,
        beside: Some(VISITOR.into()),
        ..Topology::default()
    }
}

fn clients() -> Clients {
    let class = |name: &str, clients, source: &str| Class {
        source: Some(source.into()),
        start: Some(Start {
            over_s: 1.0,
            ..Start::default()
        }),
        ..paced::downloads(name, clients)
    };
    Clients {
        seed: 1,
        classes: vec![
            class("riser", 2, "10.2.0.1-10.2.0.2"),
            class("steady", 22, "10.1.0.1-10.1.0.22"),
            visitor(),
        ],
        ..Clients::default()
    }
}
