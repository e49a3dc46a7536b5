//! Clients that people use: they download, resume, mirror and install exactly what is served.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use ackpace_tests::{Outcome, Server, Tree, client, pattern, run};

/// A file of 5 MB, an hour old.
fn tree_with_big() -> (Tree, Vec<u8>) {
    let tree = Tree::new();
    let content = pattern(5_000_000, 9);
    tree.file("big.iso", &content);
    (tree, content)
}

/// All files below a directory with their content, sorted; paths are relative to it.
fn all(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    fn walk(top: &Path, dir: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(top, &path, found);
            } else {
                let name = path.strip_prefix(top).expect("below it").to_owned();
                found.push((name, fs::read(path).expect("a file")));
            }
        }
    }
    let mut found = Vec::new();
    walk(dir, dir, &mut found);
    found.sort();
    found
}

fn names(found: &[(PathBuf, Vec<u8>)]) -> Vec<&Path> {
    found.iter().map(|(name, _)| name.as_path()).collect()
}

/// A client with these words, then these paths or URLs. `None`, and the test is reported as skipped, where it is not
/// installed.
fn runs(program: &str, words: &str, more: &[&dyn AsRef<OsStr>]) -> Option<Outcome> {
    let mut client = client(program)?;
    client.args(words.split_whitespace());
    for word in more {
        client.arg(word.as_ref());
    }
    Some(run(&mut client))
}

fn curl(words: &str, more: &[&dyn AsRef<OsStr>]) -> Outcome {
    runs("curl", words, more).expect("it is installed")
}

#[test]
fn curl_downloads_whole_resumes_and_asks_for_ranges() {
    if client("curl").is_none() {
        return;
    }
    let (tree, content) = tree_with_big();
    let server = Server::start(&tree, "");
    let into = Tree::new();
    let url = server.at("/big.iso");
    let done = curl("-sSf", &[&url]);
    assert!(done.success && done.bytes == content, "{}", done.err);

    let torso = into.file("torso", &content[..1_234_567]);
    let resumed = format!("206,{}", content.len() - 1_234_567);
    // The second time the file is complete already: curl understands the 416.
    for told in [&*resumed, "416,"] {
        let done = curl(
            "-sS -C - -w %{http_code},%{size_download} -o",
            &[&torso, &url],
        );
        assert!(done.success && done.out.starts_with(told), "{done:?}");
        assert!(fs::read(&torso).expect("the file") == content, "{told}");
    }

    let done = curl("-sSf -r 1000-1999", &[&url]);
    assert!(done.bytes == content[1000..2000], "{}", done.err);
    let done = curl("-sSf -r 0-99,4999900- -w %{stderr}%{content_type}", &[&url]);
    let kind = "multipart/byteranges; boundary=";
    let boundary = done.err.strip_prefix(kind).expect("parts");
    let part = |range: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: application/x-iso9660-image\r\nContent-Range: bytes {range}/5000000\r\n\r\n"
        )
    };
    let expected = [
        part("0-99").as_bytes(),
        &content[..100],
        part("4999900-4999999").as_bytes(),
        &content[4_999_900..],
        format!("\r\n--{boundary}--\r\n").as_bytes(),
    ]
    .concat();
    let shown = String::from_utf8_lossy(&done.bytes);
    assert!(done.bytes == expected, "{shown}");
}

#[test]
fn curl_speaks_http_1_0_and_asks_for_heads() {
    if client("curl").is_none() {
        return;
    }
    let (tree, content) = tree_with_big();
    let server = Server::start(&tree, "");
    let url = server.at("/big.iso");
    let words = format!("-sSf --http1.0 {url} --next -sSf --http1.0 -r -10");
    let done = curl(&words, &[&url]);
    assert!(done.success, "{}", done.err);
    let both = [&content[..], &content[content.len() - 10..]].concat();
    assert!(done.bytes == both, "other bytes");
    let done = curl("-sSfI", &[&url]);
    let has_length = done.out.contains("Content-Length: 5000000\r\n");
    assert!(done.success && has_length, "{}", done.out);
    // Two URLs, one connection.
    let words = "-sSf -o /dev/null -o /dev/null -w %{num_connects},";
    assert_eq!(curl(words, &[&url, &url]).out, "1,0,");
}

#[test]
fn curl_gets_nothing_twice_that_has_not_changed() {
    if client("curl").is_none() {
        return;
    }
    let (tree, content) = tree_with_big();
    let server = Server::start(&tree, "");
    let into = Tree::new();
    let (url, file, tag) = (server.at("/big.iso"), into.at("file"), into.at("tag"));
    let (tag, other) = (tag.display(), into.at("other"));
    let code = "-sSfR -w %{http_code},%{size_download}";
    // -R: the local file gets the server's time.
    let done = curl(&format!("{code} --etag-save {tag} -o"), &[&file, &url]);
    assert_eq!(done.out, "200,5000000", "{}", done.err);
    let by_time = format!("{code} -z {} -o", file.display());
    let by_tag = format!("{code} --etag-compare {tag} -o");
    for words in [&by_time, &by_tag] {
        let done = curl(words, &[&other, &url]);
        assert_eq!(done.out, "304,0", "{}", done.err);
    }
    tree.file("big.iso", &content[1..]);
    let done = curl(&by_tag, &[&file, &url]);
    assert_eq!(done.out, "200,4999999", "{}", done.err);
}

#[test]
fn curl_unpacks_a_precompressed_sibling() {
    let (Some(_), Some(mut gzip)) = (client("curl"), client("gzip")) else {
        return;
    };
    let tree = Tree::new();
    let text = "a line of text that is said again and again\n".repeat(1000);
    let page = tree.file("page.txt", &text);
    assert!(run(gzip.arg("-9k").arg(&page)).success, "gzip");
    let server = Server::start(&tree, "--precompressed .gz");
    let url = server.at("/page.txt");
    let done = curl("-sSf --compressed -w %{stderr}%{size_download}", &[&url]);
    assert_eq!(done.out, text);
    let on_the_wire: usize = done.err.parse().expect("a number");
    assert!(on_the_wire < text.len() / 10, "{on_the_wire} bytes");
    assert_eq!(curl("-sSf", &[&url]).out, text, "without asking for it");
}

#[test]
fn wget_completes_a_torso() {
    let (tree, content) = tree_with_big();
    let server = Server::start(&tree, "");
    let into = Tree::new();
    let file = into.file("big.iso", &content[..3_000_001]);
    let words = format!("--no-config -c -P {}", into.path().display());
    let Some(done) = runs("wget", &words, &[&server.at("/big.iso")]) else {
        return;
    };
    let partial = done.err.contains("206 Partial Content");
    assert!(done.success && partial, "{}", done.err);
    assert!(fs::read(file).expect("the file") == content, "other bytes");
}

/// Names that need escapes in a URL, in HTML, or in both.
fn odd_names(tree: &Tree) {
    for name in [
        "plain.txt",
        "with space.txt",
        "100% sure.txt",
        "quest?ion.txt",
        "ha#sh.txt",
        "é ü 漢字.txt",
        "it's.txt",
        "less<than>.txt",
        "quo\"te.txt",
        "am&amp;p.txt",
        "plus+and=equals;semi.txt",
        "colon:first.txt",
        "back\\slash.txt",
        "[brackets].txt",
        "sub dir#1/inner?.txt",
        "sub dir#1/deep%2e/last.txt",
        ".well-known/dot.txt",
    ] {
        tree.file(name, format!("content of {name}"));
    }
}

#[test]
fn wget_mirrors_a_tree_with_odd_names() {
    let tree = Tree::new();
    odd_names(&tree);
    let server = Server::start(&tree, "");
    let into = Tree::new();
    let words = "--no-config -nv -r -l inf -np -nH --restrict-file-names=nocontrol -e robots=off --reject index.html* -P";
    let Some(done) = runs("wget", words, &[&into.path(), &server.at("/")]) else {
        return;
    };
    assert!(done.success, "{}", done.err);
    let (mut mirrored, served) = (all(into.path()), all(tree.path()));
    mirrored.retain(|(name, _)| name.file_name().is_some_and(|name| name != "index.html"));
    assert_eq!(names(&mirrored), names(&served), "{}", done.err);
    assert!(mirrored == served, "other bytes");
}

#[test]
fn aria2_downloads_with_eight_connections() {
    let tree = Tree::new();
    let content = pattern(40 << 20, 10);
    tree.file("big.iso", &content);
    let server = Server::start(&tree, "--access-log -");
    let into = Tree::new();
    let words = "--no-conf -q -x8 -s8 -k1M --file-allocation=none -d";
    let Some(done) = runs("aria2c", words, &[&into.path(), &server.at("/big.iso")]) else {
        return;
    };
    assert!(done.success, "{}{}", done.out, done.err);
    let got = fs::read(into.at("big.iso")).expect("the file");
    assert!(got == content, "other bytes");
    server.out_line(&["\"GET /big.iso HTTP/1.1\" 206 "]);
}

#[test]
fn rclone_copies_a_tree_with_odd_names() {
    let tree = Tree::new();
    odd_names(&tree);
    // Not for wget: it decodes such a name a second time when it stores the file.
    for name in ["per%cent.txt", "per%25cent.txt"] {
        tree.file(name, format!("content of {name}"));
    }
    for nth in 0..50 {
        tree.file(format!("many/{nth}"), pattern(nth * 1000, 11));
    }
    let server = Server::start(&tree, "");
    let (into, from) = (Tree::new(), server.at("/"));
    let words = format!("--config /dev/null copy -v --retries 1 --http-url {from} :http:");
    // The second run finds equal sizes and times, and fetches nothing.
    for again in [false, true] {
        let Some(done) = runs("rclone", &words, &[&into.path()]) else {
            return;
        };
        assert!(done.success, "{}{}", done.out, done.err);
        assert_eq!(!done.err.contains("Copied ("), again, "{}", done.err);
        let (copied, served) = (all(into.path()), all(tree.path()));
        assert_eq!(names(&copied), names(&served), "{}", done.err);
        assert!(copied == served, "other bytes");
    }
}

/// Builds a package of this name below `tree`.
fn package(tree: &Tree, name: &str) -> Option<()> {
    let control = format!(
        "Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: Tests <tests@example.org>\nDescription: a test\n"
    );
    let source = Tree::new();
    source.file("DEBIAN/control", control);
    source.file(format!("usr/share/{name}/data"), pattern(300_000, 12));
    let into = tree.dir("pool").join(format!("{name}_1.0_all.deb"));
    let built = run(client("dpkg-deb")?
        .args(["--root-owner-group", "-b"])
        .arg(source.path())
        .arg(into));
    assert!(built.success, "dpkg-deb: {}", built.err);
    Some(())
}

/// A flat repository with its indices.
fn repository() -> Option<Tree> {
    let tree = Tree::new();
    package(&tree, "ackpace-test-one")?;
    package(&tree, "ackpace-test-two")?;
    for (command, file) in [("packages", "Packages"), ("release", "Release")] {
        let made = run(client("apt-ftparchive")?
            .current_dir(tree.path())
            .args([command, "."]));
        assert!(made.success, "apt-ftparchive: {}", made.err);
        tree.file(file, made.bytes);
        if file == "Packages" {
            let packed = run(client("gzip")?.arg("-k").arg(tree.at(file)));
            assert!(packed.success, "gzip: {}", packed.err);
        }
    }
    Some(tree)
}

#[test]
fn apt_updates_and_downloads_from_a_served_mirror() {
    if client("apt-get").is_none() {
        return;
    }
    let Some(tree) = repository() else { return };
    let server = Server::start(&tree, "--access-log -");
    let home = Tree::new();
    home.file(
        "sources.list",
        format!("deb [trusted=yes] {}/ ./\n", server.url()),
    );
    home.dir("state/lists/partial");
    home.dir("cache/archives/partial");
    home.file("status", "");
    let into = home.dir("into");
    let at = |name: &str| home.at(name).display().to_string();
    let settings = [
        format!("Dir::Etc::sourcelist={}", at("sources.list")),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        "Dir::Etc::preferencesparts=/dev/null".to_owned(),
        format!("Dir::State={}", at("state")),
        format!("Dir::State::status={}", at("status")),
        format!("Dir::Cache={}", at("cache")),
        format!("Dir::Log={}", at("log")),
        "APT::Sandbox::User=root".to_owned(),
        "APT::Update::Post-Invoke::=".to_owned(),
        "Acquire::http::Proxy::127.0.0.1=DIRECT".to_owned(),
        "Acquire::Languages=none".to_owned(),
    ];
    let apt = |command: &[&str]| {
        let mut apt = ackpace_tests::command("apt-get");
        for setting in &settings {
            apt.arg("-o").arg(setting);
        }
        let done = run(apt.current_dir(&into).args(command));
        assert!(
            done.success,
            "apt-get {command:?}: {}{}",
            done.out, done.err
        );
        done.out
    };
    apt(&["update"]);
    server.out_line(&["\"GET /./Packages.gz HTTP/1.1\" 200 "]);
    let again = apt(&["update"]);
    assert!(again.contains("Hit:"), "nothing has changed: {again}");
    apt(&["download", "ackpace-test-one", "ackpace-test-two"]);
    for name in [
        "ackpace-test-one_1.0_all.deb",
        "ackpace-test-two_1.0_all.deb",
    ] {
        let (got, served) = (
            fs::read(into.join(name)),
            fs::read(tree.at("pool").join(name)),
        );
        assert!(
            got.expect("downloaded") == served.expect("served"),
            "{name}: other bytes"
        );
    }
}

#[test]
fn python_keeps_its_connection() {
    let Some(mut python) = client("python3") else {
        return;
    };
    let (tree, _) = tree_with_big();
    tree.file("small", "small");
    let server = Server::start(&tree, "");
    let script = r#"
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], timeout=60)
connection.connect()
port = connection.sock.getsockname()[1]
for nth in range(100):
    for path, length in (("/small", 5), ("/big.iso", 5000000), ("/missing", None), ("/", None)):
        if path == "/big.iso" and nth % 20:
            continue
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        assert response.status == (404 if path == "/missing" else 200), (path, response.status)
        assert length is None or len(body) == length, (path, len(body))
        assert connection.sock.getsockname()[1] == port, "another connection"
print("done")
"#;
    let host = server.address().to_string();
    let done = run(python.args(["-c", script, &host]));
    assert_eq!(
        (done.out.trim(), done.code),
        ("done", Some(0)),
        "{}",
        done.err
    );
}
