use std::fs;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use ackpace_wire::nfs3::{Args, Asked, Handle, Status, access};
use ackpace_wire::rpc::Credential;

use super::super::listing::tests as listing;
use super::super::outcome::Outcome;
use super::super::testing::*;
use super::*;

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
    let names = listing::all(served, &top, 4096, true);
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
        Outcome::Cold | Outcome::Asks(_) => panic!("it may wait"),
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
        let names = listing::asked(&b, 0, 4096, true);
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
