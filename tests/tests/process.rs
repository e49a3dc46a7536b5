//! The server as a process: starting, refusing to start, stopping, listening, logging, ordinary users.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::{fs, io};

use ackpace_tests::{
    Conn, Server, Setup, Tree, client, command, eventually, limit_receive_buffer, needs_root,
    pattern, reset_on_drop, run, server_binary, skip,
};

const LEN: usize = 32 << 20;

fn big() -> (Tree, Vec<u8>) {
    let tree = Tree::new();
    let content = pattern(LEN, 13);
    tree.file("big", &content);
    tree.file("a", "a");
    (tree, content)
}

/// A download of `/big` whose client has stopped reading after the head.
fn stalled(server: &Server) -> Conn {
    let mut conn = server.connect();
    limit_receive_buffer(&conn.stream, 64 << 10);
    conn.send("GET /big HTTP/1.1\r\nHost: t\r\nUser-Agent: a \"quoted\" agent\r\n\r\n");
    assert_eq!(conn.head().status, 200);
    conn
}

#[track_caller]
fn assert_refused(setup: Setup, parts: &[&str]) {
    let (code, err) = setup.fails();
    assert_eq!(code, Some(2), "{err}");
    assert_eq!(
        err.trim_end().lines().count(),
        1,
        "one clear message: {err}"
    );
    for part in parts {
        assert!(err.contains(part), "no {part:?} in {err}");
    }
}

#[test]
fn a_bad_root_config_or_address_stops_the_start_with_exit_code_2_and_one_message() {
    let tree = Tree::new();
    let missing = tree.at("missing");
    assert_refused(
        Setup::new(&missing),
        &[missing.to_str().expect("UTF-8"), "No such file"],
    );
    assert_refused(
        Setup::new("/dev/null"),
        &["/dev/null", "neither a directory nor a regular file"],
    );

    let config = tree.file("bad.toml", "listing = true\nheader_timeout = 5\n");
    let config = config.to_str().expect("UTF-8").to_owned();
    assert_refused(
        Setup::new(tree.path()).args(&["-c", &config]),
        &["bad.toml:2:18:", "header_timeout"],
    );
    let unknown = tree.file("unknown.toml", "header_timeuot = \"5s\"\n");
    let unknown = unknown.to_str().expect("UTF-8").to_owned();
    assert_refused(
        Setup::new(tree.path()).args(&["-c", &unknown]),
        &["unknown.toml:1:1:", "header_timeout"],
    );

    let busy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = busy.local_addr().expect("its address").to_string();
    assert_refused(
        Setup::new(tree.path()).listen(&address),
        &[&address, "in use"],
    );
    assert_refused(
        Setup::new(tree.path()).listen("192.0.2.1:8080"),
        &["192.0.2.1:8080", "assign"],
    );

    let no_socket = tree.file("file", "");
    let place = format!("unix:{}", no_socket.display());
    assert_refused(
        Setup::new(tree.path()).listen(&place),
        &[&place, "not a socket"],
    );
    assert!(no_socket.exists(), "it was left alone");
    assert_refused(Setup::new(tree.path()).listen("fd:77"), &["fd:77"]);
    let log = tree.at("missing/log").display().to_string();
    assert_refused(
        Setup::new(tree.path()).args(&["--access-log", &log]),
        &[&log],
    );
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
    assert_refused(setup(), &[&log, "No such file"]);
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
        assert_refused(
            Setup::new(tree.path()).args(&["--listen", &format!("fd:{fd}")]),
            &[&format!("fd:{fd}")],
        );
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
    assert_refused(
        Setup::new(tree.path()).args(&["--admin", &path]),
        &[&path, "in use"],
    );
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
    assert_refused(
        Setup::new(&closed).ordinary(),
        &["closed", "ermission denied"],
    );
}

#[test]
fn sigterm_lets_a_running_download_finish_and_takes_no_new_client() {
    let (tree, content) = big();
    let server = Server::start(&tree, &[]);
    let mut running = stalled(&server);
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
fn sigint_stops_like_sigterm() {
    let tree = Tree::new();
    let mut server = Server::start(&tree, &[]);
    server.signal(libc::SIGINT);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_request_that_arrives_during_the_drain_is_answered_with_close() {
    let (tree, content) = big();
    let mut server = Server::start(&tree, &[]);
    let mut running = stalled(&server);
    server.signal(libc::SIGTERM);
    let address = server.address();
    eventually("new connections are refused", || {
        TcpStream::connect(address).is_err()
    });
    // Pipelined behind the download. It may or may not be answered, but a reset must not replace the answer.
    let _ = running.try_send("GET /a HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(running.exactly(LEN) == content, "other bytes");
    let rest = String::from_utf8_lossy(&running.rest()).into_owned();
    assert!(
        rest.is_empty() || rest.contains("Connection: close"),
        "{rest}"
    );
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn the_drain_ends_after_its_timeout() {
    let (tree, _) = big();
    let args = [
        "--drain-timeout",
        "1s",
        "--access-log",
        "-",
        "--access-log-format",
        "json",
    ];
    let mut server = Server::start(&tree, &args);
    let mut running = stalled(&server);
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
fn a_second_signal_cuts_off_at_once() {
    let (tree, _) = big();
    let mut server = Server::start(&tree, &["--drain-timeout", "1h"]);
    let mut running = stalled(&server);
    server.signal(libc::SIGTERM);
    server.err_line(&["signal 15"]);
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code(), Some(1));
    assert!(running.rest_or_reset().len() < LEN, "all of it came");
}

#[test]
fn a_unix_socket_is_served_and_removed_at_the_end() {
    let Some(mut curl) = client("curl") else {
        return;
    };
    let tree = Tree::new();
    tree.file("a", "a");
    let home = Tree::new();
    let path = home.at("socket");
    let place = format!("unix:{}", path.display());
    let server = Setup::new(tree.path())
        .listen(&place)
        .args(&["--access-log", "-", "--unix-mode", "660"])
        .start();
    assert_eq!(server.url(), place);
    let kind = fs::symlink_metadata(&path).expect("the socket").file_type();
    assert!(kind.is_socket());
    let mode = fs::symlink_metadata(&path).expect("the socket").mode();
    assert_eq!(mode & 0o777, 0o660);
    let done = run(curl
        .args(["-sSf", "--unix-socket"])
        .arg(&path)
        .arg("http://t/a"));
    assert_eq!(done.out, "a", "{}", done.err);
    server.out_line(&["unix: - - [", "\"GET /a HTTP/1.1\" 200 1 "]);

    // A second server must not take over the socket of a running one.
    assert_refused(
        Setup::new(tree.path()).listen(&place),
        &["another server listens there"],
    );
    assert!(path.exists());
    server.stop();
    assert!(!path.exists(), "the socket stayed");
}

#[test]
fn a_unix_socket_left_by_a_dead_server_is_taken_over() {
    let tree = Tree::new();
    let home = Tree::new();
    let path = home.at("socket");
    drop(UnixListener::bind(&path).expect("a socket"));
    let server = Setup::new(tree.path())
        .listen(format!("unix:{}", path.display()))
        .start();
    UnixStream::connect(&path).expect("somebody listens");
    server.stop();
}

/// Gives the child this descriptor as number 3, as systemd does.
fn as_three(fd: i32) -> io::Result<()> {
    // SAFETY: system calls with numbers.
    let result = unsafe {
        match fd {
            3 => libc::fcntl(3, libc::F_SETFD, 0),
            _ => libc::dup2(fd, 3),
        }
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[test]
fn a_listening_socket_is_inherited_as_from_systemd() {
    let tree = Tree::new();
    tree.file("a", "a");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let fd = listener.as_raw_fd();
    // This client connects before the server starts.
    let mut early = Conn::open(address);
    early.send("GET /a HTTP/1.1\r\nHost: t\r\n\r\n");
    let server = Setup::new(tree.path())
        .listen("fd:3")
        .before(move || as_three(fd))
        .start();
    assert_eq!(early.response().text(), "a");
    assert_eq!(Conn::open(address).get("/a", "").text(), "a");
    drop(early);
    server.stop();
}

#[test]
fn ipv6_is_listened_on() {
    if TcpListener::bind("[::1]:0").is_err() {
        return skip("this machine has no [::1]");
    }
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Setup::new(tree.path())
        .listen("[::1]:0")
        .args(&["--access-log", "-"])
        .start();
    assert!(server.address().is_ipv6());
    assert_eq!(server.get("/a", "").text(), "a");
    server.out_line(&["::1 - - [", "\"GET /a HTTP/1.1\" 200 1 "]);
    server.stop();
}

#[test]
fn every_address_means_both_families_and_ipv4_is_logged_as_such() {
    if TcpListener::bind("[::1]:0").is_err() {
        return skip("this machine has no [::1]");
    }
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Setup::new(tree.path())
        .listen(":0")
        .args(&["--access-log", "-"])
        .start();
    let port = server
        .url()
        .rsplit(':')
        .next()
        .and_then(|port| port.trim_end_matches('/').parse().ok());
    let port: u16 = port.unwrap_or_else(|| panic!("no port in {}", server.url()));
    for (host, logged) in [("127.0.0.1", "127.0.0.1 - - ["), ("[::1]", "::1 - - [")] {
        let address = format!("{host}:{port}").parse().expect("an address");
        assert_eq!(Conn::open(address).get("/a", "").text(), "a");
        let line = server.out_line(&[logged]);
        assert!(line.starts_with(logged), "{line}");
    }
    server.stop();
}

#[test]
fn several_listeners_serve_at_once() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, &["--listen", "127.0.0.1:0"]);
    let out = server.out();
    let urls: Vec<&str> = out
        .lines()
        .filter_map(|line| line.split_once("http://")?.1.split(' ').next())
        .collect();
    assert_eq!(urls.len(), 2, "{out}");
    for url in urls {
        let address = url.trim_end_matches('/').parse().expect("an address");
        assert_eq!(Conn::open(address).get("/a", "").text(), "a");
    }
    server.stop();
}

#[test]
fn the_combined_log_tells_what_was_asked_and_answered() {
    let tree = Tree::new();
    tree.file("a b", "0123456789");
    let server = Server::start(&tree, &["--access-log", "-"]);
    let fields = "Referer: http://r/\r\nUser-Agent: an \"agent\"\\\r\n";
    assert_eq!(server.get("/a%20b?q", fields).status, 200);
    let line = server.out_line(&["GET /a%20b?q"]);
    let (before, rest) = line.split_once(" - - [").expect("the address");
    assert_eq!(before, "127.0.0.1");
    let (_, rest) = rest.split_once(" +0000] ").expect("the time in UTC");
    assert_eq!(
        rest,
        r#""GET /a%20b?q HTTP/1.1" 200 10 "http://r/" "an \x22agent\x22\x5C""#
    );

    assert_eq!(server.get("/a%20b", "Range: bytes=3-5\r\n").status, 206);
    server.out_line(&[r#""GET /a%20b HTTP/1.1" 206 3 "-" "-""#]);
    let missing = server.get("/missing", "");
    server.out_line(&[&format!(
        r#""GET /missing HTTP/1.1" 404 {} "-" "-""#,
        missing.body.len()
    )]);
    let bad = server.ask("GET /\x1b HTTP/1.1\r\n\r\n");
    server.out_line(&[&format!(
        r#"] "GET /\x1B HTTP/1.1" 400 {} "-" "-""#,
        bad.body.len()
    )]);
    server.stop();
}

#[test]
fn the_json_log_tells_a_complete_download_from_an_aborted_one() {
    let (tree, content) = big();
    let server = Server::start(&tree, &["--access-log", "-", "--access-log-format", "json"]);
    let whole = server.get("/big?whole", "");
    assert!(whole.body == content, "other bytes");
    let line = server.out_line(&["/big?whole"]);
    let expected = format!(
        "\"status\":200,\"bytes_sent\":{LEN},\"bytes_acked\":{LEN},\"complete\":true,\"why\":null"
    );
    assert!(line.contains(&expected), "{line}");
    assert!(
        line.starts_with("{\"time\":\"") && line.ends_with('}'),
        "{line}"
    );

    let mut aborted = stalled(&server);
    aborted.exactly(100_000);
    reset_on_drop(&aborted.stream);
    drop(aborted);
    let line = server.out_line(&["\"target\":\"/big\""]);
    assert!(
        line.contains("\"complete\":false,\"why\":\"peer_reset\""),
        "{line}"
    );
    assert!(
        line.contains(r#""user_agent":"a \"quoted\" agent""#),
        "{line}"
    );
    let number = |key: &str| {
        let (_, rest) = line
            .split_once(key)
            .unwrap_or_else(|| panic!("no {key} in {line}"));
        rest.split(',')
            .next()
            .and_then(|value| value.parse::<usize>().ok())
    };
    let (sent, acked) = (number("\"bytes_sent\":"), number("\"bytes_acked\":"));
    let (sent, acked) = (sent.expect("a number"), acked.expect("a number"));
    assert!(sent < LEN && acked < sent, "{line}");
    assert!(acked >= 100_000, "what was read had arrived: {line}");

    // A range, and a client that closes orderly in the middle.
    assert_eq!(server.get("/big?part", "Range: bytes=-7\r\n").body.len(), 7);
    let line = server.out_line(&["/big?part"]);
    assert!(
        line.contains("\"bytes_acked\":7,\"complete\":true"),
        "{line}"
    );
    assert!(line.contains("\"range\":\"bytes=-7\""), "{line}");
    server.stop();
}

#[test]
fn every_request_of_a_pipeline_is_logged_in_order() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(
        &tree,
        &["--access-log", "-", "--access-log-format", "common"],
    );
    let mut conn = server.connect();
    let all: String = (0..150)
        .map(|nth| format!("GET /a?{nth} HTTP/1.1\r\nHost: t\r\n\r\n"))
        .collect();
    conn.send(all);
    for _ in 0..150 {
        assert_eq!(conn.response().status, 200);
    }
    server.out_line(&["/a?149 "]);
    let out = server.out();
    let mut logged = out.lines().filter(|line| line.contains("GET /a?"));
    for nth in 0..150 {
        let line = logged.next().unwrap_or_default();
        assert!(
            line.ends_with(&format!("\"GET /a?{nth} HTTP/1.1\" 200 1")),
            "{nth}: {line}"
        );
    }
    drop(conn);
    server.stop();
}

#[test]
fn the_log_goes_to_a_file_that_is_appended_to() {
    let tree = Tree::new();
    tree.file("a", "a");
    let home = Tree::new();
    let log = home.file("access.log", "an old line\n");
    let path = log.to_str().expect("UTF-8");
    for _ in 0..2 {
        let server = Server::start(&tree, &["--access-log", path]);
        assert_eq!(server.get("/a", "").status, 200);
        server.stop(); // writes what is still queued
    }
    let text = fs::read_to_string(&log).expect("the log");
    assert!(text.starts_with("an old line\n127.0.0.1 "), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
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
        (302, Some("/one%20file.txt"))
    );
    assert_eq!(server.get("/one%20file.txt", "").text(), "one");
    let link = tree.at("latest");
    std::os::unix::fs::symlink("one file.txt", &link).expect("a link");
    let linked = Setup::new(&link).start();
    assert_eq!(linked.get("/", "").field("Location"), Some("/latest"));
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
    server.stop();
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
        let range = conn.get("/big", "Range: bytes=20000000-\r\n");
        assert!(range.body == content[20_000_000..], "other bytes");
    }
    assert!(conn.get("/?json", "").text().contains("\"big\""));
    drop(conn);
    server.stop();
}

#[test]
fn room_for_all_descriptors_is_made_before_the_first_client_comes() {
    // A worker that opens the next descriptor of a full table sleeps until the kernel has a larger one.
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Setup::new(tree.path())
        .args(&["--workers", "2", "--connections-max", "400"])
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
    let clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    assert_eq!(server.get("/a", "").body, b"a");
    assert_eq!(table(), before);
    drop(clients);
    server.stop();
}
