//! The disk queue of a conventional server, and how long its read data stays in memory.

use super::slow_disk::in_little_memory;
use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::place::{Disk, Network, Place};
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Choice, Class, Objects, Workload as Clients};

const FILM: Set = Set::Files {
    name: "film",
    count: 201,
    len_bytes: 256 << 20,
};

/// Queue and residence over connections.
pub fn experiment() -> Experiment {
    let judge = |metric| Judge::against(metric, &["apache-prefork", "nginx-aio"], Limit::None);
    Experiment {
        name: "disk-queue",
        title: "Disk queue and page residence of conventional servers",
        asks: "10 to 200 clients each download a film of their own at full speed from a hard disk of 2003. A server with a process for each connection \
            lets the kernel read ahead for all of them at once: requests pile up before the disk, and what was read stays \
            in memory until it is pushed out (256 MB here). Both is work that is lost when its client leaves.",
        source: "TPF, Figure 9",
        contenders: ["apache-prefork", "nginx-aio", "ackpace"]
            .map(in_little_memory)
            .to_vec(),
        subjects: &["ackpace"],
        sweep: vec![
            Axis::new(
                "connections",
                "connections",
                &[10.0, 50.0, 100.0, 150.0, 200.0],
            )
            .quick(&[10.0, 100.0, 200.0]),
        ],
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: 6.0,
            window_s: 6.0,
            window_quick_s: 5.0,
        },
        scenario,
        judged: vec![
            judge("disk_queue_mean"),
            judge("page_residence_s"),
            judge("goodput_bytes_per_s"),
            judge("disk_again_bytes"),
        ],
        figures: vec![
            Figure::over(
                "connections",
                "disk_queue_mean",
                "Requests that wait before the disk (Figure 9a)",
            ),
            Figure::over(
                "connections",
                "page_residence_s",
                "Page residence (Figure 9b)",
            ),
            Figure::over("connections", "disk_read_mean_bytes", "Length of a read"),
            Figure::over("connections", "goodput_bytes_per_s", "Goodput"),
        ],
    }
}

fn scenario(at: &Point) -> Scenario {
    let objects = Objects {
        digits: 5,
        p: Some(0.0),
        ..Objects::set(Choice::Locality, "/film-{n}.bin", 201)
    };
    let clients = Clients {
        seed: 1,
        classes: vec![Class::new("film", at.count("connections") as u32, objects)],
        ..Clients::default()
    };
    Scenario {
        place: Place {
            files: vec![FILM],
            disk: Disk::Emulated {
                profile: "10k-scsi-2003",
                read_ahead_kb: 128,
                cached: &[],
            },
            network: Network::Loopback,
            memory_limit_bytes: Some(256 << 20),
            sockets_limit_bytes: None,
        },
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}
