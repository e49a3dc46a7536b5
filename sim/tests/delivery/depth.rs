//! How many reads a device is given at once: the depth by Little's law beside the best one for each load.

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

#[derive(Clone, Copy)]
struct Found {
    goodput: f64,
    depth: usize,
    median_us: u64,
    worst_us: u64,
}

/// A run with this number of reads. Ten clients come when all others are busy.
fn measure(seed: u64, load: &Load, reads: Option<u32>) -> Found {
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
        reads,
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
    Found {
        goodput: mean * old as f64 / 1e3,
        depth: outcome.depth,
        median_us: first_us[NEW / 2],
        worst_us: first_us[NEW - 1],
    }
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

/// The best result of some fixed depths, and the smallest depth within 2 % of it. A depth at which a first read waits
/// too long does not count, but a depth of two always does.
fn best_of(seed: u64, load: &Load) -> (f64, Found) {
    let fixed = [2, 3, 4, 6, 8, 12, 16, 24].map(|reads| measure(seed, load, Some(reads)));
    let quick = |one: &&Found| one.depth == 2 || one.median_us <= 120_000;
    let quick: Vec<&Found> = fixed.iter().filter(quick).collect();
    let best = quick
        .iter()
        .fold(0.0_f64, |best, one| best.max(one.goodput));
    let least = quick.iter().find(|one| one.goodput >= 0.98 * best);
    (best, **least.expect("the best one"))
}

impl Found {
    /// K, goodput, and the first bytes' times in ms.
    fn figures(&self) -> [f64; 4] {
        let [median_ms, worst_ms] = [self.median_us, self.worst_us].map(|us| (us / 1000) as f64);
        [self.depth as f64, self.goodput, median_ms, worst_ms]
    }
}

#[test]
fn as_many_reads_are_given_to_a_device_as_pay() {
    let found = over_seeds(&SEEDS, depths);
    let (tables, stripes): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let table = Table::medians(&tables);
    // 300 clients of the 7200-sata: .95 of the best of eight in the mean of twenty seeds, which differ by .034 (one sigma).
    let near = |(_, [.., ratio]): &(String, [f64; 9])| *ratio >= 0.92;
    let near = table.rows.iter().all(near);
    assert!(near, "far from the best K; {table}");
    let stripes = median(stripes);
    let stripes = format!("four stripes over one disk, 600 MiB: {stripes:.2}\n");
    compare("delivery/depth", &(table.to_string() + &stripes));
}

/// The table of a seed, and how much more four stripes give than one disk.
fn depths(seed: u64) -> (Table<9>, f64) {
    let columns = [
        ("best K", 0),
        ("MB/s", 1),
        ("first byte, ms", 0),
        ("worst", 0),
        ("found K", 0),
        ("MB/s", 1),
        ("first byte, ms", 0),
        ("worst", 0),
        ("ratio", 3),
    ];
    let labels = "device     clients    KB/s  pool MiB";
    let mut table = Table::new(seed, labels, columns);
    let (mut ratios, mut goodputs) = (Vec::new(), Vec::new());
    for load in loads() {
        let (best, least) = best_of(seed, &load);
        let found = measure(seed, &load, None);
        let ratio = found.goodput / best;
        let (device, clients, memory_mib) = (load.device, load.clients, load.memory_mib);
        let rate = load.rate / 1000;
        let label = format!("{device:9}  {clients:7}  {rate:6}  {memory_mib:8}");
        let figures = [&least.figures()[..], &found.figures(), &[ratio]].concat();
        let figures = figures.try_into().expect("nine columns");
        table.row(label, figures);
        // Single runs, and the best of eight of them: of seven seeds it is .910 to 1.021.
        assert!(ratio >= 0.9, "far from the best K; {table}");
        assert!(found.worst_us <= 300_000, "a first read waits; {table}");
        ratios.push(ratio);
        goodputs.push((device, memory_mib, found.goodput));
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(mean >= 0.97, "{mean} of the best K; {table}");
    let goodput = |of| {
        let mut found = goodputs
            .iter()
            .filter(|(device, mib, _)| (*device, *mib) == of);
        found.next().map_or(0.0, |(_, _, goodput)| *goodput)
    };
    let ratio = goodput(("raid0-4", 600)) / goodput(("7200-sata", 600));
    assert!(ratio >= 3.5, "four disks are not used: {ratio}; {table}");
    (table, ratio)
}
