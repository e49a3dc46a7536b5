//! A disk that fails and hangs on command: one of the lab's, in a process and a mount namespace of its own.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::{client, command, needs_root, skip};
use crate::kernel::{bind_for_child, mounts_apart};
use crate::program::signal_child;
use crate::{Setup, Tree, lab_binary};

/// An emulated disk. It goes down when this is dropped, and also if the test is killed.
pub struct Disk {
    child: Child,
    name: String,
    _corpus: Tree,
}

impl Disk {
    /// A fast disk (flash) of 1 GiB with these files, whose content is the lab's. `None` where the machine can't
    /// emulate one.
    pub fn up(files: &[(&str, u64)]) -> Option<Disk> {
        let tree = Tree::new();
        let lines: Vec<String> = files
            .iter()
            .map(|(path, len)| format!("{path}\t{len}\n"))
            .collect();
        let corpus = tree.file("corpus", lines.concat());
        Disk::with(
            tree,
            &[
                "--profile".as_ref(),
                "flash".as_ref(),
                "--corpus".as_ref(),
                corpus.as_ref(),
            ],
        )
    }

    /// An empty, writable disk of 1 GiB without an arm, with this rate. It is fast until it is told `fast off`.
    pub fn slow(rate_bytes_per_s: u64) -> Option<Disk> {
        let tree = Tree::new();
        let lines = format!(
            "kind = \"flash\"\nsize_bytes = 1_073_741_824\nchannels = 4\nstripe_bytes = 16_384\nlatency_us = 400\n\
             channel_bytes_per_s = {}\n",
            rate_bytes_per_s / 4
        );
        let profile = tree.file("slow.toml", lines);
        let disk = Disk::with(
            tree,
            &[
                "--profile".as_ref(),
                profile.as_ref(),
                "--writable".as_ref(),
            ],
        )?;
        disk.tell("fast on");
        Some(disk)
    }

    fn with(tree: Tree, args: &[&OsStr]) -> Option<Disk> {
        static NTH: AtomicU32 = AtomicU32::new(0);
        // Checked first: the PATH of an ordinary user often lacks the directory of mkfs.
        if !needs_root("an emulated disk") {
            return None;
        }
        client("mkfs.ext4")?;
        let nth = NTH.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{nth}", std::process::id());
        let mut lab = command(lab_binary());
        lab.args(["disk", "serve", &name, "--size", "1G"])
            .args(args);
        lab.stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: between fork and exec the child makes system calls only and allocates nothing.
        unsafe {
            lab.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                mounts_apart()
            })
        };
        let mut child = lab.spawn().expect("the lab starts");
        let mut said = String::new();
        let out = child.stdout.take().expect("its standard output");
        BufReader::new(out)
            .read_line(&mut said)
            .expect("a line in UTF-8");
        let disk = Disk {
            child,
            name,
            _corpus: tree,
        };
        if said.starts_with("up ") {
            return Some(disk);
        }
        skip(&format!("no emulated disk: {}", said.trim()));
        None
    }

    /// Path of one of its files, as this process reaches it.
    pub fn at(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(self.mount_point().trim_start_matches('/'))
            .join(name)
    }

    fn mount_point(&self) -> String {
        format!("/run/ackpace-lab/disk-{}/mnt", self.name)
    }

    /// Reads one of its files, and evicts it from the page cache again.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let mut file = File::open(self.at(name)).expect("a file of the disk");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("a disk without faults");
        crate::forget_cached(&file);
        bytes
    }

    /// Sends it a command, as `ackpace-lab disk tell` does: `hang`, `heal`, `eio-file PATH START LEN`, `counters`.
    pub fn tell(&self, words: &str) -> String {
        let control = format!("/run/ackpace-lab/disk-{}/control", self.name);
        let mut socket = UnixStream::connect(control).expect("the disk is up");
        writeln!(socket, "{words}").expect("it listens");
        let mut answer = String::new();
        socket
            .read_to_string(&mut answer)
            .expect("an answer in UTF-8");
        assert!(!answer.starts_with("error"), "{words}: {answer}");
        answer
    }

    /// The value of one of its counters.
    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.tell("counters");
        let label = format!("\"{name}\": ");
        let text = counters.split(&label).nth(1).expect("such a counter");
        let digits = text.split(|c: char| !c.is_ascii_digit()).next();
        digits
            .and_then(|digits| digits.parse().ok())
            .expect("a number")
    }

    /// Makes the disk visible to the server at `dir`, a directory of its own.
    pub fn served_at(&self, dir: &Path, setup: Setup) -> Setup {
        self.bound_at(&self.mount_point(), dir, setup)
    }

    /// Makes the FUSE file system below the disk visible to the server at `dir`: one file, [`Disk::DAEMONS_FILE`].
    pub fn daemon_served_at(&self, dir: &Path, setup: Setup) -> Setup {
        self.bound_at(
            &format!("/run/ackpace-lab/disk-{}/fuse", self.name),
            dir,
            setup,
        )
    }

    /// The file that the disk's FUSE daemon has.
    pub const DAEMONS_FILE: &str = "disk";

    /// Stops the FUSE daemon, or has it go on: a stopped one answers nothing.
    pub fn stop_daemon(&self, stopped: bool) {
        let signal = if stopped {
            libc::SIGSTOP
        } else {
            libc::SIGCONT
        };
        signal_child(self.child.id(), signal);
    }

    /// Kills the FUSE daemon: its file system is dead from now on.
    pub fn kill_daemon(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }

    fn bound_at(&self, from: &str, dir: &Path, setup: Setup) -> Setup {
        let text = |bytes: &[u8]| CString::new(bytes).expect("no NUL");
        let (from, to) = (text(from.as_bytes()), text(dir.as_os_str().as_bytes()));
        let [space, root] = ["ns/mnt", "root"].map(|what| {
            let file = File::open(format!("/proc/{}/{what}", self.child.id()));
            file.expect("what our own process has")
        });
        setup.before(move || bind_for_child((space.as_raw_fd(), root.as_raw_fd()), &from, &to))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = fs::remove_dir_all(format!("/run/ackpace-lab/disk-{}", self.name));
            return; // its mounts went with its namespace
        }
        self.stop_daemon(false);
        let control = format!("/run/ackpace-lab/disk-{}/control", self.name);
        let _ = UnixStream::connect(control).and_then(|mut socket| socket.write_all(b"heal\n"));
        // It unmounts what it mounted.
        // SAFETY: the process is our child and not yet waited for, so the number is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(format!("/run/ackpace-lab/disk-{}", self.name));
    }
}
