//! Where the server listens: unix sockets, sockets that systemd passes, IPv6, several addresses.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::{fs, io};

use ackpace_tests::{Conn, Server, Setup, Tree, client, run, skip};

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
        .args("--access-log - --unix-mode 660")
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
    Setup::new(tree.path())
        .listen(&place)
        .assert_refused_now(&["another server listens there"]);
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
    let _server = Setup::new(tree.path())
        .listen(format!("unix:{}", path.display()))
        .start();
    UnixStream::connect(&path).expect("somebody listens");
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
    let _server = Setup::new(tree.path())
        .listen("fd:3")
        .before(move || as_three(fd))
        .start();
    assert_eq!(early.response().text(), "a");
    assert_eq!(Conn::open(address).get("/a", "").text(), "a");
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
        .args("--access-log -")
        .start();
    assert!(server.address().is_ipv6());
    assert_eq!(server.get("/a", "").text(), "a");
    server.out_line(&["::1 - - [", "\"GET /a HTTP/1.1\" 200 1 "]);
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
        .args("--access-log -")
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
}

#[test]
fn several_listeners_serve_at_once() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "--listen 127.0.0.1:0");
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
}
