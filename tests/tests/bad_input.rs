//! Any input gets a correct response or an orderly close, and nothing outside the root is reached.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

use ackpace_tests::{OpenWatch, Rng, Server, Setup, Tree, needs_root, pattern, run};

/// Checks that an ambiguous request gets this status (400) and ends the connection.
fn refused(server: &Server, bytes: impl AsRef<[u8]>, status: u16) {
    let bytes = bytes.as_ref();
    let mut conn = server.connect();
    // A second request behind it must not be answered, since it may be part of the first.
    conn.send([bytes, b"GET /secret HTTP/1.1\r\nHost: t\r\n\r\n"].concat());
    let response = conn.response();
    let shown = String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(response.status, status, "{shown:?}");
    assert_eq!(response.field("Connection"), Some("close"), "{shown:?}");
    conn.ends();
}

#[test]
fn smuggling_shapes_are_refused_and_the_connection_closes() {
    let tree = Tree::new();
    tree.file("secret", "secret");
    let server = Server::start(&tree, "");
    for (fields, status) in [
        (
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", 400),
        ("Content-Length: +4\r\n\r\nabcd", 400),
        ("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        ("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        ("X: a\r\n folded: b\r\n\r\n", 400),
        ("X: a\n\n", 400),
        ("X: a\0b\r\n\r\n", 400),
        ("Host: again\r\n\r\n", 400),
        ("Transfer-Encoding: gzip\r\n\r\n", 501),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: t\r\n{fields}");
        refused(&server, head, status);
    }
    refused(&server, "GET / HTTP/1.1\r\n\r\n", 400);
    refused(&server, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
}

#[test]
fn chunked_bodies_are_skipped_to_their_end_and_broken_ones_close() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "");
    let head = "GET /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut conn = server.connect();
    for body in [
        "5\r\nhello\r\n0\r\n\r\n",
        "A;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
        "28\r\nGET /secret HTTP/1.1\r\nHost: smuggled\r\n\r\n\r\n0\r\n\r\n",
    ] {
        let answer = conn.send(format!("{head}{body}")).response();
        assert_eq!(answer.text(), "a", "{body:?}");
    }
    for body in [
        "5\r\nhello!\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "\r\n\r\n",
    ] {
        let mut conn = server.connect();
        conn.send(format!("{head}{body}GET /a HTTP/1.1\r\nHost: t\r\n\r\n"));
        // The head was valid: its response may come first. Nothing behind the body may be answered.
        let text = String::from_utf8_lossy(&conn.rest()).into_owned();
        let answers = text.matches("HTTP/1.1 200").count();
        assert!(
            answers <= 1 && text.matches("HTTP/1.1").count() <= 2,
            "{body:?}: {text}"
        );
    }
}

#[test]
fn the_answer_to_a_post_arrives_though_its_body_is_not_read() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "");
    for len in [0, 64 << 10, 1 << 20, (1 << 20) + 1, 10 << 20] {
        let mut conn = server.connect();
        let body = pattern(len, 4);
        conn.send(format!(
            "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: {len}\r\n\r\n"
        ));
        conn.send(&body);
        let response = conn.response();
        assert_eq!(response.status, 405, "{len} bytes");
        assert_eq!(response.field("Allow"), Some("GET, HEAD, OPTIONS"));
        if response.field("Connection") == Some("close") {
            conn.ends();
        } else {
            assert_eq!(
                conn.get("/a", "").text(),
                "a",
                "after a body of {len} bytes"
            );
        }
    }
}

#[test]
fn the_answer_to_a_chunked_post_arrives_though_its_body_is_too_long_to_skip() {
    let tree = Tree::new();
    let server = Server::start(&tree, "");
    let mut conn = server.connect();
    conn.send("POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [&b"10000\r\n"[..], &pattern(64 << 10, 14), b"\r\n"].concat();
    for _ in 0..160 {
        conn.send(&chunk);
    }
    conn.send("0\r\n\r\n");
    assert_eq!(conn.response().status, 405);
    conn.ends();
}

#[test]
fn expect_100_continue_is_answered_with_the_final_status() {
    let tree = Tree::new();
    let server = Server::start(&tree, "--header-timeout 1s");
    let mut conn = server.connect();
    conn.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n");
    let response = conn.response();
    assert_eq!(
        (response.status, response.field("Connection")),
        (405, Some("close"))
    );
    conn.ends();
    assert_eq!(server.get("/", "Expect: tea\r\n").status, 417);
}

#[test]
fn methods_that_would_change_something_are_not_allowed() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "");
    for (method, status) in [
        ("PUT", 405),
        ("DELETE", 405),
        ("PROPFIND", 405),
        ("get", 501),
    ] {
        let response = server.ask(format!("{method} /a HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(response.status, status, "{method}");
        let allow = (status == 405).then_some("GET, HEAD, OPTIONS");
        assert_eq!(response.field("Allow"), allow);
    }
    refused(&server, "CONNECT t:80 HTTP/1.1\r\nHost: t:80\r\n\r\n", 405);
    assert!(tree.at("a").exists());
}

#[test]
fn the_bound_on_the_head_holds_at_below_and_above() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "");
    let head = |len: usize| {
        let frame = "GET /a HTTP/1.1\r\nHost: t\r\nX: \r\n\r\n";
        frame.replace("X: ", &format!("X: {}", "x".repeat(len - frame.len())))
    };
    for len in [(16 << 10) - 1, 16 << 10] {
        let mut conn = server.connect();
        assert_eq!(conn.send(head(len)).response().status, 200, "{len} bytes");
        assert_eq!(conn.get("/a", "").status, 200, "the connection stays");
    }
    refused(&server, head((16 << 10) + 1), 431);
    refused(&server, head(100 << 10), 431);
}

#[test]
fn no_spelling_of_a_path_leaves_the_root() {
    let tree = Tree::new();
    tree.file("outside", "secret");
    tree.file("root/a", "a");
    tree.file("root/%2e%2e", "odd name");
    tree.file("root/d/b", "b");
    let server = Setup::new(tree.at("root")).start();
    for (status, targets) in [
        (
            400,
            "/../outside /.. /d/../../outside /%2e%2e/outside /%2E./outside /%2e%2e%2foutside",
        ),
        (
            400,
            "/d/%2e%2e/%2e%2e/outside /..%2foutside /d/..%2f..%2foutside /./../outside",
        ),
        (400, "//../outside /a%00 /% /%2 /%zz http://t/../outside"),
        (
            404,
            r"/%252e%252e/outside /..%255coutside /..\outside /%c0%ae%c0%ae/outside /... /a/",
        ),
        (200, "/d/../a /d/%2e%2e/a /./a //a /d/..%2fa /%61"),
    ] {
        for target in targets.split(' ') {
            let response = server.get(target, "");
            assert_eq!(response.status, status, "{target}");
            assert!(status != 200 || response.text() == "a", "{target}");
        }
    }
    assert_eq!(server.get("/%252e%252e", "").text(), "odd name");
    // Long names are legal and do not exist.
    assert_eq!(server.get(&format!("/{}", "n".repeat(300)), "").status, 404);
}

#[test]
fn links_that_leave_lead_nowhere_and_those_inside_are_followed() {
    let tree = Tree::new();
    tree.file("outside/secret", "secret");
    tree.file("root/d/a", "a");
    let root = tree.at("root");
    for (name, to) in [
        ("leave", tree.at("outside/secret")),
        ("leave-dir", tree.at("outside")),
        ("leave-up", "../outside/secret".into()),
        ("passwd", "/etc/passwd".into()),
        ("self", "self".into()),
        ("dangling", "nowhere".into()),
        ("magic", "/proc/self/root/etc/passwd".into()),
        ("inside", "d/a".into()),
        ("inside-absolute", root.join("d/a")),
        ("inside-dir", "d".into()),
    ] {
        symlink(to, root.join(name)).expect("a link");
    }
    let leaving = "/leave /leave-dir/secret /leave-dir/ /leave-up /passwd /magic /self /dangling";
    let staying = ["/inside", "/inside-absolute", "/inside-dir/a"];

    // docs/configuration.md: a link that is not followed answers 404.
    let server = Setup::new(&root).start();
    for target in leaving.split(' ') {
        assert_eq!(server.get(target, "").status, 404, "{target}");
    }
    for target in staying {
        assert_eq!(server.get(target, "").text(), "a", "{target}");
    }
    server.stop();

    let server = Setup::new(&root).args("--follow-symlinks none").start();
    for target in leaving.split(' ').chain(staying) {
        assert_eq!(server.get(target, "").status, 404, "{target}");
    }
    assert_eq!(server.get("/d/a", "").text(), "a");
    server.stop();

    let outside = tree.at("outside");
    let allowed = outside.to_str().expect("a path in UTF-8");
    let server = Setup::new(&root).args(&["--allow-roots", allowed]).start();
    for target in ["/leave", "/leave-dir/secret", "/leave-up"] {
        assert_eq!(server.get(target, "").text(), "secret", "{target}");
    }
    assert_eq!(server.get("/passwd", "").status, 404);
    server.stop();

    let server = Setup::new(&root).args("--follow-symlinks all").start();
    assert_eq!(server.get("/leave", "").text(), "secret");
    assert_eq!(server.get("/magic", "").status, 404, "no link of /proc");
}

#[test]
fn what_is_no_file_is_forbidden_without_being_opened() {
    let tree = Tree::new();
    let [fifo, socket, device] = ["fifo", "socket", "device"].map(|name| tree.at(name));
    assert!(run(Command::new("mkfifo").arg(&fifo)).success, "mkfifo");
    let _listener = UnixListener::bind(&socket).expect("a unix socket");
    let mut paths = vec![fifo, socket];
    if needs_root("making a device") {
        let mknod = run(Command::new("mknod").arg(&device).args(["c", "1", "5"]));
        assert!(mknod.success, "mknod: {}", mknod.err);
        paths.push(device);
    }
    let file = tree.file("a", "a");
    let server = Server::start(&tree, "");
    for path in paths {
        let watch = OpenWatch::new(&path);
        let name = path
            .strip_prefix(tree.path())
            .expect("a name in it")
            .display();
        let mut conn = server.connect();
        assert_eq!(conn.get(&format!("/{name}"), "").status, 403, "{name}");
        let listing = conn.get("/?json", "");
        assert_eq!(listing.status, 200, "a listing looks at it too");
        assert!(!watch.opened(), "the {name} was opened");
    }
    let watch = OpenWatch::new(&file);
    assert_eq!(server.get("/a", "").status, 200);
    assert!(watch.opened(), "the watch sees what is opened");
}

#[test]
fn what_may_not_be_read_is_forbidden_and_what_is_missing_is_not_found() {
    let tree = Tree::new();
    tree.file("open", "open");
    for name in ["closed", "closed-dir/a", "unlisted/a"] {
        tree.file(name, "secret");
    }
    for (name, mode) in [("closed", 0), ("closed-dir", 0), ("unlisted", 0o111)] {
        std::fs::set_permissions(tree.at(name), PermissionsExt::from_mode(mode)).expect("a mode");
    }
    let server = Setup::new(tree.path()).ordinary().start();
    let mut conn = server.connect();
    assert_eq!(conn.get("/open", "").text(), "open");
    for target in "/closed /closed-dir/ /closed-dir/a /closed-dir/missing /unlisted/".split(' ') {
        assert_eq!(conn.get(target, "").status, 403, "{target}");
    }
    assert_eq!(conn.get("/unlisted/a", "").text(), "secret");
    for target in ["/missing", "/missing/a", "/open/a", "/unlisted/missing"] {
        assert_eq!(conn.get(target, "").status, 404, "{target}");
    }
    drop(conn);
    server.stop();
    for name in ["closed-dir", "unlisted"] {
        let open = PermissionsExt::from_mode(0o755); // so that it can be removed
        std::fs::set_permissions(tree.at(name), open).expect("a mode");
    }
}

#[test]
fn random_bytes_do_no_harm() {
    const SEED: u64 = 20_261_121;
    println!("seed {SEED}");
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "--header-timeout 1s");
    let mut rng = Rng::new(SEED);
    let words = "GET |HEAD |/a| HTTP/1.1|\r\n|\r\n\r\n|Host: t|Range: bytes=|-|Transfer-Encoding: chunked\r\n|\
        Content-Length: 5\r\n|%2e|\0|/../|\n|: ";
    let words: Vec<&str> = words.split('|').collect();
    for nth in 0..600 {
        let mut bytes = Vec::new();
        for _ in 0..rng.below(40) {
            match rng.below(3) {
                0 => bytes.extend_from_slice(&pattern(rng.below(200), rng.next_u64())),
                _ => bytes.extend(words[rng.below(words.len())].bytes()),
            }
        }
        let mut conn = server.connect();
        // The server may close before everything was sent.
        let _ = conn.try_send(&bytes);
        if nth % 2 == 0 {
            let _ = conn.stream.shutdown(std::net::Shutdown::Write);
            let answer = conn.rest_or_reset();
            let shown = String::from_utf8_lossy(&answer);
            assert!(
                answer.is_empty() || answer.starts_with(b"HTTP/1.1 "),
                "connection {nth}: {shown:?}"
            );
        }
        if nth % 100 == 0 {
            assert_eq!(server.get("/a", "").text(), "a", "after connection {nth}");
        }
    }
    assert_eq!(server.get("/a", "").text(), "a");
}
