//! What the operator of a gateway is told: by refused starts, by `check` and `doctor`, by the log.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use ackpace_tests::{
    Answer, Content, Origin, Setup, Step, Tree, command, eventually, server_binary,
};

use crate::{behind, gateway, lasting, long};

#[test]
fn a_root_that_is_no_url_is_refused_with_what_urls_begin_with() {
    for odd in ["htp://a", "ftp://a/b", "s3:/models", "127.0.0.1:18000"] {
        Setup::new(odd).assert_refused(&[odd, "http://, https:// or s3://"]);
    }
    Setup::new("http:///pub").assert_refused(&["DIR|FILE|URL: http:///pub", "no host"]);
    Setup::new("s3://models/?x=1").assert_refused(&["DIR|FILE|URL", "query"]);
    Setup::new("s3://My_Bucket").assert_refused(&["My_Bucket", "lower-case"]);
    Setup::new("./htp://a").assert_refused_now(&["No such file"]);
}

#[test]
fn a_refusal_names_the_option_at_fault() {
    let url = "http://127.0.0.1:1";
    let refused = |args: &str| Setup::new(url).args(args);
    refused("--origin ftp://a").assert_refused(&["--origin: ftp://a"]);
    refused("--slab-dir /nope").assert_refused_now(&["--slab-dir: /nope", "No such file"]);
    refused("--slab-dir /proc").assert_refused_now(&["--slab-dir: /proc is not in a tmpfs"]);
    let large = refused("--cache-memory 90% --memory-max 64MiB --workers 2");
    large.assert_refused(&["--memory-max 64MiB", "lower --cache-memory (90%)"]);
    refused("--cache-dir /nope/x/y").assert_refused_now(&["--cache-dir: /nope/x/y"]);
    let keys = "--s3-endpoint http://a --s3-credentials-file /nope";
    let keys = Setup::new("s3://models").args(keys);
    keys.assert_refused_now(&["--s3-credentials-file: /nope", "No such file"]);
    let region = Setup::new("s3://models").env("AWS_REGION", "eu west");
    region.assert_refused(&["ackpace: AWS_REGION: eu west is no region"]);
}

/// What a command that looks at the configuration prints, and then its errors.
fn printed(args: &[&str]) -> String {
    let output = command(server_binary()).args(args).output();
    let output = output.expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).expect("a text")
}

#[test]
fn check_names_the_origins_and_what_has_no_effect() {
    let url = "http://127.0.0.1:1/pub";
    let told = printed(&["check", url, "--origin", "http://b.example", "--hide", "x"]);
    for part in [
        "origin: http://127.0.0.1:1/pub\norigin: http://b.example\n",
        "warning: hide (command line) changes nothing",
        "the configuration is good",
    ] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    assert!(!told.contains("root: "), "{told}");
    let told = printed(&["check", ".", "--cache-memory", "64MiB"]);
    let part = "warning: cache_memory (command line) changes nothing: no origin is served";
    assert!(told.contains(part), "{told}");
}

#[test]
fn doctor_asks_each_origin_once() {
    let origin = Origin::new();
    origin.put("/", &Content::new(vec![1], "v"));
    let (url, gone) = (origin.url(), "http://127.0.0.1:1");
    let told = printed(&["doctor", &url, "--origin", gone, "--cache-memory", "16MiB"]);
    for part in [
        "16 MiB of memory for payload of origins",
        &format!("ok: origin {url}: reachable, it answers 200"),
        &format!("lost: origin {gone}: Connection refused"),
    ] {
        assert!(
            told.contains(part) || told.contains("lost: huge"),
            "no {part:?} in {told}"
        );
    }
    assert_eq!(origin.asked("/").len(), 1);
}

#[test]
fn an_origin_that_says_nothing_or_nonsense_is_told() {
    let origin = Origin::new();
    origin.on("/nothing", |_| Answer::raw("").then(Step::Close));
    origin.raw("/nonsense", "SSH-2.0-a\r\n\r\n");
    let server = gateway(&origin, "");
    assert_eq!(server.get("/nothing", "").status, 502);
    let url = format!("origin={}", origin.url());
    server.err_line(&["it closed the connection before an answer", &url]);
    let server = gateway(&origin, "");
    assert_eq!(server.get("/nonsense", "").status, 502);
    server.err_line(&["its clients get 502", &url]);
    let other = Origin::new();
    other.put("/nothing", &lasting(vec![1; 9], "v"));
    let server = behind(&[&origin, &other], "");
    assert_eq!(server.get("/nothing", "").status, 200);
    server.err_line(&["before an answer; the next origin is asked", &url]);
}

#[test]
fn an_origin_without_tls_is_told_from_one_with_a_wrong_certificate() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            let _ = socket.read(&mut [0; 4096]); // else its end is a reset
            let _ = socket.write_all(b"HTTP/1.1 400 \r\n\r\n"); // it may be closed already
        }
    });
    let server = Setup::new(format!("https://{address}")).start();
    assert_eq!(server.get("/a", "").status, 502);
    server.err_line(&["it does not speak TLS: is it http://?"]);
}

#[test]
fn responses_that_end_early_are_told_in_words_of_origins() {
    let mut origin = Origin::new();
    let content = lasting(long(60_000_000, 1), "v");
    for target in ["/changes", "/dies"] {
        origin.put(target, &content);
    }
    let server = gateway(&origin, "");
    let mut conn = server.begin("/changes", "");
    assert_eq!(conn.head().status, 200);
    origin.put("/changes", &lasting(long(60_000_000, 2), "w"));
    assert!(conn.compare(&content.bytes) < content.bytes.len());
    let object = format!("object={}/changes", origin.url());
    server.err_line(&["the origin has a new version", &object]);
    let mut conn = server.begin("/dies", "");
    assert_eq!(conn.head().status, 200);
    origin.go_down();
    assert!(conn.compare(&content.bytes) < content.bytes.len());
    server.err_line(&["no origin brings the rest", "/dies"]);
    assert!(!server.err().contains("disk"), "{}", server.err());
}

#[test]
fn what_is_kept_and_the_origins_device_are_shown() {
    let (origin, tree) = (Origin::new(), Tree::new());
    origin.put("/a", &lasting(long(3_000_000, 1), "v"));
    let (admin, kept) = (tree.at("admin"), tree.at("kept"));
    let [admin, kept] = [&admin, &kept].map(|path| path.to_str().expect("a plain path"));
    let server = gateway(&origin, &format!("--admin {admin} --cache-dir {kept}"));
    for _ in 0..3 {
        assert_eq!(server.get("/a", "").status, 200);
    }
    let asks = |words: &[&str]| printed(&[words, &["--admin", admin]].concat());
    let folder = format!("{kept}: ");
    eventually("the windows are there", || {
        let status = asks(&["cache", "status"]);
        status.contains(&folder) && status.contains(" in 3 windows, of ")
    });
    assert!(asks(&["cache", "status", "--json"]).contains("\"windows\":3"));
    let url = origin.url();
    let why = asks(&["why", &format!("{url}/")]);
    assert!(why.contains(&url) && why.contains("reads at once"), "{why}");
    assert!(!why.contains("positions"), "{why}");
    assert_eq!(asks(&["cache", "purge", "/"]), "1 object is forgotten\n");
    server.err_line(&["files were purged"]);
    let json = asks(&["cache", "purge", "/", "--json"]);
    assert!(
        json.starts_with('{') && json.contains("\"objects\":0"),
        "{json}"
    );
}

#[test]
fn the_access_log_says_what_the_cache_did() {
    let origin = Origin::new();
    origin.put("/a", &lasting(vec![1; 9], "v"));
    let server = gateway(&origin, "--access-log - --access-log-format json");
    for cache in ["fwd=uri-miss", "hit"] {
        assert_eq!(server.get("/a", "").status, 200);
        server.out_line(&["\"target\":\"/a\"", &format!("\"cache\":\"{cache}\"}}")]);
    }
}
