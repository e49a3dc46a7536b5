//! A burst of new clients: which clients does it slow down?

use super::slow_disk::{self, behind, films, place};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::sweep::{Axis, Point};
use crate::workloads::Swarm;
use ackpace_lab_swarm::workload::{Abort, Choice, Class, Leave, Objects, Start};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

const EACH: u32 = 100;
const CLASSES: [(&str, f64, &str); 3] = [
    ("near", 10.0, "10.1.0.1-10.1.0.100"),
    ("far", 200.0, "10.2.0.1-10.2.0.100"),
    ("burst", 10.0, "10.3.0.1-10.3.0.100"),
];
const LINK_MBIT_PER_S: f64 = 1.0;
/// Longer than the far clients' round trip, so that losses leave each link full and only the disk can slow a
/// client down. The paper's emulator does not bound its queues.
const QUEUE_MS: f64 = 250.0;
/// Enough memory for a conventional server to meet the demand before the burst: 200 streams, read in pieces of
/// `READ_AHEAD_KB`.
const MEMORY_MIB: u64 = 512;
const READ_AHEAD_KB: u64 = 512;
/// The window begins with the first second of the swarm after this: at 15 s.
const WARM_UP_S: f64 = 14.5;
const BURST_AT_S: f64 = 15.0 + 5.0;
/// Linux doubles the requested size: this gives 128 KB of SO_SNDBUF, bookkeeping included, as in the paper's
/// kernel.
const CONVENTIONAL: &str = "listen sndbuf=64k";

/// Rates of near and far clients around a burst.
pub fn experiment() -> Experiment {
    let conventional = |preset, name| {
        let nginx = Contender::preset(preset).with(name, &[CONVENTIONAL]);
        nginx.reading_ahead(name, READ_AHEAD_KB)
    };
    let curve = |metric, title| Figure::curve(metric, title).panels("burst_s");
    let told = |metric| Judge::against(metric, &["conventional", "conventional aio"], Limit::None);
    Experiment {
        name: "burst",
        title: "100 more clients for a moment: who bears it",
        asks: "100 clients at a round trip of 10 ms and 100 at 200 ms take films at 1 Mbit/s, the rate of their links. Five seconds into \
            the window 100 more come, for 1 or 3 seconds. The paper's conventional server had written far ahead for the far clients and little for the \
            near ones, who therefore bore the burst; its remedy was to read first for whom little is written. ackpace writes the same time ahead for \
            both, so what the paper had to even out is even.",
        source: "TPF, Figure 15",
        contenders: vec![
            conventional("nginx", "conventional"),
            conventional("nginx-aio", "conventional aio"),
            slow_disk::comparing("TDAP on full buffers", &["send=eager"]),
            slow_disk::ours("ackpace", &[]),
        ],
        subjects: &["ackpace"],
        sweep: vec![Axis::new("burst_s", "burst s", &[1.0, 3.0])],
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: WARM_UP_S,
            window_s: 60.0,
            window_quick_s: 15.0,
        },
        scenario,
        judged: vec![
            told("client_goodput_mean_bytes_per_s@near"),
            told("client_goodput_mean_bytes_per_s@far"),
            told("client_goodput_min_bytes_per_s@near"),
            told("stalls@near"),
            told("stalls@far"),
            told("ttfb_p99_us@burst"),
        ],
        figures: vec![
            curve(
                "client_goodput_mean_bytes_per_s@near",
                "Clients at 10 ms, over time",
            ),
            curve(
                "client_goodput_mean_bytes_per_s@far",
                "Clients at 200 ms, over time",
            ),
            curve(
                "client_goodput_mean_bytes_per_s@burst",
                "Those who came for a moment",
            ),
            Figure::over(
                "burst_s",
                "ttfb_p99_us@burst",
                "First byte for the burst, 99th percentile",
            ),
        ],
    }
}

fn scenario(at: &Point) -> Scenario {
    let burst_s = at.get("burst_s");
    let files = CLASSES.map(|(name, ..)| films(name, EACH, 3 * (EACH + 1)));
    let classes = CLASSES.map(|(name, _, source)| Class {
        source: Some(source.into()),
        start: Some(match name {
            "burst" => Start {
                after_s: BURST_AT_S,
                ..Start::default()
            },
            _ => Start {
                over_s: 5.0,
                ..Start::default()
            },
        }),
        abort: (name == "burst").then_some(Abort {
            share: 1.0,
            how: Leave::Rst,
            after_bytes: None,
            after_s: Some(burst_s),
            come_back: false,
        }),
        ..Class::new(name, EACH, own(name))
    });
    let topology = Topology {
        path: CLASSES.map(path).to_vec(),
        grain_us: 200,
        ..Topology::default()
    };
    let (place, swarm) = behind(topology, place(&files, MEMORY_MIB), classes.to_vec());
    let swarm = Swarm {
        curves: true,
        ..swarm
    };
    slow_disk::scenario((place, swarm))
}

fn own(name: &str) -> Objects {
    Objects {
        digits: 5,
        p: Some(0.0),
        ..Objects::set(Choice::Locality, &format!("/{name}-{{n}}.bin"), EACH + 1)
    }
}

fn path((name, rtt_ms, clients): (&str, f64, &str)) -> PathSpec {
    PathSpec {
        per_client: true,
        down: LinkSpec {
            rate_mbit_per_s: Some(LINK_MBIT_PER_S),
            delay_ms: Some(rtt_ms / 2.0),
            queue_ms: Some(QUEUE_MS),
            ..LinkSpec::default()
        },
        up: LinkSpec {
            delay_ms: Some(rtt_ms / 2.0),
            ..LinkSpec::default()
        },
        ..PathSpec::new(name, clients)
    }
}
