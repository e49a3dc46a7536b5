//! Listings of long directories, requested by clients that pause.

use std::fs;

use ackpace_tests::{Conn, Response, Server, Tree, limit_receive_buffer, rested};

/// Entries of a directory whose names fill a good part of the memory for listings with [`ARGS`].
const ENTRIES: usize = 2500;
/// Clients that pause: their listings together exceed that memory.
const PAUSED: usize = 16;
const ARGS: &str = "--workers 1 --memory-max 64MiB --metrics 0";

/// A name that is nine times as long in the page, so that a socket's buffers can't hold a listing.
fn name(nth: usize) -> String {
    format!("{nth:05}{}", "\"".repeat(240))
}

/// A tree with directories and links among the files.
fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("a.txt", "small");
    tree.file("short/b.txt", "b");
    let long = tree.dir("long");
    for nth in 0..ENTRIES {
        let path = long.join(name(nth));
        let made = match nth % 10 {
            0 => fs::create_dir(path),
            1 => std::os::unix::fs::symlink("../short", path),
            2 => std::os::unix::fs::symlink("../a.txt", path),
            _ => fs::write(path, ""),
        };
        made.expect("an entry");
    }
    tree
}

/// The names in the order of the listing: directories and links to them first.
fn in_order() -> Vec<String> {
    let is_directory = |nth: &usize| nth % 10 < 2;
    let (first, then): (Vec<usize>, Vec<usize>) = (0..ENTRIES).partition(is_directory);
    first.into_iter().chain(then).map(name).collect()
}

/// The names in a page.
fn names(listing: &Response) -> Vec<String> {
    assert_eq!(listing.status, 200);
    let text = listing.text();
    assert!(text.trim_end().ends_with("</html>"), "it is whole");
    let rows = text.lines().filter(|line| line.contains("%22"));
    let names = rows.map(|row| {
        let (_, link) = row.split_once("href=\"").expect("a link");
        name(link[..5].parse().expect("a number"))
    });
    names.collect()
}

/// A client that asks for the long listing and pauses before its head.
fn paused(server: &Server) -> Conn {
    let mut conn = server.connect();
    limit_receive_buffer(&conn.stream, 64 << 10);
    conn.send("GET /long/ HTTP/1.1\r\nHost: t\r\n\r\n");
    conn
}

/// Number of files in the response cache.
fn ready_files(server: &Server) -> f64 {
    server.sum("ackpace_response_cache_files", &[])
}

#[test]
fn clients_who_pause_in_a_listing_keep_nobody_from_being_served_and_get_theirs_whole() {
    let tree = tree();
    rested(&tree.at("a.txt"));
    let server = Server::start(&tree, ARGS);
    let mut small = server.connect();
    for _ in 0..3 {
        assert_eq!(small.get("/a.txt", "").text(), "small");
    }
    assert_eq!(ready_files(&server), 1.0);
    let mut all: Vec<Conn> = (0..PAUSED).map(|_| paused(&server)).collect();
    // One worker serves all, so a response to a later request shows that the earlier ones have begun.
    for target in ["/", "/short/", "/a.txt", "/long/"] {
        for _ in 0..3 {
            assert_eq!(small.get(target, "").status, 200, "{target}");
        }
    }
    assert_eq!(ready_files(&server), 1.0, "it is still kept");
    assert_eq!(names(&small.get("/long/", "")), in_order());
    for conn in &mut all {
        assert_eq!(names(&conn.response()), in_order());
    }
    assert!(!server.err().contains("503"), "{}", server.err());
}
