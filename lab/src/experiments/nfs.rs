//! Files by NFS: from a folder, and from an iSCSI target as in the figures of the network-centric cache.

use super::origin::{CLIENT, FAR};
use crate::corpus::Set;
use crate::experiment::{Experiment, Pace, Scenario};
use crate::peers::Contender;
use crate::place::{Disk, Network, Place, Receive};
use crate::scrape;
use crate::sweep::{Axis, Point};
use crate::workloads::{ReadOrder, Reads, Workload, Writes};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};
use std::net::Ipv4Addr;

/// Lengths of a READ in KiB: those of the paper, and what kernel clients of today ask for.
const LENGTHS_KIB: [f64; 8] = [4.0, 8.0, 16.0, 32.0, 48.0, 64.0, 256.0, 1024.0];
/// Files that are in memory, one for each client; together they are larger than any processor's cache.
const HOT: Set = Set::files("nfs-hot", 4, 64 << 20);
/// Files that nobody has read.
const COLD: Set = Set::files("nfs-cold", 4, 100 << 20);
/// Files that are written, one for each client. Each is as long as what a client writes before it commits.
const WRITTEN: Set = Set::files("nfs-written", 4, 64 << 20);
/// The paper's RAM disk.
const STORE_BYTES: u64 = 750 << 20;
/// The paper's memory of the NFS server.
const MEMORY_BYTES: u64 = 512 << 20;

fn lengths() -> Axis {
    Axis::new("length", "length of a READ, KiB", &LENGTHS_KIB).logarithmic()
}

/// Four clients with eight READs under way each, at any place of their files.
fn reads(of: Set, at: &Point) -> Reads {
    Reads {
        of,
        connections: 4,
        under_way: 8,
        len_bytes: (at.count("length") as u32) << 10,
        order: ReadOrder::Anywhere,
        rate_bytes_per_s: None,
        warm_passes: 0,
        is_once: false,
        source: None,
        compared_with: None,
    }
}

/// What all clients together ask for if they are paced, so that each server has a core that is not full.
fn rate_bytes_per_s(at: &Point) -> u64 {
    match at.count("length") {
        0..=4 => 40_000_000,
        5..=8 => 80_000_000,
        9..=16 => 160_000_000,
        17..=64 => 250_000_000,
        65.. => 400_000_000,
    }
}

/// READs of files in the page cache.
pub fn folder() -> Experiment {
    let loads = ["equal rates", "full speed"];
    Experiment {
        name: "nfs-folder",
        title: "READs by NFS of files in memory",
        asks: "Four clients of NFS with eight READs under way each ask for parts of 4 KiB to 1 MiB at random places of a folder whose files are in memory: at a \
            common rate that each server can hold, and as fast as they are answered. What does a byte cost?",
        source: "",
        contenders: vec![
            Contender::preset("nfs"),
            Contender::preset("plain-nfs").with("two copies", &[]),
            Contender::preset("ganesha"),
        ],
        subject: "nfs",
        sweep: vec![lengths(), Axis::named("load", "load", &loads)],
        pace: Pace::of([3, 1], 1.0, [3.0, 1.5]),
        scenario: |at| Scenario {
            place: Place::memory(&[HOT]),
            workload: Workload::Nfs(Reads {
                rate_bytes_per_s: (at.count("load") == 0).then(|| rate_bytes_per_s(at)),
                ..reads(HOT, at)
            }),
        },
        judged: "
            cpu_s_per_gb / ganesha <= .35 at load=1
            cpu_s_per_gb / ganesha at load=0
            cpu_s_per_gb / two copies
            goodput_bytes_per_s / ganesha, two copies at load=1
            requests_per_s / ganesha, two copies at load=1
            demand_met_mean >= .98 at load=0
            completion_p99_us / ganesha, two copies at load=0
            load_core_share max at load=1",
        figures: Vec::new(),
    }
}

/// An ext4 on a target, and servers with the paper's memory.
fn on_target(at: Ipv4Addr) -> Place {
    Place {
        disk: Disk::Target {
            at,
            store_bytes: STORE_BYTES,
            is_written: false,
        },
        memory_limit_bytes: Some(MEMORY_BYTES),
        ..Place::memory(&[HOT, COLD])
    }
}

/// Ours with the cache in front of the target.
fn gateway(name: &str, options: &[&str]) -> Contender {
    let unit = [
        "--iscsi",
        "@TARGET@",
        "--iscsi-gateway",
        "@GATEWAY@",
        "--cache-memory",
        "300MiB",
        // What it may need at worst is more than it has here, and far more than it needs.
        "--memory-max",
        "700MiB",
        "--metrics",
        scrape::PORT,
    ];
    Contender::preset("nfs").with(name, &[&unit[..], options].concat())
}

/// With the network-centric cache and without it: by payload that is copied once more when it is sent, and through the kernel's
/// file system, without a copy in the server, with two, and by Ganesha.
fn cached_or_mounted() -> Vec<Contender> {
    vec![
        gateway("gateway", &[]),
        gateway("copying", &["--compare", "payload=copy"]),
        Contender::preset("nfs").with("mounted", &[]),
        Contender::preset("plain-nfs").with("two copies", &[]),
        Contender::preset("ganesha"),
    ]
}

fn asked() -> Axis {
    Axis::named("asked", "asked", &["all hit", "all miss"])
}

/// Hits: anywhere in files that were read three times. Misses: files that nobody has read, from begin to end.
fn hits_or_misses(at: &Point) -> Reads {
    match at.count("asked") {
        0 => Reads {
            warm_passes: 3,
            ..reads(HOT, at)
        },
        _ => Reads {
            order: ReadOrder::Onwards { among: 1 },
            is_once: true,
            ..reads(COLD, at)
        },
    }
}

/// Throughput of one full core.
pub fn fig3() -> Experiment {
    Experiment {
        name: "ncc-fig3",
        title: "READs by NFS from an iSCSI target: throughput",
        asks: "Four clients of NFS with eight READs under way each ask for parts of 4 KiB to 1 MiB as fast as they are answered: at random places of files that the \
            server has in memory, or of files that nobody has read, from begin to end. The files lie on an iSCSI target; the server has 512 MB.",
        source: "network-centric cache, Figure 3",
        contenders: cached_or_mounted(),
        subject: "gateway",
        sweep: vec![lengths(), asked()],
        pace: Pace::of([3, 1], 1.0, [4.0, 2.0]),
        scenario: |at| Scenario {
            place: on_target(Ipv4Addr::LOCALHOST),
            workload: Workload::Nfs(hits_or_misses(at)),
        },
        judged: "
            goodput_bytes_per_s / two copies >= 1.25 at length=32 asked=0
            goodput_bytes_per_s / two copies >= 1.4 at length=64 asked=0
            goodput_bytes_per_s / two copies >= 1.6 at length=1024 asked=0
            goodput_bytes_per_s / two copies at length=4|8|16|48|256 asked=0
            goodput_bytes_per_s / two copies at asked=1
            goodput_bytes_per_s / copying, mounted, ganesha
            cpu_s_per_gb / two copies <= 1.1 at length=4 asked=0
            cpu_s_per_gb / two copies <= .8 at length=32 asked=0
            cpu_s_per_gb / two copies <= .72 at length=64 asked=0
            cpu_s_per_gb / two copies <= .55 at length=1024 asked=0
            cpu_s_per_gb / ganesha <= .35 at asked=0
            serving_s_per_gb / two copies <= .88 at length=64 asked=1
            serving_s_per_gb / two copies <= .8 at length=256 asked=1
            serving_s_per_gb / two copies <= .6 at length=1024 asked=1
            serving_s_per_gb / two copies at asked=0
            serving_s_per_gb / copying, mounted, ganesha
            load_core_share max
            unit_hit_share
            unit_mount_share
            allocated_over_kept max <= 1.15 at asked=0
            memory_over_hot max at asked=0",
        figures: Vec::new(),
    }
}

/// CPU time at equal throughput.
pub fn fig4() -> Experiment {
    Experiment {
        name: "ncc-fig4",
        title: "READs by NFS from an iSCSI target at equal rates: CPU time",
        asks: "The same clients ask at a common rate that each server can hold. What does a byte cost, the process below the mount and threads of the kernel \
            included?",
        source: "network-centric cache, Figure 4",
        contenders: cached_or_mounted(),
        subject: "gateway",
        sweep: vec![lengths(), asked()],
        pace: Pace::of([3, 1], 1.0, [4.0, 2.0]),
        scenario: |at| {
            let rate = rate_bytes_per_s(at);
            Scenario {
                place: on_target(Ipv4Addr::LOCALHOST),
                workload: Workload::Nfs(Reads {
                    rate_bytes_per_s: Some(if at.count("asked") == 0 {
                        rate
                    } else {
                        rate / 2
                    }),
                    ..hits_or_misses(at)
                }),
            }
        },
        judged: "
            cpu_s_per_gb / copying, mounted, two copies, ganesha
            serving_s_per_gb / copying, mounted, two copies, ganesha
            demand_met_mean >= .98
            completion_p99_us / copying, mounted, two copies, ganesha",
        figures: Vec::new(),
    }
}

/// Sequential readers of a target that is far away.
pub fn readers() -> Experiment {
    Experiment {
        name: "ncc-readers",
        title: "Sequential readers of a target that is 10 ms away",
        asks: "Clients of NFS read a file each that nobody has read, from begin to end, in READs of 64 KiB, of which 16 are under way in random order. The target is \
            behind a link of 1 Gbit/s with a round trip of 10 ms. How much do they get of what one TCP connection brings over that link?",
        source: "",
        contenders: vec![
            gateway("gateway", &[]),
            Contender::preset("nfs").with("mounted", &[]),
            Contender::preset("ganesha"),
        ],
        subject: "gateway",
        sweep: vec![Axis::new("readers", "readers", &[1.0, 4.0])],
        pace: Pace::of([3, 1], 0.0, [20.0, 10.0]),
        scenario: |at| {
            let link = LinkSpec::limited(1000.0, 10.0, 5.0);
            let path = PathSpec {
                down: link.clone(),
                up: link,
                ..PathSpec::new("target", &FAR.to_string())
            };
            let topology = Topology {
                path: vec![path],
                beside: Some(CLIENT),
                ..Topology::default()
            };
            Scenario {
                place: Place {
                    network: Network::Wan {
                        topology,
                        receive: Receive::ServerCore,
                    },
                    ..on_target(FAR)
                },
                workload: Workload::Nfs(Reads {
                    of: COLD,
                    connections: at.count("readers"),
                    under_way: 16,
                    len_bytes: 64 << 10,
                    order: ReadOrder::Onwards { among: 16 },
                    rate_bytes_per_s: None,
                    warm_passes: 0,
                    is_once: true,
                    source: CLIENT.parse().ok(),
                    compared_with: Some(FAR),
                }),
            }
        },
        judged: "
            goodput_over_tcp >= .9
            goodput_bytes_per_s / mounted, ganesha
            serving_s_per_gb / mounted, ganesha",
        figures: Vec::new(),
    }
}

/// WRITEs to a target.
pub fn write() -> Experiment {
    Experiment {
        name: "nfs-write",
        title: "WRITEs by NFS to an iSCSI target",
        asks: "Four clients of NFS with eight WRITEs under way each write a file of 64 MiB from begin to end, commit it, and begin again: with new blocks, since the \
            file was cut before, or over those that are there. The files lie on an iSCSI target; the server has 512 MB. What does a byte cost, the process below the \
            mount and threads of the kernel included?",
        source: "",
        contenders: vec![gateway("gateway", &[]), Contender::preset("ganesha")],
        subject: "gateway",
        sweep: vec![
            Axis::new("length", "length of a WRITE, KiB", &[64.0, 1024.0]).logarithmic(),
            Axis::named("blocks", "blocks", &["new", "there"]),
        ],
        pace: Pace::of([3, 1], 2.0, [6.0, 3.0]),
        scenario: |at| Scenario {
            place: Place {
                files: vec![WRITTEN],
                disk: Disk::Target {
                    at: Ipv4Addr::LOCALHOST,
                    store_bytes: STORE_BYTES,
                    is_written: true,
                },
                ..on_target(Ipv4Addr::LOCALHOST)
            },
            workload: Workload::NfsWrites(Writes {
                of: WRITTEN,
                under_way: 8,
                len_bytes: (at.count("length") as u32) << 10,
                is_cut_first: at.count("blocks") == 0,
            }),
        },
        judged: "
            written_s_per_gb / ganesha <= 1.0
            cpu_s_per_gb / ganesha
            kernel_s_per_gb / ganesha
            mount_s_per_gb / ganesha
            target_s_per_gb / ganesha
            goodput_bytes_per_s / ganesha",
        figures: Vec::new(),
    }
}
