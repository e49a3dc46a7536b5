use std::fs;
use std::net::IpAddr;

use ackpace_wire::nfs3::handle::{self, Sealed};
use ackpace_wire::nfs3::{Args, Asked, Handle, Kind};
use ackpace_wire::rpc::Credential;

use super::super::listing::tests::asked;
use super::super::served::Outcome;
use super::super::testing::*;
use super::*;
use crate::source::Source;

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
        let mut names = served.reply(asked(&folder, 0, 4096, false), user(0, 0, &[]));
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
        let file = handle::File {
            export: identity::hash(b"/a"),
            file_system: 1,
            body,
        };
        handle::seal(&served.key, &file).expect("a short body")
    };
    for body in [&b""[..], b"\xff", b"\x01", b"\x03abcdefgh", &[0; 40]] {
        assert_eq!(served.get_attr(sealed(body).as_bytes()), Err(STALE));
    }
    server.restart(&["/c=*"], 1);
    assert_eq!(server.served.get_attr(&a), Err(STALE), "no longer exported");
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
fn a_long_folder_is_read_once_for_many_unknown_handles() {
    let mut server = Server::with("storm", &["/=*"], |dir| {
        fs::create_dir_all(dir.join("x/many")).expect("a directory");
        for nth in 0..1500 {
            fs::write(dir.join(format!("x/many/{nth}")), nth.to_string()).expect("a file");
        }
    });
    let top = server.served.mount("/");
    let many = server.served.at(&top, "x/many");
    let files: Vec<_> = (0..1500)
        .map(|nth| server.served.at(&many, &nth.to_string()))
        .collect();
    server.restart(&["/=*"], 1);
    let _ = server.served.content(&files[0]);
    assert_eq!(server.served.tree.indexes.count(), 0, "it was just changed");
    std::thread::sleep(Duration::from_millis(3_100));
    for _ in 0..2 {
        server.restart(&["/=*"], 1);
        for (nth, file) in files.iter().enumerate().filter(|(nth, _)| nth % 3 != 1) {
            assert_eq!(server.served.content(file), nth.to_string().as_bytes());
        }
        assert_eq!(server.served.tree.indexes.count(), 1);
        // What goes later is missed, and what was renamed is another path's.
        fs::remove_file(server.dir.join("x/many/1")).expect("ours");
        assert_eq!(server.served.get_attr(&files[1]), Err(STALE));
        assert!(server.served.get_attr(&files[4]).is_ok());
        fs::write(server.dir.join("x/many/1"), "anew").expect("a file");
        std::thread::sleep(Duration::from_millis(3_100));
    }
}

#[test]
fn a_handle_never_leads_to_another_file_while_names_change() {
    let mut server = Server::new("race");
    server.served.tree.fresh = Duration::ZERO;
    let top = server.served.mount("/");
    let file = server.served.at(&top, "a/b/file");
    let (served, dir) = (&server.served, server.dir.join("a"));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let over = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(over) {
                fs::rename(dir.join("b/file"), dir.join("file")).expect("ours");
                fs::write(dir.join("b/file"), "another").expect("a file");
                fs::rename(dir.join("file"), dir.join("b/file")).expect("ours");
            }
        });
        let reads = (0..2000).map(|_| served.read(&file, 0, 7, Credential::Nobody));
        let right = reads.filter(|outcome| match outcome {
            Outcome::Read { source, .. } => {
                assert_eq!(content(source, 7), b"content");
                true
            }
            _ => false,
        });
        assert!(right.count() > 0);
        is_over.store(true, over);
    });
    assert_eq!(served.content(&file), b"content");
}
