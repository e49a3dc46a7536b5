//! The short rest of a response.

use super::*;
use crate::limits::SHORT_REST_BYTES;

#[test]
fn the_short_rest_of_a_response_is_told_from_a_first_read() {
    let (mut disk, first) = disk_with(SETTINGS, 1);
    disk.on(done(&first[0]), NOW);
    let reason = |outs: &[Out]| match &outs[0] {
        Out::Fetched { chosen, .. } => chosen.reason,
        other => panic!("expected an answer, got {other:?}"),
    };
    assert_eq!(reason(&orders(&mut disk, NOW)), Reason::First);
    let mut rest = want(0, 0, FIRST_READ_BYTES, 1);
    (rest.span.len_bytes, rest.rate_bytes_per_s) = (10_000, 0);
    disk.on(In::Want(rest), NOW);
    let next = orders(&mut disk, NOW);
    disk.on(done(&next[0]), NOW);
    assert_eq!(reason(&orders(&mut disk, NOW)), Reason::Rest);
}

#[test]
fn the_short_rest_of_a_response_is_read_next_and_whole() {
    let rest = |index: u32, len_bytes: u64| {
        let mut rest = want(index, 20 + index, 0, 1);
        rest.rate_bytes_per_s = 0;
        rest.span.len_bytes = len_bytes;
        rest
    };
    let mut disk = Disk::new(SETTINGS);
    for n in 0..8 {
        disk.on(In::Want(want(n, n, 0, 1)), NOW);
    }
    let reads = orders(&mut disk, NOW);
    disk.on(In::Want(rest(8, 2 * SHORT_REST_BYTES)), NOW);
    disk.on(In::Want(rest(9, SHORT_REST_BYTES)), NOW);
    let not_yet = Want {
        underrun_at: NOW.plus_us(60_000_000),
        ..rest(10, SHORT_REST_BYTES)
    };
    disk.on(In::Want(not_yet), NOW);
    assert_eq!(orders(&mut disk, NOW), [], "no place is free");
    let mut next = Vec::new();
    for read in &reads {
        disk.on(done(read), NOW);
        next.extend(orders(&mut disk, NOW));
    }
    let short = (object(29), SHORT_REST_BYTES);
    let first = match next[..] {
        [_, Out::Read { object, span, .. }, ..] => (object, span.len_bytes),
        _ => panic!("{next:?}"),
    };
    assert_eq!(first, short, "behind what was told of the first read");
    // Its last slot is not filled.
    let mut disk = Disk::new(SETTINGS);
    disk.on(In::Want(rest(11, 371_232)), NOW);
    assert_eq!(read_of(&orders(&mut disk, NOW)[0]).1.len_bytes, 372_736);
    // A file that is short as a whole is one read.
    let mut disk = Disk::new(SETTINGS);
    let mut small = want(0, 0, 0, 0);
    small.span.len_bytes = SHORT_REST_BYTES / 4;
    disk.on(In::Want(small), NOW);
    let reads = orders(&mut disk, NOW);
    assert_eq!(read_of(&reads[0]).1, small.span);
}

/// Files for which reads begin, one after the other, as each read ends.
fn files_in_order(disk: &mut Disk, mut reads: VecDeque<Out>, now: Instant) -> Vec<u32> {
    let mut files = Vec::new();
    while let Some(read) = reads.pop_front() {
        disk.on(done(&read), now);
        let outs = orders(disk, now).into_iter();
        let next = outs.filter_map(|out| match out {
            Out::Read { object, .. } => Some((object.index, out)),
            _ => None,
        });
        for (file, read) in next {
            files.push(file);
            reads.push_back(read);
        }
    }
    files
}

#[test]
fn a_short_rest_does_not_wait_for_the_sweep_when_its_client_runs_dry_whatever_its_rate() {
    const REST: u32 = 40;
    let dry_at = NOW.plus_us(300_000);
    let rest = |underrun_at, rate_bytes_per_s| Want {
        underrun_at,
        rate_bytes_per_s,
        span: Span {
            offset_bytes: FIRST_READ_BYTES,
            len_bytes: 372_000,
        },
        ..want(REST, REST, FIRST_READ_BYTES, 1)
    };
    // Twenty dry streams, whose files the sweep meets before that of the rest.
    let busy = || {
        let mut disk = Disk::new(SETTINGS);
        for n in 0..20 {
            disk.on(In::Want(want(n, n, 0, 1)), NOW);
        }
        let reads = orders(&mut disk, NOW);
        (disk, VecDeque::from(reads))
    };
    // It has enough until the sweep comes by.
    let (mut disk, reads) = busy();
    disk.on(In::Want(rest(dry_at, 100_000)), NOW);
    let files = files_in_order(&mut disk, reads, NOW);
    assert_eq!(files.last(), Some(&REST), "{files:?}");
    // It runs dry while it waits for it.
    let (mut disk, mut reads) = busy();
    disk.on(In::Want(rest(dry_at, 100_000)), NOW);
    disk.on(done(&reads.pop_front().unwrap()), NOW);
    let not_yet = orders(&mut disk, NOW);
    assert!(
        not_yet
            .iter()
            .all(|out| !matches!(out, Out::Read { object: o, .. } if *o == object(REST)))
    );
    reads.extend(
        not_yet
            .into_iter()
            .filter(|out| matches!(out, Out::Read { .. })),
    );
    let files = files_in_order(&mut disk, reads, dry_at);
    assert_eq!(files.first(), Some(&REST), "{files:?}");
    // Its rate becomes known while it waits, dry, before all others.
    let (mut disk, reads) = busy();
    disk.on(In::Want(rest(NOW, 0)), NOW);
    disk.on(In::Want(rest(NOW, 100_000)), NOW);
    let files = files_in_order(&mut disk, reads, NOW);
    assert_eq!(files.first(), Some(&REST), "{files:?}");
}

#[test]
fn many_short_rests_leave_the_sweep_its_turns() {
    for with_first_reads in [false, true] {
        let settings = Settings {
            memory_bytes: 1 << 30,
            ..SETTINGS
        };
        let mut disk = Disk::new(settings);
        for n in 0..20 {
            disk.on(In::Want(want(n, n, 0, 1)), NOW);
        }
        let reads = VecDeque::from(orders(&mut disk, NOW));
        for n in 100..200 {
            let is_first = with_first_reads && n % 2 == 0;
            let mut short = want(n, n, 0, u32::from(!is_first));
            short.span.len_bytes = 372_000;
            disk.on(In::Want(short), NOW);
        }
        let files = files_in_order(&mut disk, reads, NOW);
        let swept = files[..50].iter().filter(|file| **file < 20).count();
        assert!(swept >= 5, "{with_first_reads}: {files:?}");
    }
}
