//! How deep the device is read where memory for reads is short.

use super::sweep::sweep_of;
use super::*;
use crate::prefetch::Prefetch;

#[test]
fn a_full_pool_waits_and_says_for_how_much() {
    let settings = Settings {
        memory_bytes: 4 * READ_BYTES_MIN,
        ..SETTINGS
    };
    let (mut disk, mut reads) = disk_with(settings, 10);
    let mut count = 0;
    while let Some(out) = reads.pop() {
        count += 1;
        disk.on(done(&out), NOW);
        let outs = orders(&mut disk, NOW);
        reads.extend(outs.iter().filter(|out| matches!(out, Out::Read { .. })));
    }
    assert_eq!(count, 4, "a quarter of the pool each");
    let lacking = disk.slots_lacking();
    assert_eq!(u64::from(lacking) * SLOT_BYTES, READ_BYTES_MIN);
    disk.on(In::Freed(lacking), NOW);
    assert_eq!(orders(&mut disk, NOW).len(), 1);
}

/// Four reads in a device that would take more, and no memory for a fifth.
fn short_of_memory() -> Disk {
    let settings = Settings {
        prefetch: Prefetch::Fixed {
            read_bytes: 4 * MIB,
        },
        memory_bytes: 16 * MIB,
        ..SETTINGS
    };
    let mut disk = sweep_of(settings, 8);
    assert_eq!(orders(&mut disk, NOW).len(), 4);
    disk
}

#[test]
fn a_full_pool_waits_for_the_shortest_read_that_could_go_on() {
    let mut disk = short_of_memory();
    assert_eq!(u64::from(disk.slots_lacking()) * SLOT_BYTES, 4 * MIB);
    let mut urgent = want(20, 20, 0, 0);
    urgent.span.len_bytes = FIRST_READ_BYTES;
    disk.on(In::Want(urgent), NOW);
    assert_eq!(orders(&mut disk, NOW), []);
    let lacking = disk.slots_lacking();
    assert_eq!(u64::from(lacking) * SLOT_BYTES, FIRST_READ_BYTES);
    disk.on(In::Freed(lacking), NOW);
    let outs = orders(&mut disk, NOW);
    assert_eq!(outs.len(), 1);
    assert_eq!(read_of(&outs[0]).1, urgent.span);
}

#[test]
fn a_wait_for_memory_counts_once_however_often_the_machine_is_polled() {
    let mut disk = short_of_memory();
    let percent = disk.pool_controller.percent();
    for _ in 0..100 {
        assert_eq!(disk.poll(NOW), None);
    }
    assert_eq!(disk.pool_controller.percent(), percent);
}

#[test]
fn short_reads_go_deeper_than_long_ones_and_memory_bounds_both() {
    let depth_of = |memory_bytes, len_bytes: u64, each_us| {
        let mut disk = Disk::new(Settings {
            memory_bytes,
            ..SETTINGS
        });
        let mut now = NOW;
        disk.model.begun(true, now);
        for _ in 0..1_000 {
            now = now.plus_us(each_us);
            disk.model.done(len_bytes, now);
        }
        disk.reads_max()
    };
    assert_eq!(depth_of(64 * MIB, 4 * MIB, 70_000), READS_IN_FLIGHT_MIN);
    assert_eq!(depth_of(64 * MIB, 128 * KIB, 6_000), 10, "60 ms");
    assert_eq!(
        depth_of(4 * MIB, 128 * KIB, 6_000),
        7,
        "a quarter of 4 MiB, nearly"
    );
}

#[test]
fn a_pool_that_shrinks_waits_for_what_is_out_and_one_that_grows_reads_on() {
    let (mut disk, first) = disk_with(SETTINGS, 30);
    let (taken, small) = (first.len() as u64, FIRST_READ_BYTES);
    disk.on(
        In::Budget {
            memory_bytes: small,
        },
        NOW,
    );
    for read in &first {
        disk.on(done(read), NOW);
    }
    let is_read = |out: &Out| matches!(out, Out::Read { .. });
    assert!(!orders(&mut disk, NOW).iter().any(is_read));
    // All of it is out still: what comes back makes no room before that fits.
    let out_slots = (taken * small / SLOT_BYTES) as u32;
    disk.on(In::Freed(out_slots - 8), NOW);
    assert!(!orders(&mut disk, NOW).iter().any(is_read), "still full");
    disk.on(
        In::Budget {
            memory_bytes: 64 * MIB,
        },
        NOW,
    );
    assert!(orders(&mut disk, NOW).iter().any(is_read));
}
