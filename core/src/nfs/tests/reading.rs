//! What READs become.

use super::world::{TARGET_BYTES_PER_S, TARGET_US, World};
use super::*;
use crate::limits::NFS_PART_BYTES;

/// Sends a READ whose bytes are not in memory: the wants that follow.
fn miss(nfs: &mut Nfs, offset_bytes: u64, len_bytes: u64, now: Instant) -> Vec<Want> {
    let id = call(nfs, now);
    let answer = read_of(FILE, offset_bytes, len_bytes);
    nfs.on(In::Resolved { call: id, answer }, now);
    let outs = orders(nfs, now);
    assert!(matches!(outs[..], [Out::Probe { .. }]), "{outs:?}");
    let is_resident = false;
    nfs.on(
        In::Probed {
            call: id,
            is_resident,
        },
        now,
    );
    let wanted = orders(nfs, now).into_iter().map(|out| match out {
        Out::Want(want) => want,
        out => panic!("{out:?}"),
    });
    wanted.collect()
}

/// Which bytes were wanted, in KiB, and whether by a run.
fn spans(wants: &[Want]) -> Vec<(u64, u64, bool)> {
    let of_run = SETTINGS.readers.index + NFS_CALLS_MAX as u32;
    let one = |want: &Want| {
        let Span {
            offset_bytes,
            len_bytes,
        } = want.span;
        let by_run = want.stream.conn.index >= of_run;
        (offset_bytes / KIB, len_bytes / KIB, by_run)
    };
    wants.iter().map(one).collect()
}

#[test]
fn reads_of_one_file_are_one_stream_whatever_their_order() {
    const PART: u64 = NFS_PART_BYTES / KIB;
    type Row = (&'static str, &'static [u64], &'static [(u64, u64, bool)]);
    let rows: [Row; 5] = [
        (
            "in order: the second one begins to read ahead, and the third waits for that",
            &[0, 64, 128],
            &[(0, 64, false), (64, 64, false), (128, PART, true)],
        ),
        (
            "backwards",
            &[128, 64, 0],
            &[
                (128, 64, false),
                (64, 64, false),
                (192, PART, true),
                (0, 64, false),
            ],
        ),
        (
            "with holes: what fills them wants for itself",
            &[0, 128, 64],
            &[
                (0, 64, false),
                (128, 64, false),
                (192, PART, true),
                (64, 64, false),
            ],
        ),
        (
            "scattered",
            &[0, 100_000, 50_000, 700_000],
            &[
                (0, 64, false),
                (100_000, 64, false),
                (50_000, 64, false),
                (700_000, 64, false),
            ],
        ),
        (
            "scattered nearby: too thin",
            &[0, 512, 1_024, 256],
            &[
                (0, 64, false),
                (512, 64, false),
                (1_024, 64, false),
                (256, 64, false),
            ],
        ),
    ];
    for (what, offsets, expected) in rows {
        let mut nfs = Nfs::new(SETTINGS, NOW);
        let wants = offsets
            .iter()
            .flat_map(|at| miss(&mut nfs, at * KIB, 64 * KIB, NOW));
        let wants: Vec<Want> = wants.collect();
        assert_eq!(spans(&wants), expected, "{what}");
    }
}

#[test]
fn two_readers_of_one_file_are_two_streams() {
    let mut nfs = Nfs::new(SETTINGS, NOW);
    let far = 500_000;
    let offsets = [0, far, 64, far + 64];
    let wants = offsets
        .iter()
        .flat_map(|at| miss(&mut nfs, at * KIB, 64 * KIB, NOW));
    let ahead: Vec<_> = spans(&wants.collect::<Vec<_>>());
    let ahead: Vec<u64> = ahead
        .iter()
        .filter(|want| want.2)
        .map(|want| want.0)
        .collect();
    assert_eq!(ahead, [128, far + 128]);
}

#[test]
fn a_run_that_fails_leaves_each_read_to_itself() {
    let mut nfs = Nfs::new(SETTINGS, NOW);
    let wants: Vec<_> = [0, 64, 128, 192]
        .iter()
        .flat_map(|at| miss(&mut nfs, at * KIB, 64 * KIB, NOW))
        .collect();
    let of_run = wants[2];
    assert_eq!(spans(&wants).len(), 3);
    let failed = In::FetchFailed {
        stream: of_run.stream,
        seq: of_run.seq,
        why: Why::ReadFailed,
    };
    nfs.on(failed, NOW);
    let wanted = orders(&mut nfs, NOW).into_iter().map(|out| match out {
        Out::Want(want) => want,
        out => panic!("{out:?}"),
    });
    let wanted: Vec<_> = wanted.collect();
    assert_eq!(spans(&wanted), [(128, 64, false), (192, 64, false)]);
}

#[test]
fn more_runs_than_there_are_places_make_room_or_do_without() {
    let mut nfs = Nfs::new(SETTINGS, NOW);
    for nth in 0..NFS_CALLS_MAX as u64 {
        let wants = miss(&mut nfs, nth * 10_000 * KIB, 64 * KIB, NOW);
        assert_eq!(wants.len(), 1, "each wants for itself");
    }
    assert_eq!(nfs.calls(), NFS_CALLS_MAX);
    nfs.on(In::Tcp(TcpEvent::Reset), NOW);
    let outs = orders(&mut nfs, NOW);
    let forgotten = outs
        .iter()
        .filter(|out| matches!(out, Out::Forget(_)))
        .count();
    assert_eq!(forgotten, NFS_CALLS_MAX);
}

fn in_order(len_bytes: u64, each_bytes: u64) -> impl Iterator<Item = u64> {
    (0..len_bytes / each_bytes).map(move |nth| nth * each_bytes)
}

#[test]
fn a_cold_file_is_read_as_fast_as_the_target_sends_whatever_the_order() {
    let len_bytes = 1 << 30;
    for arriving in [false, true] {
        for (each_bytes, at_once) in [
            (64 * KIB, 16),
            (64 * KIB, 1),
            (256 * KIB, 16),
            (1024 * KIB, 16),
            (1024 * KIB, 64),
            (1024 * KIB, 4),
        ] {
            let mut world = World::new(len_bytes, arriving);
            let rate = world.read(in_order(len_bytes, each_bytes), each_bytes, at_once);
            let [part, read] = [(rate, TARGET_BYTES_PER_S), (world.read_bytes, len_bytes)]
                .map(|(bytes, of)| bytes * 100 / of);
            let what = (arriving, each_bytes / KIB, at_once);
            assert!(part >= 95, "{part} % of the rate: {what:?}");
            assert!(read <= 101, "{read} % read: {what:?}");
        }
    }
}

#[test]
fn scattered_reads_go_to_the_target_at_once_and_read_nothing_else() {
    let (len_bytes, each_bytes) = (1 << 30, 4 * KIB);
    let mut world = World::new(len_bytes, false);
    let offsets: Vec<u64> = (0..10_000)
        .map(|_| world.random(len_bytes / each_bytes) * each_bytes)
        .collect();
    let rate = world.read(offsets, each_bytes, 16);
    let most = 16 * 1_000_000 / TARGET_US;
    let reads = rate / each_bytes;
    assert!(reads >= most * 95 / 100, "{reads} READs a second of {most}");
    let read = world.read_bytes * 100 / world.answered_bytes;
    assert!(read <= 105, "{read} % read");
}

#[test]
fn the_second_pass_over_a_file_that_was_evicted_is_as_fast() {
    let (len_bytes, each_bytes) = (1 << 28, 128 * KIB);
    let mut world = World::new(len_bytes, false);
    world.page_cache_bytes = 1 << 26;
    let twice = in_order(len_bytes, each_bytes).chain(in_order(len_bytes, each_bytes));
    let rate = world.read(twice, each_bytes, 1);
    let part = rate * 100 / TARGET_BYTES_PER_S;
    assert!(part >= 85, "{part} % of the rate"); // with two beginnings
}

#[test]
fn a_slow_client_is_not_read_far_ahead_of() {
    let (len_bytes, each_bytes) = (1 << 28, 64 * KIB);
    let mut world = World::new(len_bytes, false);
    world.thinks_us = 100_000; // 16 READs in 100 ms: 10 MB/s
    let rate = world.read(in_order(len_bytes, each_bytes), each_bytes, 16);
    assert!(world.ahead_bytes_max < 3 * rate);
}

/// Bytes are evicted before they are sent, sockets are full, reads fail, and the client jumps about.
#[test]
fn no_reply_is_lost_whatever_happens_below() {
    for seed in 0..100 {
        let (len_bytes, each_bytes) = (1 << 27, 64 * KIB);
        let mut world = World::new(len_bytes, seed % 2 == 0);
        world.rng = seed;
        world.faults = true;
        world.reads_fail = seed % 4 < 2;
        let mut offsets = Vec::new();
        for _ in 0..50 {
            let from = world.random(len_bytes / each_bytes);
            let many = 1 + world.random(40);
            let run = (from..len_bytes / each_bytes).take(many as usize);
            offsets.extend(run.map(|nth| nth * each_bytes));
        }
        world.read(offsets, each_bytes, 1 + (seed % 64) as usize);
        if world.is_closed {
            assert!(world.reads_fail, "seed {seed}"); // of a reply whose head was out
        } else {
            assert_eq!(
                (world.nfs.calls(), world.nfs.replies_bytes),
                (0, 0),
                "seed {seed}"
            );
        }
    }
}
