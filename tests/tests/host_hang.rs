//! `ackpace-host tune` where any user holds the lock of a socket of his own: no pass over the sockets can end.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ackpace_tests::{Trap, eventually, host, host_can, host_start, network_apart, skip};

/// Whether no thread of the process has a capability.
fn has_none(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let status = |task: io::Result<fs::DirEntry>| {
        fs::read_to_string(task.expect("a thread").path().join("status")).unwrap_or_default()
    };
    tasks
        .map(status)
        .all(|it| it.contains("\nCapPrm:\t0000000000000000"))
}

/// A connection, and a thread that sends by it from a page that is not there yet, so that it sleeps with the lock.
fn hold_lock(trap: &Trap) -> (TcpStream, JoinHandle<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("it is bound"));
    let (socket, _) = listener.accept().expect("the client");
    let at = trap.page_address();
    let sending = thread::spawn(move || {
        // SAFETY: the page has so many bytes, and outlives this thread.
        let sent = unsafe { libc::send(socket.as_raw_fd(), at as *const libc::c_void, 50, 0) };
        assert_eq!(sent, 50, "{}", io::Error::last_os_error());
        socket
    });
    (client.expect("it listens"), sending)
}

#[test]
fn a_start_says_that_a_pass_hangs_and_can_end() {
    if !host_can("tune") || !network_apart() {
        return;
    }
    let Some(trap) = Trap::new() else {
        return skip("userfaultfd(2) is refused here");
    };
    let (_client, sending) = hold_lock(&trap);
    let tuning = host_start("tune --budget 1MiB");
    tuning.err_line(&["a pass hangs"]);
    assert!(has_none(tuning.pid()));
    let pid = tuning.pid();
    let child = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
    let name = fs::read_to_string(format!("/proc/{}/comm", child.trim())).expect("it hangs");
    assert_eq!(name, "ackpace-host\n");
    let status = host("tune status").out;
    assert!(status.contains("STUCK for"), "{status}");
    let stopped = Instant::now();
    assert_eq!(tuning.end(libc::SIGTERM), Some(1));
    assert!(stopped.elapsed() < Duration::from_secs(2));
    let restored = host("tune --restore");
    assert_eq!(restored.code, Some(1), "{}", restored.err);
    assert!(
        restored.err.contains("has hung for 3 s"),
        "{}",
        restored.err
    );

    let tuning = host_start("tune --budget 1MiB");
    tuning.err_line(&["a pass hangs"]);
    trap.release();
    sending.join().expect("no panic");
    tuning.err_line(&["the pass goes on"]);
    tuning.err_line(&["divides"]);
    eventually("it hangs no more", || {
        host("tune status --json").out.contains("\"stuck_s\":0")
    });
    assert_eq!(tuning.end(libc::SIGTERM), Some(0));
}
