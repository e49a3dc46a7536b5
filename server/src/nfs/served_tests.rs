use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use ackpace_wire::hide::Hide;
use ackpace_wire::nfs3::handle::Sealed;
use ackpace_wire::nfs3::{
    Args, Create, Device, Handle, Kind, MountArgs, Name, Place, SetAttributes, Stable, Write,
    access,
};
use ackpace_wire::rpc::{Credential, Sys};

use super::*;
use crate::front::site;
use crate::options::FollowSymlinks;
use crate::source::Source;
use crate::store::root::Root;

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

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

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
    pub fn call(&self, asked: Asked<'_>, by: User<'_>, from: IpAddr, wait: Wait) -> Outcome {
        let request = Request {
            xid: 7,
            credential: by,
            asked,
        };
        self.carry_out(&request, from, wait)
    }

    pub fn reply(&self, args: Args<'_>, by: User<'_>) -> Reply {
        match self.call(Asked::Nfs(args), by, CLIENT, Wait::Yes) {
            Outcome::Reply(record) => Reply::new(record),
            other => panic!("{other:?}"),
        }
    }

    pub fn status(&self, args: Args<'_>, by: User<'_>) -> u32 {
        self.reply(args, by).u32()
    }

    pub fn try_mount(&self, path: &[u8], from: IpAddr) -> Result<Vec<u8>, u32> {
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

    pub fn mount(&self, path: &str) -> Vec<u8> {
        self.try_mount(path.as_bytes(), CLIENT).expect("a folder")
    }

    pub fn look_up(&self, folder: &[u8], name: &[u8]) -> Result<Vec<u8>, u32> {
        let mut reply = self.reply(Args::Lookup(place(folder, name)), user(0, 0, &[]));
        match reply.u32() {
            0 => Ok(reply.opaque()),
            status => Err(status),
        }
    }

    pub fn at(&self, folder: &[u8], path: &str) -> Vec<u8> {
        let names = path.split('/');
        names.fold(folder.to_vec(), |folder, name| {
            self.look_up(&folder, name.as_bytes()).expect(path)
        })
    }

    pub fn get_attr(&self, file: &[u8]) -> Result<(u32, u32, u64, u64), u32> {
        let mut reply = self.reply(Args::GetAttr(Handle(file)), Credential::Nobody);
        match reply.u32() {
            0 => Ok(reply.attributes()),
            status => Err(status),
        }
    }

    pub fn read(&self, file: &[u8], offset_bytes: u64, len_bytes: u32, by: User<'_>) -> Outcome {
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

fn content(source: &Source, len: usize) -> Vec<u8> {
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

fn read(file: &[u8], offset_bytes: u64, len_bytes: u32) -> Args<'_> {
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

    fn restart(&mut self, specs: &[&str], key: u8) {
        self.served = serve(&self.dir, specs, key);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

const STALE: u32 = Status::Stale as u32;
const NO_ENT: u32 = Status::NoEnt as u32;
const ACCES: u32 = Status::Acces as u32;

#[test]
fn a_path_is_mounted_looked_up_and_read() {
    let server = Server::new("all");
    let served = &server.served;
    let top = served.mount("/");
    let file = served.at(&top, "a/b/file");
    let number = |path: &str| {
        use std::os::unix::fs::MetadataExt;
        fs::symlink_metadata(server.dir.join(path))
            .expect(path)
            .ino()
    };
    let (kind, mode, len, id) = served.get_attr(&file).expect("a file");
    assert_eq!(
        (kind, len, id),
        (Kind::Regular as u32, 7, number("a/b/file"))
    );
    assert_eq!(mode & !0o777, 0);
    assert_eq!(
        served.get_attr(&top).expect("a folder").0,
        Kind::Folder as u32
    );
    let link = served.at(&top, "link");
    assert_eq!(
        served.get_attr(&link).map(|told| (told.0, told.3)),
        Ok((Kind::Link as u32, number("link")))
    );
    let mut reply = served.reply(Args::ReadLink(Handle(&link)), Credential::Nobody);
    assert_eq!((reply.u32(), reply.optional().is_some()), (0, true));
    assert_eq!(
        (reply.opaque(), reply.is_at_end()),
        (b"../outside".to_vec(), true)
    );
    assert_eq!(
        served.status(Args::ReadLink(Handle(&file)), Credential::Nobody),
        Status::Inval as u32
    );
    // A folder below an export is mounted as well, and is the same.
    let b = served.mount("//a/b/");
    assert_eq!(b, served.at(&top, "a/b"));
    assert_eq!(served.look_up(&b, b".."), Ok(served.at(&top, "a")));
    assert_eq!(served.look_up(&top, b".."), Ok(top.clone()));
    assert_eq!(served.look_up(&b, b"."), Ok(b.clone()));
    assert_eq!(served.look_up(&file, b"x"), Err(Status::NotDir as u32));
    let mut missing = served.reply(Args::Lookup(place(&b, b"none")), Credential::Nobody);
    assert_eq!(
        (missing.u32(), missing.optional().is_some()),
        (NO_ENT, true)
    );
    for (path, status) in [
        ("/none", 2),
        ("/a/b/file", 20),
        ("/link", 20),
        ("/link/x", 2),
        ("/a/../a", 13),
        ("a", 13),
        ("/.git", 2),
    ] {
        assert_eq!(
            served.try_mount(path.as_bytes(), CLIENT),
            Err(status),
            "{path}"
        );
    }
}

#[test]
fn a_read_brings_what_the_file_has() {
    let server = Server::with("read", &["/=*"], |dir| {
        fs::write(dir.join("long"), vec![b'x'; (3 << 20) + 5]).expect("a file");
    });
    let served = &server.served;
    let top = served.mount("/");
    let file = served.at(&top, "a/b/file");
    assert_eq!(served.content(&file), b"content");
    let told = |file: &[u8], offset_bytes, len_bytes| {
        let outcome = served.read(file, offset_bytes, len_bytes, Credential::Nobody);
        match outcome {
            Outcome::Read {
                span,
                mut head,
                pad_bytes,
                file_len_bytes,
                ..
            } => {
                assert_eq!(span.offset_bytes, offset_bytes);
                assert!((span.len_bytes + u64::from(pad_bytes)).is_multiple_of(4) && pad_bytes < 4);
                let behind = span.len_bytes as u32 + pad_bytes;
                let mark = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) - behind;
                head[..4].copy_from_slice(&mark.to_be_bytes());
                let mut reply = Reply::new(head);
                assert_eq!(reply.u32(), 0);
                assert_eq!(reply.optional().map(|told| told.2), Some(file_len_bytes));
                let told = (reply.u32(), reply.u32(), reply.u32());
                assert_eq!((told.0, told.2), (span.len_bytes as u32, told.0));
                assert!(reply.is_at_end());
                (told.0, told.1 == 1)
            }
            Outcome::Reply(record) => {
                let mut reply = Reply::new(record);
                assert_eq!(reply.u32(), 0);
                assert!(reply.optional().is_some());
                let told = (reply.u32(), reply.u32(), reply.u32());
                assert!(reply.is_at_end());
                assert_eq!((told.0, told.2), (0, 0));
                (0, told.1 == 1)
            }
            Outcome::Cold => panic!("it may wait"),
        }
    };
    assert_eq!(told(&file, 0, 7), (7, true));
    assert_eq!(told(&file, 0, 6), (6, false));
    assert_eq!(told(&file, 3, 100), (4, true));
    assert_eq!(told(&file, 0, 0), (0, false));
    assert_eq!(told(&file, 7, 1), (0, true));
    assert_eq!(told(&file, u64::MAX, u32::MAX), (0, true));
    assert_eq!(told(&served.at(&top, "empty"), 0, 1), (0, true));
    let long = served.at(&top, "long");
    assert_eq!(told(&long, 0, u32::MAX), (1 << 20, false));
    assert_eq!(told(&long, (2 << 20) + 5, u32::MAX), (1 << 20, true));
    // It grows and shrinks.
    fs::write(server.dir.join("a/b/file"), "longer content").expect("ours");
    assert_eq!(told(&file, 0, 100), (14, true));
    assert_eq!(served.content(&file), b"longer content");
    fs::write(server.dir.join("a/b/file"), "x").expect("ours");
    assert_eq!(told(&file, 0, 100), (1, true));
    assert_eq!(told(&file, 5, 100), (0, true));
    let read = |file: &[u8]| match served.read(file, 0, 1, user(0, 0, &[])) {
        Outcome::Reply(record) => Reply::new(record).u32(),
        other => panic!("{other:?}"),
    };
    assert_eq!(read(&top), Status::IsDir as u32);
    assert_eq!(read(&served.at(&top, "link")), Status::Inval as u32);
    let mut to = Vec::new();
    served.refuse_read(1, Why::ReadFailed, &mut to);
    assert_eq!(Reply::new(to).u32(), Status::Io as u32);
}

#[test]
fn what_would_change_something_is_refused_with_the_reason() {
    let server = Server::new("read-only");
    let served = &server.served;
    let top = served.mount("/");
    let file = served.at(&top, "a/b/file");
    let (there, set) = (place(&top, b"new"), SetAttributes::default());
    let handle = Handle(&file);
    let write = Write {
        file: handle,
        offset_bytes: 0,
        len_bytes: 0,
        stable: Stable::FileSync,
        payload_bytes: 0,
    };
    let how = Create::Unchecked(set);
    let (kind, device) = (Kind::Pipe, Device::default());
    for (args, behind) in [
        (
            Args::SetAttr {
                file: handle,
                set,
                guard: None,
            },
            4 + 4 + 84,
        ),
        (Args::Write(write), 4 + 4 + 84),
        (Args::Create { place: there, how }, 4 + 4 + 84),
        (Args::MkDir { place: there, set }, 4 + 4 + 84),
        (
            Args::SymLink {
                place: there,
                set,
                target: b"x",
            },
            4 + 4 + 84,
        ),
        (
            Args::MkNod {
                place: there,
                kind,
                set,
                device,
            },
            4 + 4 + 84,
        ),
        (Args::Remove(there), 4 + 4 + 84),
        (Args::RmDir(there), 4 + 4 + 84),
        (
            Args::Rename {
                from: there,
                to: there,
            },
            4 + 4 + 84 + 8,
        ),
        (
            Args::Link {
                file: handle,
                place: there,
            },
            4 + 4 + 84 + 4,
        ),
        (
            Args::Commit {
                file: handle,
                offset_bytes: 0,
                len_bytes: 0,
            },
            4 + 4 + 84,
        ),
    ] {
        let mut reply = served.reply(args, user(0, 0, &[]));
        assert_eq!(reply.u32(), Status::RoFs as u32, "{args:?}");
        assert_eq!(reply.0.len() - 28, behind, "{args:?}");
    }
    let gone = Args::Remove(place(b"", b"x"));
    assert_eq!(served.status(gone, user(0, 0, &[])), STALE);
    assert!(served.reply(Args::Null, Credential::Nobody).0.len() == 28);
    assert!(
        fs::read_dir(&server.dir)
            .expect("ours")
            .all(|entry| entry.expect("ours").file_name() != "new")
    );
}

#[test]
fn what_the_file_system_is_like_is_told() {
    let server = Server::new("told");
    let served = &server.served;
    let top = served.mount("/");
    let mut stat = served.reply(Args::FsStat(Handle(&top)), Credential::Nobody);
    assert_eq!((stat.u32(), stat.optional().is_some()), (0, true));
    let (bytes, free, available) = (stat.u64(), stat.u64(), stat.u64());
    assert!(bytes >= free && free >= available && bytes > 0);
    let mut info = served.reply(Args::FsInfo(Handle(&top)), Credential::Nobody);
    assert_eq!((info.u32(), info.optional().is_some()), (0, true));
    assert_eq!(
        [info.u32(), info.u32(), info.u32()],
        [1 << 20, 1 << 20, 4096]
    );
    let mut conf = served.reply(Args::PathConf(Handle(&top)), Credential::Nobody);
    assert_eq!((conf.u32(), conf.optional().is_some()), (0, true));
    assert_eq!((conf.u32(), conf.u32()), (u32::MAX, 255));
    let asked = Asked::Mount(MountArgs::Export);
    let Outcome::Reply(list) = served.call(asked, Credential::Nobody, CLIENT, Wait::No) else {
        panic!("nothing is waited for");
    };
    let mut list = Reply::new(list);
    assert_eq!((list.u32(), list.opaque()), (1, b"/".to_vec()));
    assert_eq!((list.u32(), list.opaque()), (1, b"10.0.0.0/8".to_vec()));
    assert_eq!((list.u32(), list.u32(), list.is_at_end()), (0, 0, true));
    for args in [
        MountArgs::Dump,
        MountArgs::Unmount(b"/"),
        MountArgs::UnmountAll,
        MountArgs::Null,
    ] {
        let outcome = served.call(Asked::Mount(args), Credential::Nobody, CLIENT, Wait::No);
        assert!(matches!(outcome, Outcome::Reply(_)), "{args:?}");
    }
}

#[test]
fn a_handle_outlives_renames_until_its_file_is_removed() {
    let mut server = Server::new("renames");
    for fresh in [Duration::from_secs(60), Duration::ZERO] {
        server.served.tree.fresh = fresh;
        let (served, at) = (&server.served, |path: &str| server.dir.join(path));
        let top = served.mount("/");
        let (folder, file) = (served.at(&top, "a/b"), served.at(&top, "a/b/file"));
        fs::rename(at("a/b/file"), at("a/b/other")).expect("ours");
        assert_eq!(served.content(&file), b"content", "{fresh:?}");
        fs::rename(at("a"), at("c")).expect("ours");
        assert_eq!(served.content(&file), b"content");
        assert_eq!(served.look_up(&folder, b"other"), Ok(file.clone()));
        assert_eq!(served.at(&top, "c/b/other"), file);
        fs::write(at("c/b/file"), "another").expect("a file");
        let another = served.look_up(&folder, b"file").expect("a file");
        assert_ne!(another, file);
        assert_eq!(served.content(&another), b"another");
        // Under another folder's old name is a new one.
        fs::create_dir_all(at("a/b")).expect("a directory");
        fs::write(at("a/b/other"), "wrong").expect("a file");
        assert_eq!(served.look_up(&folder, b"other"), Ok(file.clone()));
        assert_eq!(served.content(&file), b"content");
        // Replaced, as editors do.
        fs::rename(at("c/b/file"), at("c/b/other")).expect("ours");
        assert_eq!(served.get_attr(&file), Err(STALE));
        assert_eq!(served.look_up(&folder, b"other"), Ok(another.clone()));
        fs::remove_file(at("c/b/other")).expect("ours");
        assert_eq!(served.get_attr(&another), Err(STALE));
        fs::write(at("c/b/other"), "anew").expect("a file");
        assert_eq!(
            served.get_attr(&another),
            Err(STALE),
            "it has the inode again"
        );
        fs::remove_dir_all(at("c")).expect("ours");
        assert_eq!(served.get_attr(&folder), Err(STALE));
        let mut names = served.reply(
            listing::tests::asked(&folder, 0, 4096, false),
            user(0, 0, &[]),
        );
        assert_eq!(names.u32(), STALE);
        fs::write(at("a/b/file"), "content").expect("a file");
        fs::remove_file(at("a/b/other")).expect("ours");
    }
}

#[test]
fn a_handle_outlives_a_restart_with_the_same_key() {
    let mut server = Server::with("restart", &["/=*"], |dir| {
        fs::create_dir_all(dir.join("many")).expect("a directory");
        for nth in 0..2000 {
            fs::write(dir.join(format!("many/{nth}")), nth.to_string()).expect("a file");
        }
    });
    let top = server.served.mount("/");
    let file = server.served.at(&top, "a/b/file");
    let many: Vec<_> = (0..20)
        .map(|nth| server.served.at(&top, &format!("many/{nth}")))
        .collect();
    let link = server.served.at(&top, "link");
    server.restart(&["/=*"], 1);
    let served = &server.served;
    let outcome = served.call(
        Asked::Nfs(Args::GetAttr(Handle(&file))),
        Credential::Nobody,
        CLIENT,
        Wait::No,
    );
    assert!(matches!(outcome, Outcome::Cold));
    assert_eq!(served.content(&file), b"content");
    for (nth, file) in many.iter().enumerate() {
        assert_eq!(served.content(file), nth.to_string().as_bytes());
    }
    assert_eq!(
        served.get_attr(&link).map(|told| told.0),
        Ok(Kind::Link as u32)
    );
    assert_eq!(served.mount("/"), top);
    assert_eq!(served.at(&top, "a/b/file"), file, "the same handle");
    fs::remove_file(server.dir.join("many/3")).expect("ours");
    server.restart(&["/=*"], 1);
    assert_eq!(server.served.get_attr(&many[3]), Err(STALE));
    assert!(server.served.get_attr(&many[4]).is_ok());
    server.restart(&["/=*"], 2);
    assert_eq!(server.served.get_attr(&file), Err(STALE));
    assert_eq!(server.served.get_attr(&top), Err(STALE));
}

#[test]
fn a_handle_is_good_for_its_export_alone() {
    let specs = ["/a=10.0.0.0/8", "/c=10.0.0.0/8", "/c/d=192.0.2.1"];
    let mut server = Server::with("exports", &specs, |dir| {
        fs::create_dir_all(dir.join("c/d")).expect("a directory");
    });
    server.served.tree.fresh = Duration::ZERO;
    let (served, at) = (&server.served, |path: &str| server.dir.join(path));
    assert_eq!(served.try_mount(b"/", CLIENT), Err(NO_ENT));
    assert_eq!(served.try_mount(b"/empty", CLIENT), Err(NO_ENT));
    let other: IpAddr = [192, 0, 2, 1].into();
    assert_eq!(served.try_mount(b"/a", other), Err(ACCES));
    let inner = served.try_mount(b"/c/d", other).expect("a folder");
    let a = served.mount("/a");
    assert_eq!(
        served.look_up(&a, b".."),
        Ok(a.clone()),
        "nothing is above an export"
    );
    let by_other = |file: &[u8]| {
        let asked = Asked::Nfs(Args::GetAttr(Handle(file)));
        match served.call(asked, Credential::Nobody, other, Wait::Yes) {
            Outcome::Reply(record) => Reply::new(record).u32(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((by_other(&a), by_other(&inner)), (ACCES, 0));
    // Moved into another export.
    let file = served.at(&a, "b/file");
    fs::rename(at("a/b/file"), at("c/file")).expect("ours");
    assert_eq!(served.get_attr(&file), Err(STALE));
    let moved = served.at(&served.mount("/c"), "file");
    assert_eq!(
        (served.content(&moved), moved == file),
        (b"content".to_vec(), false)
    );
    // And out of all that is served.
    let outside = server.dir.with_extension("outside");
    fs::rename(at("c/file"), &outside).expect("ours");
    assert_eq!(served.get_attr(&moved), Err(STALE));
    fs::rename(&outside, at("c/file")).expect("ours");
    assert!(served.get_attr(&moved).is_ok());
    fs::rename(at("c/file"), at("c/file~")).expect("ours");
    assert_eq!(served.get_attr(&moved), Err(STALE), "it is hidden");
    // Every other handle is none.
    for at in 0..a.len() {
        let mut forged = a.clone();
        forged[at] ^= 1;
        assert_eq!(served.get_attr(&forged), Err(STALE));
    }
    for forged in [&b""[..], &[0; 64], &a[..a.len() - 1]] {
        assert_eq!(served.get_attr(forged), Err(STALE));
    }
    let sealed = |body: &[u8]| -> Sealed {
        let file = ackpace_wire::nfs3::handle::File {
            export: super::super::identity::hash(b"/a"),
            file_system: 1,
            body,
        };
        ackpace_wire::nfs3::handle::seal(&served.key, &file).expect("a short body")
    };
    for body in [&b""[..], b"\xff", b"\x01", b"\x03abcdefgh", &[0; 40]] {
        assert_eq!(served.get_attr(sealed(body).as_bytes()), Err(STALE));
    }
    server.restart(&["/c=*"], 1);
    assert_eq!(server.served.get_attr(&a), Err(STALE), "no longer exported");
}

#[test]
fn hidden_names_and_names_that_are_none() {
    let long = "n".repeat(255);
    let server = Server::with("names", &["/=*"], |dir| {
        fs::write(dir.join(&long), "long").expect("a file");
        fs::write(dir.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "bytes").expect("a file");
        fs::write(dir.join("copy~"), "hidden").expect("a file");
        symlink(".git", dir.join("git")).expect("a link");
    });
    let served = &server.served;
    let top = served.mount("/");
    assert_eq!(served.content(&served.at(&top, &long)), b"long");
    let bytes = served.look_up(&top, b"\xff\xfe").expect("a file");
    assert_eq!(served.content(&bytes), b"bytes");
    for (name, status) in [
        (&b".git"[..], NO_ENT),
        (b"copy~", NO_ENT),
        (b"a/b", ACCES),
        (b"a\0", ACCES),
        (b"", ACCES),
        (b"/", ACCES),
        (&[b'n'; 256], Status::NameTooLong as u32),
    ] {
        assert_eq!(served.look_up(&top, name), Err(status), "{name:?}");
    }
    // The link itself is seen, and leads the client to a hidden name.
    let link = served.at(&top, "git");
    assert_eq!(served.look_up(&link, b"config"), Err(Status::NotDir as u32));
    let names = listing::tests::all(served, &top, 4096, true);
    let mut names: Vec<Vec<u8>> = names.into_iter().map(|entry| entry.name).collect();
    names.sort();
    let mut expected: Vec<&[u8]> = vec![
        b".",
        b"..",
        b"a",
        b"empty",
        b"git",
        b"link",
        long.as_bytes(),
        b"\xff\xfe",
    ];
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn permissions_are_those_of_the_caller() {
    if !rustix::process::geteuid().is_root() {
        return; // files of other users are needed
    }
    let chown = |path: PathBuf, uid: u32, gid: u32, mode: u32| {
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).expect("root may");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("root may");
    };
    let specs = ["/=10.0.0.0/8", "/=192.0.2.1,no_root_squash"];
    let server = Server::with("rights", &specs, |dir| {
        chown(dir.join("a/b/file"), 10, 20, 0o640);
        chown(dir.join("a/b"), 10, 20, 0o750);
        chown(dir.join("empty"), 10, 20, 0o711);
        chown(dir.join(".git"), 0, 0, 0o700);
    });
    let served = &server.served;
    let top = served.mount("/");
    let trusted: IpAddr = [192, 0, 2, 1].into();
    let find = |args: Args<'_>, by: User<'_>, from: IpAddr| match served.call(
        Asked::Nfs(args),
        by,
        from,
        Wait::Yes,
    ) {
        Outcome::Reply(record) => Reply::new(record).u32(),
        Outcome::Read { .. } => 0,
        Outcome::Cold => panic!("it may wait"),
    };
    let b = served.at(&top, "a/b");
    let look = Args::Lookup(place(&b, b"file"));
    let (owner, member, other) = (user(10, 9, &[]), user(11, 9, &[20]), user(11, 11, &[]));
    for (by, from, status) in [
        (owner, CLIENT, 0),
        (member, CLIENT, 0),
        (user(11, 20, &[]), CLIENT, 0),
        (other, CLIENT, ACCES),
        (Credential::Nobody, CLIENT, ACCES),
        (user(0, 0, &[]), CLIENT, ACCES),
        (user(0, 0, &[]), trusted, 0),
        (user(0, 0, &[]), [198, 51, 100, 1].into(), ACCES),
    ] {
        assert_eq!(find(look, by, from), status, "{by:?} {from}");
        let names = listing::tests::asked(&b, 0, 4096, true);
        assert_eq!(find(names, by, from), status, "{by:?} {from}");
    }
    let Outcome::Reply(found) = served.call(Asked::Nfs(look), owner, CLIENT, Wait::Yes) else {
        panic!("it may wait");
    };
    let mut found = Reply::new(found);
    assert_eq!(found.u32(), 0);
    let file = found.opaque();
    let may = |file: &[u8], by: User<'_>, from: IpAddr| {
        let all = access::READ
            | access::LOOKUP
            | access::MODIFY
            | access::EXTEND
            | access::DELETE
            | access::EXECUTE;
        let args = Args::Access {
            file: Handle(file),
            mask: all,
        };
        match served.call(Asked::Nfs(args), by, from, Wait::Yes) {
            Outcome::Reply(record) => {
                let mut reply = Reply::new(record);
                assert_eq!((reply.u32(), reply.optional().is_some()), (0, true));
                reply.u32()
            }
            other => panic!("{other:?}"),
        }
    };
    for (by, from, may_read) in [
        (owner, CLIENT, true),
        (member, CLIENT, true),
        (other, CLIENT, false),
        (user(0, 0, &[]), CLIENT, false),
        (user(0, 0, &[]), trusted, true),
    ] {
        let status = if may_read { 0 } else { ACCES };
        assert_eq!(find(read(&file, 0, 9), by, from), status, "{by:?} {from}");
        let bits = if may_read { access::READ } else { 0 };
        assert_eq!(may(&file, by, from), bits, "{by:?} {from}");
    }
    let all = access::READ | access::LOOKUP;
    assert_eq!(
        (
            may(&b, owner, CLIENT),
            may(&b, member, CLIENT),
            may(&b, other, CLIENT)
        ),
        (all, all, 0)
    );
    // Who may execute it may read it, and the owner always may.
    let program = served.at(&top, "empty");
    assert_eq!(may(&program, other, CLIENT), access::EXECUTE);
    assert_eq!(find(read(&program, 0, 9), other, CLIENT), 0);
    chown(server.dir.join("a/b/file"), 10, 20, 0);
    assert_eq!(
        (
            find(read(&file, 0, 9), owner, CLIENT),
            may(&file, owner, CLIENT)
        ),
        (0, 0)
    );
}

#[test]
fn a_root_that_was_moved_is_served_on() {
    let mut server = Server::new("moved");
    server.served.tree.fresh = Duration::ZERO;
    let top = server.served.mount("/");
    let file = server.served.at(&top, "a/b/file");
    let away = server.dir.with_extension("away");
    fs::rename(&server.dir, &away).expect("ours");
    fs::create_dir_all(&server.dir).expect("a directory");
    fs::write(server.dir.join("wrong"), "wrong").expect("a file");
    let served = &server.served;
    assert_eq!(served.content(&file), b"content");
    assert_eq!(served.look_up(&top, b"wrong"), Err(NO_ENT));
    fs::rename(away.join("a/b/file"), away.join("other")).expect("ours");
    assert_eq!(served.content(&file), b"content");
    fs::remove_dir_all(&away).expect("ours");
    assert_eq!(served.get_attr(&file), Err(STALE));
}

#[test]
fn what_is_no_file_has_attributes_and_no_content() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let server = Server::with("kinds", &["/=*,no_root_squash"], |dir| {
        let make = |name: &str, kind| {
            mknodat(
                CWD,
                dir.join(name),
                kind,
                Mode::from_raw_mode(0o644),
                0x0103,
            )
        };
        make("pipe", FileType::Fifo).expect("a pipe");
        let _ = make("null", FileType::CharacterDevice); // root only
        std::os::unix::net::UnixListener::bind(dir.join("socket")).expect("a socket");
    });
    let served = &server.served;
    let top = served.mount("/");
    for (name, kind) in [
        ("pipe", Kind::Pipe),
        ("null", Kind::Character),
        ("socket", Kind::Socket),
    ] {
        let Ok(file) = served.look_up(&top, name.as_bytes()) else {
            assert_eq!(name, "null");
            continue;
        };
        assert_eq!(served.get_attr(&file).map(|told| told.0), Ok(kind as u32));
        assert_eq!(
            served.status(read(&file, 0, 1), user(0, 0, &[])),
            Status::Inval as u32,
            "{name}"
        );
    }
}

#[test]
fn a_removed_file_is_closed_soon() {
    let server = Server::new("sweep");
    let served = &server.served;
    let top = served.mount("/");
    let file = served.at(&top, "a/b/file");
    let Outcome::Read { source, .. } = served.read(&file, 0, 1, Credential::Nobody) else {
        panic!("it has content");
    };
    let Source::File(open) = source else {
        panic!("a file");
    };
    served.tree.sweep();
    assert_eq!(Arc::strong_count(&open), 2, "it is kept open");
    fs::remove_file(server.dir.join("a/b/file")).expect("ours");
    served.tree.sweep();
    assert_eq!(Arc::strong_count(&open), 1);
    assert_eq!(served.get_attr(&file), Err(STALE));
}

#[test]
fn what_is_known_is_answered_without_waiting() {
    let server = Server::new("hot");
    let served = &server.served;
    let call =
        |args: Args<'_>, wait| served.call(Asked::Nfs(args), Credential::Nobody, CLIENT, wait);
    let top = served.mount("/");
    let b = served.at(&top, "a/b");
    let file = served.at(&b, "file");
    call(read(&file, 0, 9), Wait::Yes);
    for args in [
        Args::GetAttr(Handle(&file)),
        Args::Lookup(place(&b, b"file")),
        Args::Access {
            file: Handle(&file),
            mask: 63,
        },
        read(&file, 0, 9),
        Args::FsInfo(Handle(&top)),
    ] {
        assert!(!matches!(call(args, Wait::No), Outcome::Cold), "{args:?}");
    }
}

#[test]
fn nobody_exports_to_strangers_by_accident() {
    let any: IpAddr = Ipv4Addr::UNSPECIFIED.into();
    let error = specs(&[], &[Ipv4Addr::LOCALHOST.into(), any]).expect_err("a stranger may come");
    assert!(error.to_string().contains("--nfs-export"), "{error}");
    let local = specs(
        &[],
        &[Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
    );
    let local = local.expect("this machine only");
    assert_eq!(local.len(), 1);
    assert!(local[0].clients.iter().all(|network| !network.has(CLIENT)));
    let named = vec![ExportSpec::new("/a", vec![Network::Any])];
    assert_eq!(specs(&named, &[any]).expect("it is named"), named);
}
