//! Many clients at once, those that leave, and memory that is short.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ackpace_tests::{
    Content, Origin, Rng, Server, eventually, limit_receive_buffer, lossy, reset_on_drop, skip,
};

use crate::{gateway, lasting, long, part, whole};

#[test]
fn a_hundred_clients_of_one_cold_object_cost_one_fetch() {
    let origin = Origin::new();
    let bytes = long(20_000_000, 1);
    origin.put("/a", &lasting(bytes.clone(), "v"));
    let server = gateway(&origin, "");
    let conns: Vec<_> = (0..100).map(|_| server.begin("/a", "")).collect();
    let asked = AtomicUsize::new(0);
    thread::scope(|scope| {
        for mut conn in conns {
            let (bytes, asked) = (&bytes, &asked);
            scope.spawn(move || {
                let head = conn.head();
                let status = head.field("Cache-Status");
                asked.fetch_add(
                    (status == Some("ackpace; fwd=uri-miss")).into(),
                    Ordering::Relaxed,
                );
                assert_eq!((head.status, conn.compare(bytes)), (200, bytes.len()));
            });
        }
    });
    let asked = asked.into_inner();
    assert_eq!(asked, 1, "the others share its question, or come later");
    let sent = origin.sent_bytes() as f64 / bytes.len() as f64;
    println!("fetched {sent:.3} times");
    assert!(sent < 1.1, "fetched {sent:.3} times");
}

#[test]
fn a_single_client_costs_one_fetch_of_each_byte() {
    let origin = Origin::new();
    let server = gateway(&origin, "");
    let mut conn = server.connect();
    let mut all_bytes = 0;
    for len in [300, 20_000, 64_000, 90_000, 120_000, 1_000_000].repeat(20) {
        let (target, bytes) = (format!("/{all_bytes}"), long(len, 5));
        origin.put(&target, &lasting(bytes.clone(), "v"));
        whole(&mut conn, &target, &bytes);
        all_bytes += len as u64;
    }
    let sent = origin.sent_bytes() as f64 / all_bytes as f64;
    println!("fetched {sent:.3} times");
    assert!(sent < 1.1, "fetched {sent:.3} times");
}

#[test]
fn connections_that_move_between_workers_get_what_passes() {
    let origin = Origin::new();
    let bytes = long(2_000_000, 1);
    origin.put("/a", &Content::untagged(bytes.clone()));
    origin.put("/b", &Content::untagged(&bytes[..100]));
    let server = gateway(&origin, "--compare moves=always");
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut conn = server.connect();
                for _ in 0..10 {
                    whole(&mut conn, "/a", &bytes);
                    whole(&mut conn, "/b", &bytes[..100]);
                }
            });
        }
    });
}

/// Clients that ask for ranges of three objects; every third one resets in the middle. Returns how many came whole.
fn storm(server: &Server, bytes: &[u8], seed: u64) -> usize {
    let whole = AtomicUsize::new(0);
    thread::scope(|scope| {
        for client in 0..24 {
            let whole = &whole;
            scope.spawn(move || {
                let mut rng = Rng::new(seed * 100 + client);
                for _ in 0..12 {
                    let target = format!("/{}", rng.below(3));
                    let first = rng.below(bytes.len());
                    let len = (1 + rng.below(4_000_000)).min(bytes.len() - first);
                    let range = format!("Range: bytes={first}-{}\r\n", first + len - 1);
                    let mut conn = server.begin(&target, &range);
                    let leaves = rng.below(3) == 0;
                    if leaves && rng.below(4) == 0 {
                        reset_on_drop(&conn.stream);
                        continue;
                    }
                    assert_eq!(conn.head().status, 206);
                    let until = if leaves { rng.below(len) } else { len };
                    assert_eq!(conn.compare(&bytes[first..first + until]), until);
                    match leaves {
                        true => reset_on_drop(&conn.stream),
                        false => drop(whole.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
    });
    whole.into_inner()
}

#[test]
fn clients_that_reset_at_any_moment_cost_the_others_nothing() {
    let seed = ackpace_tests::hunter::seed();
    println!("seed {seed}");
    let origin = Origin::new();
    let bytes = long(12_000_000, seed);
    for nth in 0..3 {
        origin.put(&format!("/{nth}"), &lasting(bytes.clone(), "v"));
    }
    let small = "--cache-memory 16MiB";
    for args in ["--compare moves=always", small, "--compare payload=copy"] {
        let server = gateway(&origin, args);
        let before = server.descriptors();
        for round in 0..2 {
            let whole = storm(&server, &bytes, seed + round);
            assert!(whole > 0, "nobody got anything");
        }
        eventually("all of its connections are given back", || {
            // 32 links may be kept, each with its place in the books of epoll.
            server.descriptors() <= before + 32
        });
        whole(&mut server.connect(), "/0", &bytes);
    }
}

/// Slow readers of several objects that do not fit into the memory together.
fn slow_readers(args: &str) {
    let origin = Origin::new();
    let contents: Vec<_> = (0..6)
        .map(|nth| lasting(long(9_000_000, nth), "v"))
        .collect();
    for (nth, content) in contents.iter().enumerate() {
        origin.put(&format!("/{nth}"), content);
    }
    let server = gateway(&origin, args);
    thread::scope(|scope| {
        for client in 0..36 {
            let (server, bytes) = (&server, &contents[client % 6].bytes);
            scope.spawn(move || {
                let mut conn = server.connect();
                limit_receive_buffer(&conn.stream, 32 << 10);
                conn.send(format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", client % 6));
                assert_eq!(conn.head().status, 200);
                for piece in bytes.chunks(500_000) {
                    assert_eq!(conn.compare(piece), piece.len(), "client {client}");
                    thread::sleep(std::time::Duration::from_millis(5 * (client as u64 % 4)));
                }
            });
        }
    });
}

#[test]
fn slow_readers_of_more_than_the_memory_get_every_byte() {
    slow_readers("--cache-memory 16MiB");
}

#[test]
fn slow_readers_of_more_than_the_copied_memory_get_every_byte() {
    slow_readers("--cache-memory 16MiB --compare payload=copy");
}

#[test]
fn readers_that_stop_reading_hold_up_nobody() {
    let origin = Origin::new();
    let contents: Vec<_> = (0..12)
        .map(|nth| lasting(long(8_000_000, nth), "v"))
        .collect();
    for (nth, content) in contents.iter().enumerate() {
        origin.put(&format!("/{nth}"), content);
    }
    let server = gateway(&origin, "--cache-memory 16MiB");
    let held: Vec<_> = (0..48)
        .map(|nth| server.stalled(&format!("/{}", nth % 12), ""))
        .collect();
    for (nth, content) in contents.iter().enumerate() {
        whole(&mut server.connect(), &format!("/{nth}"), &content.bytes);
        whole(&mut server.connect(), &format!("/{nth}"), &content.bytes);
    }
    for (nth, mut conn) in held.into_iter().enumerate() {
        let bytes = &contents[nth % 12].bytes;
        assert_eq!(conn.compare(bytes), bytes.len(), "{nth}");
    }
}

#[test]
fn a_link_that_loses_segments_changes_no_byte() {
    let origin = Origin::new();
    let bytes = long(6_000_000, 1);
    origin
        .put("/a", &lasting(bytes.clone(), "v"))
        .put("/b", &lasting(bytes.clone(), "v"));
    let server = gateway(&origin, "--cache-memory 16MiB");
    let conns: Vec<_> = (0..12).map(|_| server.connect()).collect();
    if !conns.iter().all(|conn| lossy(&conn.stream)) {
        return skip("the kernel lets root alone attach a filter to a socket");
    }
    thread::scope(|scope| {
        for (nth, mut conn) in conns.into_iter().enumerate() {
            let bytes = &bytes;
            scope.spawn(move || {
                let target = ["/a", "/b"][nth % 2];
                whole(&mut conn, target, bytes);
                part(&mut conn, target, bytes, 1_000_000, 3_000_000);
            });
        }
    });
}

#[test]
fn a_gateway_that_is_killed_leaves_nothing_behind() {
    let origin = Origin::new();
    let bytes = long(6_000_000, 1);
    origin.put("/a", &lasting(bytes.clone(), "v"));
    let mounts = || {
        fs::read_to_string("/proc/self/mounts")
            .expect("the mounts")
            .lines()
            .count()
    };
    let shared = || fs::read_dir("/dev/shm").map_or(0, Iterator::count);
    let before = (mounts(), shared());
    let mut server = gateway(&origin, "");
    for _ in 0..2 {
        whole(&mut server.connect(), "/a", &bytes);
    }
    let under_way = server.begin("/a", "");
    server.kill();
    drop(under_way);
    assert_eq!((mounts(), shared()), before);
    let again = gateway(&origin, "");
    whole(&mut again.connect(), "/a", &bytes);
}
