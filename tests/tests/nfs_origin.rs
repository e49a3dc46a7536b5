//! NFS clients of a gateway to origins: what these list is folders, what they have is files, and every byte is right.

use std::net::SocketAddr;

use ackpace_tests::nfs::{NfsArgs, NfsClient, procedure, read_of};
use ackpace_tests::{
    Answer, Content, Origin, Rng, Server, Setup, Tree, client, eventually, pattern, run,
};

const SEED: u64 = 41;
const NOENT: u32 = 2;
const IO: u32 = 5;
const ACCES: u32 = 13;
const ROFS: u32 = 30;
const STALE: u32 = 70;
const JUKEBOX: u32 = 10_008;

/// A gateway to this origin that is exported.
fn exported(origin: &Origin, args: &str) -> Server {
    let setup = Setup::new(origin.url()).args("--nfs 127.0.0.1:0 --cache-memory 64MiB --workers 1");
    setup.args(args).start()
}

fn connect(server: &Server) -> NfsClient {
    let line = server.out_line(&["NFS at "]);
    let rest = line.trim_start_matches("NFS at ");
    let address = rest.split(' ').next().expect("an address");
    let address: SocketAddr = address.parse().expect("an address");
    NfsClient::open(address)
}

/// An object that stays fresh for an hour.
fn lasting(bytes: &[u8], tag: &str) -> Content {
    Content::new(bytes, tag)
        .with("Cache-Control: max-age=3600")
        .with("Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT")
}

/// Has a folder there, as nginx lists it.
fn folder(origin: &Origin, target: &str, names: &[&str]) {
    let mut page = format!(
        "<html><head><title>Index of {target}</title></head><body><pre><a href=\"../\">../</a>\n"
    );
    for name in names {
        page += &format!("<a href=\"{name}\">{name}</a>   01-Jan-2026 00:00   -\n");
    }
    listed(
        origin,
        target,
        "text/html",
        &(page + "</pre></body></html>\n"),
    );
}

/// Has this listing there, and redirects to it.
fn listed(origin: &Origin, target: &str, media: &str, page: &str) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n",
        page.len()
    );
    let (head_only, whole) = (head.clone(), head + page);
    origin.on(target, move |asked| match &*asked.method {
        "HEAD" => Answer::raw(&head_only),
        _ => Answer::raw(&whole),
    });
    if let Some(bare) = target.strip_suffix('/').filter(|bare| !bare.is_empty()) {
        let head = format!(
            "HTTP/1.1 301 Moved Permanently\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"
        );
        origin.raw(bare, head);
    }
}

fn only_names(names: Vec<(String, bool)>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

fn read_all(client: &mut NfsClient, file: &[u8]) -> Vec<u8> {
    let mut got = Vec::new();
    loop {
        let (bytes, is_end) = client.read(file, got.len() as u64, 131_072).expect("bytes");
        got.extend(bytes);
        if is_end {
            return got;
        }
    }
}

/// All that GETATTR tells.
fn attributes(client: &mut NfsClient, file: &[u8]) -> Vec<u8> {
    let mut results = client.ask(procedure::GETATTR, &NfsArgs::default().opaque(file));
    assert_eq!(results.u32(), 0);
    results.rest().to_vec()
}

#[test]
fn a_client_lists_looks_up_and_reads_each_byte_once() {
    let origin = Origin::new();
    let content = pattern(3_000_001, SEED);
    folder(&origin, "/", &["a%20folder/", "small"]);
    folder(&origin, "/a%20folder/", &["big"]);
    origin.put("/a%20folder/big", &lasting(&content, "1"));
    origin.put("/small", &lasting(b"small", "2"));
    let server = exported(&origin, "");
    let mut client = connect(&server);
    let root = client.mount("/").expect("an export");
    assert_eq!(client.look_up(&root, "none"), Err(NOENT));
    assert_eq!(client.look_up(&root, "none"), Err(NOENT));
    assert_eq!(
        origin.asked("/none").len(),
        1,
        "for a while it is not asked for again"
    );
    assert_eq!(
        only_names(client.names(&root, true, 8192)),
        [".", "..", "a folder", "small"]
    );
    let file = client.find("a folder/big");
    assert_eq!(client.len_bytes(&file), Ok(content.len() as u64));
    assert!(
        origin
            .asked("/a%20folder/big")
            .iter()
            .all(|asked| asked.method == "HEAD")
    );
    assert!(read_all(&mut client, &file) == content, "cold: other bytes");
    let asked = origin.asked("/a%20folder/big").len();
    assert!(read_all(&mut client, &file) == content, "warm: other bytes");
    assert_eq!(
        origin.asked("/a%20folder/big").len(),
        asked,
        "a hit asks nothing"
    );
    assert_eq!(origin.sent_bytes(), content.len() as u64, "each byte once");
    let small = client.find("small");
    assert_eq!(client.read(&small, 2, 1 << 20), Ok((b"all".to_vec(), true)));
    assert_eq!(client.read(&small, 1 << 40, 10), Ok((Vec::new(), true)));
    let response = server.get("/a%20folder/big", "");
    assert!(
        response.body == content && response.head.contains("ackpace; hit"),
        "{}",
        response.head
    );
    let above = client.find("a folder/..");
    assert_eq!(
        attributes(&mut client, &above)[52..60],
        attributes(&mut client, &root)[52..60]
    );
}

#[test]
fn sixteen_reads_in_random_order_are_one_stream() {
    const LEN: u32 = 32 << 10;
    let origin = Origin::new();
    let content = pattern(16 << 20, SEED);
    origin.put("/big", &lasting(&content, "1"));
    let server = exported(&origin, "");
    let mut client = connect(&server);
    let file = client.find("big");
    let blocks = content.len() as u64 / u64::from(LEN);
    let mut order: Vec<u64> = (0..blocks).collect();
    let mut rng = Rng::new(SEED);
    for window in order.chunks_mut(16) {
        for at in (1..window.len()).rev() {
            window.swap(at, rng.below(at + 1));
        }
    }
    let (mut waiting, mut next) = (Vec::new(), order.into_iter());
    loop {
        while waiting.len() < 16 {
            let Some(block) = next.next() else { break };
            let offset = block * u64::from(LEN);
            waiting.push((client.begin_read(&file, offset, LEN), offset as usize));
        }
        if waiting.is_empty() {
            break;
        }
        let reply = client.next_reply();
        let at = waiting.iter().position(|(xid, _)| *xid == reply.xid);
        let (_, offset) = waiting.swap_remove(at.expect("a call that waits"));
        let (bytes, _) = read_of(reply).expect("bytes");
        assert!(
            bytes == content[offset..offset + LEN as usize],
            "at {offset}"
        );
    }
    let asked = origin.asked("/big").len() as u64;
    assert!(asked < blocks / 4, "{asked} requests for {blocks} READs");
    assert_eq!(origin.sent_bytes(), content.len() as u64, "each byte once");
}

#[test]
fn long_folders_are_listed_name_by_name() {
    let origin = Origin::new();
    let many: Vec<String> = (0..5000).map(|nth| format!("name-{nth:05}")).collect();
    let all: Vec<&str> = many.iter().map(|name| &**name).collect();
    folder(&origin, "/", &all);
    let entries: Vec<String> = many
        .iter()
        .map(|name| format!("{{\"name\":\"{name}\",\"type\":\"directory\"}}"))
        .collect();
    listed(
        &origin,
        "/json/",
        "application/json",
        &format!("[{}]", entries.join(",\n")),
    );
    let server = exported(&origin, "");
    let mut client = connect(&server);
    let root = client.mount("/").expect("an export");
    let json = client.find("json");
    for (folder, plus, len_bytes) in [
        (&root, false, 1000),
        (&root, true, 32 << 10),
        (&json, true, 4096),
    ] {
        let listed = client.names(folder, plus, len_bytes);
        assert!(
            listed[2..]
                .iter()
                .all(|(_, has_handle)| *has_handle == plus)
        );
        let mut listed = only_names(listed);
        assert_eq!(listed.drain(..2).collect::<Vec<_>>(), [".", ".."]);
        assert_eq!(listed, many);
    }
    assert_eq!(origin.asked("/").len(), 1, "a listing is asked for once");
    let file = client.find("json/name-00007");
    assert_eq!(client.read(&file, 0, 1), Err(21), "it is a folder");
}

#[test]
fn names_that_are_looked_up_in_order_are_asked_for_beforehand() {
    let origin = Origin::new();
    let many: Vec<String> = (0..100).map(|nth| format!("name-{nth:05}")).collect();
    let all: Vec<&str> = many.iter().map(|name| &**name).collect();
    folder(&origin, "/", &all);
    for name in &many {
        origin.put(&format!("/{name}"), &lasting(name.as_bytes(), name));
    }
    let server = exported(&origin, "");
    let mut client = connect(&server);
    let root = client.mount("/").expect("an export");
    client.names(&root, true, 32 << 10);
    for name in [90, 20, 50] {
        client.look_up(&root, &many[name]).expect("a file");
    }
    for name in &many[..8] {
        client.look_up(&root, name).expect("a file");
    }
    eventually("the next ones are asked for", || {
        !origin.asked("/name-00030").is_empty()
    });
    for name in &many {
        client.look_up(&root, name).expect("a file");
        assert_eq!(origin.asked(&format!("/{name}")).len(), 1, "{name}");
    }
    assert_eq!(origin.sent_bytes(), 0, "no payload");
}

#[test]
fn handles_outlive_a_restart() {
    let (tree, origin) = (Tree::new(), Origin::new());
    let long = [
        "a-folder-with-a-long-name",
        "another-one",
        "and-a-file-below-it",
    ];
    let content = pattern(10_000, SEED);
    folder(&origin, "/", &["short", "a-folder-with-a-long-name/", "x/"]);
    folder(
        &origin,
        &format!("/{}/", long[0]),
        &["another-one/", "other/"],
    );
    folder(
        &origin,
        &format!("/{}/{}/", long[0], long[1]),
        &["and-a-file-below-it"],
    );
    origin.put("/short", &lasting(b"short", "1"));
    origin.put(&format!("/{}", long.join("/")), &lasting(&content, "2"));
    let key = format!("--nfs-key {}", tree.at("key").display());
    let server = exported(&origin, &key);
    let mut client = connect(&server);
    let (short, file) = (client.find("short"), client.find(&long.join("/")));
    let before = attributes(&mut client, &file);
    drop((client, server));
    let server = exported(&origin, &key);
    let mut client = connect(&server);
    assert_eq!(client.read(&short, 0, 100), Ok((b"short".to_vec(), true)));
    assert!(read_all(&mut client, &file) == content);
    assert_eq!(
        attributes(&mut client, &file),
        before,
        "all that is told of it"
    );
    // Of another origin, none of them is anything.
    let other = Origin::new();
    let server = exported(&other, &key);
    assert_eq!(connect(&server).read(&short, 0, 100), Err(STALE));
}

#[test]
fn while_no_origin_answers_clients_wait_or_get_what_is_kept() {
    let mut origin = Origin::new();
    folder(&origin, "/", &["kept", "other"]);
    origin.put(
        "/kept",
        &Content::new(&b"kept"[..], "1").with("Cache-Control: max-age=0"),
    );
    origin.put("/other", &lasting(b"other", "2"));
    let server = exported(&origin, "");
    let mut client = connect(&server);
    let root = client.mount("/").expect("an export");
    let kept = client.find("kept");
    assert_eq!(client.read(&kept, 0, 10), Ok((b"kept".to_vec(), true)));
    origin.go_down();
    assert_eq!(client.mount("/"), Ok(root.clone()), "mounting asks nothing");
    assert_eq!(client.look_up(&root, "other"), Err(JUKEBOX));
    assert_eq!(
        client.read(&kept, 0, 10),
        Ok((b"kept".to_vec(), true)),
        "what is stale is better than nothing"
    );
    origin.come_up();
    eventually("the origin is asked again", || {
        client.look_up(&root, "other").is_ok()
    });
    origin.raw("/failing", "HTTP/1.1 500 \r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.look_up(&root, "failing"), Err(JUKEBOX));
}

#[test]
fn another_version_is_another_file_in_all_but_its_handle() {
    let origin = Origin::new();
    let version = |bytes: &'static [u8], tag| {
        Content::new(bytes, tag)
            .with("Cache-Control: max-age=0")
            .with("Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT")
    };
    origin.put("/file", &version(b"one", "1"));
    let server = exported(&origin, "");
    let mut client = connect(&server);
    let file = client.find("file");
    assert_eq!(client.read(&file, 0, 10), Ok((b"one".to_vec(), true)));
    let before = attributes(&mut client, &file);
    assert_eq!(attributes(&mut client, &file), before);
    origin.put("/file", &version(b"two", "2"));
    let after = attributes(&mut client, &file);
    assert_eq!(before[..76], after[..76], "all but the time of change");
    assert_ne!(before[76..], after[76..]);
    assert_eq!(client.read(&file, 0, 10), Ok((b"two".to_vec(), true)));
    origin.raw("/file", "HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.read(&file, 0, 10), Err(STALE));
}

#[test]
fn what_can_not_be_served_is_told() {
    let origin = Origin::new();
    folder(&origin, "/", &["denied"]);
    origin.raw("/denied", "HTTP/1.1 403 \r\nContent-Length: 0\r\n\r\n");
    origin.put("/untagged", &Content::untagged(&b"untagged"[..]));
    origin.raw(
        "/elsewhere",
        "HTTP/1.1 302 \r\nLocation: http://other.example/x\r\nContent-Length: 0\r\n\r\n",
    );
    let rangeless = pattern(500_000, SEED);
    origin.put("/rangeless", &lasting(&rangeless, "1").without_ranges());
    origin.put("/short-rangeless", &lasting(b"short", "2").without_ranges());
    listed(&origin, "/page/", "text/plain", "hello");
    let server = exported(&origin, "");
    let mut client = connect(&server);
    let root = client.mount("/").expect("an export");
    for (name, status) in [
        ("denied", ACCES),
        ("untagged", IO),
        ("elsewhere", IO),
        ("rangeless", IO),
    ] {
        assert_eq!(client.look_up(&root, name), Err(status), "{name}");
    }
    server.err_line(&["can't be kept", "untagged"]);
    let short = client.find("short-rangeless");
    assert_eq!(client.read(&short, 0, 10), Ok((b"short".to_vec(), true)));
    let page = client.find("page");
    let args = NfsArgs::default().opaque(&page).u64(0).u64(0).u32(4096);
    assert_eq!(
        client.ask(procedure::READDIR, &args).u32(),
        IO,
        "it is no listing"
    );
    let args = NfsArgs::default().opaque(&root).opaque("x");
    assert_eq!(client.ask(procedure::REMOVE, &args).u32(), ROFS);
    assert_eq!(client.look_up(&short, "x"), Err(20), "it is no folder");
    let refused = Setup::new(origin.url()).args("--nfs 127.0.0.1:0 --nfs-export /=127.0.0.0/8,rw");
    refused.assert_refused(&["an origin can't be changed"]);
}

#[test]
fn a_folder_below_the_origin_is_exported_alone() {
    let origin = Origin::new();
    folder(&origin, "/", &["pub/", "private/"]);
    folder(&origin, "/pub/", &["sub/"]);
    folder(&origin, "/pub/sub/", &["x"]);
    origin.put("/pub/file", &lasting(b"file", "1"));
    let server = exported(&origin, "--nfs-export /pub=127.0.0.0/8");
    let mut client = connect(&server);
    let top = client.mount("/pub").expect("an export");
    assert_eq!(client.mount("/"), Err(NOENT));
    assert_eq!(client.mount("/private"), Err(NOENT));
    assert_eq!(client.mount("/pub/file"), Err(20));
    assert_eq!(client.mount("/pub/none"), Err(NOENT));
    let sub = client.mount("/pub/sub").expect("a folder of it");
    assert_eq!(
        only_names(client.names(&sub, false, 4096)),
        [".", "..", "x"]
    );
    assert_eq!(client.look_up(&top, ".."), Ok(top), "above it is nothing");
}

#[test]
fn libnfs_lists_and_reads_an_origin() {
    let Some(mut cat) = client("nfs-cat") else {
        return;
    };
    let origin = Origin::new();
    let content = pattern(700_000, SEED);
    folder(&origin, "/", &["sub/"]);
    folder(&origin, "/sub/", &["file"]);
    origin.put("/sub/file", &lasting(&content, "1"));
    let server = exported(&origin, "");
    let line = server.out_line(&["NFS at "]);
    let port = line.split("127.0.0.1:").nth(1).expect("a port");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let ports = format!("nfsport={port}&mountport={port}");
    let output = run(cat.arg(format!("nfs://127.0.0.1/sub/file?{ports}")));
    assert!(output.bytes == content, "{}", output.err);
    if let Some(mut list) = client("nfs-ls") {
        let output = run(list.args(["-R", &format!("nfs://127.0.0.1/?{ports}")]));
        let text = &output.out;
        assert!(text.contains("sub") && text.contains("700000"), "{text}");
    }
}
