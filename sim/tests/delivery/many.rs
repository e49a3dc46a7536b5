//! Many connections, many for one file, and a new one when all others are busy.

use super::*;
use ackpace_sim::models::disk::profile::ArrayProfile;

/// Four disks of 2003, striped.
fn array() -> Profile {
    Profile::Array(ArrayProfile {
        disk: scsi_2003(),
        disks: 4,
        chunk_bytes: 512 << 10,
    })
}

#[test]
fn nine_thousand_slow_clients_take_neither_the_disks_nor_the_pool_from_a_thousand_fast_ones() {
    let tables = over_seeds(&SEEDS, many);
    compare("delivery/many", &Table::medians(&tables).to_string());
}

fn many(seed: u64) -> Table<7> {
    const FAST: usize = 1_000;
    const SLOW: usize = 9_000;
    let mut clients = downloads(seed, &[(FAST, 50_000), (SLOW, 1_000)]);
    for download in &mut clients {
        download.client.starts_at.us *= 10; // within 30 s
    }
    let disk = Settings {
        spindles: 4,
        ..settings(1024)
    };
    let world = World {
        profile: array(),
        file_bytes: 20_000_000,
        measured_from: seconds(60),
        ends_at: seconds(120),
        ..world(clients, disk)
    };
    let outcome = world.run();
    let (fast, fast_min) = kb_per_s(&world, &outcome, 0..FAST);
    let (slow, slow_min) = kb_per_s(&world, &outcome, FAST..FAST + SLOW);
    let columns = [
        ("1000 of 50 KB/s", 1),
        ("min", 1),
        ("9000 of 1 KB/s", 2),
        ("min", 2),
        READS[0],
        READS[1],
        READS[2],
    ];
    let mut table = Table::new(seed, "pool MiB", columns);
    let [reads, kb, pool] = reads(&world, &outcome);
    let figures = [fast, fast_min, slow, slow_min, reads, kb, pool];
    table.row("    1024".into(), figures);
    assert!(outcome.pool_max_bytes <= disk.memory_bytes, "{table}");
    assert!(fast >= 0.98 * 50.0 && fast_min >= 0.75 * 50.0, "{table}");
    assert!(slow_min >= 0.99, "{table}");
    table
}

/// A client that takes next to nothing, hostile or not, and a client that is faster than the disk. Each is alone and starts
/// at once, so seeds make no difference.
#[test]
fn who_takes_nothing_is_not_read_for() {
    let tdap = settings(64);
    let run = |disk, rate, send| {
        let mut client = downloads(SEEDS[0], &[(1, rate)]);
        client[0].client.starts_at = seconds(0);
        let world = World {
            send,
            measured_from: seconds(0),
            ends_at: seconds(15),
            file_bytes: 1 << 30,
            ..world(client, disk)
        };
        world.run()
    };
    let margin = SendPolicy::Margin {
        budget_bytes: SEND_QUEUE_BYTES,
    };
    for rate in [1, 1_000] {
        let still = run(tdap, rate, margin);
        assert!(still.pool_max_bytes <= 128 << 10, "{still:?}");
        assert!(still.read_bytes <= 192 << 10, "{still:?}");
        // An eager sender fills a socket of 2 MiB first: until that is full, the client looks fast and is read for.
        let still = run(tdap, rate, SendPolicy::Eager);
        assert!(still.read_bytes <= 5 << 20, "{still:?}");
    }
    let fixed = Settings {
        prefetch: FIXED,
        ..settings(64)
    };
    assert!(run(fixed, 1, margin).read_bytes <= 512 << 10);
    let fast = run(tdap, 100_000_000, margin).by_client_bytes[0] as f64 / 15e6;
    assert!(fast >= 50.0, "{fast} MB/s");
}

#[test]
fn a_new_streams_first_byte_waits_for_no_sweep() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("first byte, median ms", 0),
            ("worst", 0),
            ("goodput, MB/s", 1),
        ];
        let mut table = Table::new(seed, "each, KB/s  pool MiB", columns);
        for (rate, memory_mib) in [(MBIT, 64), (MBIT, 256), (2 * MBIT, 64), (2 * MBIT, 256)] {
            let (median_us, worst_us, goodput) = first_byte(seed, rate, memory_mib);
            let (median_ms, worst_ms) = (median_us / 1000, worst_us / 1000);
            let label = format!("{:10}  {memory_mib:8}", rate / 1000);
            table.row(label, [median_ms as f64, worst_ms as f64, goodput]);
            assert!(
                median_us <= 120_000 && worst_us <= 300_000,
                "a first byte waits; {table}"
            );
        }
        table
    });
    compare("delivery/first-byte", &Table::medians(&tables).to_string());
}

/// Median and maximum time to the first byte of clients that come while 300 are busy, and the goodput of these, MB/s.
fn first_byte(seed: u64, rate: u64, memory_mib: u64) -> (u64, u64, f64) {
    const BUSY: usize = 300;
    const NEW: usize = 76;
    let mut clients = downloads(seed, &[(BUSY + NEW, rate)]);
    for (n, download) in clients[BUSY..].iter_mut().enumerate() {
        let client = &mut download.client;
        let at = seconds(20).plus_us(n as u64 * 500_000);
        client.starts_at = at.plus_us(client.starts_at.us % 500_000);
        download.resets_at = Some(client.starts_at.plus_us(2_000_000));
    }
    let world = world(clients, settings(memory_mib));
    let outcome = world.run();
    let first_us = outcome.first_byte_us[BUSY..].iter();
    let mut first_us: Vec<u64> = first_us.map(|us| us.unwrap_or(u64::MAX)).collect();
    first_us.sort_unstable();
    let (mean, _) = kb_per_s(&world, &outcome, 0..BUSY);
    let goodput = mean * BUSY as f64 / 1e3;
    (first_us[NEW / 2], first_us[NEW - 1], goodput)
}
