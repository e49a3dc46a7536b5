//! Send memory that is divided: all sockets together hold no more than the pool, and everybody gets every byte.
//!
//! Server and clients are in a network namespace of their own, on a loopback with the segments of an Ethernet.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ackpace_tests::{
    Conn, PATIENCE, Rng, Server, Setup, Tree, eventually, limit_receive_buffer, network_apart,
    pattern,
};

const SEED: u64 = 19;
const POOL_BYTES: u64 = 1 << 20;
/// What a connection may hold that joins, until the memory is divided anew: ten segments of an Ethernet.
const START_BYTES: u64 = 14_480;
const FAST: usize = 4;
const SLOW: usize = 8;
const LEN: usize = 24 << 20;
/// What a slow client asks for: it reads some 2 MB/s.
const SLOW_LEN: usize = 4 << 20;

/// What the sockets of this port hold together, unsent and in flight: `tx_queue` of /proc/net/tcp (proc(5)).
fn held_bytes(port: u16) -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/tcp").expect("Linux");
    let local = format!(":{port:04X}");
    let held = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let ours = fields.next()?.ends_with(&local);
        let state = fields.nth(1)?;
        let (queued, _) = fields.next()?.split_once(':')?;
        // Of a listener (0A) the column says something else.
        u64::from_str_radix(queued, 16)
            .ok()
            .filter(|_| ours && state != "0A")
    });
    held.sum()
}

/// The most that the sockets of the server held while clients, fast and slow, downloaded.
struct Watch {
    ends: Arc<AtomicBool>,
    most_bytes: Arc<AtomicU64>,
    thread: thread::JoinHandle<()>,
}

impl Watch {
    fn start(port: u16) -> Watch {
        let (ends, most_bytes) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (until, most) = (Arc::clone(&ends), Arc::clone(&most_bytes));
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                most.fetch_max(held_bytes(port), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1)); // between two looks
            }
        });
        Watch {
            ends,
            most_bytes,
            thread,
        }
    }

    fn end(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic");
        self.most_bytes.load(Ordering::Relaxed)
    }
}

/// Downloads the whole file, again and again until told to stop.
fn fast(address: SocketAddr, content: &[u8], stop: &AtomicBool) {
    let mut conn = Conn::open(address);
    while !stop.load(Ordering::Relaxed) {
        assert!(conn.get("/big", "").body == content, "other bytes");
    }
}

/// Downloads a part of the file in small pieces, with rests.
fn slow(address: SocketAddr, content: &[u8], nth: usize) {
    let mut rng = Rng::new(SEED + nth as u64);
    let mut conn = Conn::open(address);
    limit_receive_buffer(&conn.stream, 32 << 10);
    let last = SLOW_LEN - 1;
    conn.send(format!(
        "GET /big HTTP/1.1\r\nHost: t\r\nRange: bytes=0-{last}\r\n\r\n"
    ));
    assert_eq!(conn.head().status, 206);
    let mut at = 0;
    while at < SLOW_LEN {
        let len = (1 + rng.below(20_000)).min(SLOW_LEN - at);
        let piece = conn.exactly(len);
        assert!(piece == content[at..at + len], "other bytes at {at}");
        at += len;
        thread::sleep(Duration::from_millis(5)); // it reads at a pace of its own
    }
}

/// All clients at once. Returns what the sockets held at most.
fn download(server: &Server, content: &[u8]) -> u64 {
    let address = server.address();
    let watch = Watch::start(address.port());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let slow: Vec<_> = (0..SLOW)
            .map(|nth| scope.spawn(move || slow(address, content, nth)))
            .collect();
        for _ in 0..FAST {
            scope.spawn(|| fast(address, content, &stop));
        }
        let ended: Vec<_> = slow.into_iter().map(|slow| slow.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended
            .into_iter()
            .for_each(|slow| slow.expect("all of its bytes"));
    });
    watch.end()
}

/// What a unix socket answers.
fn by_unix(path: &std::path::Path) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = b"GET /big HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it takes a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("all of it");
    answer
}

fn served(args: &str) -> (Tree, Vec<u8>, Server) {
    let tree = Tree::new();
    let content = pattern(LEN, SEED);
    tree.file("site/big", &content);
    let unix = format!("unix:{}", tree.at("socket").display());
    let server = Setup::new(tree.at("site"))
        .args(&["--workers", "2", "--metrics", "0", "--listen", &unix])
        .args(args)
        .start();
    (tree, content, server)
}

#[test]
fn all_sockets_together_hold_no_more_than_the_pool() {
    if !network_apart() {
        return;
    }
    let (_tree, content, server) = served("");
    let most_bytes = download(&server, &content);
    assert!(
        most_bytes > 2 * POOL_BYTES,
        "the kernel gives so little that nothing is shown: {most_bytes}"
    );
    server.stop();

    for share in ["by-need", "equal", "window"] {
        let args = format!("--send-memory 1MiB --compare share={share}");
        let (tree, content, server) = served(&args);
        let most_bytes = download(&server, &content);
        let slack_bytes = (FAST + SLOW) as u64 * START_BYTES;
        assert!(
            most_bytes <= POOL_BYTES + slack_bytes,
            "{share}: {most_bytes}"
        );
        assert!(
            by_unix(&tree.at("socket")).ends_with(&content),
            "other bytes"
        );
        assert_eq!(
            server.sum("ackpace_send_pool_bytes", &[]),
            POOL_BYTES as f64
        );
        assert!(server.sum("ackpace_send_divisions_total", &[]) >= 2.0);
        assert!(server.sum("ackpace_send_shares_bytes", &[]) <= POOL_BYTES as f64);
        eventually("who has everything gives its share back", || {
            server.sum("ackpace_send_sharing_connections", &[]) == 0.0
        });
    }
}

#[test]
fn a_pool_that_has_room_for_few_keeps_others_waiting_and_serves_them() {
    if !network_apart() {
        return;
    }
    let args = "--send-memory 16KiB";
    let (_tree, content, server) = served(args);
    server.out_line(&["little send memory: 16 KiB", "2 connections of a worker"]);
    let address = server.address();
    thread::scope(|scope| {
        for nth in 0..12 {
            let part = &content[..1 << 20];
            scope.spawn(move || {
                let mut conn = Conn::open(address);
                let fields = "Range: bytes=0-1048575\r\nConnection: close\r\n";
                assert!(conn.get("/big", fields).body == part, "client {nth}");
            });
        }
    });
}

#[test]
fn a_division_of_nothing_and_too_little_memory_are_told() {
    let tree = Tree::new();
    let server = Server::start(&tree, "--compare share=equal");
    server.err_line(&["compare", "does nothing without a size as send_memory"]);
    server.stop();
    let (code, told) = Setup::new(tree.path()).args("--send-memory 4KiB").fails();
    assert_eq!(code, Some(2));
    assert!(
        told.contains("4KiB is out of range: 16KiB or more"),
        "{told}"
    );
}
