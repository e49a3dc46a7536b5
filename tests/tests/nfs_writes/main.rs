//! NFS clients that change files, by the broker: each user what the kernel lets him, and every byte where it belongs.

mod content;
mod names;
mod rights;

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
