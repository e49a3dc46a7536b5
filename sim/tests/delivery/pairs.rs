//! Several readers of one file: those at one place share it, pairs at a distance do not.
//!
//! All reads take equally long, so that only sharing makes a difference.

use super::*;

const PAIRS: usize = 20;
const RATE: u64 = 300_000;
const MB: u64 = 1_000_000;

/// Readers of long files in a small page cache.
fn world_of(readers: Vec<Download>, page_cache_bytes: u64) -> World {
    let disk = Settings {
        prefetch: Prefetch::Rate {
            target_us: 2_900_000,
        },
        page_cache_bytes,
        ..settings(64)
    };
    World {
        files: PAIRS as u32,
        file_bytes: 700 * MB,
        page_cache_bytes,
        measured_from: seconds(60),
        ends_at: seconds(180),
        ..world(readers, disk)
    }
}

/// Two readers of each file, one of them this far behind the other.
fn pairs(seed: u64, apart_bytes: u64) -> Vec<Download> {
    let mut readers = downloads(seed, &[(2 * PAIRS, RATE)]);
    for (n, reader) in readers.iter_mut().enumerate() {
        reader.file = n as u32 / 2;
        reader.from_bytes = if n % 2 == 0 { apart_bytes } else { 0 };
    }
    readers
}

/// Bytes that the disk read, divided by bytes that clients received.
fn times_read(outcome: &Outcome) -> f64 {
    let got_bytes: u64 = outcome.by_client_bytes.iter().sum();
    outcome.read_bytes as f64 / got_bytes as f64
}

#[test]
fn pairs_that_begin_at_one_byte_share_and_no_others_are_read_for_twice() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("read/sent", 2),
            ("KB/s", 1),
            ("min", 1),
            READS[0],
            READS[1],
            READS[2],
        ];
        let mut table = Table::new(seed, "page cache, MiB  apart, MB", columns);
        for cache_mib in [32, 64] {
            for apart_mb in [0, 1, 5, 100] {
                apart(seed, cache_mib, apart_mb, &mut table);
            }
        }
        table
    });
    compare("delivery/pairs", &Table::medians(&tables).to_string());
}

fn apart(seed: u64, cache_mib: u64, apart_mb: u64, table: &mut Table<6>) {
    let world = world_of(pairs(seed, apart_mb * MB), cache_mib * MIB);
    let outcome = world.run();
    let (mean, min) = kb_per_s(&world, &outcome, 0..2 * PAIRS);
    let (times, [reads, kb, pool]) = (times_read(&outcome), reads(&world, &outcome));
    let label = format!("{cache_mib:15}  {apart_mb:9}");
    table.row(label, [times, mean, min, reads, kb, pool]);
    assert!(times <= 1.02, "read twice; {table}");
    assert!(min >= 0.97 * RATE as f64 / 1e3, "somebody starves; {table}");
    let shares = apart_mb == 0 && cache_mib == 64;
    assert!(!shares || times <= 0.7, "not shared; {table}");
}

#[test]
fn readers_at_one_place_and_those_who_come_a_little_later_are_read_for_once() {
    over_seeds(&SEEDS, |seed| {
        for late_s in [0, 10] {
            let mut readers = downloads(seed, &[(10, RATE)]);
            for reader in &mut readers[5..] {
                reader.client.starts_at = reader.client.starts_at.plus_us(late_s * 1_000_000);
            }
            for reader in &mut readers {
                reader.file = 7;
            }
            let times = times_read(&world_of(readers, 32 * MIB).run());
            assert!(times <= 0.11, "seed {seed}, {late_s} s late: {times}");
        }
    });
}

/// Two ask for each film. If all were popular, clients would get 120 KB/s.
#[test]
fn a_library_larger_than_the_page_cache_is_read_past_it() {
    over_seeds(&SEEDS, |seed| {
        let mut readers = downloads(seed, &[(200, RATE)]);
        for (n, reader) in readers.iter_mut().enumerate() {
            reader.file = n as u32 / 2;
            reader.client.starts_at.us += n as u64 % 2 * 10_000_000;
        }
        let world = World {
            files: 100,
            disk: settings(64),
            ..world_of(readers, 64 * MIB)
        };
        let outcome = world.run();
        let (mean, _) = kb_per_s(&world, &outcome, 0..200);
        let times = times_read(&outcome);
        assert!(mean >= 210.0, "seed {seed}: {mean} KB/s");
        assert!(times <= 1.02, "seed {seed}: read {times} times");
    });
}
