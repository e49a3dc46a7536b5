//! Several readers of one file at small and large distances, with a page cache that holds a part of what lies between
//! them.
//!
//! All reads take equally long, so that only sharing makes a difference.

use super::*;

const PAIRS: usize = 20;
const RATE: u64 = 300_000;
const MB: u64 = 1_000_000;
/// Distance of a pair that shares nothing.
const FAR: u64 = 500 * MB;
/// Memory that a mistaken disk machine believes the machine to have.
const MUCH: u64 = 1 << 34;

/// Readers of long files in a small page cache.
fn world_of(readers: Vec<Download>, page_cache_bytes: u64, believed_bytes: u64) -> World {
    let disk = Settings {
        prefetch: Prefetch::Rate {
            target_us: 2_900_000,
        },
        page_cache_bytes: believed_bytes,
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
fn pairs(seed: u64, apart_bytes: &[u64]) -> Vec<Download> {
    let mut readers = downloads(seed, &[(2 * apart_bytes.len(), RATE)]);
    for (n, reader) in readers.iter_mut().enumerate() {
        reader.file = n as u32 / 2;
        reader.from_bytes = if n % 2 == 0 { apart_bytes[n / 2] } else { 0 };
    }
    readers
}

/// Bytes that the disk read, divided by bytes that clients received.
fn times_read(outcome: &Outcome) -> f64 {
    let got_bytes: u64 = outcome.by_client_bytes.iter().sum();
    outcome.read_bytes as f64 / got_bytes as f64
}

#[test]
fn pairs_share_while_memory_holds_what_lies_between_them_and_no_others_are_read_for_twice() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("read/sent", 2),
            ("KB/s", 1),
            ("min", 1),
            READS[0],
            READS[1],
            READS[2],
        ];
        let labels = "page cache, MiB  believed  apart, MB";
        let mut table = Table::new(seed, labels, columns);
        for (cache_mib, believed_bytes) in [(32, 32 * MIB), (64, 64 * MIB), (64, MUCH)] {
            apart(seed, cache_mib, believed_bytes, &mut table);
        }
        table
    });
    compare("delivery/pairs", &Table::medians(&tables).to_string());
}

fn apart(seed: u64, cache_mib: u64, believed_bytes: u64, table: &mut Table<6>) {
    let mixed: Vec<u64> = (0..PAIRS as i32)
        .map(|nth| (5e6 * 1.274_f64.powi(nth)) as u64) // 5 to 500 MB
        .collect();
    let apart = [0, 1, 2, 5, 20, 100, 500].map(|mb| (mb.to_string(), vec![mb * MB; PAIRS]));
    for (name, apart_bytes) in apart.into_iter().chain([("5-500".into(), mixed)]) {
        let readers = pairs(seed, &apart_bytes);
        let world = world_of(readers, cache_mib * MIB, believed_bytes);
        let outcome = world.run();
        let (mean, min) = kb_per_s(&world, &outcome, 0..2 * PAIRS);
        let (times, [reads, kb, pool]) = (times_read(&outcome), reads(&world, &outcome));
        let believed_mib = believed_bytes / MIB;
        let label = format!("{cache_mib:15}  {believed_mib:8}  {name:>9}");
        table.row(label, [times, mean, min, reads, kb, pool]);
        assert!(times <= 1.02, "read twice; {table}");
        assert!(min >= 0.97 * RATE as f64 / 1e3, "somebody starves; {table}");
        // Of twelve seeds: .55 to .65 where the belief is right. A mistaken machine loses two or three windows, and learns
        // from these that 20 to 33 MB stay in memory: .60 to .81.
        let most = if believed_bytes == MUCH { 0.85 } else { 0.7 };
        let near = apart_bytes[0] <= MB && cache_mib == 64;
        assert!(!near || times <= most, "not shared; {table}");
    }
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
            let times = times_read(&world_of(readers, 32 * MIB, 32 * MIB).run());
            assert!(times <= 0.11, "seed {seed}, {late_s} s late: {times}");
        }
    });
}

/// When the followers leave, a shared file has a single reader again.
#[test]
fn who_is_left_alone_reads_past_the_page_cache_again() {
    over_seeds(&SEEDS, |seed| {
        let mut readers = pairs(seed, &[MB; PAIRS]);
        for reader in readers.iter_mut().skip(1).step_by(2) {
            reader.resets_at = Some(seconds(50));
        }
        let alone = world_of(readers, 64 * MIB, 64 * MIB).run();
        let far = world_of(pairs(seed, &[FAR; PAIRS]), 64 * MIB, 64 * MIB).run();
        let mean_bytes = |outcome: &Outcome| outcome.read_bytes / outcome.reads;
        let (alone, far) = (mean_bytes(&alone), mean_bytes(&far));
        assert!(
            alone <= far * 11 / 10,
            "seed {seed}: {alone} and {far} bytes"
        );
    });
}
