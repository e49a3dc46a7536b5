//! HTTP/1.1 as bytes on a wire: connections, targets, listings, codings, conditions, ranges.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use ackpace_tests::{Response, Server, Tree, pattern, rested};

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n")
}

fn tag(response: &Response) -> &str {
    response.field("ETag").expect("a tag")
}

#[test]
fn a_connection_carries_one_request_after_the_other() {
    let tree = Tree::new();
    tree.file("a", "first");
    tree.file("b", "second");
    let server = Server::start(&tree, "");
    let mut conn = server.connect();
    for _ in 0..3 {
        assert_eq!(conn.get("/a", "").text(), "first");
        assert_eq!(conn.get("/missing", "").status, 404);
        let response = conn.get("/b", "");
        assert_eq!(response.text(), "second");
        assert_eq!(response.field("Connection"), None);
    }
    let last = conn.get("/a", "Connection: close\r\n");
    assert_eq!(last.field("Connection"), Some("close"));
    conn.ends();
}

#[test]
fn two_hundred_pipelined_requests_are_answered_in_order() {
    let tree = Tree::new();
    for nth in 0..200 {
        tree.file(format!("f{nth}"), format!("file {nth} ").repeat(nth));
    }
    let server = Server::start(&tree, "");
    let mut conn = server.connect();
    let all: String = (0..200).map(|nth| get(&format!("/f{nth}"))).collect();
    conn.send(all);
    for nth in 0..200 {
        let response = conn.response();
        assert_eq!(response.status, 200, "answer {nth}");
        assert_eq!(response.text(), format!("file {nth} ").repeat(nth));
    }
    assert_eq!(
        conn.get("/f7", "").text(),
        "file 7 ".repeat(7),
        "afterwards"
    );
}

#[test]
fn pipelined_requests_stop_at_the_one_that_closes() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "");
    let mut conn = server.connect();
    conn.send(get("/a") + "GET /a HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n" + &get("/a"));
    assert_eq!(conn.response().field("Connection"), None);
    assert_eq!(conn.response().field("Connection"), Some("close"));
    conn.ends();
}

#[test]
fn a_half_closed_client_gets_all_of_a_big_file() {
    let tree = Tree::new();
    let content = pattern(24 << 20, 1);
    tree.file("big", &content);
    let server = Server::start(&tree, "");
    let mut conn = server.connect();
    conn.send(get("/big")).finish();
    let response = conn.response();
    assert_eq!(response.status, 200);
    assert!(response.body == content, "other bytes");
    conn.ends();
}

#[test]
fn a_half_close_is_never_missed_however_it_falls_together_with_the_request() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "--idle-timeout 1h --header-timeout 10min");
    for nth in 0..900 {
        let mut conn = server.connect();
        if nth % 3 == 0 {
            conn.send("GET /a HT").finish();
        } else {
            assert_eq!(conn.send(get("/a")).finish().response().text(), "a");
        }
        let rest = conn.rest();
        assert!(
            rest.is_empty() || nth % 3 == 0,
            "connection {nth}: more came"
        );
    }
}

#[test]
fn http_1_0_closes_unless_it_is_asked_to_stay() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "");
    let mut conn = server.connect();
    let response = conn.send("GET /a HTTP/1.0\r\n\r\n").response();
    assert_eq!(
        (response.text().as_str(), response.field("Connection")),
        ("a", Some("close"))
    );
    conn.ends();

    let mut conn = server.connect();
    for _ in 0..2 {
        conn.send("GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        let response = conn.response();
        assert_eq!(response.text(), "a");
        assert_eq!(response.field("Connection"), Some("keep-alive"));
    }
    // A listing has no length, and HTTP/1.0 has no chunks.
    conn.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let listing = conn.response();
    assert_eq!(listing.field("Transfer-Encoding"), None);
    assert_eq!(listing.field("Connection"), Some("close"));
    assert!(listing.text().contains("</html>"), "{}", listing.text());
}

#[test]
fn head_is_get_without_the_body() {
    let tree = Tree::new();
    tree.file("a", "some text");
    tree.dir("d");
    let server = Server::start(&tree, "");
    let without_date = |response: &Response| {
        let lines = response
            .head
            .lines()
            .filter(|line| !line.starts_with("Date: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for target in ["/a", "/missing", "/d", "/../.."] {
        let mut conn = server.connect();
        let of_get = conn.send(get(target)).response();
        let mut conn = server.connect();
        conn.send(format!(
            "HEAD {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
        ));
        let of_head = conn.head();
        conn.ends();
        let mut of_head = without_date(&of_head);
        let mut of_get = without_date(&of_get);
        of_head.retain(|line| !line.starts_with("Connection"));
        of_get.retain(|line| !line.starts_with("Connection"));
        assert_eq!(of_head, of_get, "{target}");
    }
    let mut conn = server.connect();
    conn.send("HEAD / HTTP/1.1\r\nHost: t\r\n\r\n");
    let listing = conn.head();
    assert_eq!(
        (listing.status, listing.field("Content-Length")),
        (200, None)
    );
    assert_eq!(
        conn.get("/a", "").text(),
        "some text",
        "nothing came in between"
    );
}

#[test]
fn a_directory_without_its_slash_redirects_and_keeps_the_query() {
    let tree = Tree::new();
    tree.dir("d e");
    tree.dir("é?");
    tree.dir("x:y");
    let server = Server::start(&tree, "");
    for (target, location) in [
        ("/d%20e", "d%20e/"),
        ("/d%20e?a=b&c=%20", "d%20e/?a=b&c=%20"),
        ("//d%20e?", "d%20e/?"),
        ("/%C3%A9%3F?x", "%C3%A9%3F/?x"),
        ("/x:y", "./x:y/"),
    ] {
        let response = server.get(target, "");
        assert_eq!(response.status, 301, "{target}");
        assert_eq!(response.field("Location"), Some(location), "{target}");
    }
}

#[test]
fn an_index_file_stands_for_its_directory() {
    let tree = Tree::new();
    tree.file("index.html", "<p>hello");
    tree.file("d/b.txt", "b");
    let server = Server::start(&tree, "--index a.html --index b.txt");
    let response = server.get("/d/", "");
    assert_eq!(response.text(), "b");
    assert_eq!(
        response.field("Content-Type"),
        Some("text/plain; charset=utf-8")
    );
    let listing = server.get("/", "");
    assert!(listing.text().contains("index.html"), "it is no index here");
    server.stop();

    let server = Server::start(&tree, "");
    let response = server.get("/?x", "");
    assert_eq!(response.text(), "<p>hello");
    assert_eq!(
        response.field("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    server.stop();

    let server = Server::start(&tree, "--listing=false");
    assert_eq!(server.get("/d/", "").status, 403);
    assert_eq!(server.get("/", "").status, 200);
}

#[test]
fn a_listing_is_html_or_json_as_the_client_likes() {
    let tree = Tree::new();
    tree.file("a <b>&\".txt", "abc");
    tree.file("README.md", "read <me> & be well");
    tree.dir("sub");
    tree.file(".hidden-not", "x");
    let server = Server::start(&tree, "");
    let mut conn = server.connect();

    let html = conn.get("/", "Accept: text/html\r\n");
    assert_eq!(html.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(html.field("Vary"), Some("Accept"));
    let text = html.text();
    for part in [
        "a &lt;b&gt;&amp;",
        "href=\"a%20%3Cb%3E&amp;%22.txt\"",
        "href=\"sub/\"",
        ".hidden-not",
        "read &lt;me&gt; &amp; be well",
    ] {
        let alternative = part.replace("&amp;%22", "%26%22");
        assert!(
            text.contains(part) || text.contains(&alternative),
            "no {part:?} in {text}"
        );
    }

    for (target, accept) in [
        ("/?json", ""),
        ("/", "Accept: application/json\r\n"),
        ("/", "Accept: text/html;q=0.5, application/json\r\n"),
    ] {
        let json = conn.get(target, accept);
        assert_eq!(json.field("Content-Type"), Some("application/json"));
        let text = json.text();
        for part in [
            r#""name":"a <b>&\".txt""#,
            r#""size":3"#,
            r#""name":"sub", "type":"directory""#,
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(
            !text.contains("read <me>"),
            "the text of the README is for people"
        );
    }
}

#[test]
fn any_name_that_a_file_can_have_is_listed_and_served() {
    let tree = Tree::new();
    let longest = [b'\xff'; 255];
    for (name, link) in [
        (&b"\xff\xfe latin"[..], "%FF%FE%20latin".to_owned()),
        (b"new\nline", "new%0Aline".to_owned()),
        (b"\x01\x7f", "%01%7F".to_owned()),
        (b"%2e%2e", "%252e%252e".to_owned()),
        (b"...", "...".to_owned()),
        (b" ", "%20".to_owned()),
        (&longest, "%FF".repeat(255)),
    ] {
        tree.file(OsStr::from_bytes(name), name);
        let server = Server::start(&tree, "");
        let mut conn = server.connect();
        let html = conn.get("/", "").text();
        assert!(
            html.contains(&format!("href=\"{link}\"")),
            "no {link} in {html}"
        );
        assert!(conn.get(&format!("/{link}"), "").body == name, "{link}");
        let json = conn.get("/?json", "").text();
        assert!(
            json.bytes().all(|byte| byte >= b' ' || byte == b'\n'),
            "{json:?}"
        );
    }
}

#[test]
fn a_listing_of_five_thousand_entries_is_complete_and_in_order() {
    let tree = Tree::new();
    let names: Vec<String> = (0..5000)
        .map(|nth| format!("entry {nth:05} with a longer name"))
        .collect();
    for name in &names {
        std::fs::write(tree.at(name), name).expect("a file");
    }
    let server = Server::start(&tree, "");
    let mut conn = server.connect();
    let json = conn.get("/?json", "").text();
    let mut rest = json.as_str();
    for name in &names {
        let at = rest.find(&format!("\"name\":\"{name}\""));
        rest = &rest[at.unwrap_or_else(|| panic!("{name} is missing or out of order"))..];
    }
    assert_eq!(json.matches("\"name\":").count(), names.len());
    assert!(json.trim_end().ends_with(']'));
    let html = conn.get("/", "").text();
    assert_eq!(html.matches("with a longer name</a>").count(), names.len());
    assert!(html.trim_end().ends_with("</html>"));
}

#[test]
fn hidden_names_are_not_there_and_not_listed() {
    let tree = Tree::new();
    for name in ".git/config .env .env.local sub/.htpasswd a~ .a.swp #a#".split(' ') {
        tree.file(name, "secret");
    }
    tree.file(".well-known/x", "public");
    tree.file("sub/a.txt", "public");
    let server = Server::start(&tree, "");
    let mut conn = server.connect();
    let hidden = "/.git/config /.git/ /.git /.env /.env.local /sub/.htpasswd /a~ /%2egit/config //.git//config \
        /sub/../.git/config /.a.swp /%23a%23 /.git/missing http://t/.git/config";
    for target in hidden.split(' ') {
        assert_eq!(conn.get(target, "").status, 404, "{target}");
    }
    assert_eq!(conn.get("/.well-known/x", "").text(), "public");
    let listing = conn.get("/?json", "").text();
    assert!(
        listing.contains(".well-known") && !listing.contains("git") && !listing.contains("env")
    );
    assert!(!listing.contains("a~"), "{listing}");
    assert!(!conn.get("/sub/?json", "").text().contains("htpasswd"));
    drop(conn);
    server.stop();

    let server = Server::start(&tree, "--hide=*.txt");
    assert_eq!(server.get("/sub/a.txt", "").status, 404);
    assert_eq!(server.get("/.env", "").status, 200, "the list was replaced");
}

#[test]
fn precompressed_siblings_are_sent_to_those_who_accept_them() {
    let tree = Tree::new();
    tree.file("page.html", "<p>plain, and rather long");
    tree.file("page.html.gz", "gzip bytes");
    tree.file("page.html.zst", "zstd bytes!");
    tree.file("alone.html", "alone");
    let args = "--precompressed .zst --precompressed .br --precompressed .gz";
    let server = Server::start(&tree, args);
    let mut conn = server.connect();
    let plain = conn.get("/page.html", "");
    assert_eq!(plain.text(), "<p>plain, and rather long");
    assert_eq!(plain.field("Content-Encoding"), None);
    assert_eq!(plain.field("Vary"), Some("Accept-Encoding"));
    for (accepted, coding, body) in [
        ("gzip", "gzip", "gzip bytes"),
        ("gzip, zstd, br", "zstd", "zstd bytes!"),
    ] {
        let response = conn.get("/page.html", &format!("Accept-Encoding: {accepted}\r\n"));
        assert_eq!(
            response.field("Content-Encoding"),
            Some(coding),
            "{accepted}"
        );
        assert_eq!(response.text(), body, "{accepted}");
        assert_eq!(
            response.field("Content-Type"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(response.field("Vary"), Some("Accept-Encoding"));
        assert_ne!(tag(&response), tag(&plain));
        let fields = format!(
            "Accept-Encoding: {accepted}\r\nIf-None-Match: {}\r\n",
            tag(&response)
        );
        assert_eq!(conn.get("/page.html", &fields).status, 304);
    }
    for refused in ["gzip;q=0, zstd;q=0.000", "br"] {
        let response = conn.get("/page.html", &format!("Accept-Encoding: {refused}\r\n"));
        assert_eq!(response.field("Content-Encoding"), None, "{refused}");
        assert_eq!(tag(&response), tag(&plain));
    }
    tree.file("plan.svgz", "gzip bytes");
    tree.file("plan.svgz.gz", "gzip of gzip bytes");
    for accepted in ["", "Accept-Encoding: gzip\r\n"] {
        let svgz = conn.get("/plan.svgz", &format!("{accepted}Range: bytes=5-\r\n"));
        assert_eq!(svgz.field("Content-Encoding"), Some("gzip"));
        assert_eq!(svgz.field("Vary"), None, "it has no other form");
        assert_eq!((svgz.status, svgz.text().as_str()), (206, "bytes"));
    }
    let alone = conn.get("/alone.html", "Accept-Encoding: gzip\r\n");
    assert_eq!(
        (alone.text().as_str(), alone.field("Vary")),
        ("alone", None)
    );
    let range = conn.get("/page.html", "Accept-Encoding: gzip\r\nRange: bytes=5-\r\n");
    assert_eq!((range.status, range.text().as_str()), (206, "bytes"));
    assert_eq!(range.field("Content-Range"), Some("bytes 5-9/10"));
    assert_eq!(range.field("Content-Encoding"), Some("gzip"));
    assert_eq!(
        conn.get("/page.html.gz", "").field("Content-Encoding"),
        None,
        "asked for by name"
    );
}

#[test]
fn versions_whose_mtime_says_nothing_share_no_validator() {
    let tree = Tree::new();
    let mut files = Vec::new();
    for version in ["v1", "v2"] {
        for mtime_s in [0, 1] {
            let path = tree.file(format!("{version}/{mtime_s}"), version.repeat(50_000));
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(mtime_s);
            let file = std::fs::File::options().write(true).open(&path);
            let set = file.and_then(|file| file.set_modified(time));
            set.expect("our own file");
            files.push(path);
        }
    }
    files.iter().for_each(|path| rested(path));
    let publish = |version| {
        let (next, current) = (tree.at("next"), tree.at("current"));
        std::os::unix::fs::symlink(version, &next).expect("a link");
        std::fs::rename(next, current).expect("replaced");
    };
    publish("v1");
    let server = Server::start(&tree, "");
    let mut conn = server.connect();
    let paths = ["/current/0", "/current/1"];
    let before = paths.map(|path| conn.get(path, ""));
    for (path, first) in paths.iter().zip(&before) {
        let tag = tag(first);
        assert!(tag.starts_with("\"i"), "strong, of inode and ctime: {tag}");
        assert_eq!(first.field("Last-Modified"), None);
        let known = conn.get(path, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(known.status, 304);
        let resumed = conn.get(path, &format!("Range: bytes=5-\r\nIf-Range: {tag}\r\n"));
        assert_eq!(resumed.status, 206);
    }
    publish("v2");
    for (path, first) in paths.iter().zip(&before) {
        let tag = tag(first);
        for condition in [
            format!("If-None-Match: {tag}\r\n"),
            format!("Range: bytes=5-\r\nIf-Range: {tag}\r\n"),
            "If-Modified-Since: Thu, 01 Jan 1970 00:00:01 GMT\r\n".to_owned(),
        ] {
            let response = conn.get(path, &condition);
            let body = response.text();
            assert_eq!((response.status, &body[..4]), (200, "v2v2"), "{condition}");
        }
    }
}

#[test]
fn several_ranges_come_as_parts_with_an_exact_length() {
    let tree = Tree::new();
    let content = pattern(3 << 20, 2);
    tree.file("a.bin", &content);
    let server = Server::start(&tree, "");
    let mut conn = server.connect();
    let fields = "Range: bytes=2000000-2999999, 0-0,-1\r\n";
    let response = conn.get("/a.bin", fields);
    assert_eq!(response.status, 206);
    assert_eq!(response.field("Content-Range"), None);
    let kind = response.field("Content-Type").expect("a type").to_owned();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .expect("parts");
    let mut expected = Vec::new();
    let all = content.len();
    for (from, to) in [(2_000_000, 2_999_999), (0, 0), (all - 1, all - 1)] {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {from}-{to}/{all}\r\n\r\n"
        );
        expected.extend_from_slice(head.as_bytes());
        expected.extend_from_slice(&content[from..=to]);
    }
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(response.body == expected, "other bytes");
    let again = conn.get("/a.bin", fields);
    assert!(
        again.body == expected,
        "the same request gets the same bytes"
    );
}

#[test]
fn content_types_follow_the_table_and_the_operator() {
    let tree = Tree::new();
    let types = [
        ("a.rpm", "application/x-rpm"),
        ("a.iso", "application/x-disc"),
        ("a.tar.gz", "application/x-tgz"),
        ("a.unknown", "application/octet-stream"),
        ("README", "text/plain; charset=utf-8"),
    ];
    for (name, _) in types {
        tree.file(name, "x");
    }
    let args = "--types iso=application/x-disc --types tar.gz=application/x-tgz";
    let server = Server::start(&tree, args);
    for (name, expected) in types {
        let response = server.get(&format!("/{name}"), "");
        assert_eq!(response.field("Content-Type"), Some(expected), "{name}");
    }
}
