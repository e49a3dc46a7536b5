//! Estimates of client rates: does the server know how fast its clients are, whatever limits them?

use super::paced::{BIG, GRAIN_US, RUN_US, link, range};
use super::self_paced::wan;
use crate::believed::ADMIN_SOCKET;
use crate::corpus::path;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Burst, Class, Kind, Objects, Rate, Start, Workload as Clients};
use ackpace_lab_wan::Topology;

const CLIENTS: u32 = 40;
const RATE_BYTES_PER_S: u64 = 300_000;
/// What limits the clients: a link, or the clients themselves, with these receive buffers, steadily or in
/// bursts of a second. Over loopback a segment has 64 KB, a fifth of a burst, and windows open by as much.
const KINDS: [(&str, What); 7] = [
    ("a link", What::Link),
    ("itself, 32 KB", What::Itself(Some(32 << 10))),
    ("itself, 256 KB", What::Itself(Some(256 << 10))),
    ("itself, tuned", What::Itself(None)),
    (
        "bursts, 256 KB",
        What::Bursts(Some(256 << 10), Side::Loopback),
    ),
    ("bursts, tuned", What::Bursts(None, Side::Loopback)),
    ("bursts, tuned, WAN", What::Bursts(None, Side::Wan)),
];

#[derive(Clone, Copy)]
enum What {
    Link,
    Itself(Option<u32>),
    Bursts(Option<u32>, Side),
}

/// Where the clients are.
#[derive(Clone, Copy)]
enum Side {
    Loopback,
    Wan,
}

/// Estimated over true rates.
pub fn experiment() -> Experiment {
    let most = |metric, limit| Judge::alone(metric, Fold::Median, Limit::ValueAtMost(limit));
    let over = |metric, title| Figure::over("kind", metric, title);
    Experiment {
        name: "believed",
        title: "How fast the server believes its clients to be",
        asks: "40 clients begin at once, and take 300 KB/s each of a cached file: since their links carry no more, or since they read no more, steadily or once a second, with \
            receive buffers that hold a tenth of a second or many. What does the server believe of each, 3 and 10 s later, beside what it takes?",
        source: "TPF, section 3.2 (B_n)",
        contenders: vec![Contender::preset("ackpace").with("ackpace", &["--admin", ADMIN_SOCKET])],
        subjects: &[],
        sweep: vec![Axis::named(
            "kind",
            "limited by",
            &KINDS.map(|(name, _)| name),
        )],
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            // The names of the figures contain both times.
            warm_up_s: 3.0,
            window_s: 7.0,
            window_quick_s: 7.0,
        },
        scenario,
        judged: vec![
            most("believed_3s_error_share", 0.15),
            most("believed_3s_factor_p95", 1.6),
            most("believed_10s_error_share", 0.15),
            most("believed_10s_factor_p95", 1.6),
        ],
        figures: vec![
            over("believed_3s_error_share", "Median error after 3 s"),
            over(
                "believed_3s_factor_p95",
                "Factor after 3 s, 95th percentile",
            )
            .logarithmic(),
            over("believed_10s_error_share", "Median error after 10 s"),
            over(
                "believed_10s_factor_p95",
                "Factor after 10 s, 95th percentile",
            )
            .logarithmic(),
        ],
    }
}

fn scenario(at: &Point) -> Scenario {
    let (_, what) = KINDS[at.count("kind")];
    let mut class = Class {
        start: Some(Start::default()),
        ..Class::new("client", CLIENTS, Objects::one(&path("big", 0)))
    };
    let mut place = Place::memory(&[BIG]);
    match what {
        What::Link => {
            let source = range(0, CLIENTS);
            let mut path = link("client", &source, RATE_BYTES_PER_S as f64 * 8e-6);
            path.rate_spread = 0.0;
            class.source = Some(source);
            let topology = Topology {
                run_us: RUN_US,
                grain_us: GRAIN_US,
                path: vec![path],
                ..Topology::default()
            };
            place = Place::wan(&[BIG], topology);
        }
        What::Itself(buffer) => {
            class.kind = Kind::SelfPaced;
            class.rate = Some(Rate::fixed(RATE_BYTES_PER_S * 8));
            class.receive_buffer_bytes = buffer;
        }
        What::Bursts(buffer, side) => {
            class.kind = Kind::Bursty;
            class.burst = Some(Burst {
                len_bytes: RATE_BYTES_PER_S,
                every_s: 1.0,
            });
            class.receive_buffer_bytes = buffer;
            if let Side::Wan = side {
                let source = range(0, CLIENTS);
                class.source = Some(source.clone());
                place = Place::wan(&[BIG], wan(&source));
            }
        }
    }
    let clients = Clients {
        seed: 1,
        classes: vec![class],
        ..Clients::default()
    };
    Scenario {
        place,
        workload: Workload::Swarm(Swarm {
            believed: true,
            ..Swarm::new(clients)
        }),
    }
}
