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
    for _ in 0..2 {
        assert_eq!(by.recv(), Ok(Some("closing".to_owned())));
    }
    let read = std::io::Read::read(&mut end, &mut [0]);
    assert_eq!(read.expect("open"), 0, "nobody holds the other end");
}

#[test]
fn a_file_system_that_hangs_is_full_and_holds_up_no_other_one() {
    start(8192);
    let (hang, hangs) = channel::<()>();
    let (told, by) = channel();
    later(8, Hung(hangs));
    assert!(!is_full(8));
    (0..CLOSING_MAX).for_each(|_| later(8, Thing(told.clone())));
    while !is_full(8) {
        thread::yield_now(); // until it has stood for a while
    }
    assert!(!is_full(9) && pending() > CLOSING_MAX);
    let (other, by_other) = channel();
    later(9, Thing(other));
    assert!(by_other.recv().is_ok(), "it waits for nobody");
    assert!(by.try_recv().is_err(), "these wait");
    drop(hang);
    (0..CLOSING_MAX).for_each(|_| assert!(by.recv().is_ok()));
}
