//! Who gets how much of a disk that is slower than its clients, which read at a pace of their own. The claims are
//! asserts; the tables have the figures.
//!
//! A claim holds for each seed, and a table has the medians. `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the tables.

#[path = "../table/mod.rs"]
mod table;

use std::ops::Range;

use ackpace_core::disk::Settings;
use ackpace_core::limits::SEND_QUEUE_BYTES;
use ackpace_core::units::MIB;
use ackpace_core::worker::SendPolicy;
use ackpace_sim::models::disk::profile::{Profile, scsi_2003};
use ackpace_sim::models::tcp::ConnectionProfile;
use ackpace_sim::models::tcp::receiver::Program;
use ackpace_sim::worlds::reading::{ColdDisk, Outcome, ReadingClient, Supply, World};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use table::{Table, compare, over_seeds};

/// Seeds of all worlds here: they give the order of the files on the disk, and when each client starts.
const SEEDS: [u64; 3] = [20_261_127, 20_261_128, 20_261_129];
const COLUMNS: [(&str, usize); 6] = [
    ("special", 1),
    ("least", 1),
    ("others", 1),
    ("least", 1),
    ("reads/s", 0),
    ("KB/read", 0),
];

fn steady(kb_per_s: u64) -> Program {
    Program::Steady(kb_per_s * 1_000)
}

/// Clients on a fast local network.
fn clients(count: usize, program: Program, buffer_kib: u64) -> Vec<ReadingClient> {
    let client = ReadingClient {
        profile: ConnectionProfile {
            program,
            buffer_bytes: buffer_kib << 10,
            link_bytes_per_s: 125_000_000,
            rtt_ms: 2,
            segment_bytes: 1_448,
        },
        starts_ms: 0,
        supply: Supply::Disk { file: 0 },
    };
    vec![client; count]
}

/// These clients and the disk of 2003. Files lie in random order; clients start within three seconds.
fn world(seed: u64, mut clients: Vec<ReadingClient>, memory_mib: u64, ends_s: u64) -> World {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut files: Vec<u32> = (0..clients.len() as u32).collect();
    for n in (1..files.len()).rev() {
        files.swap(n, (dice.next_u64() % (n as u64 + 1)) as usize);
    }
    for (client, file) in clients.iter_mut().zip(files) {
        client.supply = Supply::Disk { file };
        client.starts_ms = dice.next_u64() % 3_000;
    }
    World {
        clients,
        disk: Some(ColdDisk {
            file_bytes: 150_000_000,
            profile: Profile::Disk(scsi_2003()),
            disk: Settings {
                memory_bytes: memory_mib * MIB,
                page_cache_bytes: 64 * MIB,
                ..Settings::ONE_DISK
            },
        }),
        send: SendPolicy::Margin {
            budget_bytes: SEND_QUEUE_BYTES,
        },
        measured_from_ms: 0,
        ends_ms: ends_s * 1_000 + 1,
    }
}

/// What the special clients, which are the first of a world, and the others got in some seconds, KB/s.
#[derive(Clone, Copy, Debug)]
struct Got {
    special: f64,
    others: f64,
}

/// Runs the world. Each of these times becomes a row of the table, and is returned as what clients got in it.
fn run<const N: usize>(
    label: &str,
    world: &World,
    special: usize,
    times: &[(&str, Range<u64>); N],
    table: &mut Table<6>,
) -> [Got; N] {
    let outcome = world.run();
    times.each_ref().map(|(time, seconds)| {
        let figures = figures(&outcome, special, seconds);
        table.row(format!("{label:22}  {time:>6}"), figures);
        Got {
            special: figures[0],
            others: figures[2],
        }
    })
}

fn figures(outcome: &Outcome, special: usize, seconds: &Range<u64>) -> [f64; 6] {
    let s = (seconds.end - seconds.start) as f64;
    let totals = outcome.between(seconds.clone());
    let (special, others) = totals.by_client_bytes.split_at(special);
    let [special, others] = [special, others].map(|bytes| {
        let mean = bytes.iter().sum::<u64>() as f64 / bytes.len().max(1) as f64;
        let least = bytes.iter().min().copied().unwrap_or(0) as f64;
        [mean / s / 1e3, least / s / 1e3]
    });
    [
        special[0],
        special[1],
        others[0],
        others[1],
        totals.reads as f64 / s,
        totals.read_bytes as f64 / totals.reads.max(1) as f64 / 1e3,
    ]
}

/// The rows of each seed, and the table of their medians.
fn tables(name: &str, rows: impl Fn(u64, &mut Table<6>) + Sync) {
    let tables = over_seeds(&SEEDS, |seed| {
        let mut table = Table::new(seed, "clients                 seconds", COLUMNS);
        rows(seed, &mut table);
        table
    });
    let name = format!("cold_clients/{name}");
    compare(&name, &Table::medians(&tables).to_string());
}

/// Not one of them stands out, so all are others.
#[test]
fn where_the_disk_is_too_slow_equal_clients_get_nearly_what_it_has() {
    tables("overload", |seed, table| {
        for buffer_kib in [64, 256, 1_024, 3_072] {
            let world = world(seed, clients(200, steady(300), buffer_kib), 64, 60);
            let label = format!("buffers of {buffer_kib} KiB");
            let [got] = run(&label, &world, 0, &[("30-60", 30..60)], table);
            assert!(got.others >= 210.0, "{label}: {table}");
        }
    });
}

/// Special: 180 of 125 KB/s. Others: 300 of 25 KB/s.
#[test]
fn in_a_mix_slow_clients_lose_nothing_and_fast_ones_without_large_buffers_little() {
    tables("mix", |seed, table| {
        for memory_mib in [48, 96] {
            for buffer_kib in [32, 256, 3_072] {
                let all = [
                    clients(180, steady(125), buffer_kib),
                    clients(300, steady(25), buffer_kib),
                ];
                let world = world(seed, all.concat(), memory_mib, 45);
                let label = format!("{memory_mib} MiB, {buffer_kib} KiB");
                let [got] = run(&label, &world, 180, &[("20-45", 20..45)], table);
                assert!(got.others >= 0.98 * 25.0, "{label}: {table}");
                // Receive buffers of 3 MiB take what the disk reads for seconds.
                let least = if buffer_kib == 3_072 { 0.55 } else { 0.95 };
                assert!(got.special >= least * 125.0, "{label}: {table}");
            }
        }
    });
}

/// Special: ten that read the bytes of a whole period at its beginning.
#[test]
fn clients_that_read_in_bursts_from_large_buffers_get_as_much_as_others() {
    tables("bursts", |seed, table| {
        for every_s in [2, 5, 15] {
            let bursts = Program::Periodic {
                rate_bytes_per_s: 300_000,
                every_ms: every_s * 1_000,
                times: 1_000,
            };
            let all = [
                clients(10, bursts, 12 << 10),
                clients(190, steady(300), 3_072),
            ];
            let world = world(seed, all.concat(), 64, 80);
            let label = format!("each {every_s} s");
            let [got] = run(&label, &world, 10, &[("30-80", 30..80)], table);
            assert!(got.others >= 212.0, "{label}: {table}");
            assert!(got.special >= 0.9 * got.others, "{label}: {table}");
        }
    });
}

/// Special: all of them, each on a path of this rate. The disk is idle most of the time, so little else happens that could wake the worker
/// for a read that has ended.
#[test]
fn few_clients_whose_paths_limit_them_get_all_that_these_carry() {
    tables("few", |seed, table| {
        for count in [1, 10, 20] {
            for kb_per_s in [100, 250, 1_000] {
                let mut all = clients(count, Program::All, 3_072);
                for client in &mut all {
                    (client.profile.link_bytes_per_s, client.profile.rtt_ms) =
                        (kb_per_s * 1_000, 80);
                }
                let world = world(seed, all, 64, 30);
                let label = format!("{count} of {kb_per_s} KB/s");
                let [got] = run(&label, &world, count, &[("10-30", 10..30)], table);
                assert!(got.special >= 0.98 * kb_per_s as f64, "{label}: {table}");
            }
        }
    });
}

#[test]
fn the_same_world_runs_the_same_way() {
    let all = [
        clients(40, steady(300), 256),
        clients(40, steady(25), 1_024),
    ];
    let run = || world(SEEDS[0], all.concat(), 16, 10).run();
    assert_eq!(run(), run());
}
