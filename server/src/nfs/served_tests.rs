use std::fs;
use std::os::unix::fs::MetadataExt;

use ackpace_wire::nfs3::{
    Args, Create, Device, Handle, Kind, MountArgs, SetAttributes, Stable, Write,
};
use ackpace_wire::rpc::Credential;

use super::super::testing::*;
use super::*;

#[test]
fn a_path_is_mounted_looked_up_and_read() {
    let server = Server::new("all");
    let served = &server.served;
    let top = served.mount("/");
    assert_eq!(served.mount(""), top, "as libnfs asks for nfs://host/file");
    let file = served.at(&top, "a/b/file");
    let number = |path: &str| {
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
                assert!((span.len_bytes + u64::from(pad_bytes)) % 4 == 0 && pad_bytes < 4);
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
            Outcome::Cold | Outcome::Asks(_) => panic!("it may wait"),
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
            96,
        ),
        (Args::Write(write), 96),
        (Args::Create { place: there, how }, 96),
        (Args::MkDir { place: there, set }, 96),
        (
            Args::SymLink {
                place: there,
                set,
                target: b"x",
            },
            96,
        ),
        (
            Args::MkNod {
                place: there,
                kind,
                set,
                device,
            },
            96,
        ),
        (Args::Remove(there), 96),
        (Args::RmDir(there), 96),
        (
            Args::Rename {
                from: there,
                to: there,
            },
            104,
        ),
        (
            Args::Link {
                file: handle,
                place: there,
            },
            100,
        ),
        (
            Args::Commit {
                file: handle,
                offset_bytes: 0,
                len_bytes: 0,
            },
            96,
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

#[test]
fn a_start_says_what_cannot_be_exported() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }
    let server = Server::new("start");
    let site = Arc::clone(&server.served.tree.site);
    let key = server.dir.join("key");
    let options = |arguments: &[&str]| {
        let key = key.to_str().expect("ASCII");
        let line = ["ackpace", "--nfs-key", key]
            .into_iter()
            .chain(arguments.iter().copied());
        <Line as clap::Parser>::parse_from(line).options
    };
    let at = [Ipv4Addr::LOCALHOST.into()];
    let check = |arguments: &[&str]| {
        let checked = Served::check(&options(arguments), &Layer::default(), &site, &at);
        checked.map_err(|error| error.to_string())
    };
    let start = |arguments: &[&str]| {
        let options = options(arguments);
        let served = Served::open(&options, &Layer::default(), &site, &at, Some(1024));
        served.map_err(|error| error.to_string())
    };
    assert_eq!(check(&["--nfs-export", "/a/b=*"]), Ok(()));
    assert!(!key.exists(), "a check makes none");
    assert!(start(&["--nfs-export", "/a/b=*"]).is_ok());
    let handle = start(&[]).expect("this machine").key;
    assert_eq!(start(&[]).expect("this machine").key, handle, "kept");
    for (export, why) in [
        ("/none=*", "/none: there is no such folder"),
        ("/link=*", "no such folder"),
        ("/empty=*", "no such folder"),
    ] {
        let export = ["--nfs-export", export];
        let error = start(&export).err().expect("not there");
        assert!(error.contains(why), "{error}");
        assert_eq!(check(&export), Err(error));
    }
    fs::write(&key, "no key").expect("ours");
    let error = start(&[]).err().expect("no key");
    assert!(error.contains("there is no key"), "{error}");
    assert_eq!(check(&[]), Err(error));
}
