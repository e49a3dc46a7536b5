//! A run that is stopped leaves nothing behind: no process, mount, loop device or cgroup.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const LAB: &str = env!("CARGO_BIN_EXE_ackpace-lab");

/// A run; dropping it removes its scratch folder.
struct Run {
    child: Child,
    scratch: PathBuf,
}

impl Run {
    fn start(name: &str, experiment: &[&str]) -> Run {
        let scratch =
            std::env::temp_dir().join(format!("ackpace-lab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).unwrap();
        let child = Command::new(LAB)
            .arg("run")
            .args(experiment)
            .args(["--quick", "--scratch"])
            .arg(&scratch)
            .arg("--out")
            .arg(&scratch)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Run { child, scratch }
    }

    /// Waits for a line with this text; returns false if another run holds the machine.
    fn comes_to(&mut self, text: &str) -> bool {
        let lines = BufReader::new(self.child.stderr.take().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            if line.contains("waiting for another run") {
                return false;
            }
            if line.contains(text) {
                return true;
            }
        }
        panic!("it ended without {text:?}")
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        Command::new("kill").args([signal, &pid]).status().unwrap();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

#[test]
fn a_run_that_is_stopped_leaves_nothing() {
    if let Some(why) = impossible() {
        println!("skipped: a_run_that_is_stopped_leaves_nothing: {why}");
        return;
    }
    for (signal, code) in [("-INT", Some(130)), ("-TERM", Some(143))] {
        let mut run = Run::start("stopped", &["cached", "--contenders", "nginx"]);
        if !run.comes_to("round 1") {
            println!("skipped: a_run_that_is_stopped_leaves_nothing: another run has the machine");
            return;
        }
        run.signal(signal);
        assert_eq!(run.child.wait().unwrap().code(), code);
        assert_eq!(traces(&run.scratch), Vec::<String>::new(), "after {signal}");
    }
    let clean = Command::new(LAB).arg("clean").output().unwrap();
    let said = String::from_utf8_lossy(&clean.stdout).into_owned();
    assert!(clean.status.success() || said.is_empty(), "{said}");
}

fn impossible() -> Option<&'static str> {
    let root = std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.contains("\nUid:\t0\t"));
    match (root, Path::new("/usr/sbin/nginx").exists()) {
        (false, _) => Some("it needs root"),
        (true, false) => Some("nginx is not here"),
        (true, true) => None,
    }
}

/// Remains of a run: processes and mounts that name its scratch folder, and its cgroups.
fn traces(scratch: &Path) -> Vec<String> {
    let name = scratch.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let own = entry.file_name().to_string_lossy() == std::process::id().to_string();
        if line.contains(&name) && !own {
            found.push(format!("process {}", line.replace('\0', " ")));
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    found.extend(
        mounts
            .lines()
            .filter(|line| line.contains(&name))
            .map(str::to_owned),
    );
    for root in [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/blkio",
    ] {
        for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with("ackpace-lab-")
            {
                found.push(format!("cgroup {}", entry.path().display()));
            }
        }
    }
    found
}
