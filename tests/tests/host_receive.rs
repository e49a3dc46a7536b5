//! `ackpace-host receive`: it shows what waits, for how long and behind whose lock, and changes nothing.
//!
//! Each test has a network namespace of its own. The receiver is this process; it waits for a page of the watcher before
//! it goes on, so that the bins are certain: what has waited for more than a second is in the last one.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use ackpace_tests::{Program, Trap, host, host_can, host_watch, network_apart, skip};

/// What must have waited for more than a second.
const ALL_LONG: &str = "[0,0,0,0,0,3]";
const NONE: &str = "[0,0,0,0,0,0]";

fn apart() -> bool {
    host_can("receive watch") && network_apart()
}

/// A connection, and who watches it: the receiver's end, and the sender's.
fn watched(at: &str) -> (Program, TcpStream, TcpStream) {
    let listener = TcpListener::bind(at).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let watching = host_watch(address.port());
    let sender = TcpStream::connect(address).expect("it listens");
    sender.set_nodelay(true).expect("a socket");
    let (receiver, _) = listener.accept().expect("the sender");
    (watching, receiver, sender)
}

/// Whether the page has this field with this value.
fn has(page: &str, field: &str, value: &str) -> bool {
    page.contains(&format!("\"{field}\":{value}"))
}

/// What stands in the last bin of this field.
fn longest(page: &str, field: &str) -> u64 {
    let bins = page.split(&format!("\"{field}\":[")).nth(1);
    let bins = bins.and_then(|text| text.split(']').next());
    let last = bins.and_then(|bins| bins.rsplit(',').next());
    last.and_then(|last| last.parse().ok()).unwrap_or(0)
}

#[test]
fn a_receiver_that_sleeps_with_data_is_shown_with_all_of_it() {
    if !apart() {
        return;
    }
    for at in ["127.0.0.1:0", "[::1]:0"] {
        sleeps_with_data(at);
    }
}

fn sleeps_with_data(at: &str) {
    let (watching, mut receiver, mut sender) = watched(at);
    for _ in 0..3 {
        sender.write_all(&[7; 100]).expect("room");
    }
    let page = &watching.shows("all of it waits for more than a second", |page| {
        has(page, "waiting", ALL_LONG)
    });
    assert!(has(page, "pid", "null"), "nobody has read yet: {page}");
    assert!(has(page, "receive_bytes", "300"), "{page}");
    assert!(has(page, "connections", "1"), "{page}");

    receiver.read_exact(&mut [0; 300]).expect("all of it");
    let page = &watching.shows("it was copied", |page| has(page, "to_copy", ALL_LONG));
    assert!(has(page, "pid", &std::process::id().to_string()), "{page}");
    assert!(
        has(page, "waiting", NONE) && has(page, "receive_bytes", "0"),
        "{page}"
    );
    assert!(has(page, "receive_bytes_most", "300"), "{page}");
    assert!(
        has(page, "backlogged", NONE),
        "nobody held the lock: {page}"
    );
    assert!(
        has(page, "again", "0") && has(page, "unmeasured", "0"),
        "{page}"
    );
    assert!(
        page.contains("\"sender\":{\"timeouts\":0"),
        "it is on this machine: {page}"
    );
    assert_eq!(watching.end(libc::SIGINT), Some(0));
}

#[test]
fn what_waits_behind_the_lock_of_a_receiver_that_sleeps_is_told_apart() {
    if !apart() {
        return;
    }
    let Some(trap) = Trap::new() else {
        return skip("userfaultfd(2) is refused here");
    };
    let (watching, mut receiver, mut sender) = watched("127.0.0.1:0");
    let at = trap.page_address();
    sender.write_all(&[7; 100]).expect("room");
    let reader = thread::spawn(move || {
        // A first call, by which the thread is known; then one that sleeps in the middle of the copy.
        receiver.read_exact(&mut [0; 50]).expect("half of it");
        // SAFETY: the page is writable, 50 bytes are fewer than it has, and it outlives this thread.
        let got = unsafe {
            libc::recv(
                std::os::fd::AsRawFd::as_raw_fd(&receiver),
                at as *mut libc::c_void,
                50,
                0,
            )
        };
        assert_eq!(got, 50, "{}", io::Error::last_os_error());
        receiver.read_exact(&mut [0; 300]).expect("the rest");
        receiver
    });
    watching.shows("the receiver sleeps with the lock", |page| {
        has(page, "slept_owning", "1")
    });
    for _ in 0..3 {
        sender.write_all(&[8; 100]).expect("room");
    }
    // Nobody answers, so the sender's timer expires: that is the paper's spurious timeout.
    watching.shows("what came since waits for more than a second", |page| {
        longest(page, "waiting") >= 4
    });
    trap.release();
    let receiver = reader.join().expect("no panic");
    let page = &watching.shows("all was copied", |page| has(page, "waiting", NONE));
    assert!(
        longest(page, "backlogged") >= 3,
        "the three, merged or not: {page}"
    );
    assert!(
        page.contains("\"to_tcp\":[1,"),
        "the first one waited for nobody: {page}"
    );
    assert!(has(page, "to_copy", "[0,0,0,0,0,4]"), "each once: {page}");
    assert!(!has(page, "backlog_bytes_most", "0"), "{page}");
    assert!(!has(page, "again", "0"), "they came once more: {page}");
    assert!(!page.contains("\"sender\":{\"timeouts\":0"), "{page}");
    assert!(!page.contains("\"namespace\":{\"timeouts\":0"), "{page}");
    drop(receiver);
    assert_eq!(watching.end(libc::SIGINT), Some(0));
}

#[test]
fn what_can_not_be_watched_is_refused_by_one_clear_line() {
    for (options, part) in [
        ("watch --pid 4194305", "no such process"),
        ("watch --for 0", "--for"),
        ("watch --port 99999", "--port"),
    ] {
        let refused = host(&*format!("receive {options}"));
        let has_bpf = !refused.err.contains("without BPF");
        assert_eq!(refused.code, Some(2), "{options:?}: {}", refused.err);
        assert!(
            !has_bpf || refused.err.contains(part),
            "{options:?}: {}",
            refused.err
        );
    }
}
