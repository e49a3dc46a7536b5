//! Folders that change while they are listed.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use ackpace_wire::nfs3::Args;

use super::super::served::Served;
use super::super::testing::{Server, user};
use super::*;

thread_local! {
    static READS: Cell<usize> = const { Cell::new(0) };
}

/// The kernel is asked for names.
pub fn count_read() {
    READS.set(READS.get() + 1);
}

/// A name as a client sees it.
pub struct Listed {
    pub name: Vec<u8>,
    pub file_id: u64,
    pub attributes: Option<(u32, u32, u64, u64)>,
    pub handle: Option<Vec<u8>>,
}

/// READDIR, or READDIRPLUS.
pub fn asked(folder: &[u8], cookie: u64, len_bytes: u32, has_attributes: bool) -> Args<'_> {
    Args::ReadDir(ReadDir {
        has_attributes,
        folder: Handle(folder),
        cookie,
        verifier: [0; 8],
        names_bytes_max: len_bytes,
        len_bytes_max: len_bytes,
    })
}

/// Some names, the cookie of the last one, and whether these are all.
fn part(
    served: &Served,
    folder: &[u8],
    cookie: u64,
    len_bytes: u32,
    has_attributes: bool,
) -> (Vec<Listed>, u64, bool) {
    let args = asked(folder, cookie, len_bytes, has_attributes);
    let mut reply = served.reply(args, user(0, 0, &[]));
    assert_eq!(reply.u32(), 0);
    assert!(reply.0.len() - 32 <= len_bytes as usize);
    assert!(reply.optional().is_some());
    assert_eq!(reply.u64(), 0, "verifier");
    let (mut names, mut last) = (Vec::new(), cookie);
    while reply.u32() == 1 {
        let (file_id, name) = (reply.u64(), reply.opaque());
        last = reply.u64();
        let (mut attributes, mut handle) = (None, None);
        if has_attributes {
            attributes = reply.optional();
            handle = (reply.u32() == 1).then(|| reply.opaque());
        }
        names.push(Listed {
            name,
            file_id,
            attributes,
            handle,
        });
    }
    let is_end = reply.u32() == 1;
    assert!(reply.is_at_end());
    (names, last, is_end)
}

/// All names.
pub fn all(served: &Served, folder: &[u8], len_bytes: u32, has_attributes: bool) -> Vec<Listed> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    for _ in 0..100_000 {
        let (names, last, is_end) = part(served, folder, cookie, len_bytes, has_attributes);
        all.extend(names);
        cookie = last;
        if is_end {
            return all;
        }
    }
    panic!("it does not end");
}

#[test]
fn names_come_with_what_look_ups_tell() {
    let server = Server::new("plus");
    let served = &server.served;
    let top = served.mount("/");
    for (folder, above) in [
        (top.clone(), top.clone()),
        (served.at(&top, "a"), top.clone()),
    ] {
        let plain = all(served, &folder, 512, false);
        let plus = all(served, &folder, 1024, true);
        assert_eq!(plain.len(), plus.len());
        for (plain, plus) in plain.iter().zip(&plus) {
            assert_eq!(plain.name, plus.name);
            assert_eq!(plain.file_id, plus.file_id);
            let file = match &*plus.name {
                b".." => above.clone(),
                name => served.look_up(&folder, name).expect("a file"),
            };
            let told = served.get_attr(&file).expect("a file");
            assert_eq!(told.3, plain.file_id, "{:?}", plain.name);
            if plus.name != b".." {
                assert_eq!(plus.handle.as_ref(), Some(&file));
                assert_eq!(plus.attributes, Some(told));
            }
        }
    }
}

#[test]
fn a_long_folder_that_changes_is_listed_once_and_in_linear_time() {
    const NAMES: usize = 10_000;
    let name = |nth: usize| format!("{nth:05}-{}", "n".repeat(nth % 40));
    let server = Server::with("long", &["/=*"], |dir| {
        fs::create_dir(dir.join("long")).expect("a directory");
        for nth in 0..NAMES {
            fs::write(dir.join("long").join(name(nth)), "").expect("a file");
        }
    });
    let (served, dir) = (&server.served, server.dir.join("long"));
    let top = served.mount("/");
    let folder = served.at(&top, "long");
    for (len_bytes, has_attributes) in [(600, false), (4096, true), (32 << 10, false)] {
        READS.set(0);
        let (mut seen, mut cookie, mut calls) = (BTreeMap::new(), 0, 0);
        let (mut gone, mut new) = (BTreeSet::new(), 0);
        loop {
            let (names, last, is_end) = part(served, &folder, cookie, len_bytes, has_attributes);
            for listed in names {
                *seen.entry(listed.name).or_insert(0) += 1;
            }
            (cookie, calls) = (last, calls + 1);
            if is_end {
                break;
            }
            assert!(calls < NAMES, "it does not end");
            // Every third name goes, some of them after they were listed, and others come.
            for nth in (calls * 9..calls * 9 + 9)
                .step_by(3)
                .filter(|nth| *nth < NAMES)
            {
                if fs::remove_file(dir.join(name(nth))).is_ok() {
                    gone.insert(name(nth).into_bytes());
                }
            }
            fs::write(dir.join(format!("new-{new}")), "").expect("a file");
            new += 1;
        }
        assert!(seen.values().all(|times| *times == 1), "a name twice");
        let stayed = (0..NAMES)
            .map(|nth| name(nth).into_bytes())
            .filter(|name| !gone.contains(name));
        for name in stayed {
            assert!(seen.contains_key(&name), "{name:?} is missing");
        }
        let reads = READS.get();
        assert!(
            reads <= 2 * calls + 2 * NAMES * 80 / (32 << 10) + 2,
            "{reads} reads in {calls} calls"
        );
        for nth in 0..NAMES {
            fs::write(dir.join(name(nth)), "").expect("a file");
        }
        for nth in 0..new {
            fs::remove_file(dir.join(format!("new-{nth}"))).expect("ours");
        }
    }
}

#[test]
fn a_client_without_room_or_with_a_wrong_cookie_is_told_so() {
    let server = Server::new("room");
    let served = &server.served;
    let top = served.mount("/");
    let status = |args| served.status(args, user(0, 0, &[]));
    assert_eq!(status(asked(&top, 0, 0, false)), Status::TooSmall as u32);
    assert_eq!(status(asked(&top, 0, 100, true)), Status::TooSmall as u32);
    assert_eq!(
        status(asked(&top, u64::MAX, 4096, true)),
        Status::BadCookie as u32
    );
    let file = served.at(&top, "empty");
    assert_eq!(status(asked(&file, 0, 4096, true)), Status::NotDir as u32);
    let (_, last, is_end) = part(served, &top, 0, 4096, false);
    assert!(is_end);
    let (names, _, is_end) = part(served, &top, last, 4096, false);
    assert!(names.is_empty() && is_end);
}
