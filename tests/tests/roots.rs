//! File systems that go while they are served, and come back, in a mount namespace of the server's own.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ackpace_tests::{
    Disk, Server, Setup, Tree, command, eventually, mounts_apart, needs_root, run,
};

/// Runs a command where the server's mounts are.
fn beside(server: &Server, words: &[&str], path: &Path) {
    let mut inside = command("nsenter");
    inside.arg(format!("--mount=/proc/{}/ns/mnt", server.pid()));
    let ran = run(inside.args(words).arg(path));
    assert!(ran.success, "{words:?}: {ran:?}");
}

/// A path as the server has it.
fn seen_by(server: &Server, path: &Path) -> PathBuf {
    let path = path.strip_prefix("/").expect("an absolute path");
    PathBuf::from(format!("/proc/{}/root", server.pid())).join(path)
}

/// What `/readyz` of the server says.
fn readyz(server: &Server) -> u16 {
    server.scrape("/readyz", "").status
}

/// Mounts a file system on the root that has one file, and waits until that is served.
fn comes_back(server: &Server, root: &Path, content: &str) {
    beside(server, &["mount", "-t", "tmpfs", "none"], root);
    fs::write(seen_by(server, &root.join("a")), content).expect("a file");
    eventually("it is served", || {
        server.get("/a", "").text() == content && readyz(server) == 200
    });
}

#[test]
fn a_file_system_that_is_mounted_on_the_root_after_the_start_is_served() {
    if !needs_root("a mount") {
        return;
    }
    let tree = Tree::new();
    let root = tree.dir("site");
    tree.file("site/a", "below the mount point");
    let setup = Setup::new(&root).args("--metrics 0");
    let server = setup.before(mounts_apart).start();
    assert_eq!(server.get("/a", "").text(), "below the mount point");
    comes_back(&server, &root, "mounted");
    server.err_line(&[
        "WARN",
        "/site: a file system was mounted there, and is opened",
    ]);
    // From now on, what lies below is not served without it.
    beside(&server, &["umount", "-l"], &root);
    eventually("it is not ready", || readyz(&server) == 503);
}

#[test]
fn a_root_that_is_unmounted_is_not_ready_until_something_is_mounted_there() {
    if !needs_root("a mount") {
        return;
    }
    let tree = Tree::new();
    let root = tree.dir("site");
    tree.file("site/a", "below the mount point");
    let at = CString::new(root.as_os_str().as_bytes()).expect("no NUL");
    let mount = move || {
        mounts_apart()?;
        let (kind, none) = (c"tmpfs".as_ptr(), std::ptr::null());
        // SAFETY: all pointers are null or to live C strings, and a child may make a system call.
        match unsafe { libc::mount(kind, at.as_ptr(), kind, 0, none) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    let setup = Setup::new(&root).args("--metrics 0");
    let server = setup.before(mount).start();
    fs::write(seen_by(&server, &root.join("a")), "first").expect("a file");
    assert_eq!(server.get("/a", "").text(), "first");
    assert_eq!(readyz(&server), 200);
    beside(&server, &["umount", "-l"], &root);
    eventually("it is not ready", || readyz(&server) == 503);
    assert_eq!(server.get("/", "").status, 503);
    server.err_line(&[
        "ERROR",
        "/site: its file system was unmounted",
        "mount it anew",
    ]);
    comes_back(&server, &root, "second");
    server.err_line(&["WARN", "/site: mounted and opened again"]);
    // Both within a second.
    beside(&server, &["umount", "-l"], &root);
    comes_back(&server, &root, "third");
}

#[test]
fn a_root_whose_daemon_has_died_is_opened_again_when_something_is_mounted_there() {
    let Some(mut disk) = Disk::up(&[]) else {
        return;
    };
    let tree = Tree::new();
    let (root, above) = (tree.dir("site"), tree.dir("above"));
    let below = tree.dir("above/dead");
    let served = |path: &Path, at: &Path| {
        let setup = Setup::new(path).args("--metrics 0");
        disk.daemon_served_at(at, setup).start()
    };
    let (server, other) = (served(&root, &root), served(&above, &below));
    let file = format!("/{}", Disk::DAEMONS_FILE);
    let bytes = "Range: bytes=0-0\r\n";
    assert_eq!(server.get(&file, bytes).status, 206);
    disk.kill_daemon();
    // A daemon is asked only when a request could not be answered.
    eventually("it is not ready", || {
        server.get("/b", "");
        readyz(&server) == 503
    });
    for path in ["/", "/b", &file] {
        assert_eq!(server.get(path, "").status, 503, "{path}");
    }
    let dead = "/site: Transport endpoint is not connected";
    server.err_line(&["ERROR", dead, "umount -l"]);
    beside(&server, &["umount", "-l"], &root);
    comes_back(&server, &root, "second");
    assert_eq!(server.err().matches(dead).count(), 1, "{}", server.err());
    server.stop();

    // A mount below the root keeps its name, and is not taken for empty.
    let listing = other.get("/?json", "").text();
    assert!(
        listing.contains(r#""name":"dead", "type":"directory""#),
        "{listing}"
    );
    assert_eq!(other.get("/dead/", "").status, 500);
    assert_eq!(readyz(&other), 200);
}
