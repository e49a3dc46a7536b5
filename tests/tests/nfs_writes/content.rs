//! What is written: where it goes, when it is safe, and what has no room.

use super::*;

#[test]
fn a_file_is_made_written_committed_and_read_back() {
    let Some(world) = World::new("rw") else {
        return;
    };
    let (mut client, root) = world.connect(1001);
    let file = client
        .create(&root, "file", Set::mode(0o640))
        .expect("made");
    let content = pattern(3_000_001, SEED);
    let mut rng = Rng::new(SEED);
    // In pieces of any length, in any order, some of them twice, many under way.
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < content.len() {
        let len = (1 + rng.below(1 << 20)).min(content.len() - at);
        pieces.push((at, len));
        at += len;
    }
    pieces.extend_from_within(..1);
    pieces.reverse();
    let calls: Vec<u32> = pieces
        .iter()
        .map(|&(at, len)| {
            let args = write_args(&file, at as u64, &content[at..at + len], Stable::Later);
            client.begin(procedure::WRITE, &args)
        })
        .collect();
    let mut verifiers = Vec::new();
    for (xid, (_, len)) in calls.into_iter().zip(pieces) {
        let written = written_of(client.reply(xid).results).expect("written");
        assert_eq!((written.len_bytes as usize, written.stable), (len, 0));
        verifiers.push(written.verifier);
    }
    let verifier = client.commit(&file).expect("committed");
    assert!(verifiers.iter().all(|one| *one == verifier), "one run");
    assert!(fs::read(world.at("file")).expect("our own") == content);
    let stat = fs::metadata(world.at("file")).expect("our own");
    assert_eq!(
        (stat.uid(), stat.gid(), stat.mode() & 0o7777),
        (1001, 1001, 0o640)
    );
    let (bytes, _) = client.read(&file, 1_000_000, 1 << 20).expect("bytes");
    assert!(bytes == content[1_000_000..1_000_000 + (1 << 20)]);
    for stable in [Stable::Data, Stable::File] {
        let written = client.write(&file, 7, b"seven", stable).expect("written");
        assert_eq!((written.len_bytes, written.stable), (5, stable as u32));
    }
    let (bytes, _) = client.read(&file, 6, 7).expect("bytes");
    assert!(bytes[1..6] == *b"seven" && bytes[0] == content[6]);
}

#[test]
fn writes_reach_where_they_say_and_no_further() {
    let Some(world) = World::new("rw") else {
        return;
    };
    let (mut client, root) = world.connect(1001);
    let file = client
        .create(&root, "file", Set::mode(0o600))
        .expect("made");
    client
        .write(&file, 1 << 33, b"far", Stable::Later)
        .expect("a hole");
    assert_eq!(client.len_bytes(&file), Ok((1 << 33) + 3));
    let (bytes, _) = client.read(&file, 5000, 10).expect("a hole");
    assert_eq!(bytes, [0; 10]);
    assert_eq!(
        client
            .write(&file, 0, b"", Stable::File)
            .map(|it| it.len_bytes),
        Ok(0)
    );
    for offset in [1 << 63, u64::MAX - 2, u64::MAX] {
        let refused = client.write(&file, offset, b"beyond", Stable::Later);
        assert_eq!(refused, Err(FBIG), "{offset}");
    }
    let largest = client.write(&file, (1 << 63) - 3, b"end", Stable::Later);
    assert_eq!(largest, Err(FBIG), "no file system has such files");
    assert_eq!(client.write(&root, 0, b"x", Stable::Later), Err(ISDIR));
    // Lies about the length: the connection goes on after each.
    for (count, payload) in [(5, &b"four"[..]), (0, b"four"), (1 << 20, b"x")] {
        let args = NfsArgs::default().opaque(&file).u64(0).u32(count).u32(2);
        let mut results = client.ask(procedure::WRITE, &args.opaque(payload));
        assert_eq!(results.u32(), INVAL, "{count}");
    }
    let args = NfsArgs::default().opaque(&file).u64(0).u32(8).u32(2).u32(8);
    let (xid, record) = client.record(
        100_003,
        procedure::WRITE,
        &NfsArgs([args.0, vec![7; 3]].concat()),
    );
    client.send(&record);
    assert!(!client.reply(xid).accepted, "its payload is cut");
    let args = NfsArgs::default().opaque(&file).u64(0).u32(4).u32(3);
    let (xid, record) = client.record(100_003, procedure::WRITE, &args.opaque("four"));
    client.send(&record);
    assert!(!client.reply(xid).accepted, "there is no such stability");
    let (bytes, _) = client.read(&file, 0, 10).expect("nothing was written");
    assert_eq!(bytes, [0; 10]);
    // In fragments, some of them in the middle of the payload.
    let args = write_args(&file, 2, b"in fragments", Stable::Later);
    let (xid, record) = client.record(100_003, procedure::WRITE, &args);
    let body = &record[4..];
    for (nth, part) in body.chunks(7).enumerate() {
        let is_last = (nth + 1) * 7 >= body.len();
        let mark = (u32::from(is_last) << 31) | part.len() as u32;
        client.send(&mark.to_be_bytes());
        client.send(part);
    }
    assert_eq!(
        written_of(client.reply(xid).results).map(|it| it.len_bytes),
        Ok(12)
    );
    let (bytes, _) = client.read(&file, 0, 14).expect("bytes");
    assert_eq!(bytes, b"\0\0in fragments");
}

#[test]
fn many_calls_at_once_and_resets_leave_what_was_replied() {
    let Some(world) = World::new("rw") else {
        return;
    };
    let (mut client, root) = world.connect(1001);
    let file = client
        .create(&root, "file", Set::mode(0o644))
        .expect("made");
    const CALLS: u64 = 10_000;
    let before = world.server.memory_bytes();
    let stream = client.stream().try_clone().expect("a descriptor");
    let mut records = Vec::new();
    for nth in 0..CALLS {
        let bytes = [(nth % 251) as u8; 1000];
        let args = write_args(&file, nth * 1000, &bytes, Stable::Later);
        records.extend(client.record(100_003, procedure::WRITE, &args).1);
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            (&stream)
                .write_all(&records)
                .expect("the server takes them")
        });
        for _ in 0..CALLS {
            let written = written_of(client.next_reply().results);
            assert_eq!(written.map(|it| it.len_bytes), Ok(1000));
        }
    });
    let grown = world.server.memory_bytes().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes more");
    let content = fs::read(world.at("file")).expect("our own");
    for (nth, bytes) in content.chunks(1000).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == (nth % 251) as u8), "{nth}");
    }
    // Clients that leave in the middle of a payload: nothing of that call is written.
    for round in 0..20u64 {
        let (mut leaver, _) = world.connect(1001);
        let args = write_args(&file, 0, &[0xff; 1 << 20], Stable::Later);
        let (_, record) = leaver.record(100_003, procedure::WRITE, &args);
        reset_on_drop(leaver.stream());
        leaver.send(&record[..record.len() / 2 + round as usize * 1000]);
    }
    eventually("no connection but one is left", || {
        world.server.sum("ackpace_nfs_open_connections", &[]) == 1.0
    });
    let (bytes, _) = client.read(&file, 0, 1 << 20).expect("bytes");
    assert!(bytes == content[..1 << 20]);
    // Many at once that bring much: memory is bounded, and all are served.
    std::thread::scope(|scope| {
        for nth in 0..32u64 {
            let (mut one, _) = world.connect(1001);
            let file = &file;
            scope.spawn(move || {
                let bytes = vec![nth as u8; 1 << 20];
                let args = write_args(file, (20 + nth) << 20, &bytes, Stable::Later);
                let calls: Vec<u32> = (0..8).map(|_| one.begin(procedure::WRITE, &args)).collect();
                for xid in calls {
                    let written = written_of(one.reply(xid).results);
                    assert_eq!(written.map(|it| it.len_bytes), Ok(1 << 20));
                }
            });
        }
    });
    let grown = world.server.memory_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    for nth in 0..32u64 {
        let (bytes, _) = client
            .read(&file, (20 + nth) << 20, 1 << 20)
            .expect("bytes");
        assert!(bytes.iter().all(|byte| *byte == nth as u8), "{nth}");
    }
}

#[test]
fn a_killed_server_is_noticed_by_its_verifier() {
    let Some(mut world) = World::new("rw") else {
        return;
    };
    let (mut client, root) = world.connect(1001);
    let file = client
        .create(&root, "file", Set::mode(0o644))
        .expect("made");
    let before = client
        .write(&file, 0, b"not committed", Stable::Later)
        .expect("written");
    world.restart("rw");
    let (mut client, _) = world.connect(1001);
    let after = client.commit(&file).expect("the handle outlives it");
    assert_ne!(before.verifier, after);
    let again = client
        .write(&file, 0, b"written again", Stable::Later)
        .expect("written");
    assert_eq!((again.verifier, client.commit(&file)), (after, Ok(after)));
    assert_eq!(fs::read(world.at("file")).expect("there"), b"written again");
}

#[test]
fn a_limit_for_files_is_an_error_of_its_write() {
    let Some(mut world) = World::new("rw") else {
        return;
    };
    world.server.signal(libc::SIGKILL);
    world.server.wait();
    let limited = setup(&world.root(), &world.socket, "rw").before(|| {
        let limit = libc::rlimit {
            rlim_cur: 1 << 20,
            rlim_max: 1 << 20,
        };
        // SAFETY: it reads the limit.
        match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    });
    world.server = limited.start();
    let (mut client, root) = world.connect(1001);
    let file = client
        .create(&root, "file", Set::mode(0o644))
        .expect("made");
    let bytes = vec![7; 1 << 20];
    let short = client.write(&file, 1 << 19, &bytes, Stable::Later);
    assert_eq!(
        short.map(|it| it.len_bytes),
        Ok(1 << 19),
        "as much as may be"
    );
    assert_eq!(client.write(&file, 1 << 20, b"x", Stable::File), Err(FBIG));
    assert_eq!(client.len_bytes(&file), Ok(1 << 20));
    let file = client.read(&file, 1 << 19, 1).expect("the server goes on");
    assert_eq!(file.0, [7]);
}

/// A small file system in memory.
struct Mounted(std::ffi::CString);

impl Mounted {
    fn new(path: &Path) -> Option<Mounted> {
        let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL");
        // SAFETY: all are strings that end with a NUL.
        let done = unsafe {
            let (kind, options) = (c"tmpfs".as_ptr(), c"size=1m,mode=777".as_ptr());
            libc::mount(kind, path.as_ptr(), kind, 0, options.cast())
        };
        match done {
            0 => Some(Mounted(path)),
            _ => {
                let error = std::io::Error::last_os_error();
                skip(&format!("a tmpfs can't be mounted: {error}"));
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SAFETY: a string that ends with a NUL.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_disk_is_told_and_goes_on_when_there_is_room() {
    let Some(world) = World::new("rw") else {
        return;
    };
    fs::create_dir(world.at("small")).expect("our own");
    let Some(_mounted) = Mounted::new(&world.at("small")) else {
        return;
    };
    let (mut client, root) = world.connect(1001);
    let small = client.look_up(&root, "small").expect("there");
    let file = client
        .create(&small, "file", Set::mode(0o644))
        .expect("made");
    let bytes = pattern(1 << 19, SEED);
    let mut offset = 0;
    let status = loop {
        match client.write(&file, offset, &bytes, Stable::Later) {
            Ok(written) => offset += u64::from(written.len_bytes),
            Err(status) => break status,
        }
        assert!(offset <= 1 << 20, "{offset} bytes in a MiB");
    };
    assert_eq!(status, NOSPC);
    assert_eq!(
        client.make_link(&root, "a", b"b").map(|_| ()),
        Ok(()),
        "another disk"
    );
    let (read, _) = client.read(&file, 0, 1 << 19).expect("bytes");
    assert!(read == bytes);
    client.set(&file, Set::size(0), None).expect("room again");
    client
        .write(&file, 0, &bytes, Stable::File)
        .expect("written");
    let moved = client.rename((&small, "file"), (&root, "file"));
    assert_eq!(moved, Err(XDEV));
    assert_eq!(client.link(&file, &root, "file"), Err(XDEV));
}

#[test]
fn libnfs_copies_and_reads_back() {
    let (Some(mut copy), Some(mut cat)) = (client("nfs-cp"), client("nfs-cat")) else {
        return;
    };
    let Some(world) = World::new("rw,all_squash") else {
        return;
    };
    let content = pattern(5_000_001, SEED);
    let source = world.tree.at("source");
    fs::write(&source, &content).expect("our own");
    let port = nfs_address(&world.server).port();
    let url = format!("nfs://127.0.0.1//copied?nfsport={port}&mountport={port}&version=3");
    let outcome = run(copy.arg(&source).arg(&url));
    assert!(outcome.success, "{}", outcome.err);
    assert!(fs::read(world.at("copied")).expect("it is there") == content);
    let url = format!("nfs://127.0.0.1//copied?nfsport={port}&mountport={port}&version=3");
    let outcome = run(cat.arg(&url));
    assert!(outcome.bytes == content, "{}", outcome.err);
}
