//! Fifty thousand connections at once.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use ackpace_tests::{PATIENCE, Setup, Tree, connect_with, eventually, raise_own_limit, skip};

const CLIENTS: usize = 50_000;
/// Connections from one address, which has some 28,000 ports.
const PER_ADDRESS: usize = 5_000;
/// Twice the memory promised for an idle connection: the workers' memory grows in steps.
const RESIDENT_BYTES_MAX: u64 = 2 * 1024;
/// Descriptors that are not connections.
const SPARE: usize = 500;
const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// Descriptors that this process may hold from now on: this many, if its hard limit allows or can be raised.
fn may_hold(descriptors: u64) -> u64 {
    let limit = libc::rlimit {
        rlim_cur: descriptors,
        rlim_max: descriptors,
    };
    // SAFETY: the struct lives until the call returns.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => descriptors,
        _ => raise_own_limit().min(descriptors),
    }
}

fn ask(client: &mut TcpStream) {
    client.write_all(REQUEST).expect("the request");
    let (mut got, mut piece) = (Vec::new(), [0; 1024]);
    while !got.ends_with(b"\r\n\r\na") {
        let len = client.read(&mut piece).expect("the answer");
        assert!(len > 0, "closed after {:?}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&piece[..len]);
    }
    assert!(
        got.starts_with(b"HTTP/1.1 200 "),
        "{:?}",
        String::from_utf8_lossy(&got)
    );
}

#[test]
fn fifty_thousand_connections_are_kept_and_answered() {
    // The server holds some more than this process.
    let limit = may_hold((CLIENTS + SPARE) as u64);
    let clients_max = CLIENTS.min((limit as usize).saturating_sub(SPARE));
    let tree = Tree::new();
    tree.file("a", "a");
    let args = "--workers 4 --idle-timeout 10min --memory-max 6G";
    let server = Setup::new(tree.path())
        .args(args)
        .descriptors_max(limit)
        .start();
    assert_eq!(server.get("/a", "").text(), "a");
    let (descriptors, memory_bytes) = (server.descriptors(), server.memory_bytes());
    let mut clients = Vec::with_capacity(clients_max);
    for nth in 0..clients_max {
        let from = Ipv4Addr::new(127, 0, 1, 1 + (nth / PER_ADDRESS) as u8);
        let client = connect_with(server.address(), Some(from), None, 0);
        let mut client = client.unwrap_or_else(|error| panic!("client {nth}: {error}"));
        client.set_read_timeout(Some(PATIENCE)).expect("a socket");
        ask(&mut client);
        clients.push(client);
    }
    assert!(server.descriptors() >= clients_max, "all are there at once");
    let grown_bytes = server.memory_bytes().saturating_sub(memory_bytes);
    let each_bytes = grown_bytes / clients_max.max(1) as u64;
    assert!(each_bytes <= RESIDENT_BYTES_MAX, "{each_bytes} bytes each");
    for client in clients.iter_mut().step_by(97) {
        ask(client);
    }
    drop(clients);
    eventually("all connections are gone", || {
        server.descriptors() <= descriptors
    });
    assert_eq!(server.get("/a", "").text(), "a");
    server.stop();
    if clients_max < CLIENTS {
        skip(&format!(
            "{clients_max} were kept; 50,000 need 50,500 descriptors (ulimit -Hn)"
        ));
    }
}
