//! A gateway with a folder of its own, and its target.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::tgtd::{self, LUN, Tgtd};

pub const BINARY: &str = env!("CARGO_BIN_EXE_ackpace-host");
/// Room for an ext4 with a journal and what tests write.
pub const DISK_BYTES: u64 = 192 << 20;
/// What is waited for takes a moment; so long at most.
const TURNS: u32 = 3_000;
const TURN: Duration = Duration::from_millis(20);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A target, where the machine has all that it takes. `None`: the test is reported as skipped.
pub fn target() -> Option<Tgtd> {
    let lacks = |what: &str| {
        let thread = thread::current();
        println!("skipped: {}: {what}", thread.name().unwrap_or("a test"));
        None
    };
    if !rustix::process::geteuid().is_root() {
        return lacks("only root may mount");
    }
    let mut open = File::options();
    let open = open.read(true).write(true);
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(error) = open.open(device) {
            return lacks(&format!("{device}: {error}"));
        }
    }
    if Command::new("mkfs.ext4").arg("-V").output().is_err() {
        return lacks("mkfs.ext4 is not there (apt-get install e2fsprogs)");
    }
    Tgtd::with_disk(DISK_BYTES)
}

/// Waits until this is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..TURNS {
        if so() {
            return;
        }
        thread::sleep(TURN);
    }
    panic!("it took too long: {what}");
}

/// A folder for one gateway after the other.
pub struct World {
    folder: PathBuf,
    port: u16,
}

impl World {
    pub fn new(tgtd: &Tgtd) -> World {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ackpace-host-gateway-{}-{nth}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("mount")).expect("a folder");
        World {
            folder,
            port: tgtd.port,
        }
    }

    pub fn mount(&self) -> PathBuf {
        self.folder.join("mount")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    pub fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("proc");
        let at = format!(" {} ", self.mount().display());
        mounts.lines().any(|line| line.contains(&at))
    }

    /// Starts one, which mounts, with these words beside.
    pub fn start(&self, words: &[&str]) -> Gateway {
        let mut gateway = self.try_start(words);
        until("it is ready", || {
            let ended = gateway.child.try_wait().expect("our child");
            assert_eq!(ended, None, "{}", gateway.log());
            gateway.log().contains("gateway: ready;")
        });
        gateway
    }

    /// Starts one that will fail, and gives what it said.
    pub fn refused(&self, words: &[&str]) -> String {
        let mut gateway = self.try_start(words);
        let status = gateway.wait();
        assert!(!status.success(), "{}", gateway.log());
        gateway.log()
    }

    /// Runs another one beside, which is to be refused, and gives what it said.
    pub fn refused_beside(&self, host: &str, lun: u16, runtime: &Path, socket: &Path) -> String {
        let url = format!(
            "iscsi://{host}:{}/{}/{lun}",
            self.port,
            tgtd::target(self.port)
        );
        let mut command = Command::new(BINARY);
        command.args(["gateway", "--iscsi", &url, "--patience", "5"]);
        command.arg("--runtime").arg(runtime);
        command.arg("--socket").arg(socket);
        command.arg("--mount").arg(&self.folder);
        let output = command.output().expect("the binary of this package");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    }

    pub fn try_start(&self, words: &[&str]) -> Gateway {
        let log = self.path(&format!("log-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let file = File::create(&log).expect("our own folder");
        let url = format!(
            "iscsi://127.0.0.1:{}/{}/{LUN}",
            self.port,
            tgtd::target(self.port)
        );
        let mut command = Command::new(BINARY);
        command.args(["gateway", "--iscsi", &url, "--runtime"]);
        command
            .arg(self.path("run"))
            .arg("--socket")
            .arg(self.socket());
        if !words.contains(&"--no-mount") {
            command.arg("--mount").arg(self.mount());
        }
        if !words.contains(&"--patience") {
            command.args(["--patience", "60"]);
        }
        let child = command
            .args(words)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a descriptor"))
            .stderr(file)
            .spawn()
            .expect("the binary of this package");
        Gateway {
            child,
            log,
            run: self.path("run"),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // What a test that failed has left.
        let unit = self.path("run/unit");
        let step = ["gateway-step", "--down", "--dead", "--file"];
        let _ = Command::new(BINARY).args(step).arg(unit).output();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub struct Gateway {
    child: Child,
    log: PathBuf,
    run: PathBuf,
}

impl Gateway {
    /// What it has said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The answerer.
    pub fn answerer(&self) -> Option<i32> {
        let word = format!("gateway-answer\0{}\0", self.child.id());
        let all = fs::read_dir("/proc").expect("proc").flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let mut answerers = pids.filter(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).ends_with(&word)
        });
        answerers.next()
    }

    /// SIGKILL to the answerer; waits until another one is there.
    pub fn kill_answerer(&self) {
        let mut old = None;
        until("there is an answerer", || {
            old = self.answerer();
            old.is_some()
        });
        kill(old.expect("just now"), "-KILL");
        until("another one takes over", || {
            self.answerer().is_some_and(|new| Some(new) != old)
        });
    }

    /// SIGKILL to the supervisor.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("our child");
    }

    pub fn terminate(&self) {
        kill(self.child.id() as i32, "-TERM");
    }

    /// SIGTERM; all is undone.
    pub fn stop(self) {
        self.terminate();
        self.stop_ended();
    }

    /// After SIGTERM: all is undone.
    pub fn stop_ended(mut self) {
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.log());
        let log = self.log();
        assert!(
            !log.contains("has died (exit status"),
            "it was only told to end: {log}"
        );
        assert_eq!(loops_on(&self.run.join("unit")), 0, "{}", self.log());
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        until("it ends", || {
            ended = self.child.try_wait().expect("our child");
            ended.is_some()
        });
        ended.expect("just now")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if thread::panicking() {
            println!("{}", self.log());
        }
    }
}

fn kill(pid: i32, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "kill {signal} {pid}"
    );
}

/// Loop devices on this file.
pub fn loops_on(file: &Path) -> usize {
    let devices = fs::read_dir("/sys/block").expect("sys").flatten();
    let is_on = |device: &fs::DirEntry| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| Path::new(backing.trim_end()) == file)
    };
    devices.filter(is_on).count()
}

/// The disk of a target at which nobody is logged in has a sound ext4.
pub fn check(tgtd: &Tgtd) {
    let output = Command::new("e2fsck")
        .args(["-f", "-n"])
        .arg(tgtd.disk())
        .output();
    let output = output.expect("e2fsck");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// Bytes that tell where they belong.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).flat_map(|at| {
        (at ^ seed.rotate_left(32))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_le_bytes()
    });
    words.take(len).collect()
}

/// Writes a file and makes it last.
pub fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes whole blocks past the page cache.
pub fn write_direct(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut aligned = vec![0; bytes.len() + 4096];
    let from = aligned.as_ptr().align_offset(4096);
    aligned[from..from + bytes.len()].copy_from_slice(bytes);
    let mut options = File::options();
    let options = options
        .write(true)
        .create(true)
        .custom_flags(libc::O_DIRECT);
    options
        .open(path)?
        .write_all_at(&aligned[from..from + bytes.len()], 0)
}

/// Reads a file from the target, not from the page cache.
pub fn read_anew(path: &Path) -> Vec<u8> {
    let file = File::open(path).expect("it was written");
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    fs::read(path).expect("it can be read")
}
