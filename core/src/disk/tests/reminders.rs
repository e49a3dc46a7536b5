//! Answers that wake nobody.

use super::*;
use crate::limits::WAKE_US;

/// A stream whose read has ended a second before it runs dry.
fn answered_early() -> Disk {
    let (mut disk, first) = disk_with(SETTINGS, 1);
    disk.on(done(&first[0]), NOW);
    orders(&mut disk, NOW);
    disk.on(In::Want(dry_at(NOW)), NOW);
    let next = orders(&mut disk, NOW);
    disk.on(In::Want(dry_at(NOW.plus_us(1_000_000))), NOW);
    disk.on(done(&next[0]), NOW);
    let told = orders(&mut disk, NOW);
    assert!(matches!(told[..], [Out::Fetched { urgent: false, .. }]));
    disk
}

fn dry_at(underrun_at: Instant) -> Want {
    Want {
        underrun_at,
        ..want(0, 0, FIRST_READ_BYTES, 1)
    }
}

#[test]
fn its_worker_is_woken_once_before_the_stream_runs_dry() {
    let mut disk = answered_early();
    let at = NOW.plus_us(1_000_000 - WAKE_US);
    assert_eq!(disk.reminds_at(), Some(at));
    assert_eq!(disk.deadline(), Some(at));
    assert_eq!(orders(&mut disk, Instant { us: at.us - 1 }), []);
    assert_eq!(orders(&mut disk, at), [Out::Nudge(stream(0))]);
    assert_eq!(disk.reminds_at(), None);
}

#[test]
fn a_new_date_of_the_same_want_moves_it() {
    let mut disk = answered_early();
    disk.on(In::Want(dry_at(NOW.plus_us(3_000_000))), NOW);
    let at = NOW.plus_us(3_000_000 - WAKE_US);
    assert_eq!(disk.reminds_at(), Some(at));
}

#[test]
fn a_worker_that_has_heard_or_given_up_is_not_woken() {
    let mut heard = answered_early();
    heard.on(In::Want(want(0, 0, 4 * MIB, 2)), NOW);
    let mut forgotten = answered_early();
    forgotten.on(In::Forget(stream(0)), NOW);
    for disk in [heard, forgotten] {
        assert_eq!(disk.reminds_at(), None);
        assert!(disk.reminders.is_empty());
    }
}
