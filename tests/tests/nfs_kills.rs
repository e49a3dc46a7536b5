//! NFS clients write to an iSCSI target while each process on the way is killed (SIGKILL) and started again: the server, the broker of
//! files, the answerer below the mount, its supervisor, and the target. What was acknowledged as stable (by FILE_SYNC, or by a COMMIT
//! with the verifier of the WRITE) is there afterwards, and the file system is sound.
//!
//! `ACKPACE_KILLS` is the number of kills: one of each by default, 50 for what docs/host-gateway.md says.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ackpace_tests::nfs::{NfsArgs, NfsClient, Results, procedure, read_args};
use ackpace_tests::nfs_writes::{Set, Stable, change, write_args, written_of};
use ackpace_tests::{
    AtTheEnd, Program, Rng, Server, Setup, Tree, client, eventually, host_start, mounts_apart,
    needs_root, skip,
};

#[allow(dead_code, reason = "the tests of wire/ use the rest")]
#[path = "../../wire/tests/iscsi/tgtd.rs"]
mod tgtd;

use tgtd::Tgtd;

const SEED: u64 = 50;
const UNIT_BYTES: u64 = 192 << 20;
const BLOCK: usize = 16 << 10;
const BLOCKS: usize = 256;
/// One for each client that writes.
const FILES: usize = 3;
/// Blocks that are acknowledged between two kills.
const BETWEEN: u64 = 60;

struct World {
    tree: Tree,
    tgtd: Tgtd,
    gateway: Option<Program>,
    broker: Option<Program>,
    server: Option<Server>,
    nfs: Where,
}

/// Where the server answers now.
#[derive(Clone, Default)]
struct Where(Arc<Mutex<Option<SocketAddr>>>);

impl Where {
    fn is(&self, address: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    fn now(&self) -> Option<SocketAddr> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.server = None;
        self.broker = None;
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
            broker: None,
            server: None,
            nfs: Where::default(),
        };
        fs::create_dir_all(world.tree.at("top/mount")).expect("a folder");
        world.start_gateway("--format");
        world.start_broker();
        world.start_server();
        Some(world)
    }

    fn path(&self, name: &str) -> String {
        self.tree.at(name).to_str().expect("UTF-8").to_owned()
    }

    fn url(&self) -> String {
        let port = self.tgtd.port;
        format!(
            "iscsi://127.0.0.1:{port}/{}/{}",
            self.tgtd.target(),
            tgtd::LUN
        )
    }

    fn start_gateway(&mut self, words: &str) {
        let [run, socket, mount] = ["run", "socket", "top/mount"].map(|name| self.path(name));
        let url = self.url();
        let line = format!(
            "gateway --iscsi {url} --runtime {run} --socket {socket} --mount {mount} --patience 60 {words}"
        );
        let gateway = host_start(line.trim());
        gateway.err_line(&["gateway: ready;"]);
        self.gateway = Some(gateway);
    }

    fn start_broker(&mut self) {
        let [top, socket] = ["top", "files.sock"].map(|name| self.path(name));
        let line = format!("files --root {top} --for 0:0 --socket {socket} --allow-root");
        let broker = host_start(&*line);
        broker.err_line(&["files: ready"]);
        self.broker = Some(broker);
    }

    fn start_server(&mut self) {
        let [files, key, socket] = ["files.sock", "nfs.key", "socket"].map(|name| self.path(name));
        let exports = "--nfs-export /=127.0.0.1,rw,no_root_squash";
        let args = format!(
            "--nfs 127.0.0.1:0 {exports} --nfs-broker {files} --nfs-key {key} --cache-memory 64MiB --metrics 127.0.0.1:0"
        );
        let setup = Setup::new(self.tree.at("top")).args(&*args);
        let url = self.url();
        let server = setup
            .args(&["--iscsi", &*url, "--iscsi-gateway", &*socket])
            .start();
        let line = server.out_line(&["NFS at "]);
        let rest = line.trim_start_matches("NFS at ");
        let address = rest.split(' ').next().expect("an address");
        self.nfs.is(address.parse().expect("an address"));
        self.server = Some(server);
    }

    fn answerer(&self) -> Option<i32> {
        let pid = self.gateway.as_ref().map_or(0, Program::pid);
        let word = format!("gateway-answer\0{pid}\0");
        let all = fs::read_dir("/proc").expect("proc").flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.find(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).ends_with(&word)
        })
    }

    /// Kills one process, and starts it again.
    fn kill(&mut self, nth: usize) {
        match nth % 5 {
            0 => {
                let mut server = self.server.take().expect("it runs");
                server.signal(libc::SIGKILL);
                server.wait();
                self.start_server();
            }
            1 => {
                let mut old = None;
                eventually("there is an answerer", || {
                    old = self.answerer();
                    old.is_some()
                });
                let old = old.expect("just now");
                let mut kill = Command::new("kill");
                let status = kill.args(["-KILL", &old.to_string()]).status();
                assert!(status.is_ok_and(|status| status.success()), "kill -KILL");
                eventually("another one takes over", || {
                    self.answerer().is_some_and(|new| new != old)
                });
            }
            2 => {
                let mut broker = self.broker.take().expect("it runs");
                broker.signal(libc::SIGKILL);
                broker.wait();
                self.start_broker();
            }
            3 => {
                self.tgtd.kill();
                thread::sleep(Duration::from_millis(200));
                self.tgtd.restart();
            }
            _ => {
                let mut gateway = self.gateway.take().expect("it runs");
                gateway.signal(libc::SIGKILL);
                gateway.wait();
                self.start_gateway("");
            }
        }
    }
}

/// What block `block` of file `file` has in this version: each word says so.
fn stamped(file: usize, block: usize, version: u32) -> Vec<u8> {
    let word = (file as u64) << 56 | (block as u64) << 40 | u64::from(version);
    word.to_be_bytes().repeat(BLOCK / 8)
}

/// For each block of a file the last version that is stable for certain, and the last that may be there.
struct Versions {
    stable: [AtomicU32; BLOCKS],
    begun: [AtomicU32; BLOCKS],
}

impl Versions {
    fn new() -> Versions {
        Versions {
            stable: [const { AtomicU32::new(0) }; BLOCKS],
            begun: [const { AtomicU32::new(0) }; BLOCKS],
        }
    }
}

/// A client that outlives its server.
struct Client {
    client: NfsClient,
    file: Vec<u8>,
}

impl Client {
    /// Connects and finds its file, or makes it. `None`: not now.
    fn open(nfs: &Where, file: usize) -> Option<Client> {
        let stream = TcpStream::connect(nfs.now()?).ok()?;
        let mut client = NfsClient::over(stream);
        let root = handle(call(&mut client, None, &NfsArgs::default().opaque("/"))?)?;
        let look_up = |client: &mut NfsClient, folder: &[u8], name: &str| {
            let args = NfsArgs::default().opaque(folder).opaque(name);
            handle(call(client, Some(procedure::LOOKUP), &args)?)
        };
        let mount = look_up(&mut client, &root, "mount")?;
        let name = format!("file-{file}");
        let file = look_up(&mut client, &mount, &name)?;
        Some(Client { client, file })
    }

    /// WRITE: the verifier. `None`: whether it is done, nobody knows.
    fn write(&mut self, at: usize, bytes: &[u8], stable: Stable) -> Option<u64> {
        let args = write_args(&self.file, (at * BLOCK) as u64, bytes, stable);
        let results = call(&mut self.client, Some(procedure::WRITE), &args)?;
        let written = written_of(results).ok()?;
        (written.len_bytes as usize == bytes.len()).then_some(written.verifier)
    }

    /// COMMIT: the verifier.
    fn commit(&mut self) -> Option<u64> {
        let args = NfsArgs::default().opaque(&self.file).u64(0).u32(0);
        let mut results = call(&mut self.client, Some(procedure::COMMIT), &args)?;
        let status = results.u32();
        change(&mut results);
        (status == 0).then(|| results.u64())
    }

    fn read(&mut self, at: usize) -> Option<Vec<u8>> {
        let args = read_args(&self.file, (at * BLOCK) as u64, BLOCK as u32);
        let mut results = call(&mut self.client, Some(procedure::READ), &args)?;
        let status = results.u32();
        results.optional_attributes();
        (status == 0).then(|| {
            let _ = [results.u32(), results.u32()]; // count, end
            results.opaque()
        })
    }
}

/// Calls NFS, or MNT; `None`: there is no reply.
fn call(client: &mut NfsClient, nfs: Option<u32>, args: &NfsArgs) -> Option<Results> {
    let (xid, record) = match nfs {
        Some(procedure) => client.record(100_003, procedure, args),
        None => client.record(100_005, 1, args),
    };
    client.stream().write_all(&record).ok()?;
    let reply: io::Result<_> = client.try_next_reply();
    let reply = reply.ok()?;
    assert_eq!(reply.xid, xid, "one call at a time");
    reply.accepted.then_some(reply.results)
}

fn handle(mut results: Results) -> Option<Vec<u8>> {
    (results.u32() == 0).then(|| results.opaque())
}

/// Writes a few blocks, stable at once or by a COMMIT. `None`: something on the way has failed.
fn write(
    client: &mut Client,
    file: usize,
    versions: &Versions,
    rng: &mut Rng,
    acknowledged: &AtomicU64,
) -> Option<()> {
    let mut begun = Vec::new();
    let count = 1 + rng.below(8);
    let first = rng.below(BLOCKS - count);
    let is_stable = rng.below(2) == 0;
    for block in first..first + count {
        let version = versions.begun[block].fetch_add(1, SeqCst) + 1;
        let stable = if is_stable {
            Stable::File
        } else {
            Stable::Later
        };
        let run = client.write(block, &stamped(file, block, version), stable)?;
        begun.push((block, version, run));
    }
    let run = match is_stable {
        true => None,
        false => Some(client.commit()?),
    };
    for (block, version, of) in begun {
        if run.is_none_or(|run| run == of) {
            versions.stable[block].store(version, SeqCst);
            acknowledged.fetch_add(1, SeqCst);
        }
    }
    Some(())
}

/// Compares each block with what is stable for certain. `None`: it can't be read now.
fn check(client: &mut Client, file: usize, versions: &Versions) -> Option<()> {
    for block in 0..BLOCKS {
        let least = versions.stable[block].load(SeqCst);
        let bytes = client.read(block)?;
        let most = versions.begun[block].load(SeqCst);
        if least == 0 && bytes.is_empty() {
            continue; // behind the end
        }
        assert_eq!(bytes.len(), BLOCK, "file {file} block {block} is cut");
        for word in bytes.chunks_exact(8) {
            let word = u64::from_be_bytes(word.try_into().expect("eight bytes"));
            if word == 0 && least == 0 {
                continue; // a hole
            }
            let of = ((word >> 56) as usize, (word >> 40 & 0xffff) as usize);
            assert_eq!(of, (file, block), "bytes of another place: {word:#x}");
            let version = word as u32;
            assert!(
                (least..=most).contains(&version),
                "file {file} block {block}: version {version} of {least}..={most}"
            );
        }
    }
    Some(())
}

/// Does it with a client until it goes well.
fn insist<T>(
    nfs: &Where,
    file: usize,
    what: &str,
    mut act: impl FnMut(&mut Client) -> Option<T>,
) -> T {
    let mut done = None;
    eventually(what, || {
        done = Client::open(nfs, file).and_then(|mut client| act(&mut client));
        done.is_some()
    });
    done.expect("just now")
}

#[test]
fn no_acknowledged_byte_is_lost_whatever_is_killed() {
    let Some(mut world) = World::new() else {
        return;
    };
    let kills = std::env::var("ACKPACE_KILLS").map_or(5, |kills| kills.parse().expect("a number"));
    let seed = std::env::var("ACKPACE_SEED").map_or(SEED, |seed| seed.parse().expect("a number"));
    println!("ACKPACE_SEED={seed}");
    {
        let mut client = NfsClient::open(world.nfs.now().expect("it runs"));
        let mount = client.find("mount");
        for file in 0..FILES {
            let made = client.create(&mount, format!("file-{file}"), Set::mode(0o644));
            made.expect("a file");
        }
        let file = File::open(world.tree.at("top/mount")).expect("a folder");
        file.sync_all().expect("synced");
    }
    let nfs = world.nfs.clone();
    let versions: [Versions; FILES] = std::array::from_fn(|_| Versions::new());
    let (is_over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for file in 0..FILES {
            let (nfs, versions, is_over) = (&nfs, &versions[file], &is_over);
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                let _end = AtTheEnd(is_over);
                let mut rng = Rng::new(seed + file as u64);
                let mut client = None;
                while !is_over.load(SeqCst) {
                    let written = match &mut client {
                        Some(client) => write(client, file, versions, &mut rng, acknowledged),
                        none => {
                            *none = Client::open(nfs, file);
                            none.is_some().then_some(())
                        }
                    };
                    if written.is_none() {
                        client = None;
                        thread::sleep(Duration::from_millis(20));
                    }
                }
            });
        }
        let _end = AtTheEnd(&is_over);
        for nth in 0..kills {
            let before = acknowledged.load(SeqCst);
            eventually("writes go on", || {
                let is_lost = is_over.load(SeqCst);
                assert!(!is_lost, "a client has failed");
                acknowledged.load(SeqCst) >= before + BETWEEN
            });
            world.kill(nth);
            for (file, versions) in versions.iter().enumerate() {
                insist(&nfs, file, "files can be read again", |client| {
                    check(client, file, versions)
                });
            }
        }
    });
    println!(
        "{kills} kills, {} blocks acknowledged",
        acknowledged.load(SeqCst)
    );
    for (file, versions) in versions.iter().enumerate() {
        insist(&nfs, file, "files can be read", |client| {
            check(client, file, versions)
        });
    }
    end(world);
}

/// A client has to learn that the mount was lost with what it had not written, though the server goes on.
#[test]
fn what_was_lost_with_a_mount_is_not_committed_by_the_next_one() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut client = NfsClient::open(world.nfs.now().expect("it runs"));
    let mount = client.find("mount");
    let file = client.create(&mount, "file-0", Set::mode(0o644));
    let file = file.expect("a file");
    client.commit(&file).expect("committed");
    let folder = File::open(world.tree.at("top/mount")).expect("a folder");
    folder.sync_all().expect("synced");
    drop(folder);
    let mut client = Client { client, file };
    let bytes = stamped(0, 0, 1);
    let before = client.write(0, &bytes, Stable::Later).expect("written");
    world.kill(4);
    let mut after = None;
    eventually("the file can be committed again", || {
        after = client.commit();
        after.is_some()
    });
    let is_there = client.read(0).is_some_and(|read| read == bytes);
    assert!(
        is_there || after != Some(before),
        "a COMMIT of what is lost"
    );
    let again = client.write(0, &bytes, Stable::Later);
    assert_eq!(again, client.commit(), "the new run is one");
    assert!(client.read(0).is_some_and(|read| read == bytes));
    end(world);
}

/// Ends all in order; the file system is sound, without a repair.
fn end(mut world: World) {
    let mut server = world.server.take().expect("it runs");
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
    world.broker = None;
    let gateway = world.gateway.take().expect("it runs");
    assert_eq!(gateway.end(libc::SIGTERM), Some(0));
    let disk: PathBuf = world.tgtd.disk();
    let checked = Command::new("e2fsck").args(["-f", "-n"]).arg(disk).output();
    let checked = checked.expect("e2fsck");
    let told = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{told}");
}
