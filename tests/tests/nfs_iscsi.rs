//! NFS over an iSCSI target: tgtd exports a disk whose ext4 is also mounted here, and a program of the test says so in place of
//! `ackpace-host gateway`. Every byte is right, whatever happens to the files, the counters, the target and that program.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ackpace_tests::nfs::{NfsClient, read_of};
use ackpace_tests::{
    GatewayProgram, Rng, SaidUnit, Server, Setup, Tree, client, command, eventually, mounts_apart,
    needs_root, pattern, reset_on_drop,
};

#[allow(dead_code, reason = "the tests of wire/ use the rest")]
#[path = "../../wire/tests/iscsi/tgtd.rs"]
mod tgtd;

use tgtd::Tgtd;

const SEED: u64 = 53;
const UNIT_BYTES: u64 = 192 << 20;
/// What tgtd gives the first unit of its first target.
const SERIAL: &str = "beaf11";

/// A target, its file system mounted here, and a program that says so.
struct World {
    tree: Tree,
    tgtd: Tgtd,
    program: Option<GatewayProgram>,
}

impl Drop for World {
    fn drop(&mut self) {
        let mut umount = command("umount");
        let _ = umount.arg("--lazy").arg(self.mount()).output();
    }
}

impl World {
    /// `None`: this machine can't, and the test is reported as skipped.
    fn new(mkfs: &str) -> Option<World> {
        if !needs_root("a mount") {
            return None;
        }
        client("mkfs.ext4")?;
        let tgtd = Tgtd::with_disk(UNIT_BYTES)?;
        mounts_apart().expect("root may");
        let world = World {
            tree: Tree::new(),
            tgtd,
            program: None,
        };
        fs::create_dir(world.mount()).expect("a folder");
        let mut made = command("mkfs.ext4");
        made.arg("-q").args(mkfs.split_whitespace());
        let made = made.arg(world.tgtd.disk()).output().expect("mkfs");
        assert!(made.status.success(), "{made:?}");
        let mut mount = command("mount");
        mount.args(["-o", "loop,noatime,nodiscard"]);
        let mounted = mount.arg(world.tgtd.disk()).arg(world.mount());
        let mounted = mounted.output().expect("mount");
        if !mounted.status.success() {
            ackpace_tests::skip("no loop device can be mounted here");
            return None;
        }
        Some(world)
    }

    fn mount(&self) -> PathBuf {
        self.tree.at("mount")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mount().join(name)
    }

    /// Writes a file, which is at rest when this returns: it is on the unit, and its times are old enough.
    fn file(&self, name: &str, content: &[u8]) {
        let mut file = File::create(self.at(name)).expect("a file");
        file.write_all(content).expect("a file");
        self.settle(&file);
    }

    fn settle(&self, file: &File) {
        file.sync_all().expect("a file");
        std::thread::sleep(Duration::from_millis(50)); // what a ctime has to be old
    }

    fn said(&self) -> SaidUnit {
        SaidUnit {
            device: fs::metadata(self.mount()).expect("a folder").dev(),
            len_bytes: UNIT_BYTES,
            serial: SERIAL.to_owned(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.tree.at("gateway.sock")
    }

    /// The program says this, or ends.
    fn says(&mut self, said: Option<SaidUnit>) {
        self.program = None;
        let socket = self.socket();
        self.program = said.map(|said| GatewayProgram::start(&socket, &said));
    }

    fn program(&self) -> &GatewayProgram {
        self.program.as_ref().expect("it was started")
    }

    /// As if anything had been written through the gateway program.
    fn counts(&self) {
        self.program().written(0, UNIT_BYTES);
    }

    /// What was written goes to the unit, through the gateway program.
    fn sync(&self, file: &File) {
        self.counts(); // before
        file.sync_all().expect("a file");
        self.counts(); // and after
    }

    fn serve(&self, args: &str) -> Server {
        let url = format!(
            "iscsi://localhost:{}/{}/{}",
            self.tgtd.port,
            self.tgtd.target(),
            tgtd::LUN
        );
        let setup = Setup::new(self.mount())
            .args("--nfs 127.0.0.1:0 --metrics 127.0.0.1:0 --cache-memory 64MiB")
            .args(&["--iscsi", &url, "--iscsi-gateway"])
            .args(&[self.socket().to_str().expect("UTF-8")]);
        setup.args(args).start()
    }

    /// The same, once READs come from the target.
    fn serve_unit(&mut self, args: &str) -> Server {
        let said = self.said();
        self.says(Some(said));
        let server = self.serve(args);
        usable(&server, true);
        server
    }
}

/// Where a file lies on the unit, by filefrag(8): offsets and lengths.
fn extents(path: &Path) -> Vec<(u64, u64)> {
    let told = command("filefrag")
        .args(["-b1", "-v", "-s"])
        .arg(path)
        .output();
    let told = String::from_utf8(told.expect("filefrag").stdout).expect("ASCII");
    let rows = told.lines().filter(|line| {
        line.trim_start()
            .split(':')
            .next()
            .is_some_and(|nth| nth.parse::<u32>().is_ok())
    });
    let numbers = |row: &str| -> Vec<u64> {
        let parts = row.split(|c: char| !c.is_ascii_digit());
        parts.filter_map(|part| part.parse().ok()).collect()
    };
    rows.map(numbers).map(|of| (of[3], of[5])).collect()
}

fn usable(server: &Server, is_usable: bool) {
    eventually("READs come from the target, or not any more", || {
        (server.sum("ackpace_lun_usable_mounts", &[]) == 1.0) == is_usable
    });
}

fn through_mount(server: &Server, why: &str) -> f64 {
    let why = format!("why=\"{why}\"");
    server.sum("ackpace_lun_mount_reads_total", &[&why])
}

fn looked(server: &Server, result: &str) -> f64 {
    let result = format!("result=\"{result}\"");
    server.sum("ackpace_lun_looked_reads_total", &[&result])
}

fn connect(server: &Server) -> NfsClient {
    let line = server.out_line(&["NFS at "]);
    let rest = line.trim_start_matches("NFS at ");
    let address: SocketAddr = rest
        .split(' ')
        .next()
        .expect("an address")
        .parse()
        .expect("one");
    NfsClient::open(address)
}

/// READs all of a file, block by block.
fn content(client: &mut NfsClient, file: &[u8], block: u32) -> Vec<u8> {
    let mut got = Vec::new();
    loop {
        let (bytes, is_end) = client.read(file, got.len() as u64, block).expect("bytes");
        got.extend(bytes);
        if is_end {
            return got;
        }
    }
}

#[test]
fn random_reads_of_any_length_are_right_cold_and_hot() {
    let Some(mut world) = World::new("") else {
        return;
    };
    let content_of = pattern(20_000_001, SEED);
    world.file("big", &content_of);
    world.file("small", b"a few bytes");
    let server = world.serve_unit("");
    let mut client = connect(&server);
    let file = client.find("big");
    let mut rng = Rng::new(SEED);
    let mut spans = Vec::new();
    for _ in 0..200 {
        let len = 1 << (12 + rng.below(9));
        spans.push((rng.below(content_of.len() - 1), len + rng.below(3)));
    }
    for round in ["cold", "hot"] {
        for (offset, len) in &spans {
            let (bytes, is_end) = client
                .read(&file, *offset as u64, *len as u32)
                .expect("bytes");
            let end = (offset + (*len).min(1 << 20)).min(content_of.len());
            assert!(
                bytes == content_of[*offset..end],
                "{round}: {len} at {offset}"
            );
            assert_eq!(is_end, end == content_of.len());
        }
        match round {
            "cold" => assert!(looked(&server, "miss") > 0.0),
            _ => assert!(looked(&server, "hit") >= spans.len() as f64),
        }
    }
    let small = client.find("small");
    assert_eq!(content(&mut client, &small, 4096), b"a few bytes");
    assert!(server.sum("ackpace_lun_read_bytes_total", &[]) > 0.0);
    assert_eq!(through_mount(&server, "changed"), 0.0);
    assert_eq!(
        through_mount(&server, "kind") + through_mount(&server, "hole"),
        0.0
    );
}

#[test]
fn sixteen_reads_in_random_order_are_one_stream() {
    const LEN: u32 = 64 << 10;
    let Some(mut world) = World::new("") else {
        return;
    };
    let content_of = pattern(40 << 20, SEED);
    world.file("big", &content_of);
    let server = world.serve_unit("");
    let mut client = connect(&server);
    let file = client.find("big");
    let mut order: Vec<u64> = (0..content_of.len() as u64 / u64::from(LEN)).collect();
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
            bytes == content_of[offset..offset + LEN as usize],
            "at {offset}"
        );
    }
    let (reads, bytes) = (
        server.sum("ackpace_lun_reads_total", &[]),
        server.sum("ackpace_lun_read_bytes_total", &[]),
    );
    assert!(
        bytes < 1.1 * content_of.len() as f64,
        "{bytes} bytes were read: nothing twice"
    );
    assert!(
        bytes / reads > 100_000.0,
        "{bytes} bytes in {reads} reads: it was read ahead"
    );
}

#[test]
fn what_is_written_is_seen_whether_times_or_counters_tell() {
    let Some(mut world) = World::new("") else {
        return;
    };
    let old = pattern(3 << 20, SEED);
    world.file("file", &old);
    let server = world.serve_unit("");
    let mut client = connect(&server);
    let file = client.find("file");
    assert!(content(&mut client, &file, 1 << 20) == old);
    // Through the mount: its ctime tells, and the counters that the gateway program would count.
    let new = pattern(1 << 20, SEED + 1);
    let open = File::options()
        .write(true)
        .open(world.at("file"))
        .expect("a file");
    world.counts(); // the server may have it put on the unit by FIEMAP
    open.write_all_at(&new, 1 << 20).expect("a file");
    let expected = [&old[..1 << 20], &new, &old[2 << 20..]].concat();
    assert!(
        content(&mut client, &file, 256 << 10) == expected,
        "not yet on the unit"
    );
    world.sync(&open);
    world.settle(&open);
    assert!(
        content(&mut client, &file, 256 << 10) == expected,
        "on the unit"
    );
    let misses = looked(&server, "miss");
    assert!(content(&mut client, &file, 256 << 10) == expected);
    assert_eq!(looked(&server, "miss"), misses, "it is in memory by now");
    // Below the file system, as if it had been in memory of the kernel: counters alone tell.
    let (at, _) = extents(&world.at("file"))[0];
    let disk = File::options()
        .write(true)
        .open(world.tgtd.disk())
        .expect("a disk");
    disk.write_all_at(b"other bytes", at).expect("a disk");
    assert!(
        content(&mut client, &file, 256 << 10) == expected,
        "nobody has told of it"
    );
    world.program().written(at, 11);
    let (bytes, _) = client.read(&file, 0, 11).expect("bytes");
    assert_eq!(bytes, b"other bytes");
}

#[test]
fn files_that_are_not_plain_go_through_the_mount() {
    let Some(mut world) = World::new("-O inline_data") else {
        return;
    };
    let bytes = pattern(1 << 20, SEED);
    let sparse = File::create(world.at("sparse")).expect("a file");
    sparse.write_all_at(&bytes, 1 << 20).expect("a file");
    world.settle(&sparse);
    world.file("tiny", b"in the inode");
    let unwritten = File::create(world.at("unwritten")).expect("a file");
    ackpace_tests::allocate(&unwritten, 1 << 20);
    world.settle(&unwritten);
    // Every other block of two files that grow together.
    let (one, two) = (world.at("one"), world.at("two"));
    let (one, two) = (
        File::create(one).expect("a file"),
        File::create(two).expect("a file"),
    );
    for at in 0..200 {
        for file in [&one, &two] {
            file.write_all_at(&bytes[at * 4096..][..4096], at as u64 * 4096)
                .expect("a file");
            file.sync_all().expect("a file");
        }
    }
    world.settle(&one);
    let server = world.serve_unit("");
    let mut client = connect(&server);
    let mut of = |name: &str| {
        let file = client.find(name);
        content(&mut client, &file, 128 << 10)
    };
    assert!(of("sparse") == [&[0; 1 << 20][..], &bytes].concat());
    assert_eq!(through_mount(&server, "hole"), 16.0);
    assert_eq!(of("tiny"), b"in the inode");
    assert!(of("unwritten") == [0; 1 << 20]);
    assert_eq!(through_mount(&server, "kind"), 9.0);
    let fragments = extents(&world.at("one")).len();
    assert!(of("one") == bytes[..200 * 4096] && of("two") == bytes[..200 * 4096]);
    assert!(looked(&server, "miss") > 0.0, "{fragments} fragments");
    assert!(of("one") == bytes[..200 * 4096], "hot");
}

#[test]
fn blocks_that_go_to_another_file_never_leave_as_those_of_the_first() {
    let Some(mut world) = World::new("") else {
        return;
    };
    let ours = vec![b'o'; 24 << 20];
    world.file("ours", &ours);
    let server = world.serve_unit("");
    let mut client = connect(&server);
    let file = client.find("ours");
    assert!(content(&mut client, &file, 1 << 20) == ours);
    for round in 0..8u8 {
        let open = File::options()
            .write(true)
            .open(world.at("ours"))
            .expect("a file");
        open.set_len(4096).expect("a file");
        world.sync(&open);
        let secret = world.at(&format!("secret-{round}"));
        let mut other = File::create(&secret).expect("a file");
        other.write_all(&vec![b's'; 24 << 20]).expect("a file");
        world.sync(&other);
        // The client's handle is the same, and it believes what it knew of the length.
        for at in 0..24 {
            if let Ok((bytes, _)) = client.read(&file, at << 20, 1 << 20) {
                assert!(bytes.iter().all(|byte| *byte == b'o'), "round {round}");
            }
        }
        open.write_all_at(&ours, 0).expect("a file");
        world.sync(&open);
        world.settle(&open);
        assert!(
            content(&mut client, &file, 1 << 20) == ours,
            "round {round}"
        );
        fs::remove_file(&secret).expect("a file");
    }
}

#[test]
fn a_file_that_is_cut_and_written_while_it_is_read_gives_its_own_bytes() {
    let Some(mut world) = World::new("") else {
        return;
    };
    world.file("ours", &vec![b'a'; 8 << 20]);
    let server = world.serve_unit("");
    let mut client = connect(&server);
    let file = client.find("ours");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        let world = &world;
        let stop = &stop;
        scope.spawn(move || {
            // What the mount shows is seen by this thread, too: it was made in the namespace that it shares.
            for round in 0u8..20 {
                if stop.load(order) {
                    return;
                }
                let open = File::options()
                    .write(true)
                    .open(world.at("ours"))
                    .expect("a file");
                open.set_len(0).expect("a file");
                world.counts();
                let other = world.at("other");
                fs::write(&other, vec![b's'; 8 << 20]).expect("a file");
                world.sync(&File::open(&other).expect("a file"));
                open.write_all_at(&vec![b'a' + round % 2; 8 << 20], 0)
                    .expect("a file");
                world.sync(&open);
                fs::remove_file(&other).expect("a file");
                std::thread::sleep(Duration::from_millis(40));
            }
            stop.store(true, order);
        });
        let mut rng = Rng::new(SEED);
        while !stop.load(order) {
            let at = rng.below(8) as u64;
            let xid = client.begin_read(&file, at << 20, 1 << 20);
            let Ok(reply) = client.try_next_reply() else {
                client = connect(&server); // it was cut while it was sent
                continue;
            };
            assert_eq!(reply.xid, xid);
            let Ok((bytes, _)) = read_of(reply) else {
                continue;
            };
            let ours = bytes.iter().all(|byte| matches!(byte, b'a' | b'b' | 0));
            if !ours {
                stop.store(true, order);
            }
            assert!(ours, "another file's bytes at {at}");
        }
    });
}

#[test]
fn a_target_that_restarts_in_the_middle_costs_time_only() {
    let Some(mut world) = World::new("") else {
        return;
    };
    let content_of = pattern(24 << 20, SEED);
    world.file("big", &content_of);
    let server = world.serve_unit("");
    let mut client = connect(&server);
    let file = client.find("big");
    let mut waiting = Vec::new();
    for nth in 0..24u64 {
        waiting.push((
            client.begin_read(&file, nth << 20, 1 << 20),
            (nth as usize) << 20,
        ));
        if nth == 8 {
            world.tgtd.kill();
        }
    }
    world.tgtd.restart();
    for (xid, offset) in waiting {
        let (bytes, _) = read_of(client.reply(xid)).expect("bytes");
        assert!(
            bytes == content_of[offset..offset + (1 << 20)],
            "at {offset}"
        );
    }
    assert!(server.sum("ackpace_lun_lost_sessions_total", &[]) >= 1.0);
    server.err_line(&["tried again"]);
}

#[test]
fn a_target_with_chap_and_digests_is_read_from() {
    let Some(mut world) = World::new("") else {
        return;
    };
    let content_of = pattern(6_000_001, SEED);
    world.file("big", &content_of);
    for name in ["HeaderDigest", "DataDigest"] {
        world.tgtd.set(name, "CRC32C");
    }
    world.tgtd.account("reader", "a secret of twelve");
    world.tgtd.bind_account("reader", false);
    let said = world.said();
    world.says(Some(said));
    let [right, wrong] = ["a secret of twelve", "another secret"].map(|secret| {
        let file = world
            .tree
            .file(&*secret.replace(' ', "-"), format!("{secret}\n"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("our own");
        let file = file.to_str().expect("UTF-8");
        format!("--iscsi-digests header,data --iscsi-user reader --iscsi-secret-file {file}")
    });
    let server = world.serve(&right);
    usable(&server, true);
    let mut client = connect(&server);
    let file = client.find("big");
    assert!(content(&mut client, &file, 1 << 20) == content_of);
    assert!(looked(&server, "miss") > 0.0);
    drop(server);
    let server = world.serve(&wrong);
    server.err_line(&["tried again"]);
    let mut client = connect(&server);
    let file = client.find("big");
    assert!(
        content(&mut client, &file, 1 << 20) == content_of,
        "through the mount"
    );
    assert_eq!(looked(&server, "miss"), 0.0);
}

#[test]
fn a_target_that_stays_away_is_an_error_until_it_is_back() {
    const IO: u32 = 5;
    let Some(mut world) = World::new("") else {
        return;
    };
    let content_of = pattern(8 << 20, SEED);
    world.file("big", &content_of);
    let server = world.serve_unit("");
    let mut client = connect(&server);
    let file = client.find("big");
    let (hot, _) = client.read(&file, 0, 4096).expect("bytes");
    world.tgtd.kill();
    // Half a minute is what it is given. What is in memory needs it not.
    let cold = client.read(&file, 7 << 20, 1 << 20);
    assert_eq!(cold, Err(IO));
    server.err_line(&["bytes at", "can't be read"]);
    assert_eq!(client.read(&file, 0, 4096), Ok((hot, false)));
    world.tgtd.restart();
    eventually("the target is back", || {
        let back = client.read(&file, 7 << 20, 1 << 20);
        back.is_ok_and(|(bytes, _)| bytes == content_of[7 << 20..])
    });
}

#[test]
fn the_gateway_program_comes_and_goes() {
    let Some(mut world) = World::new("") else {
        return;
    };
    let content_of = pattern(5 << 20, SEED);
    world.file("big", &content_of);
    let server = world.serve("");
    let mut client = connect(&server);
    let file = client.find("big");
    let mut whole = |round: &str| {
        let got = content(&mut client, &file, 256 << 10);
        assert!(got == content_of, "{round}");
    };
    whole("without it");
    assert_eq!(looked(&server, "miss"), 0.0);
    assert!(through_mount(&server, "away") > 0.0);
    let said = world.said();
    world.says(Some(said.clone()));
    usable(&server, true);
    whole("with it");
    let misses = looked(&server, "miss");
    assert!(misses > 0.0);
    world.says(None);
    usable(&server, false);
    whole("after it");
    assert_eq!(looked(&server, "miss"), misses);
    world.says(Some(said.clone()));
    usable(&server, true);
    whole("with another one");
    assert!(
        looked(&server, "miss") > misses,
        "the bytes of the first are not believed"
    );
    for wrong in [
        SaidUnit {
            serial: "other".to_owned(),
            ..said.clone()
        },
        SaidUnit {
            len_bytes: UNIT_BYTES / 2,
            ..said
        },
    ] {
        world.says(Some(wrong));
        usable(&server, false);
        server.err_line(&["but ackpace-host gateway has mounted"]);
        whole("what it says is not true");
    }
}

#[test]
fn clients_that_reset_in_the_middle_leave_nothing_behind() {
    let Some(mut world) = World::new("") else {
        return;
    };
    let content_of = pattern(32 << 20, SEED);
    world.file("big", &content_of);
    let server = world.serve_unit("");
    for _ in 0..20 {
        let mut client = connect(&server);
        let file = client.find("big");
        for nth in 0..16 {
            client.begin_read(&file, nth << 20, 1 << 20);
        }
        reset_on_drop(client.stream());
    }
    let mut client = connect(&server);
    let file = client.find("big");
    assert!(content(&mut client, &file, 1 << 20) == content_of);
    eventually("no READ is left", || {
        server.sum("ackpace_nfs_open_connections", &[]) == 1.0
    });
}
