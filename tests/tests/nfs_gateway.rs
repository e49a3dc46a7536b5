//! NFS over an iSCSI target with all that is real: tgtd, `ackpace-host gateway` and the server. Programs write files on the mount,
//! replace, cut and remove them, while NFS clients read; what a client reads is of the file that it asked for, and not older
//! than what was written before it asked.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use ackpace_tests::nfs::{NfsClient, read_of};
use ackpace_tests::{
    AtTheEnd, Program, Rng, Server, Setup, Tree, client, eventually, host_start, mounts_apart,
    needs_root, pattern, skip,
};

#[allow(dead_code, reason = "the tests of wire/ use the rest")]
#[path = "../../wire/tests/iscsi/tgtd.rs"]
mod tgtd;

use tgtd::Tgtd;

const SEED: u64 = 5353;
const UNIT_BYTES: u64 = 192 << 20;
const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 48;
const FILES: usize = 4;

struct World {
    tree: Tree,
    tgtd: Tgtd,
    gateway: Option<Program>,
}

impl Drop for World {
    fn drop(&mut self) {
        let Some(mut gateway) = self.gateway.take() else {
            return;
        };
        if gateway.ended().is_none() {
            gateway.signal(libc::SIGTERM);
            let _ = gateway.wait(); // what it has mounted is gone
        }
    }
}

impl World {
    /// `None`: this machine can't, and the test is reported as skipped.
    fn new() -> Option<World> {
        if !needs_root("a mount") {
            return None;
        }
        client("mkfs.ext4")?;
        for device in ["/dev/fuse", "/dev/loop-control"] {
            if let Err(error) = File::options().read(true).write(true).open(device) {
                skip(&format!("{device}: {error}"));
                return None;
            }
        }
        let tgtd = Tgtd::with_disk(UNIT_BYTES)?;
        mounts_apart().expect("root may");
        let mut world = World {
            tree: Tree::new(),
            tgtd,
            gateway: None,
        };
        fs::create_dir(world.mount()).expect("a folder");
        world.start("--format");
        Some(world)
    }

    fn start(&mut self, words: &str) {
        let path = |name: &str| self.tree.at(name).to_str().expect("UTF-8").to_owned();
        let (run, socket, mount) = (path("run"), path("socket"), path("mount"));
        let url = self.url();
        let gateway = host_start(&*format!(
            "gateway --iscsi {url} --runtime {run} --socket {socket} --mount {mount} {words}"
        ));
        gateway.err_line(&["gateway: ready;"]);
        self.gateway = Some(gateway);
    }

    /// The program ends, and undoes what it has done.
    fn stop(&mut self) {
        let gateway = self.gateway.take().expect("it runs");
        assert_eq!(gateway.end(libc::SIGTERM), Some(0));
    }

    fn url(&self) -> String {
        let port = self.tgtd.port;
        format!(
            "iscsi://127.0.0.1:{port}/{}/{}",
            self.tgtd.target(),
            tgtd::LUN
        )
    }

    fn mount(&self) -> PathBuf {
        self.tree.at("mount")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mount().join(name)
    }

    fn serve(&self) -> Server {
        let (url, socket) = (self.url(), self.tree.at("socket"));
        let setup = Setup::new(self.mount())
            .args("--nfs 127.0.0.1:0 --metrics 127.0.0.1:0 --cache-memory 64MiB --iscsi")
            .args(&[&*url, "--iscsi-gateway", socket.to_str().expect("UTF-8")]);
        setup.start()
    }
}

fn usable(server: &Server) {
    eventually("READs come from the target", || {
        server.sum("ackpace_lun_usable_mounts", &[]) == 1.0
    });
}

fn looked(server: &Server, result: &str) -> f64 {
    let result = format!("result=\"{result}\"");
    server.sum("ackpace_lun_looked_reads_total", &[&result])
}

fn connect(server: &Server) -> NfsClient {
    let line = server.out_line(&["NFS at "]);
    let rest = line.trim_start_matches("NFS at ");
    let address = rest.split(' ').next().expect("an address");
    let address: SocketAddr = address.parse().expect("an address");
    NfsClient::open(address)
}

#[test]
fn files_are_read_past_the_mount_and_the_kernel_s_cache_stays_empty() {
    let Some(world) = World::new() else { return };
    let content = pattern(12_000_001, SEED);
    fs::write(world.at("big"), &content).expect("room");
    let file = File::open(world.at("big")).expect("a file");
    file.sync_all().expect("a file");
    ackpace_tests::forget_cached(&file);
    std::thread::sleep(Duration::from_millis(50));
    let server = world.serve();
    usable(&server);
    let mut client = connect(&server);
    let handle = client.find("big");
    for round in ["cold", "hot"] {
        let mut got = Vec::new();
        loop {
            let (bytes, is_end) = client
                .read(&handle, got.len() as u64, 1 << 18)
                .expect("bytes");
            got.extend(bytes);
            if is_end {
                break;
            }
        }
        assert!(got == content, "{round}");
    }
    assert_eq!(
        ackpace_tests::cached_bytes(&file),
        0,
        "the mount has read payload"
    );
    assert!(looked(&server, "hit") >= (content.len() >> 18) as f64);
    drop(server);
}

#[test]
fn another_instance_of_the_program_is_another_mount() {
    let Some(mut world) = World::new() else {
        return;
    };
    let content = pattern(3 << 20, SEED);
    let write = |world: &World, name: &str| {
        fs::write(world.at(name), &content).expect("room");
        let file = File::open(world.at(name)).expect("a file");
        file.sync_all().expect("a file");
        std::thread::sleep(Duration::from_millis(50));
    };
    write(&world, "first");
    // The mount is below the served folder, which stays while the program is gone.
    let top = world.tree.path().to_owned();
    let (url, socket) = (world.url(), world.tree.at("socket"));
    let setup = Setup::new(&top)
        .args("--nfs 127.0.0.1:0 --metrics 127.0.0.1:0 --cache-memory 64MiB --iscsi")
        .args(&[&*url, "--iscsi-gateway", socket.to_str().expect("UTF-8")]);
    let server = setup.start();
    usable(&server);
    let read = |name: &str| {
        let mut client = connect(&server);
        let handle = client.find(&format!("mount/{name}"));
        for at in 0..3 {
            let (bytes, _) = client.read(&handle, at << 20, 1 << 20).expect("bytes");
            let from = (at as usize) << 20;
            assert!(bytes == content[from..from + (1 << 20)], "{name} at {from}");
        }
    };
    read("first");
    let misses = looked(&server, "miss");
    assert!(misses > 0.0);
    // The server keeps files open for a while; the program waits until the mount is free.
    eventually("the files are closed", || {
        let told = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("proc");
        let mount = world.mount();
        let is_below =
            |fd: fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|path| path.starts_with(&mount));
        !told.flatten().any(is_below)
    });
    world.stop();
    world.start("");
    usable(&server);
    write(&world, "second");
    read("first");
    read("second");
    assert!(looked(&server, "miss") > misses);
    drop(server);
}

#[test]
fn the_target_restarts_while_files_are_written_and_read() {
    let Some(mut world) = World::new() else {
        return;
    };
    let content = pattern(16 << 20, SEED);
    fs::write(world.at("old"), &content).expect("room");
    let old = File::open(world.at("old")).expect("a file");
    old.sync_all().expect("a file");
    ackpace_tests::forget_cached(&old);
    drop(old);
    std::thread::sleep(Duration::from_millis(50));
    let server = world.serve();
    usable(&server);
    let mut client = connect(&server);
    let handle = client.find("old");
    let mut waiting = Vec::new();
    for nth in 0..16u64 {
        waiting.push((
            client.begin_read(&handle, nth << 20, 1 << 20),
            (nth as usize) << 20,
        ));
        if nth == 4 {
            world.tgtd.kill();
        }
    }
    let path = world.at("new");
    let bytes = content.clone();
    let writer = std::thread::spawn(move || {
        fs::write(&path, &bytes).expect("room");
        let file = File::open(&path).expect("a file");
        file.sync_all()
            .expect("it is written when the target is back");
    });
    world.tgtd.restart();
    for (xid, offset) in waiting {
        let (bytes, _) = read_of(client.reply(xid)).expect("bytes");
        assert!(bytes == content[offset..offset + (1 << 20)], "at {offset}");
    }
    writer.join().expect("it wrote");
    std::thread::sleep(Duration::from_millis(50));
    let handle = client.find("new");
    for nth in 0..16u64 {
        let (bytes, _) = client.read(&handle, nth << 20, 1 << 20).expect("bytes");
        let offset = (nth as usize) << 20;
        assert!(
            bytes == content[offset..offset + (1 << 20)],
            "new at {offset}"
        );
    }
    drop(server);
}

/// What block `block` of file `file` has in this version: each word says so.
fn stamped(file: usize, block: usize, version: u32) -> Vec<u8> {
    let word = (file as u64) << 56 | (block as u64) << 40 | u64::from(version);
    word.to_be_bytes().repeat(BLOCK / 8)
}

/// For each block of a file the last version that is written for certain, and the last that may be.
struct Versions {
    done: [AtomicU32; BLOCKS],
    begun: [AtomicU32; BLOCKS],
}

fn write_blocks(world: &World, file: usize, versions: &Versions, rng: &mut Rng) {
    let open = File::options()
        .write(true)
        .open(world.at(&format!("file-{file}")));
    let open = open.expect("a file");
    let count = 1 + rng.below(8);
    let first = rng.below(BLOCKS - count);
    for block in first..first + count {
        let version = versions.begun[block].fetch_add(1, SeqCst) + 1;
        let bytes = stamped(file, block, version);
        open.write_all_at(&bytes, (block * BLOCK) as u64)
            .expect("room");
        versions.done[block].store(version, SeqCst);
    }
    if rng.below(3) == 0 {
        open.sync_all().expect("synced");
    }
}

/// The same file anew, in other blocks: cut, and another file takes what it had.
fn rewrite(world: &World, file: usize, versions: &Versions, rng: &mut Rng) {
    let path = world.at(&format!("file-{file}"));
    let replaced = world.at("new");
    let open = match rng.below(2) {
        0 => File::create(&replaced).expect("a file"),
        _ => File::options().write(true).open(&path).expect("a file"),
    };
    let mut begun = Vec::new();
    for block in 0..BLOCKS {
        begun.push(versions.begun[block].fetch_add(1, SeqCst) + 1);
    }
    let is_cut = !replaced.exists();
    if is_cut {
        open.set_len(0).expect("a file");
        fs::write(world.at("other"), vec![0xff; BLOCKS * BLOCK]).expect("room");
        let other = File::open(world.at("other")).expect("a file");
        other.sync_all().expect("synced");
    }
    for (block, version) in begun.iter().enumerate() {
        let bytes = stamped(file, block, *version);
        open.write_all_at(&bytes, (block * BLOCK) as u64)
            .expect("room");
    }
    if !is_cut {
        fs::rename(&replaced, &path).expect("a file");
    }
    for (block, version) in begun.into_iter().enumerate() {
        versions.done[block].store(version, SeqCst);
    }
    let _ = fs::remove_file(world.at("other"));
}

/// Reads somewhere, and checks each word. `false`: the file was cut or replaced.
fn check(client: &mut NfsClient, file: usize, versions: &Versions, rng: &mut Rng) -> bool {
    let count = 1 + rng.below(8);
    let first = rng.below(BLOCKS - count);
    let load = |of: &[AtomicU32; BLOCKS]| -> Vec<u32> {
        (first..first + count)
            .map(|block| of[block].load(SeqCst))
            .collect()
    };
    let before = load(&versions.done);
    let Ok(root) = client.mount("/") else {
        return false;
    };
    let Ok(handle) = client.look_up(&root, &format!("file-{file}")) else {
        return false;
    };
    client.begin_read(&handle, (first * BLOCK) as u64, (count * BLOCK) as u32);
    let Ok(reply) = client.try_next_reply() else {
        return false; // it was cut while it was sent
    };
    let Ok((bytes, _)) = read_of(reply) else {
        return true; // ESTALE, or it was cut
    };
    let after = load(&versions.begun);
    for (nth, block) in bytes.chunks_exact(BLOCK).enumerate() {
        for word in block.chunks_exact(8) {
            let word = u64::from_be_bytes(word.try_into().expect("eight bytes"));
            if word == 0 && after[nth] > before[nth] {
                continue; // cut, and not written yet
            }
            let (of, at) = ((word >> 56) as usize, (word >> 40 & 0xffff) as usize);
            assert_eq!(
                (of, at),
                (file, first + nth),
                "bytes of another file: {word:#x}"
            );
            let version = word as u32;
            assert!(
                (before[nth]..=after[nth]).contains(&version),
                "file {file} block {at}: version {version} of {}..={}",
                before[nth],
                after[nth]
            );
        }
    }
    true
}

#[test]
fn clients_read_what_was_written_last_while_files_change() {
    let Some(world) = World::new() else { return };
    let new = || Versions {
        done: [const { AtomicU32::new(1) }; BLOCKS],
        begun: [const { AtomicU32::new(1) }; BLOCKS],
    };
    let versions: [Versions; FILES] = std::array::from_fn(|_| new());
    for file in 0..FILES {
        let blocks = (0..BLOCKS).flat_map(|block| stamped(file, block, 1));
        let content: Vec<u8> = blocks.collect();
        fs::write(world.at(&format!("file-{file}")), content).expect("room");
    }
    let server = world.serve();
    usable(&server);
    let seed = std::env::var("ACKPACE_SEED").map_or(SEED, |seed| seed.parse().expect("a number"));
    println!("ACKPACE_SEED={seed}");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (world, versions, is_over, server) = (&world, &versions, &is_over, &server);
        let writer = scope.spawn(move || {
            let _end = AtTheEnd(is_over);
            let mut rng = Rng::new(seed);
            for _ in 0..150 {
                let file = rng.below(FILES);
                match rng.below(6) {
                    0 => rewrite(world, file, &versions[file], &mut rng),
                    _ => write_blocks(world, file, &versions[file], &mut rng),
                }
                std::thread::sleep(Duration::from_millis(5 + rng.below(60) as u64));
                if is_over.load(SeqCst) {
                    return;
                }
            }
        });
        for nth in 0..2 {
            scope.spawn(move || {
                let mut rng = Rng::new(seed + 1 + nth);
                let mut client = connect(server);
                let _end = AtTheEnd(is_over);
                while !is_over.load(SeqCst) {
                    let file = rng.below(FILES);
                    if !check(&mut client, file, &versions[file], &mut rng) {
                        client = connect(server);
                    }
                }
            });
        }
        writer.join().expect("it wrote");
    });
    assert!(looked(&server, "hit") > 0.0 && looked(&server, "miss") > 0.0);
    drop(server);
}
