//! A tgtd of its own for each test: a free port, a file as the disk, and a socket for tgtadm in a folder.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub const LUN: u16 = 1;
pub const BLOCK_BYTES: u32 = 512;
pub const DISK_BYTES: u64 = 16 << 20;

pub struct Tgtd {
    child: Child,
    pub port: u16,
    dir: PathBuf,
}

/// A program of tgt: an installed one, or that which `scripts/lib.sh` (`ensure_tgt`) fetches beside what is built.
fn program(name: &str) -> Command {
    // TARGET_DIR/PROFILE/deps/NAME-HASH, or TARGET_DIR/PROFILE/NAME
    let test = std::env::current_exe().expect("the path of this test");
    let above = test.ancestors().skip(2).take(2);
    let mut fetched = above.map(|dir| dir.join("tools/tgt/usr/sbin").join(name));
    match fetched.find(|path| path.is_file()) {
        Some(path) => Command::new(path),
        None => Command::new(name),
    }
}

impl Tgtd {
    /// `None`, and the test is reported as skipped, where there is none.
    pub fn start() -> Option<Tgtd> {
        Tgtd::with_disk(DISK_BYTES)
    }

    /// Likewise, with a disk of this size, which is all zeros.
    pub fn with_disk(disk_bytes: u64) -> Option<Tgtd> {
        let skipped = |why: &str| {
            let thread = std::thread::current();
            println!("skipped: {}: {why}", thread.name().unwrap_or("a test"));
            None
        };
        if program("tgtd").arg("--version").output().is_err() {
            return skipped(
                "tgtd is not there (make test fetches Debian's; or apt-get install tgt)",
            );
        }
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("its number").port();
        drop(free);
        let dir = std::env::temp_dir().join(format!("ackpace-tgtd-{port}"));
        std::fs::create_dir_all(&dir).expect("a folder");
        let disk = std::fs::File::create(dir.join("disk")).expect("a disk");
        disk.set_len(disk_bytes).expect("its length");
        let child = spawn(port, &dir);
        let mut tgtd = Tgtd { child, port, dir };
        match tgtd.set_up() {
            true => Some(tgtd),
            false => skipped("tgtd does not start here"),
        }
    }

    /// The target's name, which is another one for each that runs: names are unique in the world, and a gateway relies on it.
    pub fn target(&self) -> String {
        target(self.port)
    }

    /// The file that is its disk.
    #[allow(dead_code, reason = "the tests of other packages look at it")]
    pub fn disk(&self) -> PathBuf {
        self.dir.join("disk")
    }

    /// Waits until it answers, then makes the target.
    fn set_up(&mut self) -> bool {
        let target = [
            "--op",
            "new",
            "--mode",
            "target",
            "--tid",
            "1",
            "--targetname",
            &self.target(),
        ];
        // Ten seconds.
        let answers = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            self.try_admin(&target)
        });
        if !answers {
            return false;
        }
        let disk = self.dir.join("disk");
        let disk = disk.to_str().expect("UTF-8");
        self.admin(&[
            "--op",
            "new",
            "--mode",
            "logicalunit",
            "--tid",
            "1",
            "--lun",
            "1",
            "--backing-store",
            disk,
        ]);
        self.admin(&[
            "--op",
            "bind",
            "--mode",
            "target",
            "--tid",
            "1",
            "--initiator-address",
            "ALL",
        ]);
        true
    }

    fn try_admin(&self, words: &[&str]) -> bool {
        let mut command = program("tgtadm");
        command.args(["-C", "0", "--lld", "iscsi"]).args(words);
        command.env("TGT_IPC_SOCKET", self.dir.join("socket"));
        let output = command.output().expect("tgtadm");
        output.status.success()
    }

    fn admin(&self, words: &[&str]) {
        assert!(self.try_admin(words), "tgtadm {words:?}");
    }

    /// Sets one of the target's parameters.
    pub fn set(&self, name: &str, value: &str) {
        self.admin(&[
            "--op", "update", "--mode", "target", "--tid", "1", "--name", name, "--value", value,
        ]);
    }

    pub fn account(&self, name: &str, secret: &str) {
        self.admin(&[
            "--op",
            "new",
            "--mode",
            "account",
            "--user",
            name,
            "--password",
            secret,
        ]);
    }

    pub fn bind_account(&self, name: &str, outgoing: bool) {
        let words = [
            "--op",
            "bind",
            "--mode",
            "account",
            "--tid",
            "1",
            "--user",
            name,
            "--outgoing",
        ];
        self.admin(&words[..if outgoing { 9 } else { 8 }]);
    }

    pub fn make_read_only(&self) {
        self.admin(&[
            "--op",
            "update",
            "--mode",
            "logicalunit",
            "--tid",
            "1",
            "--lun",
            "1",
            "--params",
            "readonly=1",
        ]);
    }

    /// SIGSTOP: it answers nothing any more.
    pub fn stop(&self) {
        let mut kill = Command::new("kill");
        let status = kill.args(["-STOP", &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill -STOP");
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("it ran");
        self.child.wait().expect("it ended");
    }

    /// Starts it again after [`Tgtd::kill`], with the same disk.
    pub fn restart(&mut self) {
        self.child = spawn(self.port, &self.dir);
        assert!(self.set_up(), "it started before");
    }
}

/// The name of the target at this port.
pub fn target(port: u16) -> String {
    format!("iqn.2026-01.org.example:disk-{port}")
}

fn spawn(port: u16, dir: &std::path::Path) -> Child {
    let mut command = program("tgtd");
    command.args([
        "-f",
        "-C",
        "0",
        "--iscsi",
        &format!("portal=127.0.0.1:{port}"),
    ]);
    command.env("TGT_IPC_SOCKET", dir.join("socket"));
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("tgtd")
}

impl Drop for Tgtd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
