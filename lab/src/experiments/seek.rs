//! Somebody jumps within a film while the disk is busy for all others.

use super::slow_disk::{self, films, place, viewers};
use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Pace, Scene};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::swarm::workload::{
    Arrivals, Choice, Class, Objects, Part, PartChoice, Workload as Clients,
};
use crate::workloads::{Swarm, Workload};

const STREAMS: u32 = 300;
const STREAM_BITS_PER_S: u64 = 2_400_000;
const SEEKS_PER_S: f64 = 2.0;
const SEEK_BYTES: u64 = 1 << 20;
const MEMORY_MIB: u64 = 256;
const SOUGHT_COUNT: u32 = 32;
const SOUGHT_LEN_BYTES: u64 = 256 << 20;
const SOUGHT: Set = Set::Files {
    name: "sought",
    count: SOUGHT_COUNT as usize,
    len_bytes: SOUGHT_LEN_BYTES,
};
const PEERS: &[&str] = &["nginx", "nginx-aio", "nginx-directio"];

/// The first byte of a cold range.
pub fn experiment() -> Experiment {
    let mut contenders = PEERS
        .iter()
        .map(|name| Contender::preset(name))
        .collect::<Vec<_>>();
    contenders.push(slow_disk::ours("ackpace", &[]));
    let most = |metric, ms| Judge::alone(metric, Fold::Median, Limit::ValueAtMost(ms));
    let told = |metric| Judge::against(metric, PEERS, Limit::None);
    Experiment {
        name: "seek",
        title: "Seeks beside 300 streams that keep the disk busy",
        asks: "300 clients of 300 KB/s want more than a hard disk can give. Twice a second, somebody asks for a megabyte somewhere in \
            a film that nobody has touched. How long until its first byte?",
        source: "",
        contenders,
        subjects: &[],
        sweep: Vec::new(),
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: 10.0,
            window_s: 60.0,
            window_quick_s: 10.0,
        },
        scene: |_| scene(),
        judged: vec![
            most("ttfb_p50_us@seeker", 120.0),
            most("ttfb_p99_us@seeker", 300.0),
            told("ttfb_p50_us@seeker"),
            told("ttfb_p99_us@seeker"),
            told("goodput_bytes_per_s@film"),
        ],
        figures: vec![
            Figure::plain("ttfb_p50_us@seeker", "First byte of a seek, median").logarithmic(),
            Figure::plain(
                "ttfb_p99_us@seeker",
                "First byte of a seek, 99th percentile",
            )
            .logarithmic(),
            Figure::plain("completion_p50_us@seeker", "A whole megabyte, median").logarithmic(),
            Figure::plain("goodput_bytes_per_s@film", "Goodput of the streams"),
        ],
    }
}

fn scene() -> Scene {
    let object = Objects {
        digits: 5,
        len_bytes: Some(SOUGHT_LEN_BYTES),
        ..Objects::set(Choice::Uniform, "/sought-{n}.bin", SOUGHT_COUNT)
    };
    let seeker = Class {
        part: Some(Part {
            choice: PartChoice::Ranges,
            len_bytes: Some(SEEK_BYTES),
            align_bytes: Some(4096),
            every_s: None,
        }),
        arrivals: Some(Arrivals {
            requests_per_s: Some(SEEKS_PER_S),
            ..Arrivals::default()
        }),
        ..Class::new("seeker", 32, object) // connections: more than ever wait at once
    };
    let mut clients = Clients {
        seed: 1,
        classes: vec![viewers("film", STREAMS, STREAM_BITS_PER_S), seeker],
        ..Clients::default()
    };
    let place = slow_disk::remote(
        place(&[films("film", STREAMS, STREAMS + 1), SOUGHT], MEMORY_MIB),
        &mut clients,
    );
    Scene {
        place,
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}
