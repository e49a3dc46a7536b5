//! Laws that hold for every device, and tables of what the models make of a data sheet.

use super::array::Device;
use super::disk::profile::{
    ArrayProfile, Discipline, DiskProfile, FlashProfile, Profile, scsi_2003,
};
use super::disk::request::{Completion, Kind, Request};
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};
use std::fmt::Write;

const KB: u64 = 1 << 10;
const MS: u64 = 1_000_000;

fn disciplines() -> [(&'static str, Discipline); 3] {
    [
        ("fifo", Discipline::Fifo),
        ("clook", Discipline::Clook),
        ("sptf", Discipline::Sptf),
    ]
}

fn with_queue(discipline: Discipline, depth: usize, age_max_ns: u64) -> DiskProfile {
    let mut disk = scsi_2003();
    disk.queue.discipline = discipline;
    disk.queue.depth = depth;
    disk.queue.age_max_ns = age_max_ns;
    disk
}

fn array(disks: usize) -> Profile {
    Profile::Array(ArrayProfile {
        disk: scsi_2003(),
        disks,
        chunk_bytes: 256 * KB,
    })
}

fn flash() -> Profile {
    Profile::Flash(FlashProfile {
        size_bytes: 64 << 30,
        channels: 8,
        stripe_bytes: 16 * KB,
        latency_ns: 140_000,
        channel_bytes_per_s: 65_000_000,
    })
}

/// Feeds arrivals (gap, place, length, write) and collects completions `late_ns` late, as a slow caller does.
fn feed(profile: &Profile, asked: &[(u64, u64, u64, bool)], late_ns: u64) -> Vec<Completion> {
    let (mut device, mut now_ns, mut done) = (Device::new(profile), 0, Vec::new());
    let places = profile.size_bytes() / (4 * KB) - 1024;
    for (id, (gap_ns, place, pages, write)) in asked.iter().enumerate() {
        now_ns += gap_ns;
        while let Some(completion) = device.complete(now_ns.saturating_sub(late_ns)) {
            done.push(completion);
        }
        let kind = if *write { Kind::Write } else { Kind::Read };
        let request = Request {
            id: id as u64,
            offset_bytes: place % places * 4 * KB,
            len_bytes: pages * 4 * KB,
            kind,
        };
        device.submit(now_ns, request);
    }
    while let Some(due_ns) = device.next_ns() {
        done.extend(device.complete(due_ns + late_ns));
    }
    done
}

/// Consecutive reads from an offset on. They wrap round at the device's end.
fn sequential(from_bytes: u64, size_bytes: u64, len_bytes: u64, count: u64) -> Vec<Request> {
    let (places, first) = ((size_bytes / len_bytes).max(1), from_bytes / len_bytes);
    let read = |id| read(id, (first + id) % places, len_bytes);
    (0..count).map(read).collect()
}

/// Reads anywhere on the device, at multiples of their length.
fn random(seed: u64, size_bytes: u64, len_bytes: u64, count: u64) -> Vec<Request> {
    let places = (size_bytes / len_bytes).max(1);
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let read = |id| read(id, dice.next_u64() % places, len_bytes);
    (0..count).map(read).collect()
}

fn read(id: u64, place: u64, len_bytes: u64) -> Request {
    Request {
        id,
        offset_bytes: place * len_bytes,
        len_bytes,
        kind: Kind::Read,
    }
}

/// How long these requests take, seconds, with this many under way, as disk benchmarks have.
fn run(device: &mut Device, requests: &[Request], depth: usize, now_ns: u64) -> f64 {
    let mut todo = requests.iter();
    for request in todo.by_ref().take(depth) {
        device.submit(now_ns, *request);
    }
    let mut last_ns = now_ns;
    while let Some(due_ns) = device.next_ns() {
        while let Some(done) = device.complete(due_ns) {
            last_ns = done.finished_ns;
            if let Some(request) = todo.next() {
                device.submit(last_ns, *request);
            }
        }
    }
    (last_ns - now_ns).max(1) as f64 / 1e9
}

fn asked() -> impl Strategy<Value = Vec<(u64, u64, u64, bool)>> {
    let near_or_far = prop_oneof![0..2_000u64, any::<u64>()];
    let one = (
        0..20 * MS,
        near_or_far,
        1..300u64,
        prop::bool::weighted(0.2),
    );
    prop::collection::vec(one, 1..80)
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let disk = (0..3usize, 1..33usize)
        .prop_map(|(nth, depth)| Profile::Disk(with_queue(disciplines()[nth].1, depth, 100 * MS)));
    prop_oneof![disk, Just(array(4)), Just(flash())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, rng_seed: proptest::test_runner::RngSeed::Fixed(4), ..ProptestConfig::default() })]

    #[test]
    fn every_request_completes_once_after_its_least_service(profile in any_profile(), asked in asked()) {
        let done = feed(&profile, &asked, 0);
        prop_assert_eq!(done.len(), asked.len());
        let (least_ns, fastest) = match &profile {
            Profile::Disk(_) | Profile::Array(_) => (150_000, 4 * 200_000_000u64),
            Profile::Flash(_) => (140_000, 8 * 65_000_000),
        };
        for one in &done {
            let least_ns = least_ns + one.request.len_bytes * 1_000_000_000 / fastest;
            prop_assert!(one.finished_ns >= one.arrived_ns + least_ns, "{one:?}");
            prop_assert!(one.started_ns >= one.arrived_ns, "{one:?}");
        }
        prop_assert!(done.is_sorted_by_key(|one| one.finished_ns));
    }

    #[test]
    fn a_disk_is_busy_while_anything_waits_and_its_time_is_accounted(
        nth in 0..3usize, depth in 1..33usize, asked in asked()
    ) {
        let profile = Profile::Disk(with_queue(disciplines()[nth].1, depth, 100 * MS));
        let done = feed(&profile, &asked, 0);
        let mut free_ns = 0;
        for (at, one) in done.iter().enumerate() {
            prop_assert_eq!(one.finished_ns - one.started_ns, one.split.busy_ns());
            let oldest_ns = done[at..].iter().map(|other| other.arrived_ns).min().unwrap_or(0);
            prop_assert_eq!(one.started_ns, free_ns.max(oldest_ns), "idle although {:?} waited", one);
            free_ns = one.finished_ns;
        }
    }

    #[test]
    fn whoever_is_older_than_the_bound_and_oldest_is_next(nth in 0..3usize, asked in asked()) {
        let age_max_ns = 60 * MS;
        let profile = Profile::Disk(with_queue(disciplines()[nth].1, 32, age_max_ns));
        let done = feed(&profile, &asked, 0);
        for (at, one) in done.iter().enumerate() {
            for other in &done[at + 1..] {
                let aged = other.arrived_ns + age_max_ns < one.started_ns;
                prop_assert!(!aged || one.request.id < other.request.id, "{one:?} before {other:?}");
            }
        }
    }

    #[test]
    fn what_happens_depends_on_arrivals_alone_not_on_who_collects_when(
        profile in any_profile(), asked in asked(), late_ns in 0..50 * MS
    ) {
        prop_assert_eq!(feed(&profile, &asked, 0), feed(&profile, &asked, late_ns));
    }
}

#[test]
fn a_hang_delays_everything_by_its_length_and_is_seen_as_overhead() {
    for profile in [Profile::Disk(scsi_2003()), flash(), array(2)] {
        let read = sequential(0, 1 << 30, 4 * KB, 2);
        let mut device = Device::new(&profile);
        device.submit(0, read[0]);
        device.hang(1000);
        device.submit(2000, read[1]);
        assert_eq!(device.next_ns(), None);
        assert_eq!(device.complete(60_000 * MS), None);
        device.resume(5_000 * MS);
        let mut overhead_ns = 0;
        for _ in 0..2 {
            let done = device.complete(6_000 * MS).expect("two of them");
            overhead_ns += done.split.overhead_ns;
            assert!(done.finished_ns > 5_000 * MS, "{done:?}");
        }
        assert!(overhead_ns > 4_999 * MS);
        assert_eq!(device.under_way(), 0);
    }
}

#[test]
fn a_bad_region_fails_what_touches_it_and_nothing_else() {
    for profile in [Profile::Disk(scsi_2003()), flash(), array(4)] {
        let mut device = Device::new(&profile);
        device.set_bad(std::slice::from_ref(&(1_000_000..1_004_096)));
        let reads = sequential(0, 1 << 30, 128 * KB, 16);
        let mut failed = Vec::new();
        for read in reads {
            device.submit(read.id * 1_000 * MS, read);
            let done = device.complete((read.id + 1) * 1_000 * MS).expect("done");
            failed.extend(done.failed.then_some(done.request.id));
        }
        assert_eq!(failed, [7]);
    }
}

/// Sequential MB/s in each zone; random requests a second and MB/s by length, depth and discipline.
fn table() -> String {
    let disk = scsi_2003();
    let size_bytes = disk.size_bytes;
    let mut text = String::from("sequential 128K at depth 1, MB/s by position\n");
    for tenth in 0..10 {
        let from_bytes = size_bytes / 10 * tenth;
        let reads = sequential(from_bytes, size_bytes, 128 * KB, 400);
        let mut device = Device::new(&Profile::Disk(disk.clone()));
        let s = run(&mut device, &reads, 1, 0);
        let _ = write!(text, " {:5.1}", (400 * 128 * KB) as f64 / s / 1e6);
    }
    text += "\nrandom reads: requests/s (MB/s), seed 1\n                depth 1        depth 8       depth 32\n";
    for (name, discipline) in disciplines() {
        for (label, len_bytes) in [("4K", 4 * KB), ("128K", 128 * KB), ("1M", 1024 * KB)] {
            let _ = write!(text, "{name:5} {label:>4}");
            for depth in [1, 8, 32] {
                let profile = Profile::Disk(with_queue(discipline, 32, 2_000 * MS));
                let reads = random(1, size_bytes, len_bytes, 2000);
                let per_s = 2000.0 / run(&mut Device::new(&profile), &reads, depth, 0);
                let mb = per_s * len_bytes as f64 / 1e6;
                let _ = write!(text, " {per_s:6.1} ({mb:5.2})");
            }
            text += "\n";
        }
    }
    text
}

#[test]
fn the_disk_of_2003_does_what_such_disks_did() {
    let disk = Profile::Disk(scsi_2003());
    let by_length = |len_bytes| {
        let reads = random(1, disk.size_bytes(), len_bytes, 4000);
        4000.0 / run(&mut Device::new(&disk), &reads, 1, 0)
    };
    let near = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 0.05, "{got} for {want}");
    near(by_length(4 * KB), 124.0);
    near(by_length(128 * KB) * (128 * KB) as f64, 12.3e6);
    near(by_length(1024 * KB) * (1024 * KB) as f64, 35e6);
    assert_eq!(table(), include_str!("disk_table.txt"), "\n{}", table());
}
