//! Many clients and one cold film: is it read only once?

use super::slow_disk::{self, PLAIN, beside_nginx, local, place};
use crate::corpus::{Set, path};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use ackpace_lab_swarm::workload::{Class, Objects, Rate, Start};

const PREMIERE: Set = Set::Files {
    name: "premiere",
    count: 1,
    len_bytes: 1_000_000_000,
};
const CLIENTS: u32 = 100;
/// A tenth of a GB in 10 s: warm-up and window end before the film does.
const CLIENT_BITS_PER_S: u64 = 80_000_000;
const MEMORY_MIB: u64 = 256;

/// Bytes that the disk reads for a crowd.
pub fn experiment() -> Experiment {
    let told = |metric| Judge::against(metric, PLAIN, Limit::None);
    Experiment {
        asks: "100 clients of 10 MB/s begin the same film of 1 GB within two seconds; it is on a hard disk, and the server has 256 MB. \
            They stay within 20 MB of each other, so the disk need read nothing twice. How much does it read for each \
            byte of the film that was needed, and does everybody get the film at its rate?",
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: 3.0,
            window_s: 95.0,
            window_quick_s: 10.0,
        },
        judged: vec![
            Judge::alone("disk_amplification", Fold::Max, Limit::ValueAtMost(1.05)),
            told("disk_amplification"),
            told("demand_met_mean"),
            told("demand_met_min"),
        ],
        figures: vec![
            Figure::plain("disk_amplification", "Bytes read over bytes needed"),
            Figure::plain("demand_met_mean", "Demand met"),
            Figure::plain("demand_met_min", "Demand met, the worst-off client"),
            Figure::plain("disk_bytes_per_s", "What the disk reads"),
        ],
        ..beside_nginx("crowd", "A hundred clients for one cold film", |_| {
            scenario()
        })
    }
}

fn scenario() -> Scenario {
    let crowd = Class {
        receive_buffer_bytes: Some(1 << 20), // on loopback this buffer holds the server's pages
        rate: Some(Rate::fixed(CLIENT_BITS_PER_S)),
        start: Some(Start {
            over_s: 2.0,
            ..Start::default()
        }),
        ..Class::new("crowd", CLIENTS, Objects::one(&path("premiere", 0)))
    };
    slow_disk::scenario(local(place(&[PREMIERE], MEMORY_MIB), vec![crowd]))
}
