//! Files that change, disappear or fail while they are sent.

use std::fs::{self, File, FileTimes};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime};

use ackpace_tests::{
    Server, Setup, Tree, cached_bytes, eventually, forget_cached, has_direct, needs_root, pattern,
    skip,
};

const LEN: usize = 32 << 20;

fn tree() -> (Tree, Vec<u8>) {
    let tree = Tree::new();
    let content = pattern(LEN, 8);
    tree.file("big", &content);
    tree.file("small", "small");
    (tree, content)
}

#[test]
fn a_file_that_changes_under_many_downloads_is_told_in_a_line_or_two() {
    let (tree, _) = tree();
    let mut server = Server::start(&tree, "");
    let conns: Vec<_> = (0..20).map(|_| server.stalled("/big", "")).collect();
    let file = File::options()
        .write(true)
        .open(tree.at("big"))
        .expect("the file");
    std::os::unix::fs::FileExt::write_at(&file, b"changed", LEN as u64 / 2).expect("a change");
    for mut conn in conns {
        assert!(conn.rest_or_reset().len() < LEN, "all bytes came");
    }
    server.signal(libc::SIGTERM);
    server.err_line(&["WARN", "/big", "file_changed", "times="]);
    assert_eq!(server.wait().code(), Some(0));
    let err = server.err();
    let lines: Vec<_> = err
        .lines()
        .filter(|line| line.contains("file_changed"))
        .collect();
    let times = |line: &&str| match line.split_once("times=") {
        Some((_, times)) => times.trim().parse::<usize>().expect("a number"),
        None => 1,
    };
    assert_eq!(lines.iter().map(times).sum::<usize>(), 20, "{err}");
    assert!(lines.len() < 10, "a line in ten seconds: {err}");
}

#[test]
fn a_deleted_file_gives_its_space_back_when_nobody_reads_it_any_more() {
    let (tree, content) = tree();
    let server = Server::start(&tree, "");
    assert!(server.get("/big", "").body == content, "other bytes");
    fs::remove_file(tree.at("big")).expect("a removal");
    let held = || {
        let dir = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the server runs");
        let mut links = dir.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.any(|link| link.to_string_lossy().contains("/big"))
    };
    eventually("the deleted file is closed", || !held());
}

#[test]
fn a_file_that_is_not_cached_is_served_from_the_disk() {
    let (tree, content) = tree();
    let server = Server::start(&tree, "");
    let file = File::open(tree.at("big")).expect("the file");
    // Many times: a want that is repeated just when it is fulfilled must not be lost.
    for nth in 0..15 {
        let from = [0, 1_000_000, LEN - 1][nth % 3];
        forget_cached(&file);
        let response = server.get("/big", &format!("Range: bytes={from}-\r\n"));
        assert!(response.body == content[from..], "other bytes");
    }
}

#[test]
fn what_belongs_to_the_server_s_user_gets_no_new_time_of_access_whatever_it_has_met_before() {
    const USER: u32 = 65534;
    if !needs_root("a server of another user") {
        return;
    }
    let tree = Tree::new();
    let names = ["foreign", "warm", "cold", "list"].map(|name| match name {
        "list" => tree.dir(name),
        _ => tree.file(name, [7; 200_000]),
    });
    tree.file("list/entry", "entry");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for path in &names {
        let owner = (!path.ends_with("foreign")).then_some(USER);
        std::os::unix::fs::chown(path, owner, owner).expect("root may do so");
        let file = File::open(path).expect("it was just made");
        let age = file.set_times(FileTimes::new().set_accessed(old));
        age.expect("the time of an own file");
    }
    let cold = File::open(tree.at("cold")).expect("a file");
    forget_cached(&cold); // its reads go past the page cache, where that is possible
    let server = Setup::new(tree.path()).user(USER).start();
    for target in ["/foreign", "/warm", "/cold", "/list/?json"] {
        assert_eq!(server.get(target, "").status, 200, "{target}");
    }
    server.stop();
    let moved = names.map(|path| {
        let now = fs::metadata(path).and_then(|stat| stat.accessed());
        now.expect("a time of access") != old
    });
    assert_eq!(moved[1..], [false; 3], "warm, cold and list");
    if !moved[0] {
        skip("the directory for temporary files has no times of access");
    }
}

#[test]
fn a_download_that_comes_once_leaves_the_page_cache_as_it_was_and_a_second_one_fills_it() {
    let (tree, content) = tree();
    if !has_direct(&tree.at("big")) {
        return skip("the directory for temporary files is not on a disk with O_DIRECT");
    }
    let server = Server::start(&tree, "");
    let file = File::open(tree.at("big")).expect("the file");
    forget_cached(&file);
    assert!(server.get("/big", "").body == content, "other bytes");
    let once = cached_bytes(&file);
    assert!(once < LEN / 8, "{once} bytes are in the page cache");
    assert!(server.get("/big", "").body == content, "other bytes");
    let twice = cached_bytes(&file);
    assert!(
        twice > LEN / 2,
        "only {twice} bytes are, though it is popular"
    );
}

/// As Samba has them (fcntl(2), F_SETLEASE).
#[test]
fn a_file_under_a_lease_is_served_once_that_is_given_up_and_costs_no_cached_response() {
    let (tree, _) = tree();
    let path = tree.file("leased", "l");
    let server = Server::start(&tree, "--workers 1");
    assert_eq!(server.get("/small", "").text(), "small");
    // SAFETY: no handler. By default the signal that a lease is asked for ends the process.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    let file = File::options().write(true).open(path);
    let file = file.expect("our own file");
    let lease = |kind: libc::c_int| {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) }
    };
    if lease(libc::F_WRLCK) != 0 {
        return skip("no lease can be had on this file system");
    }
    assert_eq!(server.get("/leased", "").status, 503);
    let line = server.err_line(&["503", "lease"]);
    assert!(!line.contains("LimitNOFILE"), "{line}");
    lease(libc::F_UNLCK);
    assert_eq!(server.get("/leased", "").text(), "l");
    assert_eq!(server.get("/small", "").text(), "small");
}
