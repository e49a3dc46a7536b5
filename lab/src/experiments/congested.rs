//! A fifth of the clients meet congestion: can their reads be deferred?

use super::slow_disk::{self, films, place};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::place::{Network, Receive};
use crate::scrape;
use crate::workloads::{Event, Swarm, TimedEvent, Workload};
use ackpace_lab_swarm::workload::{Choice, Class, Objects, Start, Workload as Clients};
use ackpace_lab_wan::topology::{Ecn, PathSpec};
use ackpace_lab_wan::{LinkSpec, Topology};

const STEADY: u32 = 240;
const MARKED: u32 = 60;
const RTT_MS: f64 = 100.0;
/// 56 MB/s in all: a little more than the disk delivers.
const LINK_MBIT_PER_S: f64 = 1.5;
const MEMORY_MIB: u64 = 256;
const MARK_AT_S: f64 = 5.0;

/// Congestion windows halved for 20 % of the clients.
pub fn experiment() -> Experiment {
    let contenders = vec![
        Contender::preset("nginx-aio"),
        told_by("fixed reads", "prefetch=fixed,prefetch_size=512KiB"),
        told_by("delay off", "delay=off"),
        told_by("delay paper", "delay=paper"),
        told_by("ackpace", "none"),
    ];
    let others = &["delay off", "delay paper", "fixed reads", "nginx-aio"];
    let told = |metric| Judge::against(metric, others, Limit::None);
    Experiment {
        name: "congested",
        title: "Congestion windows halved for 20 % of the clients",
        asks: "300 clients at a round trip of 100 ms, behind links of 1.5 Mbit/s, want a little more than the disk has. Five seconds into the \
            window every packet to 60 of them is marked \"congestion experienced\" for the length of one round trip (ECN, reno): \
            their windows are halved once. Their reads may wait, and others go first: by the rate that is left to them, by the paper's \
            fixed delay, or not at all. What do all get, those who met no congestion, and those who did? How many reads are put off, \
            by our own count (losses in the queues of the links are signals, too)?",
        source: "TPF, Figure 16b (EDRC)",
        contenders,
        subjects: &["ackpace"],
        sweep: Vec::new(),
        pace: Pace {
            rounds: 5,
            rounds_quick: 1,
            warm_up_s: 14.5, // the window begins with the swarm's next second
            window_s: 25.0,
            window_quick_s: 12.0,
        },
        scenario: |_| scenario(),
        judged: vec![
            told("goodput_bytes_per_s"),
            told("goodput_bytes_per_s@steady"),
            told("goodput_bytes_per_s@marked"),
            Judge::alone("congestion_signals", Fold::Median, Limit::None),
            Judge::alone("delayed_reads", Fold::Median, Limit::None),
            Judge::alone("delayed_read_bytes", Fold::Median, Limit::None),
            told("disk_again_bytes"),
            told("link_marked_packets"),
        ],
        figures: vec![
            Figure::curve("goodput_bytes_per_s", "All clients, over time (Figure 16b)"),
            Figure::curve("goodput_bytes_per_s@steady", "Those who met no congestion"),
            Figure::curve("goodput_bytes_per_s@marked", "Those who did"),
            Figure::plain("goodput_bytes_per_s", "Goodput"),
            Figure::plain("delayed_reads", "Reads put off"),
            Figure::plain("delayed_read_bytes", "Bytes of these"),
        ],
    }
}

/// ackpace, which reports how often it defers reads.
fn told_by(name: &str, words: &str) -> Contender {
    slow_disk::comparing(name, &[words]).with(name, &["--metrics", scrape::PORT])
}

fn scenario() -> Scenario {
    let classes = [
        ("steady", STEADY, "10.1.0.1-10.1.0.240"),
        ("marked", MARKED, "10.2.0.1-10.2.0.60"),
    ];
    let mut path = vec![link(PathSpec {
        per_client: true,
        ..PathSpec::new("steady", classes[0].2)
    })];
    let names: Vec<String> = (1..=MARKED).map(|nth| format!("marked/{nth}")).collect();
    for (name, nth) in names.iter().zip(1..) {
        path.push(link(PathSpec::new(name, &format!("10.2.0.{nth}"))));
    }
    let marks = |after_s: f64, mark: f64| {
        let event = move |name: &String| TimedEvent {
            after_s,
            event: Event::Link {
                path: name.clone(),
                change: LinkSpec {
                    mark: Some(mark),
                    ..LinkSpec::default()
                },
            },
        };
        names.iter().map(event).collect::<Vec<_>>()
    };
    let clients = Clients {
        seed: 1,
        classes: classes
            .map(|(name, count, source)| class(name, count, source))
            .to_vec(),
        ..Clients::default()
    };
    let all = STEADY + MARKED + 2;
    let mut place = place(
        &[films("steady", STEADY, all), films("marked", MARKED, all)],
        MEMORY_MIB,
    );
    place.network = Network::Wan {
        topology: Topology {
            ecn: Ecn::On,
            grain_us: 200,
            run_us: 10_000,
            path,
            ..Topology::default()
        },
        receive: Receive::ServerCore,
    };
    Scenario {
        place,
        workload: Workload::Swarm(Swarm {
            events: [marks(MARK_AT_S, 1.0), marks(MARK_AT_S + RTT_MS / 1e3, 0.0)].concat(),
            curves: true,
            ..Swarm::new(clients)
        }),
    }
}

fn class(name: &str, clients: u32, source: &str) -> Class {
    let objects = Objects {
        digits: 5,
        p: Some(0.0),
        ..Objects::set(Choice::Locality, &format!("/{name}-{{n}}.bin"), clients + 1)
    };
    Class {
        source: Some(source.into()),
        start: Some(Start {
            over_s: 5.0,
            ..Start::default()
        }),
        ..Class::new(name, clients, objects)
    }
}

fn link(spec: PathSpec) -> PathSpec {
    PathSpec {
        down: LinkSpec {
            rate_mbit_per_s: Some(LINK_MBIT_PER_S),
            delay_ms: Some(RTT_MS / 2.0),
            queue_ms: Some(200.0),
            mark: Some(0.0), // restores the link before the next round
            ..LinkSpec::default()
        },
        up: LinkSpec {
            delay_ms: Some(RTT_MS / 2.0),
            ..LinkSpec::default()
        },
        ..spec
    }
}
