//! Locality and connections: from a server bound by its disk to one bound by its CPU.

use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::{Disk, Network, Place};
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Choice, Class, Objects, Workload as Clients};

const FILM_LEN_BYTES: u64 = 256 << 20;
/// The shared film: it is in memory, as after its first reader.
const SHARED: Set = Set::Files {
    name: "shared",
    count: 1,
    len_bytes: FILM_LEN_BYTES,
};
/// A film for each of the other clients: client k gets film k + 1.
const FILM: Set = Set::Files {
    name: "film",
    count: 201,
    len_bytes: FILM_LEN_BYTES,
};

/// Rate, context switches and CPU time over both axes.
pub fn experiment() -> Experiment {
    let judge = |metric| {
        Judge::against(
            metric,
            &["nginx", "nginx-aio", "apache-prefork"],
            Limit::None,
        )
    };
    let over = |metric, title| Figure::over("connections", metric, title).panels("locality");
    Experiment {
        name: "locality",
        title: "Downloads by locality and connections, from a hard disk",
        asks: "10 to 200 clients download films at full speed from a server with a hard disk of 2003 (seeks, 62 to 38 MB/s) \
            and 1 GB of memory. At a locality of 20 %, a fifth of them get the same film. Without locality the disk is \
            the limit, and how a server reads decides; with it the CPU is, and how often it switches counts.",
        source: "TPF, Figure 11",
        contenders: ["ackpace", "nginx", "nginx-aio", "apache-prefork"]
            .map(Contender::preset)
            .to_vec(),
        subjects: &[],
        sweep: vec![
            Axis::new(
                "locality",
                "locality %",
                &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0],
            )
            .quick(&[0.0, 100.0]),
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
            warm_up_s: 3.0,
            window_s: 5.0,
            window_quick_s: 4.0,
        },
        scenario,
        judged: vec![
            judge("goodput_bytes_per_s"),
            judge("switches_per_s"),
            judge("server_core_share"),
            judge("cpu_s_per_gb"),
        ],
        figures: vec![
            over("goodput_bytes_per_s", "Transmission rate"),
            over("switches_per_s", "Context switches"),
            over("server_core_share", "CPU"),
            over("disk_busy_share", "Disk"),
        ],
    }
}

fn scenario(at: &Point) -> Scenario {
    let clients = at.count("connections") as u32;
    let shared = (f64::from(clients) * at.get("locality") / 100.0).round() as u32;
    let of = |name: &str, clients, choice, count| {
        let objects = Objects {
            digits: 5,
            p: (choice == Choice::Locality).then_some(0.0),
            len_bytes: Some(FILM_LEN_BYTES),
            ..Objects::set(choice, &format!("/{name}-{{n}}.bin"), count)
        };
        Class::new(name, clients, objects)
    };
    let mut classes = Vec::new();
    if shared > 0 {
        classes.push(of("shared", shared, Choice::Uniform, 1));
    }
    if clients > shared {
        classes.push(of("film", clients - shared, Choice::Locality, 201));
    }
    let clients = Clients {
        seed: 1,
        classes,
        ..Clients::default()
    };
    Scenario {
        place: Place {
            files: vec![SHARED, FILM],
            disk: Disk::Emulated {
                profile: "10k-scsi-2003",
                read_ahead_kb: 128,
                cached: &["shared"],
            },
            network: Network::Loopback,
            memory_limit_bytes: Some(1 << 30),
            sockets_limit_bytes: None,
        },
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}
