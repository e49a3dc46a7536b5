//! Signals: two stop the server, two reopen its log files, one is reserved.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ackpace_tests::{AtTheEnd, HungThread, Server, Tree, eventually, pattern, skip};

/// The numbers N of the requests `/a?N` in a log.
fn logged(log: &Path) -> Vec<usize> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let targets = text.lines().filter_map(|line| line.split("GET /a?").nth(1));
    let numbers = targets.map(|rest| rest.split(' ').next().unwrap_or_default().parse());
    numbers.collect::<Result<_, _>>().expect("numbers of ours")
}

#[test]
fn a_log_that_was_renamed_is_opened_anew_and_no_line_is_lost() {
    let (tree, home) = (Tree::new(), Tree::new());
    tree.file("a", "a");
    let log = home.at("access.log");
    let server = Server::start(&tree, &["--access-log", log.to_str().expect("UTF-8")]);
    let signals = [libc::SIGUSR1, libc::SIGHUP, libc::SIGUSR1, libc::SIGHUP];
    let done = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut conn = server.connect();
            let mut nth = 0;
            while !done.load(Relaxed) {
                assert_eq!(conn.get(&format!("/a?{nth}"), "").status, 200);
                nth += 1;
            }
            nth
        });
        let _done = AtTheEnd(&done);
        for (nth, signal) in signals.into_iter().enumerate() {
            eventually("lines in the log", || !logged(&log).is_empty());
            fs::rename(&log, home.at(format!("access.log.{nth}"))).expect("a rename");
            server.signal(signal);
            eventually("a new log", || log.exists());
        }
        eventually("lines in the last log", || !logged(&log).is_empty());
        drop(_done);
        asking.join().expect("all were answered")
    });
    server.err_line(&["INFO", "access.log: opened anew"]);
    server.err_line(&["WARN", "signal 1 (SIGHUP)", "restart"]);
    server.stop();
    let mut all = Vec::new();
    for nth in 0..signals.len() {
        all.extend(logged(&home.at(format!("access.log.{nth}"))));
    }
    all.extend(logged(&log));
    assert!(
        all.into_iter().eq(0..asked),
        "each of {asked} once, in order"
    );
}

#[test]
fn a_log_that_cannot_be_opened_anew_goes_on_as_it_was() {
    let (tree, home) = (Tree::new(), Tree::new());
    tree.file("a", "a");
    let log = home.dir("logs").join("access.log");
    let server = Server::start(&tree, &["--access-log", log.to_str().expect("UTF-8")]);
    fs::rename(home.at("logs"), home.at("moved")).expect("a rename");
    server.signal(libc::SIGUSR1);
    server.err_line(&["ERROR", "No such file", "old file", "SIGUSR1"]);
    assert_eq!(server.get("/a?0", "").status, 200);
    let moved = home.at("moved/access.log");
    eventually("the line", || logged(&moved) == [0]);
    home.dir("logs");
    server.signal(libc::SIGUSR1);
    server.err_line(&["opened anew"]);
    assert_eq!(server.get("/a?1", "").status, 200);
    eventually("the line", || logged(&log) == [1]);
}

#[test]
fn signals_without_a_log_file_end_nothing() {
    let tree = Tree::new();
    tree.file("a", "a");
    for log in ["-", "off"] {
        let args = ["--access-log", log, "--log-level", "debug"];
        let server = Server::start(&tree, &args);
        let mut conn = server.connect();
        for signal in [libc::SIGUSR1, libc::SIGHUP, libc::SIGUSR2] {
            server.signal(signal);
        }
        server.err_line(&["SIGHUP"]);
        server.err_line(&["SIGUSR2"]);
        assert_eq!(conn.get("/a", "").text(), "a");
    }
}

#[test]
fn the_second_signal_to_stop_ends_at_once_with_one_line_and_others_do_not() {
    let tree = Tree::new();
    tree.file("big", pattern(32 << 20, 7));
    for (first, second) in [(libc::SIGTERM, libc::SIGINT), (libc::SIGINT, libc::SIGTERM)] {
        let log = "--drain-timeout 1h --log-level info";
        let mut server = Server::start(&tree, log);
        let mut running = server.stalled("/big", "");
        server.signal(first);
        server.err_line(&["(SIG", "ending"]);
        server.signal(libc::SIGHUP);
        server.err_line(&["SIGHUP"]);
        server.signal(libc::SIGUSR1);
        assert_eq!(running.exactly(1 << 20).len(), 1 << 20, "it goes on");
        server.signal(second);
        assert_eq!(server.wait().code(), Some(1));
        let err = server.err();
        let told = err.lines().filter(|line| line.contains("the second"));
        let told: Vec<&str> = told.collect();
        assert_eq!(told.len(), 1, "{err}");
        assert!(told[0].contains("ended at once"), "{err}");
    }
}

#[test]
fn the_end_is_told_where_only_errors_are_logged() {
    let tree = Tree::new();
    tree.file("big", pattern(32 << 20, 7));
    let args = "--drain-timeout 1h --log-level error";
    let mut server = Server::start(&tree, args);
    let _running = server.stalled("/big", "");
    server.signal(libc::SIGTERM);
    let address = server.address();
    eventually("new connections are refused", || {
        std::net::TcpStream::connect(address).is_err()
    });
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code(), Some(1));
    let err = server.err();
    assert_eq!(err.trim_end().lines().count(), 1, "{err}");
    assert!(err.contains("the second: ended at once"), "{err}");
}

/// A server with a worker that hangs from now on; `None`, and a line says why, where ptrace(2) is refused.
fn with_a_hung_worker(tree: &Tree, drain: &str) -> Option<(Server, HungThread)> {
    let server = Server::start(tree, &["--workers", "2", "--drain-timeout", drain]);
    match HungThread::stop(server.pid(), "worker-1") {
        Ok(hung) => Some((server, hung)),
        Err(error) => {
            skip(&format!("ptrace(2) is refused: {error}"));
            server.stop();
            None
        }
    }
}

#[test]
fn a_second_signal_ends_a_server_with_a_worker_that_hangs() {
    let tree = Tree::new();
    let Some((mut server, hung)) = with_a_hung_worker(&tree, "1h") else {
        return;
    };
    server.signal(libc::SIGTERM);
    server.signal(libc::SIGINT);
    eventually("the end of the thread", || hung.is_gone());
    assert_eq!(server.wait().code(), Some(1));
    let err = server.err();
    assert_eq!(err.matches("ended at once").count(), 1, "{err}");
}

#[test]
fn a_worker_that_hangs_keeps_the_process_little_longer_than_the_drain() {
    let tree = Tree::new();
    let Some((mut server, hung)) = with_a_hung_worker(&tree, "0s") else {
        return;
    };
    server.signal(libc::SIGTERM);
    eventually("the end of the thread", || hung.is_gone());
    assert_eq!(server.wait().code(), Some(1));
    server.err_line(&["worker-1 did not end", "ended all the same"]);
}
