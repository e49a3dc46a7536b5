//! Clients that receive badly: they acknowledge nothing, pause, drip, change their pace, or leave in the middle. Those
//! that still read get every byte; of the others nothing stays behind.

use std::net::TcpStream;
use std::os::fd::AsRawFd;

use ackpace_tests::{
    Conn, Rng, Server, Setup, Tree, eventually, limit_receive_buffer, pattern, reset_on_drop, skip,
};

const BIG: &str = "GET /big HTTP/1.1\r\nHost: t\r\n\r\n";
const SEED: u64 = 11;

fn served(len_bytes: usize, args: &str) -> (Tree, Vec<u8>, Server) {
    let tree = Tree::new();
    let content = pattern(len_bytes, SEED);
    tree.file("big", &content);
    tree.file("a", "a");
    let log = "--access-log - --access-log-format json";
    let server = Setup::new(tree.path()).args(log).args(args).start();
    (tree, content, server)
}

/// Drops all segments for the client's TCP from now on, so that it acknowledges nothing (SO_ATTACH_FILTER, socket(7)).
/// Returns `false`, and reports the test as skipped, where ordinary users may not do that.
#[must_use]
fn goes_deaf(stream: &TcpStream) -> bool {
    let mut nothing = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut nothing,
    };
    // SAFETY: the kernel copies the program, which lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    let error = std::io::Error::last_os_error();
    if result != 0 && error.raw_os_error() == Some(libc::EPERM) {
        skip("the kernel lets root alone attach a filter to a socket");
        return false;
    }
    assert_eq!(result, 0, "{error}");
    true
}

#[test]
fn a_client_that_acknowledges_nothing_is_given_up() {
    let (_tree, _, server) = served(32 << 20, "--send-timeout 2s");
    let mut deaf = server.connect();
    deaf.send(BIG);
    deaf.exactly(1 << 20);
    let descriptors = server.descriptors();
    if !goes_deaf(&deaf.stream) {
        return;
    }
    let line = server.out_line(&["\"target\":\"/big\""]);
    assert!(line.contains("\"why\":\"send_timeout\""), "{line}");
    eventually("its connection is closed", || {
        server.descriptors() < descriptors
    });
    assert_eq!(server.get("/a", "").text(), "a");
}

#[test]
fn a_client_that_pauses_for_longer_than_the_send_timeout_gets_every_byte() {
    let args = "--send-timeout 1s";
    let (_tree, content, server) = served(24 << 20, args);
    let mut paused = server.connect();
    limit_receive_buffer(&paused.stream, 64 << 10);
    paused.send(BIG);
    let head = paused.head();
    assert_eq!(head.status, 200);
    // Deaf clients hit the same time limit, one after the other: the first client pauses for all that time.
    for given_up in 1..=2 {
        let mut deaf = server.connect();
        deaf.send(BIG);
        deaf.exactly(1 << 20);
        if !goes_deaf(&deaf.stream) {
            return;
        }
        eventually("the deaf one is given up", || {
            server.out().matches("send_timeout").count() == given_up
        });
    }
    assert!(paused.exactly(content.len()) == content, "other bytes");
    server.out_line(&["/big", "\"complete\":true"]);
}

#[test]
fn clients_that_drip_or_change_their_pace_get_every_byte_and_hold_up_nobody() {
    let (_tree, content, server) = served(6 << 20, "--workers 1");
    let mut rng = Rng::new(SEED);
    let mut clients: Vec<(Conn, usize)> = (0..24)
        .map(|_| {
            let mut conn = server.connect();
            limit_receive_buffer(&conn.stream, 32 << 10);
            conn.send(BIG);
            assert_eq!(conn.head().status, 200);
            (conn, 0)
        })
        .collect();
    for round in 0..400 {
        for (conn, at) in &mut clients {
            // A hundred times as much in one round as in the next, drawn for each client separately.
            let len = [500, 50_000][rng.below(2)].min(content.len() - *at);
            let piece = conn.exactly(len);
            assert!(piece == content[*at..*at + len], "other bytes at {at}");
            *at += len;
        }
        if round % 40 == 0 {
            assert_eq!(server.get("/a", "").text(), "a", "round {round}");
        }
    }
    for (conn, at) in &mut clients {
        let rest = conn.exactly(content.len() - *at);
        assert!(rest == content[*at..], "other bytes behind {at}");
    }
}

#[test]
fn clients_that_leave_while_they_are_topped_up_leave_nothing_behind() {
    let (_tree, content, server) = served(8 << 20, "--workers 1");
    let mut rng = Rng::new(SEED);
    let descriptors = server.descriptors();
    let mut stays = server.connect();
    stays.send(BIG);
    assert_eq!(stays.head().status, 200);
    let mut at = 0;
    for round in 0..40 {
        let mut leaving: Vec<Conn> = (0..16).map(|_| server.connect()).collect();
        for conn in &mut leaving {
            conn.send(BIG);
        }
        while !leaving.is_empty() {
            let mut conn = leaving.swap_remove(rng.below(leaving.len()));
            conn.exactly(rng.below(400_000));
            if rng.below(2) == 0 {
                reset_on_drop(&conn.stream);
            }
        }
        let len = 200_000.min(content.len() - at);
        assert!(stays.exactly(len) == content[at..at + len], "round {round}");
        at += len;
    }
    assert!(stays.exactly(content.len() - at) == content[at..]);
    drop(stays);
    eventually("all connections are gone", || {
        server.descriptors() <= descriptors
    });
}
