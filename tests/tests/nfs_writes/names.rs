//! Files are made, renamed, linked and removed.

use super::*;

#[test]
fn names_are_bytes_that_stay_in_their_folder() {
    let Some(world) = World::new("rw") else {
        return;
    };
    let (mut client, root) = world.connect(1001);
    let plain = Set::mode(0o755);
    let longest = [b'n'; 255];
    for name in [&b"a b"[..], b"\xff\xfe", b"...", b"-", &longest] {
        client.create(&root, name, plain).expect("a good name");
        client.remove(&root, name).expect("it is there");
        client.make_dir(&root, name, plain).expect("a good name");
        client.remove_dir(&root, name).expect("it is there");
    }
    for (name, status) in [
        (&b""[..], ACCES),
        (b"a/b", ACCES),
        (b"/etc", ACCES),
        (b"a\0", ACCES),
        (b".", EXIST),
        (b"..", EXIST),
        (&[b'n'; 256], NAMETOOLONG),
        (b".git", ACCES),
    ] {
        assert_eq!(client.create(&root, name, plain), Err(status), "{name:?}");
        assert_eq!(client.make_dir(&root, name, plain), Err(status), "{name:?}");
    }
    for (name, status) in [
        (&b"."[..], INVAL),
        (b"..", INVAL),
        (b"a/b", ACCES),
        (b"none", NOENT),
    ] {
        assert_eq!(client.remove(&root, name), Err(status), "{name:?}");
        assert_eq!(client.remove_dir(&root, name), Err(status), "{name:?}");
    }
    // Links that leave are made, and followed by nobody here.
    client.make_link(&root, "away", b"/etc").expect("a link");
    client.make_link(&root, "up", b"../..").expect("a link");
    let away = client.look_up(&root, "away").expect("itself");
    assert_eq!(client.create(&away, "passwd", plain), Err(NOTDIR));
    assert_eq!(client.write(&away, 0, b"x", Stable::File), Err(INVAL));
    assert_eq!(client.create_any(&root, "away", Set::size(0)), Err(EXIST));
    for target in [&b""[..], b"a\0b"] {
        assert_eq!(client.make_link(&root, "bad", target), Err(INVAL));
    }
    assert_eq!(
        client.make_link(&root, "bad", &[b'x'; 4097]),
        Err(NAMETOOLONG)
    );
    assert_eq!(client.make_link(&root, "away", b"x"), Err(EXIST));
    for kind in [6, 7] {
        client
            .make_node(&root, &format!("node{kind}"), kind, Set::mode(0o600))
            .expect("a pipe, a socket");
    }
    assert_eq!(client.make_node(&root, "x", 1, plain), Err(BADTYPE));
    assert_eq!(
        client.make_node(&root, "x", 4, plain),
        Err(PERM),
        "a device"
    );
}

#[test]
fn what_is_renamed_or_removed_is_known_at_once() {
    let Some(world) = World::new("rw") else {
        return;
    };
    let (mut client, root) = world.connect(1001);
    let plain = Set::mode(0o755);
    let [a, b] = ["a", "b"].map(|name| client.make_dir(&root, name, plain).expect("made"));
    let deep = client.make_dir(&a, "deep", plain).expect("made");
    let file = client
        .create(&deep, "file", Set::mode(0o644))
        .expect("made");
    client
        .write(&file, 0, b"content", Stable::Later)
        .expect("written");
    client.rename((&root, "a"), (&b, "moved")).expect("renamed");
    // All handles go on, also of files below it.
    client
        .write(&file, 7, b"!", Stable::Later)
        .expect("written");
    client
        .create(&deep, "second", Set::mode(0o644))
        .expect("made");
    client.set(&file, Set::mode(0o600), None).expect("set");
    assert_eq!(client.read(&file, 0, 99).expect("bytes").0, b"content!");
    assert_eq!(
        fs::read(world.at("b/moved/deep/file")).expect("there"),
        b"content!"
    );
    assert!(world.at("b/moved/deep/second").exists());
    // Moved by somebody else.
    fs::rename(world.at("b/moved"), world.at("again")).expect("our own");
    client
        .write(&file, 8, b"!", Stable::Later)
        .expect("written");
    client.remove(&deep, "second").expect("removed");
    // Over others.
    let full = client.make_dir(&root, "full", plain).expect("made");
    client.create(&full, "x", plain).expect("made");
    assert_eq!(
        client.rename((&root, "again"), (&root, "full")),
        Err(NOTEMPTY)
    );
    assert_eq!(client.rename((&full, "x"), (&root, "again")), Err(ISDIR));
    assert_eq!(client.rename((&root, "full"), (&full, "y")), Err(INVAL));
    client.remove(&full, "x").expect("removed");
    client
        .rename((&root, "again"), (&root, "full"))
        .expect("an empty one makes room");
    assert_eq!(client.len_bytes(&full), Err(STALE));
    // Removed.
    client.link(&file, &root, "link").expect("one more name");
    assert_eq!(client.link(&deep, &root, "folder"), Err(ISDIR));
    assert_eq!(client.link(&file, &root, "link"), Err(EXIST));
    client.remove(&root, "link").expect("removed");
    client.remove(&deep, "file").expect("removed");
    assert_eq!(client.len_bytes(&file), Err(STALE));
    assert_eq!(client.write(&file, 0, b"x", Stable::Later), Err(STALE));
    assert_eq!(client.remove_dir(&b, "none"), Err(NOENT));
    assert_eq!(client.remove(&root, "b"), Err(ISDIR));
    client.remove_dir(&root, "b").expect("removed");
    assert_eq!(client.create(&b, "x", plain), Err(STALE));
    let before = world.server.descriptors();
    for round in 0..50 {
        let file = client
            .create(&root, format!("f{round}"), plain)
            .expect("made");
        client
            .write(&file, 0, b"x", Stable::Later)
            .expect("written");
        client.remove(&root, format!("f{round}")).expect("removed");
    }
    eventually("removed files are closed", || {
        world.server.descriptors() < before + 20
    });
}

#[test]
fn files_are_made_once_guarded_or_found() {
    let Some(world) = World::new("rw") else {
        return;
    };
    let (mut client, root) = world.connect(1001);
    let (mut other, _) = world.connect(1002);
    let once = client
        .create_once(&root, "once", 7 << 32 | 9)
        .expect("made");
    assert_eq!(
        client.create_once(&root, "once", 7 << 32 | 9),
        Ok(once.clone())
    );
    assert_eq!(client.create_once(&root, "once", 8), Err(EXIST));
    assert_eq!(other.create_once(&root, "once", 7 << 32 | 9), Err(EXIST));
    client
        .set(&once, Set::mode(0o444), None)
        .expect("as clients do then");
    client
        .write(&once, 0, b"it is open", Stable::Later)
        .expect("whatever its mode");
    assert_eq!(client.create(&root, "once", Set::mode(0o644)), Err(EXIST));
    let found = client
        .create_any(&root, "once", Set::mode(0o600))
        .expect("found");
    assert_eq!(found, once);
    let stat = fs::metadata(world.at("once")).expect("there");
    assert_eq!(
        (stat.len(), stat.mode() & 0o7777),
        (10, 0o444),
        "left alone"
    );
    assert_eq!(other.create_any(&root, "once", Set::size(0)), Err(ACCES));
    client.set(&once, Set::mode(0o644), None).expect("his own");
    client.create_any(&root, "once", Set::size(0)).expect("cut");
    assert_eq!(client.len_bytes(&once), Ok(0));
    // Guards.
    let stat = fs::metadata(world.at("once")).expect("there");
    let guard = (stat.ctime() as u32, stat.ctime_nsec() as u32);
    assert_eq!(
        client.set(&once, Set::mode(0o600), Some((1, 1))),
        Err(NOT_SYNC)
    );
    assert_eq!(client.set(&once, Set::mode(0o600), Some(guard)), Ok(()));
    assert_eq!(
        client.set(&once, Set::mode(0o640), Some(guard)),
        Err(NOT_SYNC)
    );
    let all = Set {
        mode: Some(0o106_755),
        size: Some(1 << 20),
        mtime_s: Some(5),
        ..Set::default()
    };
    client.set(&once, all, None).expect("his own");
    let stat = fs::metadata(world.at("once")).expect("there");
    assert_eq!(
        (stat.len(), stat.mode() & 0o7777, stat.mtime()),
        (1 << 20, 0o6755, 5)
    );
    assert_eq!(client.set(&once, Set::size(1 << 63), None), Err(FBIG));
    assert_eq!(client.set(&root, Set::size(0), None), Err(ISDIR));
    // wcc: what one client alone does is told with what was before.
    let args = write_args(&once, 0, b"x", Stable::Later);
    let mut results = client.ask(procedure::WRITE, &args);
    assert_eq!((results.u32(), change(&mut results)), (0, (true, true)));
}

#[test]
fn a_repeated_call_has_its_first_reply() {
    let Some(world) = World::new("rw") else {
        return;
    };
    let (mut client, root) = world.connect(1001);
    client
        .create(&root, "file", Set::mode(0o644))
        .expect("made");
    let (xid, record) = client.record(100_003, procedure::REMOVE, &place(&root, "file"));
    client.send(&record);
    let first = client.reply(xid).results.rest().to_vec();
    assert_eq!(first[..4], [0; 4]);
    // By another connection, as after a reset: many at once.
    let mut again = NfsClient::open(nfs_address(&world.server)).user(1001);
    for _ in 0..20 {
        again.send(&record);
    }
    for _ in 0..20 {
        let reply = again.next_reply();
        assert_eq!((reply.xid, reply.results.rest()), (xid, &first[..]));
    }
    assert_eq!(again.remove(&root, "file"), Err(NOENT), "another call");
    // Sent twenty times before the first reply: made once.
    let args = NfsArgs(place(&root, "dir").0.into_iter().chain([0; 24]).collect());
    let (xid, record) = again.record(100_003, procedure::MKDIR, &args);
    again.send(&record.repeat(20));
    for _ in 0..20 {
        let mut reply = again.next_reply();
        assert_eq!((reply.xid, reply.results.u32()), (xid, 0));
    }
}
