//! `ackpace-host` under test: what it needs, running it, and a cgroup for it to look at.

use std::fs;
use std::io;
use std::process::Command;

use crate::{Outcome, Program, Words, client, command, host_binary, needs_root, run, skip};

/// Runs it until it exits.
pub fn host(words: &(impl Words + ?Sized)) -> Outcome {
    run(command(host_binary()).args(words.words()))
}

/// Starts it.
pub fn host_start(words: &(impl Words + ?Sized)) -> Program {
    Program::start(command(host_binary()).args(words.words()))
}

/// `receive watch` for one port, which tells a page each second: a line. It watches already.
pub fn host_watch(port: u16) -> Program {
    let watching = host_start(&*format!("receive watch --json --port {port}"));
    watching.err_line(&["watches port"]);
    watching
}

/// Whether the doctor says that this command works here; if not, reports the test as skipped.
pub fn host_can(what: &str) -> bool {
    if !needs_root(what) {
        return false;
    }
    let told = host("doctor --json").out;
    let says = |line: &&str| {
        let is_it = line.contains(&format!("'{what}'")) && !line.contains("--cgroup");
        line.contains("\"ok\":false") && is_it
    };
    let line = told.lines().find(says);
    if let Some(line) = line {
        skip(&format!("ackpace-host can't {what} here: {line}"));
    }
    line.is_none()
}

/// Moves this thread, and all that it starts, into a network namespace with a loopback that has the segments of an
/// Ethernet. `false`, and the test is reported as skipped, where that can't be done.
pub fn network_apart() -> bool {
    let Some(mut ip) = client("ip") else {
        return false;
    };
    if !needs_root("a network namespace") {
        return false;
    }
    // SAFETY: no pointers; only this thread moves.
    let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(moved, 0, "unshare: {}", io::Error::last_os_error());
    let up = run(ip.args("link set lo mtu 1500 up".split(' ')));
    assert!(up.success, "{}", up.err);
    true
}

/// A cgroup of version 2 with another one in it, at a mount of the test's own.
#[derive(Debug)]
pub struct Cgroup(String);

impl Cgroup {
    /// A new one; `None` where none can be made.
    pub fn new() -> Option<Cgroup> {
        let top = format!("/tmp/ackpace-cgroup2-{}", std::process::id());
        fs::create_dir_all(&top).ok()?;
        let mounted = Command::new("mount")
            .args(["-t", "cgroup2", "none", &top])
            .status();
        let cgroup = Cgroup(top);
        let made = fs::create_dir_all(cgroup.path("inner"));
        (mounted.is_ok_and(|status| status.success()) && made.is_ok()).then_some(cgroup)
    }

    /// Its path, or that of the one with this name in it.
    pub fn path(&self, name: &str) -> String {
        let path = format!("{}/ackpace-test-{}/{name}", self.0, std::process::id());
        path.trim_end_matches('/').to_owned()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for name in ["inner", ""] {
            let _ = fs::remove_dir(self.path(name));
        }
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}
