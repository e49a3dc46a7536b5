//! Files by NFS: Figures 3 and 4 of the network-centric cache.

use crate::corpus::Set;
use crate::experiment::{Experiment, Pace, Scenario};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::{ReadOrder, Reads, Workload};

/// Lengths of a READ in KiB: those of the paper, and what kernel clients of today ask for.
const LENGTHS_KIB: [f64; 8] = [4.0, 8.0, 16.0, 32.0, 48.0, 64.0, 256.0, 1024.0];
/// Files that are in memory, one for each client; together they are larger than any processor's cache.
const HOT: Set = Set::files("nfs-hot", 4, 96 << 20);

/// What all contenders of both figures serve: the same folder in the page cache.
fn contenders() -> Vec<Contender> {
    vec![
        Contender::preset("nfs").with("folder", &[]),
        Contender::preset("plain-nfs").with("two copies", &[]),
        Contender::preset("ganesha"),
    ]
}

fn lengths() -> Axis {
    Axis::new("length", "length of a READ, KiB", &LENGTHS_KIB).logarithmic()
}

fn reads(at: &Point, rate_bytes_per_s: Option<u64>) -> Scenario {
    Scenario {
        place: Place::memory(&[HOT]),
        workload: Workload::Nfs(Reads {
            of: HOT,
            connections: 4,
            under_way: 8,
            len_bytes: (at.count("length") as u32) << 10,
            order: ReadOrder::Anywhere,
            rate_bytes_per_s,
        }),
    }
}

/// CPU time at equal throughput.
pub fn fig4() -> Experiment {
    Experiment {
        name: "ncc-fig4",
        title: "READs by NFS at equal rates: CPU time",
        asks: "Four clients of NFS with eight READs under way each ask for parts of 4 KiB to 1 MiB at random places of files that are in memory, at a common rate \
            that each server can hold. What does a byte cost?",
        source: "network-centric cache, Figure 4",
        contenders: contenders(),
        subject: "folder",
        sweep: vec![lengths()],
        pace: Pace::of([3, 1], 1.0, [3.0, 1.5]),
        scenario: |at| reads(at, Some(rate_bytes_per_s(at.count("length") as u64))),
        judged: "
            cpu_s_per_gb / ganesha <= .35
            cpu_s_per_gb / two copies
            core_s_per_gb / ganesha, two copies
            demand_met_mean >= .98
            completion_p99_us / ganesha, two copies",
        figures: Vec::new(),
    }
}

/// What all clients together ask for, so that each server has a core that is not full.
fn rate_bytes_per_s(length_kib: u64) -> u64 {
    match length_kib {
        0..=4 => 50_000_000,
        5..=8 => 100_000_000,
        9..=16 => 200_000_000,
        17..=64 => 300_000_000,
        65.. => 500_000_000,
    }
}

/// Throughput of one full core.
pub fn fig3() -> Experiment {
    Experiment {
        name: "ncc-fig3",
        title: "READs by NFS as fast as they are answered: throughput",
        asks: "The same clients ask as fast as they are answered, so that the server's core is full. How much do they get?",
        source: "network-centric cache, Figure 3",
        contenders: contenders(),
        subject: "folder",
        sweep: vec![lengths()],
        pace: Pace::of([3, 1], 1.0, [3.0, 1.5]),
        scenario: |at| reads(at, None),
        judged: "
            goodput_bytes_per_s / two copies, ganesha
            requests_per_s / two copies, ganesha
            cpu_s_per_gb / ganesha <= .35
            cpu_s_per_gb / two copies
            load_core_share max",
        figures: Vec::new(),
    }
}
