//! NFS clients that change files, by the broker: each user what the kernel lets him, and every byte where it belongs.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use ackpace_tests::nfs::{NfsArgs, NfsClient, procedure};
use ackpace_tests::nfs_writes::{Set, Stable, change, place, write_args, written_of};
use ackpace_tests::{
    Program, Rng, Server, Setup, Tree, client, eventually, host_start, needs_root, pattern,
    reset_on_drop, run, skip,
};

const SEED: u64 = 53;
const PERM: u32 = 1;
const NOENT: u32 = 2;
const ACCES: u32 = 13;
const EXIST: u32 = 17;
const XDEV: u32 = 18;
const NOTDIR: u32 = 20;
const ISDIR: u32 = 21;
const INVAL: u32 = 22;
const FBIG: u32 = 27;
const NOSPC: u32 = 28;
const ROFS: u32 = 30;
const NAMETOOLONG: u32 = 63;
const NOTEMPTY: u32 = 66;
const STALE: u32 = 70;
const NOT_SYNC: u32 = 10_002;
const BADTYPE: u32 = 10_007;
const JUKEBOX: u32 = 10_008;

/// A folder where everybody may write, its broker, and a server that exports it.
struct World {
    tree: Tree,
    broker: Program,
    server: Server,
    socket: PathBuf,
}

impl World {
    fn new(export: &str) -> Option<World> {
        World::with(export, "")
    }

    /// `None`, and the test is reported as skipped, without root.
    fn with(export: &str, broker_args: &str) -> Option<World> {
        if !needs_root("users of other numbers") {
            return None;
        }
        let tree = Tree::new();
        let root = tree.dir("root");
        fs::set_permissions(&root, Permissions::from_mode(0o777)).expect("our own");
        let socket = tree.at("files.sock");
        let broker = start_broker(&root, &socket, broker_args);
        let server = start_server(&root, &socket, export);
        Some(World {
            tree,
            broker,
            server,
            socket,
        })
    }

    fn root(&self) -> PathBuf {
        self.tree.at("root")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    fn connect(&self, uid: u32) -> (NfsClient, Vec<u8>) {
        let mut client = NfsClient::open(nfs_address(&self.server)).user(uid);
        let root = client.mount("/").expect("an export");
        (client, root)
    }

    fn restart(&mut self, export: &str) {
        self.server.signal(libc::SIGKILL);
        self.server.wait();
        self.server = start_server(&self.root(), &self.socket, export);
    }
}

fn start_broker(root: &Path, socket: &Path, args: &str) -> Program {
    let (root, socket) = (root.display(), socket.display());
    let line = format!("files --root {root} --for 0:0 --socket {socket} {args}");
    let broker = host_start(line.trim());
    broker.err_line(&["files: ready"]);
    broker
}

fn start_server(root: &Path, socket: &Path, export: &str) -> Server {
    setup(root, socket, export).start()
}

fn setup(root: &Path, socket: &Path, export: &str) -> Setup {
    let key = socket.with_file_name("nfs.key");
    let (key, socket) = (key.display(), socket.display());
    let args = format!(
        "--nfs 127.0.0.1:0 --nfs-export /=127.0.0.1,{export} --nfs-broker {socket} --nfs-key {key} --metrics 127.0.0.1:0"
    );
    Setup::new(root).args(&*args)
}

fn nfs_address(server: &Server) -> SocketAddr {
    let line = server.out_line(&["NFS at "]);
    let rest = line.trim_start_matches("NFS at ");
    let address = rest.split(' ').next().expect("an address");
    address.parse().expect("an address")
}

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
fn a_user_may_what_the_kernel_lets_him() {
    let Some(world) = World::new("rw") else {
        return;
    };
    let dir = |name: &str, mode: u32, owner: u32, group: u32| {
        let path = world.at(name);
        fs::create_dir(&path).expect("a folder");
        chown(&path, Some(owner), Some(group)).expect("root may");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("root may");
    };
    dir("own", 0o755, 1001, 1001);
    dir("team", 0o2770, 1001, 60);
    dir("tmp", 0o1777, 0, 0);
    let (mut one, root) = world.connect(1001);
    let (mut other, _) = world.connect(1002);
    let address = nfs_address(&world.server);
    let mut member = NfsClient::open(address).user(1003).groups(&[1003, 5, 60]);
    let [own, team, tmp] = ["own", "team", "tmp"].map(|name| one.look_up(&root, name).expect(name));
    one.create(&own, "a", Set::mode(0o644)).expect("his own");
    assert_eq!(other.create(&own, "b", Set::mode(0o644)), Err(ACCES));
    assert_eq!(other.remove(&own, "a"), Err(ACCES));
    let file = member
        .create(&team, "b", Set::mode(0o664))
        .expect("a member");
    let stat = fs::metadata(world.at("team/b")).expect("made");
    assert_eq!((stat.uid(), stat.gid()), (1003, 60), "the folder's group");
    assert_eq!(other.create(&team, "c", Set::mode(0o644)), Err(ACCES));
    one.create(&tmp, "x", Set::mode(0o666)).expect("all may");
    assert_eq!(other.remove(&tmp, "x"), Err(PERM), "sticky");
    assert_eq!(other.rename((&tmp, "x"), (&tmp, "y")), Err(PERM));
    // Content, by mode and by group.
    let secret = one.create(&root, "secret", Set::mode(0o600)).expect("made");
    one.write(&secret, 0, b"mine", Stable::File)
        .expect("his own");
    assert_eq!(other.write(&secret, 0, b"x", Stable::File), Err(ACCES));
    assert_eq!(other.commit(&secret), Err(ACCES));
    assert_eq!(other.read(&secret, 0, 4), Err(ACCES));
    assert_eq!(other.set(&secret, Set::mode(0o666), None), Err(PERM));
    assert_eq!(other.set(&secret, Set::size(0), None), Err(ACCES));
    assert_eq!(
        other.set(
            &secret,
            Set {
                mtime_s: Some(1),
                ..Set::default()
            },
            None
        ),
        Err(PERM)
    );
    let give = |uid| Set {
        uid: Some(uid),
        ..Set::default()
    };
    assert_eq!(
        one.set(&secret, give(1002), None),
        Err(PERM),
        "nobody gives files away"
    );
    assert_eq!(
        member
            .write(&file, 0, b"x", Stable::Later)
            .map(|it| it.len_bytes),
        Ok(1)
    );
    // What is open stays so for its owner, and for nobody else.
    one.set(&secret, Set::mode(0o400), None).expect("his own");
    one.write(&secret, 4, b" too", Stable::File)
        .expect("it was open");
    one.set(&secret, Set::mode(0o666), None).expect("his own");
    other
        .write(&secret, 0, b"ours", Stable::Later)
        .expect("now he may");
    one.set(&secret, Set::mode(0o644), None).expect("his own");
    assert_eq!(other.write(&secret, 0, b"x", Stable::Later), Err(ACCES));
    // ACCESS says the same.
    const CHANGES: u32 = 4 | 8 | 16;
    assert_eq!(one.access(&secret).expect("bits") & CHANGES, 4 | 8);
    assert_eq!(other.access(&secret).expect("bits") & CHANGES, 0);
    assert_eq!(one.access(&own).expect("bits") & CHANGES, CHANGES);
    assert_eq!(other.access(&own).expect("bits") & CHANGES, 0);
}

#[test]
fn root_is_nobody_unless_export_and_broker_say_otherwise() {
    let Some(world) = World::new("rw") else {
        return;
    };
    let (mut root_user, root) = world.connect(0);
    root_user
        .create(&root, "squashed", Set::mode(0o644))
        .expect("nobody may");
    let stat = fs::metadata(world.at("squashed")).expect("made");
    assert_eq!((stat.uid(), stat.gid()), (65_534, 65_534));
    assert_eq!(
        root_user.make_node(&root, "null", 4, Set::mode(0o666)),
        Err(PERM)
    );
    drop(world);

    let Some(world) = World::new("rw,no_root_squash") else {
        return;
    };
    let (mut root_user, root) = world.connect(0);
    assert_eq!(
        root_user.create(&root, "x", Set::mode(0o644)),
        Err(PERM),
        "the broker refuses root"
    );
    drop(world);

    let Some(world) = World::with("rw,no_root_squash", "--allow-root") else {
        return;
    };
    let (mut root_user, root) = world.connect(0);
    let file = root_user
        .create(&root, "x", Set::mode(0o600))
        .expect("root may");
    let give = Set {
        uid: Some(1001),
        gid: Some(1002),
        ..Set::default()
    };
    root_user.set(&file, give, None).expect("root may");
    let stat = fs::metadata(world.at("x")).expect("made");
    assert_eq!((stat.uid(), stat.gid()), (1001, 1002));
    root_user
        .make_node(&root, "null", 4, Set::mode(0o666))
        .expect("root may");
    let (mut one, _) = world.connect(1003);
    assert_eq!(one.write(&file, 0, b"x", Stable::Later), Err(ACCES));
    assert_eq!(
        one.make_node(&root, "other", 4, Set::mode(0o666)),
        Err(PERM)
    );
    drop(world);

    let Some(world) = World::new("rw,all_squash,anonuid=70,anongid=80") else {
        return;
    };
    let (mut one, root) = world.connect(1001);
    one.make_dir(&root, "dir", Set::mode(0o755)).expect("made");
    let stat = fs::metadata(world.at("dir")).expect("made");
    assert_eq!((stat.uid(), stat.gid()), (70, 80));
}

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
fn a_broker_that_is_away_is_waited_for() {
    let Some(mut world) = World::new("rw") else {
        return;
    };
    let (mut client, root) = world.connect(1001);
    let file = client
        .create(&root, "file", Set::mode(0o644))
        .expect("made");
    world.broker.kill();
    assert_eq!(
        client.make_dir(&root, "dir", Set::mode(0o755)),
        Err(JUKEBOX)
    );
    assert_eq!(client.remove(&root, "file"), Err(JUKEBOX));
    client
        .write(&file, 0, b"open files go on", Stable::File)
        .expect("written");
    assert_eq!(client.read(&file, 0, 4).expect("bytes").0, b"open");
    world.broker = start_broker(&world.root(), &world.socket, "");
    client
        .make_dir(&root, "dir", Set::mode(0o755))
        .expect("made");
    client.remove(&root, "file").expect("removed");
    // A server does not start without one, or with another folder's.
    world.broker.kill();
    let args = |socket: &PathBuf| {
        format!(
            "--nfs 127.0.0.1:0 --nfs-export /=127.0.0.1,rw --nfs-broker {}",
            socket.display()
        )
    };
    let start = |args: String| Setup::new(world.root()).args(&*args);
    start(args(&world.socket))
        .assert_refused_now(&["rw takes a broker", "ackpace-host files --root"]);
    let other = world.tree.dir("other");
    let socket = world.tree.at("other.sock");
    let _broker = start_broker(&other, &socket, "");
    start(args(&socket)).assert_refused_now(&["has another folder"]);
}

#[test]
fn a_server_without_rights_reads_what_its_clients_keep_private() {
    const SERVER: u32 = 1500;
    if !needs_root("users of other numbers") {
        return;
    }
    let tree = Tree::new();
    let (root, socket) = (tree.dir("root"), tree.at("files.sock"));
    fs::set_permissions(&root, Permissions::from_mode(0o777)).expect("our own");
    let line = format!(
        "files --root {} --for {SERVER}:{SERVER} --socket {}",
        root.display(),
        socket.display()
    );
    let broker = host_start(&*line);
    broker.err_line(&["files: ready"]);
    let args = format!(
        "--nfs 127.0.0.1:0 --nfs-export /=127.0.0.1,rw --nfs-broker {}",
        socket.display()
    );
    let server = Setup::new(&root).args(&*args).user(SERVER).start();
    let connect = |uid| NfsClient::open(nfs_address(&server)).user(uid);
    let (mut one, mut other) = (connect(1001), connect(1002));
    let top = one.mount("/").expect("an export");
    let private = one
        .make_dir(&top, "private", Set::mode(0o700))
        .expect("made");
    let deep = one
        .make_dir(&private, "deep", Set::mode(0o700))
        .expect("made");
    let file = one.create(&deep, "file", Set::mode(0o600)).expect("made");
    one.write(&file, 0, b"secret", Stable::Later)
        .expect("written");
    assert_eq!(one.read(&file, 0, 99).expect("bytes").0, b"secret");
    let found = one.find("private/deep/file");
    assert_eq!(one.read(&found, 0, 99).expect("bytes").0, b"secret");
    one.rename((&deep, "file"), (&private, "moved"))
        .expect("renamed");
    assert_eq!(one.read(&file, 3, 99).expect("bytes").0, b"ret");
    let list = NfsArgs::default().opaque(&private).u64(0).u64(0).u32(4096);
    let mut listed = one.ask(procedure::READDIR, &list);
    assert_eq!(listed.u32(), 0);
    let names = String::from_utf8_lossy(listed.rest()).into_owned();
    assert!(
        names.contains("moved") && names.contains("deep"),
        "{names:?}"
    );
    // Nobody else, neither by name nor by handle, nor by HTTP.
    assert_eq!(other.look_up(&private, "moved"), Err(ACCES));
    assert_eq!(other.read(&file, 0, 9), Err(ACCES));
    assert_eq!(other.ask(procedure::READDIR, &list).u32(), ACCES);
    let path = "/private/moved";
    assert_ne!(server.get(path, "").status, 200);
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
fn a_read_only_export_stays_so() {
    let Some(world) = World::new("ro") else {
        return;
    };
    fs::write(world.at("file"), "x").expect("our own");
    let (mut client, root) = world.connect(1001);
    let file = client.look_up(&root, "file").expect("there");
    let plain = Set::mode(0o777);
    assert_eq!(client.create(&root, "new", plain), Err(ROFS));
    assert_eq!(
        client.write(&file, 0, &[7; 1 << 20], Stable::Later),
        Err(ROFS)
    );
    assert_eq!(client.commit(&file), Err(ROFS));
    assert_eq!(client.set(&file, plain, None), Err(ROFS));
    assert_eq!(client.link(&file, &root, "link"), Err(ROFS));
    assert_eq!(client.rename((&root, "file"), (&root, "new")), Err(ROFS));
    assert_eq!(client.access(&root).expect("bits") & 28, 0);
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
