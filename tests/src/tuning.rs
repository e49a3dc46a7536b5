//! `ackpace-host` under test: running it, and a cgroup for it to look at.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::{fs, thread};

use crate::{Words, command, host_binary};

/// `ackpace-host tune` or `events`, ended with this.
#[derive(Debug)]
pub struct Tuning {
    child: Child,
    lines: mpsc::Receiver<String>,
    said: String,
}

impl Tuning {
    /// Starts `tune` with these options.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(options: &(impl Words + ?Sized)) -> Tuning {
        Tuning::doing("tune", options)
    }

    /// Starts this command with these options.
    ///
    /// # Panics
    /// When it does not start.
    pub fn doing(what: &str, options: &(impl Words + ?Sized)) -> Tuning {
        let mut child = command(host_binary())
            .arg(what)
            .args(options.words())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let err = BufReader::new(child.stderr.take().expect("it is piped"));
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Tuning {
            child,
            lines,
            said: String::new(),
        }
    }

    /// Whether it has said this so far.
    pub fn says(&mut self, part: &str) -> bool {
        while let Ok(line) = self.lines.try_recv() {
            self.said += &line;
            self.said.push('\n');
        }
        self.said.contains(part)
    }

    /// What it said until the last [`Tuning::says`].
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: no pointers; our own child, which was not waited for.
        let sent = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(sent, 0, "kill: {}", io::Error::last_os_error());
    }

    /// Sends the signal and waits. Its exit code, if it was not killed.
    ///
    /// # Panics
    /// When it can't be signalled.
    pub fn end(mut self, signal: libc::c_int) -> Option<i32> {
        self.signal(signal);
        self.child.wait().expect("our own child").code()
    }
}

impl Drop for Tuning {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
