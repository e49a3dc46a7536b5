//! NFS clients: they mount, look up and read, in any order and as many at once as they like; some are slow, leave in the middle or
//! send nonsense. Every byte is right, and nobody harms the others.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use ackpace_tests::nfs::{NfsArgs, NfsClient, procedure, read_args, read_of};
use ackpace_tests::{
    Rng, Server, Setup, Tree, cached_bytes, client, eventually, forget_cached,
    limit_receive_buffer, metric, pattern, reset_on_drop, run,
};

const SEED: u64 = 23;
const NOENT: u32 = 2;
const ROFS: u32 = 30;
const STALE: u32 = 70;

/// A server of a folder with one file of this length below another folder.
fn served(len_bytes: usize, args: &str) -> (Tree, Vec<u8>, Server) {
    let tree = Tree::new();
    let content = pattern(len_bytes, SEED);
    tree.dir("folder");
    tree.file("folder/big", &content);
    tree.file("small", "small");
    let setup = Setup::new(tree.path()).args("--nfs 127.0.0.1:0 --metrics 127.0.0.1:0");
    let server = setup.args(args).start();
    (tree, content, server)
}

/// Where it serves NFS.
fn nfs_address(server: &Server) -> SocketAddr {
    let line = server.out_line(&["NFS at "]);
    let rest = line.trim_start_matches("NFS at ");
    let address = rest.split(' ').next().expect("an address");
    address.parse().expect("an address")
}

fn connect(server: &Server) -> NfsClient {
    NfsClient::open(nfs_address(server))
}

/// Removes the file from the page cache.
fn cool(tree: &Tree) {
    let file = File::open(tree.at("folder/big")).expect("our own file");
    file.sync_all().expect("our own file");
    forget_cached(&file);
}

/// Whether the page cache of this file system can be emptied: tmpfs can't.
fn can_cool(tree: &Tree) -> bool {
    cool(tree);
    cached_bytes(&File::open(tree.at("folder/big")).expect("our own file")) == 0
}

#[test]
fn a_client_mounts_looks_up_and_reads_cold_and_warm() {
    let (tree, content, server) = served(3_000_001, "");
    let mut client = connect(&server);
    let root = client.mount("/").expect("an export");
    assert_eq!(client.look_up(&root, "none"), Err(NOENT));
    let file = client.find("folder/big");
    assert_eq!(client.len_bytes(&file), Ok(content.len() as u64));
    let mut missed_before = 0.0;
    for round in ["cold", "warm"] {
        let is_cold = round == "cold" && can_cool(&tree);
        let mut got = Vec::new();
        loop {
            let (bytes, is_end) = client.read(&file, got.len() as u64, 65_536).expect("bytes");
            got.extend(bytes);
            if is_end {
                break;
            }
        }
        assert!(got == content, "{round}: other bytes");
        let missed = server.sum("ackpace_nfs_missed_reads_total", &[]) - missed_before;
        match round {
            "cold" => assert!(!is_cold || missed > 0.0, "nothing was missed"),
            _ => assert_eq!(missed, 0.0, "all is in memory"),
        }
        missed_before += missed;
    }
    let (small, is_end) = {
        let small = client.find("small");
        client.read(&small, 2, 1 << 20).expect("bytes")
    };
    assert_eq!((small.as_slice(), is_end), (&b"all"[..], true));
    let (none, is_end) = client.read(&file, 1 << 40, 10).expect("no bytes");
    assert!(none.is_empty() && is_end, "behind its end");
}

#[test]
fn sixteen_reads_are_under_way_in_random_order() {
    const LEN: u32 = 128 << 10;
    let (tree, content, server) = served(40 << 20, "");
    let mut client = connect(&server);
    let file = client.find("folder/big");
    can_cool(&tree);
    let blocks = content.len() as u64 / u64::from(LEN);
    let mut order: Vec<u64> = (0..blocks).collect();
    let mut rng = Rng::new(SEED);
    // As clients do: shuffled among those that are under way.
    for window in order.chunks_mut(16) {
        for at in (1..window.len()).rev() {
            window.swap(at, rng.below(at + 1));
        }
    }
    let mut waiting = Vec::new();
    let mut next = order.into_iter();
    let mut checked = 0;
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
        checked += 1;
    }
    assert_eq!(checked, blocks);
}

#[test]
fn ten_thousand_calls_at_once_are_answered() {
    const CALLS: usize = 10_000;
    let (_tree, content, server) = served(1 << 20, "");
    let mut client = connect(&server);
    let file = client.find("folder/big");
    let stream = client.stream().try_clone().expect("a descriptor");
    let before = server.memory_bytes();
    let mut records = Vec::new();
    let mut offsets = std::collections::HashMap::new();
    for nth in 0..CALLS {
        let offset = (nth * 97 % 1024 * 1000) as u64;
        let (xid, record) =
            client.record(100_003, procedure::READ, &read_args(&file, offset, 4096));
        offsets.insert(xid, offset as usize);
        records.extend(record);
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            (&stream)
                .write_all(&records)
                .expect("the server takes them")
        });
        for _ in 0..CALLS {
            let reply = client.next_reply();
            let offset = offsets.remove(&reply.xid).expect("each once");
            let (bytes, _) = read_of(reply).expect("bytes");
            let end = (offset + 4096).min(content.len());
            assert!(bytes == content[offset..end], "at {offset}");
        }
    });
    let grown = server.memory_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
}

#[test]
fn a_client_that_stops_reading_harms_nobody_and_is_given_up() {
    let (_tree, content, server) = served(32 << 20, "--send-timeout 2s");
    let address = nfs_address(&server);
    let stream = TcpStream::connect(address).expect("a server");
    limit_receive_buffer(&stream, 16 << 10);
    let mut deaf = NfsClient::over(stream);
    let file = deaf.find("folder/big");
    for nth in 0..32 {
        deaf.begin_read(&file, nth << 20, 1 << 20);
    }
    let mut other = connect(&server);
    for nth in 0..8 {
        let (bytes, _) = other.read(&file, nth << 20, 1 << 20).expect("bytes");
        let from = (nth as usize) << 20;
        assert!(bytes == content[from..from + (1 << 20)], "at {from}");
    }
    let mut rest = Vec::new();
    eventually("the deaf client is reset", || {
        let page = server.scrape("/metrics", "").text();
        metric(&page, "ackpace_nfs_open_connections", &[]) == 1.0
    });
    let ended = deaf.stream().read_to_end(&mut rest);
    assert!(ended.is_err(), "RST");
    assert!(other.read(&file, 0, 10).is_ok());
}

#[test]
fn clients_that_reset_in_the_middle_leave_nothing_behind() {
    let (tree, content, server) = served(16 << 20, "");
    let descriptors = {
        let mut client = connect(&server);
        let file = client.find("folder/big");
        client.read(&file, 0, 10).expect("bytes");
        server.descriptors()
    };
    for round in 0..20 {
        let mut client = connect(&server);
        let file = client.find("folder/big");
        if round % 2 == 0 {
            cool(&tree);
        }
        reset_on_drop(client.stream());
        for nth in 0..16 {
            client.begin_read(&file, (nth * 7 % 16) << 20, 1 << 20);
        }
        let mut some = [0; 10_000];
        (client.stream())
            .read_exact(&mut some)
            .expect("a beginning");
    }
    eventually("no connection is left", || {
        let page = server.scrape("/metrics", "").text();
        metric(&page, "ackpace_nfs_open_connections", &[]) == 0.0
    });
    let mut client = connect(&server);
    let file = client.find("folder/big");
    let (bytes, _) = client.read(&file, 5_000_000, 100_000).expect("bytes");
    assert!(bytes == content[5_000_000..5_100_000]);
    // Fewer than one for each round: the device's threads may have started meanwhile.
    eventually("files are closed", || {
        server.descriptors() < descriptors + 20
    });
}

#[test]
fn nonsense_closes_its_own_connection_at_most() {
    let (_tree, _, server) = served(1 << 16, "");
    let address = nfs_address(&server);
    let mut good = connect(&server);
    let file = good.find("folder/big");
    let mut rng = Rng::new(SEED);
    for round in 0..200 {
        let mut stream = TcpStream::connect(address).expect("a server");
        let len = 4 + rng.below(2000);
        let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        if round % 2 == 0 {
            let mark = (1 << 31) | (len - 4) as u32; // a record of nonsense
            bytes[..4].copy_from_slice(&mark.to_be_bytes());
        }
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // Calls with changed bytes.
    for round in 0..500 {
        let mut client = connect(&server);
        let args = read_args(&file, 0, 100);
        let (_, mut record) = client.record(100_003, procedure::READ, &args);
        let at = 4 + rng.below(record.len() - 4);
        record[at] ^= 1 << (round % 8);
        client.send(&record);
        let _ = client.stream().shutdown(std::net::Shutdown::Write);
        let _ = client.stream().read_to_end(&mut Vec::new());
    }
    let (bytes, _) = good.read(&file, 0, 1 << 16).expect("bytes");
    assert_eq!(bytes.len(), 1 << 16);
}

#[test]
fn what_cannot_be_done_says_so() {
    let (_tree, _, server) = served(100, "");
    let mut client = connect(&server);
    let root = client.mount("/").expect("an export");
    // Another version, another program, another procedure.
    for (program, procedure) in [(100_003, 99), (100_000, 3), (100_005, 77)] {
        let (xid, record) = client.record(program, procedure, &NfsArgs::default());
        client.send(&record);
        assert!(!client.reply(xid).accepted, "{program} {procedure}");
    }
    // A WRITE of a MiB: its payload is dropped, and the connection goes on.
    let args = NfsArgs::default().opaque(&root).u64(0).u32(1 << 20).u32(2);
    let args = args.opaque(vec![7; 1 << 20]);
    let mut results = client.ask(procedure::WRITE, &args);
    assert_ne!(results.u32(), 0);
    let remove = NfsArgs::default().opaque(&root).opaque("small");
    assert_eq!(client.ask(procedure::REMOVE, &remove).u32(), ROFS);
    let forged = [7; 40];
    assert_eq!(client.len_bytes(&forged), Err(STALE));
    assert!(client.look_up(&root, "small").is_ok());
}

#[test]
fn a_record_in_many_fragments_is_one_call() {
    let (_tree, content, server) = served(5000, "");
    let mut client = connect(&server);
    let file = client.find("folder/big");
    let args = read_args(&file, 1, 100);
    let (xid, record) = client.record(100_003, procedure::READ, &args);
    let body = &record[4..];
    for (nth, part) in body.chunks(7).enumerate() {
        let is_last = (nth + 1) * 7 >= body.len();
        let mark = (u32::from(is_last) << 31) | part.len() as u32;
        client.send(&mark.to_be_bytes());
        client.send(part);
    }
    let (bytes, _) = read_of(client.reply(xid)).expect("bytes");
    assert!(bytes == content[1..101]);
}

#[test]
fn a_stop_answers_what_has_come_and_closes() {
    let (tree, content, mut server) = served(24 << 20, "");
    let mut client = connect(&server);
    let file = client.find("folder/big");
    can_cool(&tree);
    let calls: Vec<(u32, usize)> = (0..24)
        .map(|nth| {
            (
                client.begin_read(&file, nth << 20, 1 << 20),
                (nth as usize) << 20,
            )
        })
        .collect();
    let first = client.next_reply();
    server.signal(libc::SIGTERM);
    let mut replies = vec![first];
    while let Ok(reply) = client.try_next_reply() {
        replies.push(reply);
    }
    assert_eq!(replies.len(), calls.len(), "all that had come");
    for reply in replies {
        let (_, offset) = calls
            .iter()
            .find(|(xid, _)| *xid == reply.xid)
            .expect("a call");
        let (bytes, _) = read_of(reply).expect("bytes");
        assert!(bytes == content[*offset..offset + (1 << 20)], "at {offset}");
    }
    assert!(server.wait().success());
}

#[test]
fn a_file_that_shrinks_under_its_reads_ends_nothing_else() {
    let (tree, content, server) = served(8 << 20, "");
    let mut client = connect(&server);
    let file = client.find("folder/big");
    let mut other = connect(&server);
    for nth in 0..8 {
        client.begin_read(&file, nth << 20, 1 << 20);
    }
    let path = tree.at("folder/big");
    let cut = File::options()
        .write(true)
        .open(&path)
        .expect("our own file");
    cut.set_len(1000).expect("our own file");
    while let Ok(reply) = client.try_next_reply() {
        // What was sent before is right or zero where the file was cut; then it is short, or the connection ends.
        let _ = read_of(reply);
        if client.begin_read(&file, 0, 2000) > 0x1000 + 200 {
            break;
        }
    }
    let (bytes, is_end) = other.read(&file, 0, 2000).expect("bytes");
    assert!(bytes == content[..1000] && is_end);
}

#[test]
fn libnfs_reads_what_we_serve() {
    let Some(mut cat) = client("nfs-cat") else {
        return;
    };
    let (tree, content, server) = served(5_000_000, "");
    can_cool(&tree);
    let port = nfs_address(&server).port();
    let url = format!("nfs://127.0.0.1/folder/big?nfsport={port}&mountport={port}&version=3");
    let outcome = run(cat.arg(&url));
    assert!(outcome.bytes == content, "{}", outcome.err);
    let url = format!("nfs://127.0.0.1//small?nfsport={port}&mountport={port}&version=3");
    let mut cat = client("nfs-cat").expect("as before");
    assert_eq!(run(cat.arg(&url)).out, "small");
    let Some(mut list) = client("nfs-ls") else {
        return;
    };
    let url = format!("nfs://127.0.0.1/?nfsport={port}&mountport={port}&version=3");
    let outcome = run(list.arg(&url));
    let text = outcome.out;
    assert!(text.contains("folder") && text.contains("small"), "{text}");
}
