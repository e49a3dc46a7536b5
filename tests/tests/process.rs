//! The server as a process: starting, refusing to start, stopping, ordinary users.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};

use ackpace_tests::{
    Server, Setup, Tree, command, eventually, needs_root, pattern, run, server_binary,
};

const LEN: usize = 8 << 20;

/// A tree with a large file, its content, and a small file.
fn big() -> (Tree, Vec<u8>) {
    let tree = Tree::new();
    let content = pattern(LEN, 13);
    tree.file("big", &content);
    tree.file("a", "a");
    (tree, content)
}

#[test]
fn a_bad_root_or_address_stops_the_start_with_one_message_and_says_whether_to_try_again() {
    let tree = Tree::new();
    Setup::new("/dev/null")
        .assert_refused(&["/dev/null", "neither a directory nor a regular file"]);
    let busy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = busy.local_addr().expect("its address").to_string();
    Setup::new(tree.path())
        .listen(&address)
        .assert_refused_now(&[&address, "in use"]);
    Setup::new(tree.path())
        .listen("192.0.2.1:8080")
        .assert_refused_now(&["192.0.2.1:8080", "assign"]);

    let no_socket = tree.file("file", "");
    let place = format!("unix:{}", no_socket.display());
    Setup::new(tree.path())
        .listen(&place)
        .assert_refused(&[&place, "not a socket"]);
    assert!(no_socket.exists(), "it was left alone");
    Setup::new(tree.path())
        .listen("fd:77")
        .assert_refused(&["fd:77"]);
    let log = tree.at("missing/log").display().to_string();
    Setup::new(tree.path())
        .args(&["--access-log", &log])
        .assert_refused_now(&[&log]);
}

#[test]
fn a_start_that_fails_leaves_no_socket_behind_and_check_finds_what_it_would_fail_for() {
    let (tree, home) = (Tree::new(), Tree::new());
    let socket = home.at("http.sock");
    let log = home.at("missing/log").display().to_string();
    let setup = || {
        Setup::new(tree.path())
            .listen(format!("unix:{}", socket.display()))
            .args(&["--access-log", &log])
    };
    setup().assert_refused_now(&[&log, "No such file"]);
    assert!(!socket.exists());
    let mut check = command(server_binary());
    check.args(["check", "--access-log", &log]).arg(tree.path());
    let checked = run(&mut check);
    assert!(
        !checked.success && checked.err.contains(&log),
        "{}",
        checked.err
    );
    let good = home.at("log").display().to_string();
    let mut check = command(server_binary());
    check
        .args(["check", "--access-log", &good])
        .arg(tree.path());
    assert!(run(&mut check).success);
    assert!(!home.at("log").exists(), "a check makes nothing");
}

#[test]
fn a_descriptor_that_was_not_passed_is_refused_whatever_the_server_opens_itself() {
    let tree = Tree::new();
    for fd in 3..12 {
        Setup::new(tree.path())
            .args(&["--listen", &format!("fd:{fd}")])
            .assert_refused(&[&format!("fd:{fd}")]);
    }
}

#[test]
fn nobody_waits_for_a_server_that_takes_nobody_on_its_admin_socket() {
    let (tree, home) = (Tree::new(), Tree::new());
    let socket = home.at("admin.sock");
    let full = UnixListener::bind(&socket).expect("a free path");
    // SAFETY: the descriptor is open; a second listen(2) sets the length of the queue only.
    assert_eq!(unsafe { libc::listen(full.as_raw_fd(), 0) }, 0);
    let _first = UnixStream::connect(&socket).expect("one has room");
    let path = socket.display().to_string();
    Setup::new(tree.path())
        .args(&["--admin", &path])
        .assert_refused_now(&[&path, "in use"]);
    let mut top = command(server_binary());
    let told = run(top.args(["top", "--json", "--admin", &path]));
    assert!(!told.success, "{}", told.out);
    assert!(told.err.contains("answers nobody"), "{}", told.err);
    assert!(socket.exists(), "it was left alone");
}

#[test]
fn a_root_that_may_not_be_entered_stops_the_start() {
    let tree = Tree::new();
    let closed = tree.dir("closed");
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000))
        .expect("a mode");
    Setup::new(&closed)
        .ordinary()
        .assert_refused_now(&["closed", "ermission denied"]);
}

#[test]
fn sigterm_lets_a_running_download_finish_and_takes_no_new_client() {
    let (tree, content) = big();
    let server = Server::start(&tree, "");
    let mut running = server.stalled("/big", "");
    let mut idle = server.connect();
    assert_eq!(idle.get("/a", "").text(), "a");
    server.signal(libc::SIGTERM);
    let address = server.address();
    eventually("new connections are refused", || {
        TcpStream::connect(address).is_err()
    });
    idle.ends();
    assert!(running.exactly(LEN) == content, "other bytes");
    running.ends();
    let mut server = server;
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_request_that_arrives_during_the_drain_is_answered_with_close() {
    let (tree, content) = big();
    let mut server = Server::start(&tree, "");
    let mut running = server.stalled("/big", "");
    server.signal(libc::SIGTERM);
    let address = server.address();
    eventually("new connections are refused", || {
        TcpStream::connect(address).is_err()
    });
    // Pipelined behind the download, whose head did not say that it is the last.
    let _ = running.try_send("GET /a HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(running.exactly(LEN) == content, "other bytes");
    let rest = String::from_utf8_lossy(&running.rest()).into_owned();
    assert!(rest.contains("Connection: close"), "{rest}");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_client_in_the_backlog_of_a_full_server_that_drains_is_served_when_there_is_room() {
    let (tree, _) = big();
    let args = "--workers 1 --connections-max 1 --log-level info";
    let mut server = Server::start(&tree, args);
    let running = server.stalled("/big", "");
    let mut waits = server.begin("/a", "");
    server.signal(libc::SIGTERM);
    server.err_line(&["(SIGTERM)", "ending"]);
    drop(running);
    assert_eq!(waits.head().status, 200);
    drop(waits);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn the_drain_ends_after_its_timeout() {
    let (tree, _) = big();
    let args = "--drain-timeout 1s --access-log - --access-log-format json";
    let mut server = Server::start(&tree, args);
    let mut running = server.stalled("/big", "");
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
    assert!(running.rest_or_reset().len() < LEN, "all of it came");
    let log = server.out_line(&["\"target\":\"/big\""]);
    assert!(
        log.contains("\"complete\":false,\"why\":\"draining\""),
        "{log}"
    );
    server.err_line(&[
        "WARN",
        "the end of drain_timeout",
        ": 1 download was cut off",
    ]);
}

#[test]
fn a_single_file_is_served_under_its_name_alone() {
    let tree = Tree::new();
    tree.file("other", "secret");
    let file = tree.file("one file.txt", "one");
    let server = Setup::new(&file).start();
    let line = server.out();
    assert!(line.contains("one file.txt"), "{line}");
    let response = server.get("/", "");
    assert_eq!(
        (response.status, response.field("Location")),
        (302, Some("one%20file.txt"))
    );
    assert_eq!(server.get("/one%20file.txt", "").text(), "one");
    let link = tree.at("latest");
    std::os::unix::fs::symlink("one file.txt", &link).expect("a link");
    let linked = Setup::new(&link).start();
    assert_eq!(linked.get("/", "").field("Location"), Some("latest"));
    assert_eq!(linked.get("/latest", "").text(), "one");
    assert_eq!(linked.get("/one%20file.txt", "").status, 404);
    linked.stop();
    for target in [
        "/other",
        "/one%20file.txt/",
        "/one",
        "/one%20file.txt/../other",
    ] {
        assert_eq!(server.get(target, "").status, 404, "{target}");
    }
}

#[test]
fn an_ordinary_user_serves_files_of_others_and_is_told_what_is_lost() {
    if !needs_root("changing the user") {
        return;
    }
    let (tree, content) = big();
    let server = Setup::new(tree.path()).user(65534).start();
    // cachestat(2) is for the owner of a file, or for users who may write to it.
    server.out_line(&["lost: cachestat(2)", "CAP_FOWNER"]);
    let status =
        fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    assert!(status.contains("\nCapEff:\t0000000000000000"), "{status}");
    let mut conn = server.connect();
    for _ in 0..3 {
        assert!(conn.get("/big", "").body == content, "other bytes");
        let range = conn.get("/big", "Range: bytes=5000000-\r\n");
        assert!(range.body == content[5_000_000..], "other bytes");
    }
    assert!(conn.get("/?json", "").text().contains("\"big\""));
}

#[test]
fn room_for_all_descriptors_is_made_before_the_first_client_comes() {
    // A worker that opens the next descriptor of a full table sleeps until the kernel has a larger one.
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Setup::new(tree.path())
        .args("--workers 2 --connections-max 400")
        .start();
    let table = || {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid()));
        let status = status.expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        line.expect("FDSize")
            .trim()
            .parse::<u64>()
            .expect("a number")
    };
    let before = table();
    assert!(before >= 3 * 400, "room for {before} descriptors");
    let _clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    assert_eq!(server.get("/a", "").body, b"a");
    assert_eq!(table(), before);
}
