use alloc::string::{String, ToString};

use super::super::tests::{NOW, SETTINGS, done, orders, want};
use super::super::{In, Out};
use super::*;
use crate::machine::Machine;

fn told(disk: &Disk) -> Vec<String> {
    let decisions = disk.decisions(64);
    decisions
        .map(|decision| decision.change.to_string())
        .collect()
}

/// Many streams whose rates are known.
fn loaded(streams: u32) -> Disk {
    let mut disk = Disk::new(SETTINGS);
    for n in 0..streams {
        disk.on(In::Want(want(n, n, 0, 1)), NOW);
    }
    orders(&mut disk, NOW);
    disk
}

#[test]
fn t_d_is_a_decision_when_it_changes_by_a_quarter_and_a_notice_when_it_doubles() {
    let mut disk = loaded(200);
    let told = told(&disk);
    assert!(
        told[0].starts_with("T_D goes from 1.0 s to ")
            && told[0].ends_with(" s, since memory has room for no more (memory_max); 200 streams take 200 MB/s together"),
        "{told:?}"
    );
    let notice = disk.take_notice().expect("it more than doubled");
    assert!(matches!(notice.change, DeviceChange::Target { .. }));
    assert_eq!(disk.take_notice(), None, "told once");
    let count = disk.decisions(64).count();
    orders(&mut disk, NOW.plus_us(2_000_000));
    assert_eq!(disk.decisions(64).count(), count, "nothing has changed");
    // The others leave: that is recorded as a decision at once, and logged when the next line may be written.
    for n in 1..200 {
        disk.on(In::Forget(want(n, n, 0, 1).stream), NOW);
    }
    let soon = NOW.plus_us(NOTICE_EACH_US / 2);
    orders(&mut disk, soon);
    assert!(disk.decisions(64).count() > count);
    assert_eq!(disk.take_notice(), None, "too soon");
    orders(&mut disk, NOW.plus_us(NOTICE_EACH_US));
    let notice = disk.take_notice().expect("T_D is a second again");
    let text = notice.change.to_string();
    assert!(
        text.contains(" to 1.0 s, since two sweeps take less"),
        "{text}"
    );
}

/// The notice that follows when K is this, so many microseconds later.
fn notice_of_depth(
    disk: &mut Disk,
    depth: (usize, DepthBound),
    at: Instant,
) -> Option<DeviceChange> {
    let state = DeviceState {
        depth,
        ..disk.state()
    };
    disk.compare(&state, at);
    disk.take_notice().map(|notice| notice.change)
}

#[test]
fn a_queue_depth_is_a_line_if_it_was_measured_and_then_not_for_ten_minutes() {
    let mut disk = Disk::new(SETTINGS);
    let (start, _) = disk.state().depth;
    let mut now = NOW;
    let mut next = |depth, after_us| {
        now = now.plus_us(after_us);
        notice_of_depth(&mut disk, depth, now)
    };
    // Nobody waits, and reads become shorter and longer.
    for reads in [2 * start, 4 * start, start, 2 * start] {
        assert_eq!(
            next((reads, DepthBound::FirstRead), NOTICE_DEPTH_EACH_US),
            None
        );
    }
    let (measured, memory) = (DepthBound::Measured, DepthBound::Memory);
    let change = |from, to, bound| Some(DeviceChange::Depth { from, to, bound });
    let soon_us = NOTICE_DEPTH_EACH_US - 1;
    assert_eq!(
        next((4 * start, measured), 1),
        change(start, 4 * start, measured)
    );
    assert_eq!(
        next((start, measured), NOTICE_EACH_US),
        None,
        "too soon for K"
    );
    assert_eq!(
        next((4 * start, measured), soon_us),
        None,
        "it is what was told"
    );
    assert_eq!(next((start, memory), 0), change(4 * start, start, memory));
    assert_eq!(next((4 * start, measured), soon_us), None);
    assert_eq!(
        next((4 * start, measured), 1),
        change(start, 4 * start, measured)
    );
}

#[test]
fn a_second_reader_changes_the_read_path_of_the_first_and_that_is_told() {
    let mut disk = Disk::new(SETTINGS);
    for next in [want(0, 5, 0, 0), want(1, 5, 0, 0), want(0, 5, 8 << 20, 1)] {
        disk.on(In::Want(next), NOW);
        for read in orders(&mut disk, NOW) {
            if matches!(read, Out::Read { .. }) {
                disk.on(done(&read), NOW);
                orders(&mut disk, NOW);
            }
        }
    }
    let told = told(&disk);
    let path = "connection 0.0.0 is now read for through the page cache, since the file is popular";
    assert_eq!(told, [path]);
}

#[test]
fn a_decision_is_a_plain_sentence_with_its_numbers() {
    let verdict = TrialOutcome {
        from: 4,
        to: 8,
        gain_permille: 31,
        adopted: true,
    };
    for (change, text) in [
        (
            DeviceChange::Depth {
                from: 8,
                to: 4,
                bound: DepthBound::FirstRead,
            },
            "the device gets 4 reads at once (K), down from 8: more would make a new client wait too long for its first bytes",
        ),
        (
            DeviceChange::Depth {
                from: 5,
                to: 7,
                bound: DepthBound::FirstRead,
            },
            "the device gets 7 reads at once (K), up from 5, and no more: more would make a new client wait too long for its first \
             bytes",
        ),
        (
            DeviceChange::Tried(verdict),
            "8 reads at once (K) were measured against 4: the device brings 3.1 % more, so it gets them from now on",
        ),
        (
            DeviceChange::Tried(TrialOutcome {
                to: 2,
                gain_permille: -205,
                adopted: false,
                ..verdict
            }),
            "2 reads at once (K) were measured against 4: the device brings 20.5 % less, so nothing changes",
        ),
        (
            DeviceChange::Memory {
                from_bytes: 64_000_000,
                to_bytes: 26_000_000,
            },
            "memory for reading ahead goes from 64 MB to 26 MB, since others want the rest",
        ),
        (
            DeviceChange::PoolTarget {
                from_percent: 100,
                to_percent: 150,
                used_bytes: 20_000_000,
                memory_bytes: 64_000_000,
            },
            "memory is taken to hold 150 % of what is calculated, not 100 %, since streams run dry while the pool has \
             room; 20 MB of 64 MB are in use",
        ),
    ] {
        assert_eq!(change.to_string(), text);
    }
}
