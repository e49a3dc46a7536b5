//! Unequal clients on one disk: the claims of TDAP and EDRC as asserts, and tables with the figures.
//!
//! Each test runs its worlds with every seed: a claim holds for each of them, and a table has the medians.
//! `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the tables. Unless a test says otherwise, the world's page
//! cache is never short of memory. It costs no time, so reads through it run under the best conditions.

mod burst;
mod congestion;
mod departures;
mod depth;
mod many;
mod mix;
mod overload;
mod pairs;
#[path = "../table/mod.rs"]
mod table;

use std::ops::Range;

use ackpace_core::congestion::Delay;
use ackpace_core::disk::{Order, Settings};
use ackpace_core::limits::SEND_QUEUE_BYTES;
use ackpace_core::prefetch::Prefetch;
use ackpace_core::units::{Instant, MIB};
use ackpace_core::worker::SendPolicy;
use ackpace_sim::models::disk::profile::{Profile, scsi_2003};
use ackpace_sim::worlds::delivery::{Download, Faults, Outcome, World};
use ackpace_sim::worlds::sending::{Client, Pace, SOCKET_BYTES};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use table::{Table, compare, median, over_seeds};

/// Seeds of all worlds here: they give the order of the files on the disk, and when each client starts.
const SEEDS: [u64; 3] = [20_260_102, 20_260_103, 20_260_104];
const MBIT: u64 = 125_000;
/// The kernel's read-ahead.
const FIXED: Prefetch = Prefetch::Fixed {
    read_bytes: 131_072,
};

fn settings(memory_mib: u64) -> Settings {
    Settings {
        memory_bytes: memory_mib * MIB,
        page_cache_bytes: 64 * MIB,
        ..Settings::ONE_DISK
    }
}

fn seconds(s: u64) -> Instant {
    Instant { us: s * 1_000_000 }
}

/// This many clients of each rate, each with its own file. Files lie in random order; clients start within three
/// seconds.
fn downloads(seed: u64, rates: &[(usize, u64)]) -> Vec<Download> {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let rates = rates.iter().flat_map(|(count, rate)| vec![*rate; *count]);
    let rates: Vec<u64> = rates.collect();
    let mut files: Vec<u32> = (0..rates.len() as u32).collect();
    for n in (1..files.len()).rev() {
        files.swap(n, (dice.next_u64() % (n as u64 + 1)) as usize);
    }
    let download = |(rate, file): (&u64, &u32)| Download {
        client: Client {
            rate_bytes_per_s: *rate,
            starts_at: Instant {
                us: dice.next_u64() % 3_000_000,
            },
            change: None,
            pace: Pace::Steady,
            socket_bytes: SOCKET_BYTES,
        },
        file: *file,
        from_bytes: 0,
        resets_at: None,
    };
    rates.iter().zip(&files).map(download).collect()
}

/// These downloads from the disk of 2003, measured from the 20th to the 60th second.
fn world(downloads: Vec<Download>, disk: Settings) -> World {
    World {
        files: downloads.len() as u32,
        downloads,
        file_bytes: 120_000_000,
        profile: Profile::Disk(scsi_2003()),
        page_cache_bytes: u64::MAX,
        disk,
        send: SendPolicy::Margin {
            budget_bytes: SEND_QUEUE_BYTES,
        },
        measured_from: seconds(20),
        ends_at: seconds(60),
        faults: Faults::default(),
    }
}

/// Mean and slowest rate of these clients, KB/s.
fn kb_per_s(world: &World, outcome: &Outcome, clients: Range<usize>) -> (f64, f64) {
    let us = world.ends_at.since_us(world.measured_from);
    let mean = outcome.mean_bytes_per_s(clients.clone(), us);
    (mean / 1e3, outcome.min_bytes_per_s(clients, us) / 1e3)
}

/// Titles of `reads`, and their decimals.
const READS: [(&str, usize); 3] = [("reads/s", 0), ("KB/read", 0), ("pool MB", 1)];

/// Summary of the disk's reads.
fn reads(world: &World, outcome: &Outcome) -> [f64; 3] {
    let us = world.ends_at.since_us(world.measured_from) as f64;
    [
        outcome.reads as f64 * 1e6 / us,
        outcome.read_bytes as f64 / outcome.reads.max(1) as f64 / 1e3,
        outcome.pool_max_bytes as f64 / 1e6,
    ]
}

#[test]
fn the_same_world_runs_the_same_way() {
    let clients = || downloads(SEEDS[0], &[(40, MBIT), (40, MBIT / 5)]);
    let run = || world(clients(), settings(16)).run();
    assert_eq!(run(), run());
}
