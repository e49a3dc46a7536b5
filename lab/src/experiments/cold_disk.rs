//! A visitor beside downloads from a disk with seeks.

use super::slow_disk::in_little_memory;
use crate::corpus::{PROBE, Set, path};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::place::{Disk, Network, Place};
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Choice, Class, Objects, Rate, Workload as Clients};

const FILMS: usize = 100;
const FILM: Set = Set::Files {
    name: "film",
    count: FILMS + 1,
    len_bytes: 384 << 20,
};

/// How the clients of a slow disk share it, and how long a visitor waits.
pub fn experiment() -> Experiment {
    let judge = |metric| {
        Judge::against(
            metric,
            &["nginx", "nginx-aio", "nginx-directio"],
            Limit::None,
        )
    };
    let over = |metric, title| Figure::over("read_ahead_kb", metric, title);
    Experiment {
        name: "cold-disk",
        title: "100 films from a hard disk, and a visitor beside them",
        asks: "100 clients each watch a film of their own at 4 Mbit/s from a hard disk of 2003, by a server with 256 MB of memory. \
            A visitor asks for a 4 KB file that is in memory. How much of their demand do the films get, do all get it, \
            and how long does the visitor wait? With the kernel's usual read-ahead of 128 KB, and with the 2560 KB that a \
            rotating loop device gives itself.",
        source: "",
        contenders: ["ackpace", "nginx", "nginx-aio", "nginx-directio"]
            .map(in_little_memory)
            .to_vec(),
        subjects: &[],
        sweep: vec![Axis::named(
            "read_ahead_kb",
            "read-ahead",
            &["read-ahead 128 KB", "read-ahead 2560 KB"],
        )],
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            // In the first seconds the clients' receive buffers take in more than the clients play.
            warm_up_s: 20.0,
            window_s: 10.0,
            window_quick_s: 6.0,
        },
        scenario,
        judged: vec![
            judge("goodput_bytes_per_s@film"),
            judge("client_goodput_min_bytes_per_s@film"),
            judge("stalls@film"),
            judge("ttfb_p99_us@visitor"),
            // The visitor's file is in memory, whatever the disk does.
            Judge::alone(
                "completion_p99_us@visitor",
                Fold::Median,
                Limit::ValueBelow(1.0),
            ),
            // A visitor who is answered at once asks a hundred times as often, which costs CPU time, too.
            Judge::against("cpu_s_per_gb", &["nginx-directio"], Limit::None),
            judge("disk_again_bytes"),
        ],
        figures: vec![
            over("goodput_bytes_per_s@film", "Goodput of the films"),
            over("client_goodput_min_bytes_per_s@film", "The slowest film"),
            over("ttfb_p99_us@visitor", "The visitor's wait, 99th percentile").logarithmic(),
            over("disk_seek_share", "Time that the disk seeks"),
            over("disk_read_mean_bytes", "Length of a read"),
            over("disk_again_bytes", "Bytes read again"),
        ],
    }
}

fn scenario(at: &Point) -> Scenario {
    let films = Objects {
        digits: 5,
        p: Some(0.0),
        ..Objects::set(Choice::Locality, "/film-{n}.bin", FILMS as u32 + 1)
    };
    let film = Class {
        rate: Some(Rate::fixed(4_000_000)),
        ..Class::new("film", FILMS as u32, films)
    };
    let visitor = Class {
        think_s: 0.02,
        ..Class::new("visitor", 1, Objects::one(&path("probe", 0)))
    };
    let clients = Clients {
        seed: 1,
        classes: vec![film, visitor],
        ..Clients::default()
    };
    Scenario {
        place: Place {
            files: vec![PROBE, FILM],
            disk: Disk::Emulated {
                profile: "10k-scsi-2003",
                read_ahead_kb: [128, 2560][at.count("read_ahead_kb")],
                cached: &["probe"],
            },
            network: Network::Loopback,
            memory_limit_bytes: Some(256 << 20),
            sockets_limit_bytes: None,
        },
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}
