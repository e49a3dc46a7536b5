//! kill -9 of the answerer and of the supervisor at any moment.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::world::{World, check, pattern, read_anew, target, until, write_direct, write_synced};

/// Files that writers go round in.
const FILES: u64 = 20;
const FILE_BYTES: usize = 1 << 20;

/// Writes files until it is told to stop: which were acknowledged last, by their seeds; the first error ends it.
fn load(world: &World, writer: u64, stop: &AtomicBool, acknowledged: &[AtomicU64]) -> u64 {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let slot = round % FILES;
        let seed = writer << 32 | (round + 1);
        let path = world.mount().join(format!("{writer}-{slot}"));
        let bytes = pattern(seed, FILE_BYTES);
        let written = match round % 2 {
            0 => write_synced(&path, &bytes),
            _ => write_direct(&path, &bytes),
        };
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        acknowledged[(writer * FILES + slot) as usize].store(seed, Ordering::Relaxed);
        round += 1;
    }
    round
}

/// All that was acknowledged is there. Each file was acknowledged as a whole, so it is whole.
fn check_acknowledged(world: &World, acknowledged: &[AtomicU64]) {
    for (nth, seed) in acknowledged.iter().enumerate() {
        let seed = seed.load(Ordering::Relaxed);
        if seed > 0 {
            let (writer, slot) = (nth as u64 / FILES, nth as u64 % FILES);
            let path = world.mount().join(format!("{writer}-{slot}"));
            assert!(
                read_anew(&path) == pattern(seed, FILE_BYTES),
                "{}",
                path.display()
            );
        }
    }
}

/// Runs this beside two writers.
pub fn under_load(world: &World, then: impl FnOnce(&dyn Fn())) -> Vec<AtomicU64> {
    let stop = AtomicBool::new(false);
    let acknowledged: Vec<AtomicU64> = (0..2 * FILES).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (stop, acknowledged) = (&stop, &acknowledged);
                scope.spawn(move || load(world, writer, stop, acknowledged))
            })
            .collect();
        // A few more acknowledged writes than there are now.
        let sum = || {
            let all = acknowledged.iter();
            all.map(|seed| seed.load(Ordering::Relaxed) & 0xffff_ffff)
                .sum::<u64>()
        };
        let goes_on = || {
            let before = sum();
            until("writes go on", || {
                sum() > before + 10 || writers.iter().any(|writer| writer.is_finished())
            });
        };
        goes_on();
        then(&goes_on);
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            assert!(writer.join().expect("no error") > 0);
        }
    });
    acknowledged
}

#[test]
fn an_answerer_that_is_killed_is_replaced_and_nobody_notices() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    let gateway = world.start(&["--format"]);
    let acknowledged = under_load(&world, |goes_on| {
        for _ in 0..6 {
            gateway.kill_answerer();
            goes_on();
        }
    });
    check_acknowledged(&world, &acknowledged);
    assert_eq!(gateway.log().matches("another one takes over").count(), 6);
    let answerer = gateway.answerer().expect("the seventh");
    let score = fs::read_to_string(format!("/proc/{answerer}/oom_score_adj")).expect("it runs");
    let is_last = score.trim().parse::<i32>().expect("a number") <= -1000;
    assert!(
        is_last || gateway.log().contains("oom_score_adj: "),
        "{score}"
    );
    gateway.stop();
    check(&tgtd);
}

#[test]
fn what_was_synced_outlives_a_supervisor_that_is_killed() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    let mut gateway = world.start(&["--format"]);
    for round in 0..3 {
        let path = world.mount().join(format!("round-{round}"));
        write_synced(&path, &pattern(round, FILE_BYTES)).expect("room");
        let unsynced = world.mount().join("unsynced");
        fs::write(unsynced, pattern(7, FILE_BYTES)).expect("room");
        // It stays mounted below whoever uses it, and has to be taken away from them.
        let user = fs::File::open(&path).expect("just written");
        gateway.kill();
        until("the answerer goes, too", || gateway.answerer().is_none());
        // Nothing hangs: it is there, or EIO.
        let _ = fs::read_dir(world.mount()).map(|entries| entries.count());
        gateway = world.start(&[]);
        assert!(
            gateway.log().contains("removing what an instance has left"),
            "{}",
            gateway.log()
        );
        drop(user);
        for round in 0..=round {
            let path = world.mount().join(format!("round-{round}"));
            assert!(
                read_anew(&path) == pattern(round, FILE_BYTES),
                "{}",
                path.display()
            );
        }
    }
    gateway.stop();
    check(&tgtd);
}
