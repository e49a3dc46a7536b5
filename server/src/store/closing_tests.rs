use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Reports the thread that drops it.
struct Thing(Sender<Option<String>>);

impl Drop for Thing {
    fn drop(&mut self) {
        let name = thread::current().name().map(str::to_owned);
        let _ = self.0.send(name);
    }
}

/// Hangs until it is released.
struct Hung(Receiver<()>);

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = self.0.recv();
    }
}

#[test]
fn things_are_dropped_by_a_thread_in_their_order_and_files_are_closed() {
    start(8192);
    let (told, by) = channel();
    let (mut end, other) = UnixStream::pair().expect("two descriptors");
    later(7, Thing(told.clone()));
    let file_system = FileSystemId {
        st_dev: 7,
        mount_id: 0,
    };
    drop(Descriptor::new(OwnedFd::from(other), file_system));
    later(7, Thing(told));
    hurry();
    for _ in 0..2 {
        assert_eq!(by.recv(), Ok(Some("closing".to_owned())));
    }
    let read = std::io::Read::read(&mut end, &mut [0]);
    assert_eq!(read.expect("open"), 0, "nobody holds the other end");
}

/// A lane of its own whose rest ends only if it is told to hurry, and reports of what it dropped.
fn restful() -> (&'static ClosingLane, impl Fn(), Receiver<Option<String>>) {
    start(8192);
    let lane: &ClosingLane = Box::leak(Box::new(ClosingLane::new(HOUR)));
    let (told, by) = channel();
    let push = move || lane.push(Box::new(Thing(told.clone())));
    (lane, push, by)
}

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(20);

/// Waits until the lane rests, and everything that was counted is dropped.
fn until_it_rests(lane: &ClosingLane) {
    let begun = Instant::now();
    while !lane.rests.load(Ordering::SeqCst) {
        assert!(
            begun.elapsed() < SOON,
            "it rests after it has dropped something"
        );
        thread::yield_now();
    }
}

#[test]
fn a_thread_that_has_closed_something_collects_until_it_is_hurried() {
    let (lane, push, by) = restful();
    push();
    assert!(by.recv_timeout(SOON).is_ok(), "the first one at once");
    until_it_rests(lane);
    push();
    assert_eq!(lane.pending.load(Ordering::SeqCst), 1, "it rests");
    assert_eq!(lane.standstill(), None, "and stands not still");
    assert!(lane.hurry(), "something waited");
    assert!(by.recv_timeout(SOON).is_ok());
    until_it_rests(lane);
    assert!(!lane.hurry(), "nothing waits");
}

#[test]
fn a_thread_rests_no_longer_if_many_wait() {
    let (lane, push, by) = restful();
    push();
    assert!(by.recv_timeout(SOON).is_ok());
    until_it_rests(lane);
    (1..things_until_hurry()).for_each(|_| push());
    assert!(by.try_recv().is_err(), "it rests");
    push();
    (0..things_until_hurry()).for_each(|_| assert!(by.recv_timeout(SOON).is_ok()));
}

#[test]
fn who_hurries_a_thread_at_work_has_what_came_meanwhile_closed() {
    let (lane, push, by) = restful();
    let (go_on, hang) = channel::<()>();
    lane.push(Box::new(Hung(hang)));
    push();
    let waits = || lane.pending.load(Ordering::SeqCst) == 2;
    assert!(waits() && !lane.hurry(), "it is at work");
    drop(go_on);
    assert!(by.recv_timeout(SOON).is_ok());
}

#[test]
fn a_file_system_that_hangs_is_full_and_holds_up_no_other_one() {
    start(8192);
    let (hang, hangs) = channel::<()>();
    let (told, by) = channel();
    later(8, Hung(hangs));
    assert_eq!(standstill(8), None);
    (0..CLOSING_MAX).for_each(|_| later(8, Thing(told.clone())));
    for stands in [Standstill::Short, Standstill::Long] {
        while standstill(8) != Some(stands) {
            thread::yield_now(); // until it has stood for a while
        }
    }
    assert!(standstill(9).is_none() && pending() > CLOSING_MAX);
    let (other, by_other) = channel();
    later(9, Thing(other));
    assert!(by_other.recv().is_ok(), "it waits for nobody");
    assert!(by.try_recv().is_err(), "these wait");
    drop(hang);
    (0..CLOSING_MAX).for_each(|_| assert!(by.recv().is_ok()));
}
