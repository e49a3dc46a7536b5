//! Clients ask for more than the disk can deliver.

use super::*;
use ackpace_sim::models::array::Device;
use ackpace_sim::models::disk::request::{Kind, Request};

const CLIENTS: usize = 200;
const RATE: u64 = 300_000;

/// The same load with clients whose receive buffers have this size.
fn buffered(disk: Settings, buffer_bytes: u64) -> World {
    let mut world = overloaded(disk);
    for download in &mut world.downloads {
        download.client.buffer_bytes = buffer_bytes;
    }
    world
}

fn overloaded(disk: Settings) -> World {
    World {
        measured_from: seconds(30),
        ends_at: seconds(180),
        ..world(downloads(&[(CLIENTS, RATE)]), disk)
    }
}

/// B(X), measured, in bytes per second. The reader knows all reads beforehand, keeps two in the disk in the order of
/// their offsets, and reads X from each file in each sweep.
fn ideal_bytes_per_s(read_bytes: u64) -> f64 {
    const SWEEPS: u64 = 4;
    let mut device = Device::new(&Profile::Disk(scsi()));
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
    let mut table = String::from(
        "pool MiB  order      goodput    B(X)  ratio    mean     min  reads/s  KB/read  pool MB\n",
    );
    for memory_mib in [64, 256] {
        let (read_bytes, ideal) = ideal(settings(memory_mib).memory_bytes);
        let mut goodputs = Vec::new();
        for order in [Order::CLook, Order::Deadline, Order::Arrival] {
            let disk = Settings {
                order,
                ..settings(memory_mib)
            };
            let world = overloaded(disk);
            let outcome = world.run();
            let (mean, min) = kb_per_s(&world, &outcome, 0..CLIENTS);
            let goodput = mean * 1e3 * CLIENTS as f64;
            table += &format!(
                "{memory_mib:8}  {:9} {:8.1} {:7.1} {:6.3} {mean:7.1} {min:7.1} {}\n",
                format!("{order:?}"),
                goodput / 1e6,
                ideal / 1e6,
                goodput / ideal,
                reads(&world, &outcome),
            );
            assert!(
                outcome.pool_max_bytes <= disk.memory_bytes,
                "above the pool"
            );
            assert!(
                min >= 0.9 * mean,
                "seed {SEED}, {memory_mib} MiB, {order:?}: somebody starves\n{table}"
            );
            goodputs.push(goodput);
        }
        table += &format!("{memory_mib:8}  X = {} KB\n", read_bytes / 1000);
        let [clook, deadline, arrival] = goodputs[..] else {
            unreachable!("three orders")
        };
        assert!(
            clook >= 0.95 * ideal,
            "seed {SEED}, {memory_mib} MiB: far from the ideal reader\n{table}"
        );
        // Seeks saved count most where reads are short and many.
        let gain = if memory_mib == 64 { 1.04 } else { 1.03 };
        assert!(
            clook >= gain * deadline && clook >= gain * arrival,
            "seed {SEED}, {memory_mib} MiB: the arm goes no shorter way\n{table}"
        );
    }
    compare("overload", &table);
}

#[test]
fn what_clients_buffer_makes_reads_longer() {
    let mut table =
        String::from("pool MiB  buffer KiB  goodput    mean     min  reads/s  KB/read  pool MB\n");
    for memory_mib in [32, 64, 160] {
        let mut least = 0.0;
        for buffer_kib in [0, 256, 1024, 3072] {
            let world = buffered(settings(memory_mib), buffer_kib * 1024);
            let outcome = world.run();
            let (mean, min) = kb_per_s(&world, &outcome, 0..CLIENTS);
            table += &format!(
                "{memory_mib:8}  {buffer_kib:10} {:8.1} {mean:7.1} {min:7.1} {}\n",
                mean * CLIENTS as f64 / 1e3,
                reads(&world, &outcome),
            );
            assert!(
                min >= 0.9 * mean && mean >= 0.99 * least,
                "seed {SEED}, {memory_mib} MiB, {buffer_kib} KiB: somebody starves, or memory is not used\n{table}"
            );
            least = mean;
        }
    }
    compare("buffers", &table);
}
