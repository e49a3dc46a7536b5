//! Files that change, disappear or fail while they are sent.

use std::fs::{self, File, FileTimes};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::{Duration, SystemTime};

use ackpace_tests::{
    Conn, Rng, Server, Setup, Tree, cached_bytes, client, eventually, forget_cached, has_direct,
    mount_for_child, needs_root, pattern, run, skip,
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
    let server = Server::start(&tree, "");
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

/// A loop device whose backing file can be truncated: a read behind its end is a disk error.
struct Device {
    name: String,
    image: std::path::PathBuf,
}

impl Device {
    /// A device with a file system that holds `content`; `None` where the kernel offers no loop devices.
    fn new(tree: &Tree, content: &Tree) -> Option<Device> {
        let (mut mkfs, mut losetup) = (client("mkfs.ext4")?, client("losetup")?);
        let image = tree.at("image");
        let made = run(mkfs
            .arg("-q")
            .arg("-d")
            .arg(content.path())
            .arg(&image)
            .arg("64M"));
        assert!(made.success, "mkfs.ext4: {}", made.err);
        let looped = run(losetup.args(["--find", "--show"]).arg(&image));
        if !looped.success {
            skip(&format!("losetup: {}", looped.err.trim()));
            return None;
        }
        let name = looped.out.trim().to_owned();
        Some(Device { name, image })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.name).output();
    }
}

#[test]
fn a_disk_that_fails_midway_ends_the_response_and_is_logged_with_file_and_offset() {
    if !needs_root("a device that fails") {
        return;
    }
    let (content_tree, content) = tree();
    let tree = Tree::new();
    let Some(device) = Device::new(&tree, &content_tree) else {
        return;
    };
    let root = tree.dir("mount");
    let text = |bytes: &[u8]| std::ffi::CString::new(bytes).expect("no NUL");
    let (name, dir) = (
        text(device.name.as_bytes()),
        text(root.as_os_str().as_bytes()),
    );
    let server = Setup::new(&root)
        .before(move || mount_for_child(&name, &dir))
        .start();
    // Twice, so that it is popular and stays in the page cache.
    assert_eq!(server.get("/small", "").text(), "small");
    assert_eq!(server.get("/small", "").text(), "small");
    let mut conn = server.stalled("/big", "");
    assert!(conn.exactly(4096) == content[..4096], "other bytes");
    // Truncates the disk here: 20 of 32 MiB are gone, more than buffers on the way can hold.
    let image = File::options()
        .write(true)
        .open(&device.image)
        .expect("the image");
    image.set_len(24 << 20).expect("a shorter image");
    let body = conn.rest_or_reset();
    assert!(body.len() < LEN - 4096, "all of it came");
    assert!(
        body == content[4096..4096 + body.len()],
        "other bytes before the failure"
    );
    let line = server.err_line(&["ERROR", "/big", "offset_bytes="]);
    assert!(
        line.contains("read failed") && line.contains("os error 5"),
        "{line}"
    );
    // What can be read is still served.
    assert_eq!(server.get("/small", "").text(), "small");
}

#[test]
fn a_file_that_is_not_cached_is_served_from_the_disk() {
    let (tree, content) = tree();
    let server = Server::start(&tree, "");
    let file = File::open(tree.at("big")).expect("the file");
    // Many times: a want that is repeated just when it is fulfilled must not be lost.
    for nth in 0..60 {
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

#[test]
fn crowds_that_read_here_and_there_get_their_bytes_while_the_cache_is_emptied() {
    const SEED: u64 = 15;
    println!("seed {SEED}");
    let (tree, content) = tree();
    let server = Server::start(&tree, "--workers 2");
    let (address, content) = (server.address(), &content);
    let file = File::open(tree.at("big")).expect("the file");
    std::thread::scope(|scope| {
        for client in 0..12 {
            scope.spawn(move || crowd_member(address, content, SEED + client));
        }
        for _ in 0..50 {
            forget_cached(&file);
            assert_eq!(server.get("/small", "").text(), "small");
        }
    });
}

/// Random ranges, one after the other or several at once; now and then the client leaves in the middle.
fn crowd_member(address: SocketAddr, content: &[u8], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut conn = Conn::open(address);
    for _ in 0..40 {
        let ranges: Vec<(usize, usize)> = (0..1 + rng.below(4))
            .map(|_| {
                let from = rng.below(LEN);
                let most = 4 << rng.below(20);
                let len = 1 + rng.below((LEN - from).min(most));
                (from, from + len)
            })
            .collect();
        for (from, to) in &ranges {
            let last = to - 1;
            conn.send(format!(
                "GET /big HTTP/1.1\r\nHost: t\r\nRange: bytes={from}-{last}\r\n\r\n"
            ));
        }
        if rng.below(8) == 0 {
            conn = Conn::open(address);
            continue;
        }
        for (from, to) in ranges {
            let response = conn.response();
            assert!(
                response.body == content[from..to],
                "seed {seed}: other bytes for {from}..{to}"
            );
        }
    }
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
