//! What each user may, and what happens without a broker.

use super::*;

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
fn a_write_clears_the_bits_that_lend_the_owners_rights() {
    let Some(world) = World::new("rw") else {
        return;
    };
    let (mut one, root) = world.connect(1001);
    let (mut other, _) = world.connect(1002);
    let file = one
        .create(&root, "program", Set::mode(0o6777))
        .expect("made");
    let mode = || fs::metadata(world.at("program")).expect("made").mode() & 0o7777;
    assert_eq!(mode(), 0o6777);
    // The server runs as root here, from which the kernel takes no bits by itself.
    other
        .write(&file, 0, b"theirs", Stable::File)
        .expect("all may");
    assert_eq!(mode(), 0o777);
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
