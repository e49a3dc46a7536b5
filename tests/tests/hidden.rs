//! Hidden names: a file with one in its path is not served, whatever leads to it.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ackpace_tests::{AtTheEnd, Conn, Server, Setup, Tree, eventually};

const SECRET: &str = "a secret";

/// Enough requests for a small file to be in the response cache.
const TIMES: usize = 5;

/// A tree with hidden files and links of every kind to them, and a second tree beside it.
fn trees() -> (Tree, Tree) {
    let (tree, other) = (Tree::new(), Tree::new());
    for name in [".env", ".git/config", "keys/.env"] {
        tree.file(name, SECRET);
        other.file(name, SECRET);
    }
    tree.file("public/a.txt", "public");
    other.file("b.txt", "public");
    for (target, link) in [
        (".env", "to-file"),
        ("to-file", "to-link"),
        (".git", "to-dir"),
        ("to-dir/config", "by-dir"),
        ("keys/.env", "further-down"),
        ("../.env", "public/up"),
        ("public/a.txt", "fine"),
        ("missing", "dangling"),
    ] {
        symlink(target, tree.at(link)).expect("a link");
    }
    for (target, link) in [
        (tree.at(".env"), "absolute"),
        (other.at(".env"), "allowed-file"),
        (other.at(".git"), "allowed-dir"),
        (other.path().to_owned(), "allowed"),
    ] {
        symlink(target, tree.at(link)).expect("a link");
    }
    (tree, other)
}

const TO_HIDDEN: &str = "/.env /to-file /to-link /to-dir /to-dir/ /to-dir/config /by-dir /further-down \
    /public/up /absolute /allowed-file /allowed-dir/ /allowed-dir/config /allowed/.env /allowed/.git/config";

#[track_caller]
fn assert_not_there(conn: &mut Conn, target: &str) {
    for nth in 0..TIMES {
        let response = conn.get(target, "");
        assert_eq!(response.status, 404, "{target}, request {nth}");
        assert!(!response.text().contains(SECRET), "{target}");
    }
    conn.send(format!("HEAD {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
    assert_eq!(conn.head().status, 404, "{target}");
}

#[test]
fn links_to_hidden_names_lead_nowhere() {
    let (tree, other) = trees();
    let allowed = other.path().to_str().expect("UTF-8").to_owned();
    for follow in [
        &["--allow-roots", &allowed][..],
        &["--follow-symlinks", "all"],
    ] {
        let server = Server::start(&tree, follow);
        let mut conn = server.connect();
        for target in TO_HIDDEN.split(' ') {
            assert_not_there(&mut conn, target);
        }
        for target in ["/fine", "/public/a.txt", "/allowed/b.txt"] {
            for _ in 0..TIMES {
                assert_eq!(conn.get(target, "").text(), "public", "{target}");
            }
        }
    }
}

#[test]
fn a_listing_shows_no_link_to_a_hidden_name_and_no_hidden_readme() {
    let (tree, other) = trees();
    tree.dir("docs");
    symlink("../.env", tree.at("docs/README.md")).expect("a link");
    let allowed = other.path().to_str().expect("UTF-8");
    let server = Server::start(&tree, &["--allow-roots", allowed]);
    let listing = server.get("/?json", "").text();
    let names: Vec<&str> = listing
        .split("\"name\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let shown = ["allowed", "docs", "keys", "public", "dangling", "fine"];
    assert_eq!(names, shown, "{listing}");
    let page = server.get("/docs/", "").text();
    assert!(!page.contains(SECRET) && !page.contains("README"), "{page}");
    assert!(!server.get("/keys/", "").text().contains(".env"));
}

#[test]
fn a_sibling_with_a_hidden_name_is_not_sent() {
    let tree = Tree::new();
    tree.file("a.txt", "plain");
    tree.file("a.txt.gz", SECRET);
    tree.file("b.txt", "plain");
    tree.file(".secret", SECRET);
    tree.file("c.txt", "plain");
    tree.file("c.txt.zst", "coded");
    symlink(".secret", tree.at("b.txt.br")).expect("a link");
    let server = Server::start(
        &tree,
        "--precompressed=.gz --precompressed=.br --precompressed=.zst --hide=*.gz --hide=.secret",
    );
    let mut conn = server.connect();
    for _ in 0..TIMES {
        for target in ["/a.txt", "/b.txt"] {
            let response = conn.get(target, "Accept-Encoding: gzip, br, zstd\r\n");
            assert_eq!(response.text(), "plain", "{target}");
            assert_eq!(response.field("Content-Encoding"), None, "{target}");
            assert_eq!(response.field("Vary"), None, "{target}: there is one form");
        }
        let coded = conn.get("/c.txt", "Accept-Encoding: gzip, br, zstd\r\n");
        assert_eq!(coded.text(), "coded");
    }
}

#[test]
fn an_index_with_a_hidden_name_is_passed_over() {
    let tree = Tree::new();
    tree.file("a/home.txt", SECRET);
    tree.file("a/index.txt", "public");
    tree.file("b/.secret", SECRET);
    tree.file("b/index.txt", "public");
    symlink(".secret", tree.at("b/start.txt")).expect("a link");
    tree.dir("c");
    symlink("../b/.secret", tree.at("c/index.txt")).expect("a link");
    let server = Server::start(
        &tree,
        "--index=home.txt --index=start.txt --index=index.txt --hide=home* --hide=.secret",
    );
    let mut conn = server.connect();
    for _ in 0..TIMES {
        for target in ["/a/", "/b/"] {
            assert_eq!(conn.get(target, "").text(), "public", "{target}");
        }
        let listing = conn.get("/c/?json", "");
        assert_eq!(listing.status, 200);
        assert!(!listing.text().contains("name"), "nothing is shown there");
    }
}

#[test]
fn what_is_kept_ready_is_gone_when_its_name_becomes_hidden() {
    let tree = Tree::new();
    tree.file(".env", SECRET);
    tree.file("a.txt", "public");
    tree.file("public/b.txt", "public");
    symlink("a.txt", tree.at("link")).expect("a link");
    symlink("public/b.txt", tree.at("far")).expect("a link");
    let server = Server::start(&tree, "--workers 1 --hide=.*");
    let mut conn = server.connect();
    for _ in 0..TIMES {
        for target in ["/link", "/far", "/public/b.txt"] {
            assert_eq!(conn.get(target, "").text(), "public");
        }
    }
    symlink(".env", tree.at("new")).expect("a link");
    fs::rename(tree.at("new"), tree.at("link")).expect("a rename");
    // The file's directory gets a hidden name, and a link follows it.
    fs::rename(tree.at("public"), tree.at(".public")).expect("a rename");
    symlink(".public", tree.at("public")).expect("a link");
    for target in ["/link", "/public/b.txt", "/far"] {
        eventually("it is not served any more", || {
            conn.get(target, "").status == 404
        });
        assert_not_there(&mut conn, target);
    }
}

#[test]
fn no_hidden_byte_is_sent_while_links_are_swapped() {
    let tree = Tree::new();
    tree.file(".env", SECRET);
    tree.file("a.txt", "public");
    symlink("a.txt", tree.at("link")).expect("a link");
    let server = Setup::new(tree.path()).args("--object-cache 0").start();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for target in [".env", "a.txt"].iter().cycle() {
                if done.load(Relaxed) {
                    return;
                }
                symlink(target, tree.at("new")).expect("a link");
                fs::rename(tree.at("new"), tree.at("link")).expect("a rename");
            }
        });
        let _done = AtTheEnd(&done);
        let mut conn = server.connect();
        for _ in 0..3000 {
            let response = conn.get("/link", "");
            let public = response.status == 200 && response.text() == "public";
            let text = response.text();
            assert!(
                public || response.status == 404,
                "{}: {text}",
                response.status
            );
        }
    });
}

#[test]
fn the_log_names_what_was_refused_and_no_name_forges_a_line() {
    let (tree, other) = (Tree::new(), Tree::new());
    let secret = other.file("secret", SECRET);
    symlink(
        &secret,
        tree.at("out\n2026-01-01T00:00:00Z ERROR forged \u{1b}[31m"),
    )
    .expect("a link");
    tree.file("closed/a", "");
    let server = Setup::new(tree.path())
        .args("--log-level debug --listing=false")
        .start();
    let target = "/out%0a2026-01-01T00:00:00Z%20ERROR%20forged%20%1b[31m?query";
    assert_eq!(server.get(target, "").status, 404);
    assert_eq!(server.get("/closed/", "").status, 403);
    let root = tree.path().to_str().expect("UTF-8");
    let path = format!(r#"path="{root}/out\n2026-01-01T00:00:00Z ERROR forged \u{{1b}}[31m""#);
    server.err_line(&["DEBUG 404: ", &path, "remote=127.0.0.1"]);
    server.err_line(&["DEBUG 403: ", &format!("path={root}/closed/")]);
    let told = server.err();
    let is_ours = |line: &str| !line.contains("forged") || line.contains(" DEBUG 404: ");
    assert!(told.lines().all(is_ours), "{told}");
}
