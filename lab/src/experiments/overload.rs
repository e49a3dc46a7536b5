//! More demand than a disk can meet, as a function of the server's memory.

use super::slow_disk::{self, NGINX, films, place, remote, viewers};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::sweep::{Axis, Point};
use crate::workloads::Swarm;
use ackpace_lab_swarm::workload::{Class, Kind};

const CLIENTS: u32 = 200;
const CLIENT_BYTES_PER_S: u64 = 300_000;
/// Time in seconds to position for a read, with films read in the order of their places: arm, platter and command.
const POSITIONING_S: f64 = 3.96e-3;
/// Mean rate of the medium in the outer half.
const MEDIUM_BYTES_PER_S: f64 = 56e6;

/// Nothing but these downloads is served: reading ahead may use all memory that sockets leave.
const POOL: &str = "75%";

/// Goodput over memory.
pub fn experiment() -> Experiment {
    let small: fn(&Point) -> bool = |at| at.count("memory_mib") == 64;
    let usual: fn(&Point) -> bool = |at| at.count("memory_mib") == 256;
    let target: fn(&Point) -> bool = |at| [64, 256].contains(&at.count("memory_mib"));
    let other: fn(&Point) -> bool = |at| ![64, 256].contains(&at.count("memory_mib"));
    let nginx = |limit| {
        let limit = Limit::MedianRatioAtLeast(limit);
        Judge::best_of("goodput_bytes_per_s", NGINX, limit)
    };
    Experiment {
        name: "overload",
        title: "200 clients of 300 KB/s: what a disk gives over the memory for it",
        asks: "200 clients would take 60 MB/s, more than the disk has with so many places to read from. The longer a read, the less \
            time is lost by seeking, and the more memory holds what was read until its client took it. A reader that can't be \
            better reads X bytes each time, where X * B(X) = 2 * c * M (M bytes of buffers that drain at the clients' rate c) and B(X) = X / (t + X / R). \
            How near does each server come, and nginx at its best, in a cgroup of so much memory?",
        source: "TPF, section 3.2 (TDAP)",
        contenders: [
            slow_disk::nginx(),
            vec![slow_disk::ours_with_pool(POOL, "ackpace", &[])],
        ]
        .concat(),
        subjects: &[],
        sweep: vec![
            Axis::new(
                "memory_mib",
                "memory MiB",
                &[64.0, 128.0, 256.0, 512.0, 1024.0],
            )
            .quick(&[64.0, 256.0])
            .logarithmic(),
        ],
        pace: Pace {
            rounds: 5,
            rounds_quick: 1,
            // The formula describes a steady state. After half a minute, filling a pool of hundreds of MB and
            // the clients' own buffers still takes a fiftieth of the disk's throughput.
            warm_up_s: 60.0,
            window_s: 20.0,
            window_quick_s: 8.0,
        },
        scenario: |at| scenario(at, Kind::Plain),
        judged: vec![
            Judge::alone(
                "goodput_of_ideal_share",
                Fold::Median,
                Limit::ValueAtLeast(0.97),
            )
            .at(target),
            nginx(1.20).at(small),
            nginx(1.10).at(usual),
            nginx(1.0).at(other),
            Judge::against(
                "cpu_s_per_gb",
                &["nginx-directio"],
                Limit::MedianRatioAtMost(1.25),
            ),
            Judge::alone("disk_again_pages_per_s", Fold::Max, Limit::None),
        ],
        figures: figures(),
    }
}

/// Goodput, its cost, and the disk's work.
fn figures() -> Vec<Figure> {
    let over = |metric, title| Figure::over("memory_mib", metric, title);
    let mut figures = vec![
        over("goodput_bytes_per_s", "Goodput"),
        over(
            "goodput_of_ideal_share",
            "Goodput over that of the ideal reader",
        ),
        over("client_goodput_min_bytes_per_s", "The worst-off client"),
        over("cpu_s_per_gb", "CPU time of the server"),
        over("disk_bytes_per_s", "What the disk brings"),
    ];
    figures.extend(slow_disk::disk_figures(over));
    figures
}

/// The same with clients that limit themselves, and a server with default settings.
pub fn self_paced() -> Experiment {
    Experiment {
        name: "self-paced-overload",
        title: "200 clients that would read 300 KB/s, and what a disk gives over the memory for it",
        asks: "As in overload, 200 clients would take 60 MB/s, more than the disk has, and a reader that can't be better is known. Here they read steadily by \
            themselves, with receive buffers that their kernels tune: whatever comes is taken in at once, and nothing but the bytes acknowledged over time tells \
            what they can take. ackpace has its default options. How near does each server come, and nginx at its best, in a cgroup of so much memory?",
        contenders: [slow_disk::nginx(), vec![Contender::preset("ackpace")]].concat(),
        sweep: vec![Axis::new("memory_mib", "memory MiB", &[64.0, 256.0])],
        scenario: |at| scenario(at, Kind::SelfPaced),
        ..experiment()
    }
}

fn scenario(at: &Point, kind: Kind) -> Scenario {
    let memory_mib = at.count("memory_mib") as u64;
    let ideal = ideal_bytes_per_s((memory_mib << 20) as f64);
    let (place, swarm) = remote(
        place(&[films("film", CLIENTS, CLIENTS + 1)], memory_mib),
        vec![Class {
            kind,
            ..viewers("film", CLIENTS, CLIENT_BYTES_PER_S * 8)
        }],
    );
    let swarm = Swarm {
        ideal_bytes_per_s: Some(ideal.min((CLIENT_BYTES_PER_S * u64::from(CLIENTS)) as f64)),
        ..swarm
    };
    slow_disk::scenario((place, swarm))
}

/// B(X) at the X for which the buffers just suffice, in bytes/s.
fn ideal_bytes_per_s(memory_bytes: f64) -> f64 {
    let product = 2.0 * CLIENT_BYTES_PER_S as f64 * memory_bytes;
    // X^2 = product * (t + X / R)
    let half = product / MEDIUM_BYTES_PER_S / 2.0;
    let read_bytes = half + (half * half + product * POSITIONING_S).sqrt();
    read_bytes / (POSITIONING_S + read_bytes / MEDIUM_BYTES_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_is_that_of_the_targets() {
        let mb = |mib: u64| ideal_bytes_per_s((mib << 20) as f64) / 1e6;
        assert!((mb(64) - 44.9).abs() < 0.05, "{}", mb(64));
        assert!((mb(256) - 52.2).abs() < 0.05, "{}", mb(256));
    }
}
