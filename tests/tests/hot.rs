//! Small files in the response cache: the bytes are right, and changes are seen.

use std::fs;

use ackpace_tests::{Conn, Mapped, Server, Setup, Tree, eventually, pattern, rested};

/// Asks three times, so that the last response comes from the cache.
fn ask(conn: &mut Conn, target: &str) -> String {
    let mut last = String::new();
    for _ in 0..3 {
        let response = conn.get(target, "");
        assert_eq!(response.status, 200, "{target}");
        last = response.text();
    }
    last
}

/// Asks until it is not found any more.
fn is_gone(conn: &mut Conn, target: &str) {
    eventually("it is gone", || conn.get(target, "").status == 404);
}

/// Asks until only the new content comes: one response past the cache proves nothing about the next ones.
fn settles(conn: &mut Conn, target: &str, new: &[u8]) {
    eventually("the new content, time after time", || {
        (0..5).all(|_| conn.get(target, "").body == new)
    });
}

#[test]
fn every_kind_of_request_for_a_ready_file_gets_its_own_answer() {
    let tree = Tree::new();
    rested(&tree.file("a.txt", "0123456789"));
    for memory in ["64MiB", "0"] {
        let server = Server::start(&tree, &["--object-cache", memory]);
        asks_in_every_way(&server);
    }
}

fn asks_in_every_way(server: &Server) {
    let mut conn = server.connect();
    for _ in 0..5 {
        let whole = conn.get("/a.txt", "");
        assert_eq!((whole.status, whole.text()), (200, "0123456789".into()));
        let tag = whole.field("ETag").expect("a tag").to_owned();
        assert!(tag.starts_with('"'), "{tag} is not weak");
        let part = conn.get("/a.txt", "Range: bytes=3-4\r\n");
        assert_eq!((part.status, part.text()), (206, "34".into()));
        let same = conn.get("/a.txt", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(same.status, 304);
        let failed = conn.get("/a.txt", "If-Match: \"other\"\r\n");
        assert_eq!(failed.status, 412);
        conn.send("HEAD /a.txt HTTP/1.1\r\nHost: t\r\n\r\n");
        let head = conn.head();
        assert_eq!(
            (head.status, head.field("Content-Length")),
            (200, Some("10"))
        );
        assert_eq!(conn.get("/a.txt?x=1", "").text(), "0123456789");
    }
    // Later ones come from the cache, too: a response that ends its connection says so and closes.
    for request in [
        "GET /a.txt HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
        "GET /a.txt HTTP/1.0\r\n\r\n",
    ] {
        for _ in 0..4 {
            let mut conn = server.connect();
            conn.send(request);
            let last = conn.response();
            assert_eq!(
                (last.text(), last.field("Connection")),
                ("0123456789".into(), Some("close"))
            );
            conn.ends();
        }
    }
    let mut conn = server.connect();
    let kept = conn.get("/a.txt", "");
    assert_eq!((kept.status, kept.field("Connection")), (200, None));
}

#[test]
fn a_change_of_its_name_or_its_bytes_is_seen_within_a_second() {
    let tree = Tree::new();
    tree.dir("sub");
    let path = tree.file("sub/a.txt", "old");
    rested(&path);
    rested(&tree.file("sub/index.html", "index"));
    let server = Server::start(&tree, "--workers 1");
    let mut conn = server.connect();
    assert_eq!(ask(&mut conn, "/sub/a.txt"), "old");
    fs::write(&path, "in place").expect("our own file");
    settles(&mut conn, "/sub/a.txt", b"in place");
    let other = tree.file("sub/b.txt", "renamed");
    rested(&other);
    assert_eq!(ask(&mut conn, "/sub/a.txt"), "in place");
    fs::rename(&other, &path).expect("our own file");
    settles(&mut conn, "/sub/a.txt", b"renamed");
    fs::remove_file(&path).expect("our own file");
    is_gone(&mut conn, "/sub/a.txt");
    assert_eq!(ask(&mut conn, "/sub/"), "index");
    fs::remove_file(tree.at("sub/index.html")).expect("our own file");
    eventually("the listing", || conn.get("/sub/", "").text() != "index");
}

#[test]
fn a_change_further_up_is_seen_within_a_second() {
    let tree = Tree::new();
    for release in ["one", "two"] {
        tree.dir(release);
        rested(&tree.file(format!("{release}/a.txt"), release));
    }
    let current = tree.at("current");
    std::os::unix::fs::symlink("one", &current).expect("our own link");
    let server = Server::start(&tree, "--workers 1");
    let mut conn = server.connect();
    assert_eq!(ask(&mut conn, "/current/a.txt"), "one");
    fs::remove_file(&current).expect("our own link");
    std::os::unix::fs::symlink("two", &current).expect("our own link");
    settles(&mut conn, "/current/a.txt", b"two");
    fs::rename(tree.at("two"), tree.at("three")).expect("our own directory");
    is_gone(&mut conn, "/current/a.txt");
}

#[test]
fn a_new_index_and_a_new_sibling_are_seen_within_a_second() {
    let tree = Tree::new();
    tree.dir("sub");
    rested(&tree.file("sub/second.html", "second"));
    rested(&tree.file("a.txt", "plain"));
    let index = "--index first.html --index second.html";
    let setup = Setup::new(tree.path()).args("--workers 1");
    let server = setup.args(index).args("--precompressed .gz").start();
    let mut conn = server.connect();
    assert_eq!(ask(&mut conn, "/sub/"), "second");
    tree.file("sub/first.html", "first");
    settles(&mut conn, "/sub/", b"first");
    assert_eq!(ask(&mut conn, "/a.txt"), "plain");
    tree.file("a.txt.gz", "coded");
    eventually("the new sibling", || {
        let response = conn.get("/a.txt", "Accept-Encoding: gzip\r\n");
        response.field("Content-Encoding") == Some("gzip")
    });
    assert_eq!(conn.get("/a.txt", "").text(), "plain");
}

#[test]
fn a_store_through_a_mapping_is_seen_within_a_second() {
    let tree = Tree::new();
    let path = tree.file("a.txt", "first");
    let file = fs::File::options().read(true).write(true).open(&path);
    let file = file.expect("our own file");
    let mut mapped = Mapped::new(&file, 5);
    mapped.store(b"other");
    rested(&path);
    let server = Server::start(&tree, "--workers 1");
    let mut conn = server.connect();
    assert_eq!(ask(&mut conn, "/a.txt"), "other");
    let modified = || file.metadata().expect("our own file").modified().ok();
    let before = modified();
    mapped.store(b"third");
    assert_eq!(before, modified(), "nobody was told");
    settles(&mut conn, "/a.txt", b"third");
}

#[test]
fn a_change_through_another_link_is_seen_within_a_second() {
    let tree = Tree::new();
    tree.dir("elsewhere");
    let server = Server::start(&tree, "--workers 1");
    let mut conn = server.connect();
    // The cache copies one of them and keeps the other open.
    let files = [("a.bin", 1000isize), ("b.bin", 60_000)];
    let links = files.map(|(name, len)| {
        let path = tree.file(name, pattern(len as usize, 1));
        let link = tree.at(format!("elsewhere/{name}"));
        fs::hard_link(&path, &link).expect("one file system");
        link
    });
    // The same length; then longer; then shorter.
    for (seed, more) in [(2, 0), (3, 1000), (4, -500isize)] {
        links.iter().for_each(|link| rested(link));
        for ((name, len), link) in files.iter().zip(&links) {
            let target = format!("/{name}");
            ask(&mut conn, &target);
            let new = pattern((len + more) as usize, seed);
            fs::write(link, &new).expect("our own file");
            settles(&mut conn, &target, &new);
        }
    }
}

#[test]
fn the_rename_of_a_file_that_is_open_by_another_link_is_seen_by_the_next_request() {
    let tree = Tree::new();
    tree.dir("first");
    tree.dir("second");
    let first = tree.file("first/a.bin", pattern(8 << 20, 1));
    fs::hard_link(&first, tree.at("second/b.bin")).expect("one file system");
    rested(&first);
    let server = Server::start(&tree, "--workers 1");
    // A download holds it open by its first name.
    let mut download = server.begin("/first/a.bin", "");
    download.head();
    let mut conn = server.connect();
    let range = "Range: bytes=0-9\r\n";
    for _ in 0..5 {
        assert_eq!(conn.get("/second/b.bin", range).status, 206);
    }
    fs::rename(tree.at("second/b.bin"), tree.at("second/.env")).expect("our own file");
    assert_eq!(conn.get("/second/b.bin", range).status, 404);
}

#[test]
fn many_spellings_of_one_path_take_no_memory() {
    let tree = Tree::new();
    tree.dir("sub");
    rested(&tree.file("sub/a.txt", "text"));
    let args = "--workers 1 --object-cache 1MiB";
    let server = Server::start(&tree, args);
    let mut conn = server.connect();
    ask(&mut conn, "/sub/a.txt");
    let before_bytes = server.memory_bytes();
    for nth in 0..4000 {
        // Each differs from the others in its slashes, and takes 4 KB.
        let (dots, slashes) = ("/.".repeat(nth % 64), "/".repeat(nth / 64 + 1));
        let mut target = format!("{slashes}sub{dots}/a.txt");
        target.insert_str(0, &"/.".repeat((4000 - target.len()) / 2));
        for _ in 0..2 {
            assert_eq!(conn.get(&target, "").text(), "text");
        }
    }
    let more_bytes = server.memory_bytes().saturating_sub(before_bytes);
    assert!(more_bytes < 4 << 20, "{more_bytes} bytes more");
}

#[test]
fn ready_files_are_whole_for_a_client_that_reads_slowly() {
    let tree = Tree::new();
    // The cache copies one and keeps the other open; 12 MB of responses are far more than the sockets hold.
    let cases = [("a.bin", 8_000, 1500), ("b.bin", 60_000, 200)];
    for (name, len, _) in cases {
        rested(&tree.file(name, pattern(len, 7)));
    }
    let server = Server::start(&tree, "--workers 1");
    for (name, len, times) in cases {
        let mut conn = server.connect();
        ask(&mut conn, &format!("/{name}"));
        conn.send(format!("GET /{name} HTTP/1.1\r\nHost: t\r\n\r\n").repeat(times));
        let content = pattern(len, 7);
        for nth in 0..times {
            let response = conn.response();
            assert_eq!(response.status, 200);
            assert!(response.body == content, "{name}, answer {nth}");
        }
    }
}
