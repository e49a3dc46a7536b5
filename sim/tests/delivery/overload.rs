//! Clients ask for more than the disk can deliver.

use super::*;
use ackpace_sim::models::array::Device;
use ackpace_sim::models::disk::request::{Kind, Request};

const CLIENTS: usize = 200;
const RATE: u64 = 300_000;

fn overloaded(seed: u64, disk: Settings) -> World {
    World {
        measured_from: seconds(30),
        ends_at: seconds(180),
        ..world(downloads(seed, &[(CLIENTS, RATE)]), disk)
    }
}

/// B(X), measured, in bytes per second. The reader knows all reads beforehand, keeps two in the disk in the order of
/// their offsets, and reads X from each file in each sweep.
fn ideal_bytes_per_s(read_bytes: u64) -> f64 {
    const SWEEPS: u64 = 4;
    let mut device = Device::new(&Profile::Disk(scsi_2003()));
    let each_bytes = device.size_bytes() / CLIENTS as u64 / 4096 * 4096;
    let reads = (0..SWEEPS).flat_map(|sweep| (0..CLIENTS as u64).map(move |file| (sweep, file)));
    let mut reads = reads.map(|(sweep, file)| Request {
        id: sweep * CLIENTS as u64 + file,
        offset_bytes: file * each_bytes + 20_000_000 + sweep * read_bytes,
        len_bytes: read_bytes,
        kind: Kind::Read,
    });
    for request in reads.by_ref().take(2) {
        device.submit(0, request);
    }
    let mut last_ns = 0;
    while let Some(due_ns) = device.next_ns() {
        while let Some(done) = device.complete(due_ns) {
            last_ns = done.finished_ns;
            if let Some(request) = reads.next() {
                device.submit(last_ns, request);
            }
        }
    }
    (SWEEPS * CLIENTS as u64 * read_bytes) as f64 * 1e9 / last_ns as f64
}

/// X and B(X) of the ideal reader in this memory: buffers of X drain at the clients' rate c, so that X B(X) = 2 c M.
fn ideal(memory_bytes: u64) -> (u64, f64) {
    let (mut low, mut high) = (16u64, 1024u64); // in pages
    while high - low > 1 {
        let middle = (low + high) / 2;
        let read_bytes = middle * 4096;
        let holds = read_bytes as f64 * ideal_bytes_per_s(read_bytes) / (2 * RATE) as f64;
        if holds <= memory_bytes as f64 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * 4096, ideal_bytes_per_s(low * 4096))
}

#[test]
fn in_overload_reads_in_the_order_of_the_disk_come_near_the_ideal_reader() {
    // The ideal reader knows no seed.
    let ideals = [64, 256].map(|memory_mib| (memory_mib, ideal(settings(memory_mib).memory_bytes)));
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("goodput", 1),
            ("B(X)", 1),
            ("X, KB", 0),
            ("ratio", 3),
            ("mean", 1),
            ("min", 1),
            READS[0],
            READS[1],
            READS[2],
        ];
        let mut table = Table::new(seed, "pool MiB  order", columns);
        for (memory_mib, ideal) in ideals {
            by_order(seed, memory_mib, ideal, &mut table);
        }
        table
    });
    compare("delivery/overload", &Table::medians(&tables).to_string());
}

fn by_order(seed: u64, memory_mib: u64, ideal: (u64, f64), table: &mut Table<9>) {
    let (read_bytes, ideal) = ideal;
    let [clook, deadline, arrival] = [Order::CLook, Order::Deadline, Order::Arrival].map(|order| {
        let disk = Settings {
            order,
            ..settings(memory_mib)
        };
        let world = overloaded(seed, disk);
        let outcome = world.run();
        let (mean, min) = kb_per_s(&world, &outcome, 0..CLIENTS);
        let goodput = mean * 1e3 * CLIENTS as f64;
        let [reads, kb, pool] = reads(&world, &outcome);
        table.row(
            format!("{memory_mib:8}  {order:?}"),
            [
                goodput / 1e6,
                ideal / 1e6,
                read_bytes as f64 / 1e3,
                goodput / ideal,
                mean,
                min,
                reads,
                kb,
                pool,
            ],
        );
        assert!(
            outcome.pool_max_bytes <= disk.memory_bytes,
            "above the pool; {table}"
        );
        assert!(min >= 0.9 * mean, "somebody starves; {table}");
        goodput
    });
    assert!(clook >= 0.95 * ideal, "far from the ideal reader; {table}");
    // Seeks saved count most where reads are short and many.
    let gain = if memory_mib == 64 { 1.04 } else { 1.03 };
    assert!(
        clook >= gain * deadline && clook >= gain * arrival,
        "the arm goes no shorter way; {table}"
    );
}
