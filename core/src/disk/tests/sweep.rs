//! The sweep, and what it waits for.

use super::*;
use crate::prefetch::Prefetch;

const SWEEP_READS: u32 = 8;

/// Stalled streams that were read for before, on a device that takes many reads.
pub(super) fn sweep_of(settings: Settings, streams: u32) -> Disk {
    let reads = Some(SWEEP_READS);
    let mut disk = Disk::new(Settings { reads, ..settings });
    for n in 0..streams {
        disk.on(In::Want(want(n, n, 0, 1)), NOW);
    }
    disk
}

#[test]
fn the_sweep_waits_while_a_first_read_is_in_the_device() {
    let rate = Prefetch::Fixed {
        read_bytes: READ_BYTES_MIN,
    };
    let settings = Settings {
        prefetch: rate,
        ..SETTINGS
    };
    let mut disk = sweep_of(settings, 40);
    let mut reads = orders(&mut disk, NOW);
    assert_eq!(reads.len(), SWEEP_READS as usize);
    disk.on(In::Want(want(99, 99, 0, 0)), NOW);
    disk.on(done(&reads.remove(0)), NOW);
    let first = orders(&mut disk, NOW).remove(1);
    assert!(matches!(first, Out::Read { object: o, .. } if o == object(99)));
    while reads.len() > READS_IN_FLIGHT_MIN - 1 {
        disk.on(done(&reads.remove(0)), NOW);
        let outs = orders(&mut disk, NOW);
        let more = outs.iter().any(|out| matches!(out, Out::Read { .. }));
        assert_eq!(more, reads.len() < READS_IN_FLIGHT_MIN - 1, "{outs:?}");
    }
    disk.on(done(&first), NOW);
    let outs = orders(&mut disk, NOW);
    let more = outs.iter().filter(|out| matches!(out, Out::Read { .. }));
    assert_eq!(more.count(), SWEEP_READS as usize - reads.len());
}

#[test]
fn the_sweep_waits_while_a_file_is_looked_for_but_never_stands() {
    let mut disk = sweep_of(SETTINGS, 40);
    let mut reads = orders(&mut disk, NOW);
    disk.on(In::LookUps(1), NOW);
    while reads.len() > READS_IN_FLIGHT_MIN {
        disk.on(done(&reads.remove(0)), NOW);
        let outs = orders(&mut disk, NOW);
        assert!(!outs.iter().any(|out| matches!(out, Out::Read { .. })));
    }
    // However many lookups there are.
    disk.on(In::LookUps(100), NOW);
    disk.on(done(&reads.remove(0)), NOW);
    let outs = orders(&mut disk, NOW);
    assert!(matches!(outs[1..], [Out::Read { .. }]), "{outs:?}");
    disk.on(In::LookUps(0), NOW);
    let more = orders(&mut disk, NOW);
    assert_eq!(more.len(), SWEEP_READS as usize - READS_IN_FLIGHT_MIN);
}

#[test]
fn look_ups_are_work_of_a_device_without_an_arm_too() {
    let flash = Settings {
        rotational: false,
        ..SETTINGS
    };
    let mut disk = sweep_of(flash, 40);
    disk.on(In::LookUps(SWEEP_READS - 3), NOW);
    assert_eq!(orders(&mut disk, NOW).len(), 3);
}
