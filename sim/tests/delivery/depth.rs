//! How many reads a device is given at once, K, and what each load gets by it.

use super::*;
use ackpace_sim::models::disk::profile::{ArrayProfile, DiskProfile, FlashProfile, Seek};

/// The lab's `7200-sata`.
fn sata() -> DiskProfile {
    DiskProfile {
        size_bytes: 1_000_000_000_000,
        rpm: 7_200,
        rate_outer_bytes_per_s: 180_000_000,
        rate_inner_bytes_per_s: 85_000_000,
        zones: 24,
        heads: 4,
        seek: Seek {
            settle_ns: 700_000,
            sqrt_ns: 9_000_000,
            linear_ns: 6_000_000,
        },
        overhead_ns: 100_000,
        bus_bytes_per_s: 550_000_000,
        segments: 32,
        segment_bytes: 1_048_576,
        queue: scsi_2003().queue,
    }
}

/// The lab's `raid0-4x7200`, which the server takes for one disk.
fn stripes() -> Profile {
    Profile::Array(ArrayProfile {
        disk: sata(),
        disks: 4,
        chunk_bytes: 262_144,
    })
}

/// The lab's `flash`.
fn flash() -> Profile {
    Profile::Flash(FlashProfile {
        size_bytes: 256_000_000_000,
        channels: 8,
        stripe_bytes: 16_384,
        latency_ns: 140_000,
        channel_bytes_per_s: 65_000_000,
    })
}

struct Load {
    device: &'static str,
    profile: Profile,
    clients: usize,
    rate: u64,
    memory_mib: u64,
}

/// K, goodput, and the median and maximum time to the first byte. Ten clients come when all others are busy.
fn measure(seed: u64, load: &Load) -> [f64; 4] {
    const NEW: usize = 10;
    let old = load.clients;
    let mut clients = downloads(seed, &[(old + NEW, load.rate)]);
    for (n, download) in clients[old..].iter_mut().enumerate() {
        let client = &mut download.client;
        let at = seconds(25).plus_us(n as u64 * 3_000_000);
        client.starts_at = at.plus_us(client.starts_at.us);
        download.resets_at = Some(client.starts_at.plus_us(2_000_000));
    }
    let disk = Settings {
        rotational: load.device != "flash",
        ..settings(load.memory_mib)
    };
    let world = World {
        profile: load.profile.clone(),
        file_bytes: 2 << 30,
        ..world(clients, disk)
    };
    let outcome = world.run();
    let (mean, _) = kb_per_s(&world, &outcome, 0..old);
    let first = outcome.first_byte_us[old..].iter();
    let mut first_us: Vec<u64> = first.map(|us| us.unwrap_or(u64::MAX)).collect();
    first_us.sort_unstable();
    let [median_ms, worst_ms] = [NEW / 2, NEW - 1].map(|nth| (first_us[nth] / 1000) as f64);
    let goodput = mean * old as f64 / 1e3;
    [outcome.depth as f64, goodput, median_ms, worst_ms]
}

/// Loads above the device's capacity.
fn loads() -> Vec<Load> {
    let scsi = || Profile::Disk(scsi_2003());
    let sata = || Profile::Disk(sata());
    let all = [
        ("10k-scsi", scsi as fn() -> Profile, 300, 250_000, 16),
        ("10k-scsi", scsi, 200, 300_000, 64),
        ("10k-scsi", scsi, 200, 300_000, 256),
        ("7200-sata", sata, 300, 1_000_000, 64),
        ("7200-sata", sata, 100, 8_000_000, 600),
        ("raid0-4", stripes, 400, 2_000_000, 128),
        ("raid0-4", stripes, 100, 8_000_000, 256),
        ("raid0-4", stripes, 100, 8_000_000, 600),
        ("flash", flash, 100, 8_000_000, 64),
        ("flash", flash, 100, 8_000_000, 600),
    ];
    let load = |(device, profile, clients, rate, memory_mib): (_, fn() -> Profile, _, _, _)| Load {
        device,
        profile: profile(),
        clients,
        rate,
        memory_mib,
    };
    all.into_iter().map(load).collect()
}

#[test]
fn a_device_is_given_so_many_reads_that_it_is_used_and_a_first_read_does_not_wait() {
    let found = over_seeds(&SEEDS, depths);
    let (tables, stripes): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let stripes = median(stripes);
    let stripes = format!("four stripes over one disk, 600 MiB: {stripes:.2}\n");
    compare(
        "delivery/depth",
        &(Table::medians(&tables).to_string() + &stripes),
    );
}

/// The table of a seed, and how much more four stripes give than one disk.
fn depths(seed: u64) -> (Table<4>, f64) {
    let columns = [("K", 0), ("MB/s", 1), ("first byte, ms", 0), ("worst", 0)];
    let labels = "device     clients    KB/s  pool MiB";
    let mut table = Table::new(seed, labels, columns);
    let (mut stripes, mut one) = (0.0, 1.0);
    for load in loads() {
        let found = measure(seed, &load);
        let [_, goodput, _, worst_ms] = found;
        let (device, clients, memory_mib) = (load.device, load.clients, load.memory_mib);
        let rate = load.rate / 1000;
        let label = format!("{device:9}  {clients:7}  {rate:6}  {memory_mib:8}");
        table.row(label, found);
        assert!(worst_ms <= 300.0, "a first read waits; {table}");
        match (device, memory_mib) {
            ("raid0-4", 600) => stripes = goodput,
            ("7200-sata", 600) => one = goodput,
            _ => {}
        }
    }
    let ratio = stripes / one;
    assert!(ratio >= 3.5, "four disks are not used: {ratio}; {table}");
    (table, ratio)
}
