//! A server without sockets, for tests.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ackpace_wire::hide::Hide;
use ackpace_wire::nfs3::handle::Key;
use ackpace_wire::nfs3::{Args, Asked, Handle, MountArgs, Name, Place, Request, Status};
use ackpace_wire::rpc::{Credential, Sys};

use super::exports::Exports;
use super::served::{Outcome, Served};
use super::tree::Tree;
use crate::front::site;
use crate::options::{ExportSpec, FollowSymlinks};
use crate::source::Source;
use crate::store::root::{Root, Wait};

/// A directory that is served, with these exports.
pub struct Server {
    pub dir: PathBuf,
    pub served: Served,
}

/// Who calls.
pub type User<'a> = Credential<'a>;

pub fn user(uid: u32, gid: u32, gids: &[u32]) -> User<'static> {
    Credential::Sys(Sys::new(b"test", uid, gid, gids))
}

pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

pub fn serve(dir: &Path, specs: &[&str], key: u8) -> Served {
    let mut site = site::tests::site(dir);
    let hide = Hide::new(&[".git", "*~"]).expect("patterns");
    let root = Root::open(dir, FollowSymlinks::Inside, &[], hide).expect("a root");
    site.root = root.with(Arc::clone(&site.devices));
    let specs = specs
        .iter()
        .map(|spec| ExportSpec::parse(spec).expect("a good one"));
    let specs: Vec<ExportSpec> = specs.collect();
    Served {
        tree: Tree::new(Arc::new(site), 64),
        exports: Exports::new(&specs).expect("other numbers"),
        key: Key([key; 16]),
        writing: None,
        origin: None,
    }
}

/// A reply, from its status on.
pub struct Reply(pub Vec<u8>, usize);

impl Reply {
    pub fn new(record: Vec<u8>) -> Reply {
        let mark = u32::from_be_bytes([record[0], record[1], record[2], record[3]]);
        assert_eq!(mark, 1 << 31 | (record.len() as u32 - 4));
        Reply(record, 28)
    }

    pub fn u32(&mut self) -> u32 {
        self.1 += 4;
        let bytes = self.0[self.1 - 4..self.1].try_into().expect("four");
        u32::from_be_bytes(bytes)
    }

    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    pub fn opaque(&mut self) -> Vec<u8> {
        let len = self.u32() as usize;
        let bytes = self.0[self.1..self.1 + len].to_vec();
        self.1 += len.next_multiple_of(4);
        bytes
    }

    /// Kind, mode, length and number.
    pub fn attributes(&mut self) -> (u32, u32, u64, u64) {
        let (kind, mode) = (self.u32(), self.u32());
        let _ = [self.u32(), self.u32(), self.u32()];
        let (len, _used, _device, _system) = (self.u64(), self.u64(), self.u64(), self.u64());
        let id = self.u64();
        let _ = [self.u64(), self.u64(), self.u64()];
        (kind, mode, len, id)
    }

    pub fn optional(&mut self) -> Option<(u32, u32, u64, u64)> {
        (self.u32() == 1).then(|| self.attributes())
    }

    pub fn is_at_end(&self) -> bool {
        self.1 == self.0.len()
    }
}

impl Served {
    pub(crate) fn call(&self, asked: Asked<'_>, by: User<'_>, from: IpAddr, wait: Wait) -> Outcome {
        let request = Request {
            xid: 7,
            credential: by,
            asked,
        };
        self.carry_out(&request, &[], from, wait)
    }

    pub(crate) fn reply(&self, args: Args<'_>, by: User<'_>) -> Reply {
        match self.call(Asked::Nfs(args), by, CLIENT, Wait::Yes) {
            Outcome::Reply(record) => Reply::new(record),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn status(&self, args: Args<'_>, by: User<'_>) -> u32 {
        self.reply(args, by).u32()
    }

    pub(crate) fn try_mount(&self, path: &[u8], from: IpAddr) -> Result<Vec<u8>, u32> {
        let asked = Asked::Mount(MountArgs::Mount(path));
        let Outcome::Reply(record) = self.call(asked, Credential::Nobody, from, Wait::Yes) else {
            panic!("it may wait");
        };
        let mut reply = Reply::new(record);
        match reply.u32() {
            0 => Ok(reply.opaque()),
            status => Err(status),
        }
    }

    pub(crate) fn mount(&self, path: &str) -> Vec<u8> {
        self.try_mount(path.as_bytes(), CLIENT).expect("a folder")
    }

    pub(crate) fn look_up(&self, folder: &[u8], name: &[u8]) -> Result<Vec<u8>, u32> {
        let mut reply = self.reply(Args::Lookup(place(folder, name)), user(0, 0, &[]));
        match reply.u32() {
            0 => Ok(reply.opaque()),
            status => Err(status),
        }
    }

    pub(crate) fn at(&self, folder: &[u8], path: &str) -> Vec<u8> {
        let names = path.split('/');
        names.fold(folder.to_vec(), |folder, name| {
            self.look_up(&folder, name.as_bytes()).expect(path)
        })
    }

    pub(crate) fn get_attr(&self, file: &[u8]) -> Result<(u32, u32, u64, u64), u32> {
        let mut reply = self.reply(Args::GetAttr(Handle(file)), Credential::Nobody);
        match reply.u32() {
            0 => Ok(reply.attributes()),
            status => Err(status),
        }
    }

    pub(crate) fn read(
        &self,
        file: &[u8],
        offset_bytes: u64,
        len_bytes: u32,
        by: User<'_>,
    ) -> Outcome {
        let args = read(file, offset_bytes, len_bytes);
        self.call(Asked::Nfs(args), by, CLIENT, Wait::Yes)
    }

    /// All that a READ of the whole file brings.
    pub fn content(&self, file: &[u8]) -> Vec<u8> {
        match self.read(file, 0, u32::MAX, Credential::Nobody) {
            Outcome::Read { source, span, .. } => content(&source, span.len_bytes as usize),
            other => panic!("{other:?}"),
        }
    }
}

pub fn content(source: &Source, len: usize) -> Vec<u8> {
    let Source::File(file) = source else {
        panic!("a file");
    };
    let mut bytes = vec![0; len];
    let read = rustix::io::pread(&**file, &mut bytes, 0);
    assert_eq!(read, Ok(len));
    bytes
}

pub fn place<'a>(folder: &'a [u8], name: &'a [u8]) -> Place<'a> {
    Place {
        folder: Handle(folder),
        name: Name(name),
    }
}

pub fn read(file: &[u8], offset_bytes: u64, len_bytes: u32) -> Args<'_> {
    Args::Read {
        file: Handle(file),
        offset_bytes,
        len_bytes,
    }
}

impl Server {
    pub fn new(name: &str) -> Server {
        Server::with(name, &["/=10.0.0.0/8"], |_| {})
    }

    pub fn with(name: &str, specs: &[&str], make: impl FnOnce(&Path)) -> Server {
        let dir = std::env::temp_dir().join(format!("ackpace-nfs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("a/b")).expect("a directory");
        fs::write(dir.join("a/b/file"), "content").expect("a file");
        fs::write(dir.join("empty"), "").expect("a file");
        fs::create_dir_all(dir.join(".git")).expect("a directory");
        fs::write(dir.join(".git/config"), "secret").expect("a file");
        symlink("../outside", dir.join("link")).expect("a link");
        make(&dir);
        let served = serve(&dir, specs, 1);
        Server { dir, served }
    }

    pub fn restart(&mut self, specs: &[&str], key: u8) {
        self.served = serve(&self.dir, specs, key);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub const STALE: u32 = Status::Stale as u32;
pub const NO_ENT: u32 = Status::NoEnt as u32;
pub const ACCES: u32 = Status::Acces as u32;
