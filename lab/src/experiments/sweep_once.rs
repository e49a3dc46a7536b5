//! One-time downloads: do they displace files that are requested again and again?

use super::slow_disk::{self, place, viewers};
use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::place::Disk;
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Afterwards, Choice, Class, Objects, Start, Workload as Clients};

const HOT_COUNT: u32 = 24;
const HOT: Set = Set::Files {
    name: "hot",
    count: HOT_COUNT as usize,
    len_bytes: 2 << 20,
};
const SWEEPERS: u32 = 16;
const ONCE: Set = Set::Files {
    name: "once",
    count: SWEEPERS as usize + 1,
    len_bytes: 1 << 30,
};
/// 256 MB/s together: 10 GB in 40 s.
const SWEEPER_BITS_PER_S: u64 = 128_000_000;
/// By this time the hot files have been requested, and the window has begun.
const SWEEP_FROM_S: f64 = 5.5;
const MEMORY_MIB: u64 = 256;
const PEERS: &[&str] = &["nginx", "nginx-aio", "nginx-directio"];

/// The hot set after a sweep of one-time downloads.
pub fn experiment() -> Experiment {
    let mut contenders = PEERS
        .iter()
        .map(|name| Contender::preset(name))
        .collect::<Vec<_>>();
    contenders.push(slow_disk::ours("ackpace", &[]));
    Experiment {
        name: "sweep",
        title: "What 10 GB of downloads that come once leave of a hot set",
        asks: "24 files of 2 MB were asked for again and again. Then 16 clients download 10 GB of other files, each byte once, from \
            flash, by a server with 256 MB. Of the hot files, which nobody asked for meanwhile, how many pages are still in memory? \
            (A reader outside the server's cgroup looks at them all the time: a machine that takes back idle memory by itself leaves \
            them, a cgroup that is full does not.)",
        source: "",
        contenders,
        subjects: &[],
        sweep: Vec::new(),
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: 4.5,
            window_s: 42.0,
            window_quick_s: 10.0,
        },
        scenario: |_| scenario(),
        judged: vec![
            Judge::alone("resident_share", Fold::Median, Limit::ValueAtLeast(0.98)),
            Judge::alone("resident_before_share", Fold::Median, Limit::None),
            Judge::against("resident_share", PEERS, Limit::None),
            Judge::against("goodput_bytes_per_s@once", PEERS, Limit::None),
        ],
        figures: vec![
            Figure::plain("resident_before_share", "Hot pages in memory before"),
            Figure::plain("resident_share", "Hot pages still in memory"),
            Figure::plain("goodput_bytes_per_s@once", "Goodput of the downloads"),
            Figure::plain("cpu_s_per_gb", "CPU time of the server"),
        ],
    }
}

fn scenario() -> Scenario {
    let hot = Class {
        requests_each: Some(60), // each file some twenty times; done before the sweep begins
        afterwards: Afterwards::Idle,
        ..Class::new(
            "hot",
            8,
            Objects {
                digits: 5,
                ..Objects::set(Choice::Uniform, "/hot-{n}.bin", HOT_COUNT)
            },
        )
    };
    let once = Class {
        receive_buffer_bytes: Some(1 << 20), // on loopback this buffer holds the server's pages
        start: Some(Start {
            after_s: SWEEP_FROM_S,
            over_s: 0.5,
            ..Start::default()
        }),
        ..viewers("once", SWEEPERS, SWEEPER_BITS_PER_S)
    };
    let clients = Clients {
        seed: 1,
        classes: vec![hot, once],
        ..Clients::default()
    };
    let mut place = place(&[HOT, ONCE], MEMORY_MIB);
    place.disk = Disk::Emulated {
        profile: "flash",
        read_ahead_kb: 128,
        cached: &[],
    };
    Scenario {
        place,
        workload: Workload::Swarm(Swarm {
            lasting: Some("hot"),
            ..Swarm::new(clients)
        }),
    }
}
