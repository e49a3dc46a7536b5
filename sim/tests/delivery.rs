//! Unequal clients on one hard disk: the claims of TDAP and EDRC, and tables that say how much.
//!
//! `UPDATE_TABLES=1 cargo test -p ackpace-sim` writes the tables anew.

use ackpace_core::disk::{Order, Settings};
use ackpace_core::limits::SEND_QUEUE_BYTES;
use ackpace_core::prefetch::Prefetch;
use ackpace_core::units::{Instant, MIB};
use ackpace_core::worker::Send;
use ackpace_sim::models::disk::profile::{Discipline, DiskProfile, Profile, QueueProfile, Seek};
use ackpace_sim::worlds::delivery::{Download, Outcome, World};
use ackpace_sim::worlds::sending::{Client, Pace};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SEED: u64 = 20_260_102;
const MEASURED_S: u64 = 40;

/// The lab's `10k-scsi-2003`.
fn scsi() -> Profile {
    Profile::Disk(DiskProfile {
        size_bytes: 73_400_000_000,
        rpm: 10_000,
        rate_outer_bytes_per_s: 62_000_000,
        rate_inner_bytes_per_s: 38_000_000,
        zones: 16,
        heads: 8,
        seek: Seek {
            settle_ns: 400_000,
            sqrt_ns: 6_000_000,
            linear_ns: 3_300_000,
        },
        overhead_ns: 150_000,
        bus_bytes_per_s: 200_000_000,
        segments: 16,
        segment_bytes: 524_288,
        queue: QueueProfile {
            discipline: Discipline::Sptf,
            depth: 32,
            age_max_ns: 1_000_000_000,
        },
    })
}

fn settings(memory_mib: u64) -> Settings {
    Settings {
        prefetch: Prefetch::Tdap,
        order: Order::CLook,
        cancel: true,
        direct: true,
        memory_bytes: memory_mib * MIB,
        rotational: true,
        spindles: 1,
    }
}

/// Each its own file; starts within three seconds, rates as given.
fn downloads(rates: &[(usize, u64)]) -> Vec<Download> {
    let mut dice = Pcg64Mcg::seed_from_u64(SEED);
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
            speeds_up_at: None,
            pace: Pace::Steady,
        },
        file: *file,
        from_bytes: 0,
        resets_at: None,
    };
    rates.iter().zip(&files).map(download).collect()
}

fn world(rates: &[(usize, u64)], disk: Settings) -> World {
    let downloads = downloads(rates);
    World {
        files: downloads.len() as u32,
        downloads,
        file_bytes: 120_000_000,
        profile: scsi(),
        disk,
        send: Send::Margin {
            budget_bytes: SEND_QUEUE_BYTES,
        },
        measured_from: Instant { us: 20_000_000 },
        ends_at: Instant {
            us: (20 + MEASURED_S) * 1_000_000,
        },
    }
}

fn line(
    name: &str,
    outcome: &Outcome,
    high: std::ops::Range<usize>,
    low: std::ops::Range<usize>,
) -> String {
    let us = MEASURED_S * 1_000_000;
    let [mean, min] = [
        outcome.mean_bytes_per_s(high.clone(), us),
        outcome.min_bytes_per_s(high, us),
    ];
    let [low_mean, low_min] = [
        outcome.mean_bytes_per_s(low.clone(), us),
        outcome.min_bytes_per_s(low, us),
    ];
    format!(
        "{name:34} {:6.1} {:6.1} {:6.1} {:6.1}  {:6.1} {:7.0} {:6.1} {:6.2} {:5.2} {:5.1}\n",
        mean / 1e3,
        min / 1e3,
        low_mean / 1e3,
        low_min / 1e3,
        outcome.read_bytes as f64 / us as f64,
        outcome.read_bytes as f64 / outcome.reads.max(1) as f64 / 1e3,
        outcome.pool_max_bytes as f64 / 1e6,
        outcome.target_us as f64 / 1e6,
        outcome.positioning_us as f64 / 1e3,
        outcome.media_bytes_per_s as f64 / 1e6,
    )
}

#[test]
fn look() {
    let mut table = String::from(
        "                                     high    min    low    min    MB/s  KB/read  pool   T_D    t_p    R\n",
    );
    for mib in [48, 64, 80, 112] {
        let outcome = world(&[(180, 125_000), (300, 25_000)], settings(mib)).run();
        table += &line(&format!("fig14 300 {mib}"), &outcome, 0..180, 180..480);
    }
    for mib in [64, 256] {
        let outcome = world(&[(200, 300_000)], settings(mib)).run();
        table += &line(&format!("overload {mib}"), &outcome, 0..200, 0..200);
    }
    println!("{table}");
}
