//! Client programs that people use, and reports of tests that skip because one is missing.

use std::ffi::OsString;
use std::process::{Command, Output, Stdio};

/// Result of a client that has exited.
#[derive(Debug)]
pub struct Outcome {
    /// Whether its exit code was 0.
    pub success: bool,
    /// Its exit code.
    pub code: Option<i32>,
    /// Standard output, byte by byte.
    pub bytes: Vec<u8>,
    /// Standard output as text.
    pub out: String,
    /// Standard error as text.
    pub err: String,
}

/// A command for this client if it is installed. Otherwise reports the test as skipped and names the package to
/// install.
pub fn client(program: &str) -> Option<Command> {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if !found {
        let package = match program {
            "aria2c" => "aria2",
            "apt-get" => "apt",
            "dpkg-deb" => "dpkg",
            "apt-ftparchive" => "apt-utils",
            "losetup" => "mount",
            "nfs-cat" | "nfs-ls" => "libnfs-utils",
            "mkfs.ext4" => "e2fsprogs",
            other => other,
        };
        skip(&format!(
            "{program} is not installed (apt-get install {package})"
        ));
        return None;
    }
    Some(command(program))
}

/// A command without the settings of the user who runs the tests: no proxy, no configuration, messages in English.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let lower = name.to_string_lossy().to_ascii_lowercase();
        if lower.ends_with("_proxy") || lower.starts_with("ackpace_") {
            command.env_remove(&name);
        }
    }
    command
        .env("no_proxy", "*")
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null());
    command
}

/// A command line: a text that is split at its blanks, or words that may have some.
pub trait Words {
    /// Its words.
    fn words(&self) -> Vec<OsString>;
}

impl Words for str {
    fn words(&self) -> Vec<OsString> {
        self.split_whitespace().map(OsString::from).collect()
    }
}

impl Words for [&str] {
    fn words(&self) -> Vec<OsString> {
        self.iter().map(OsString::from).collect()
    }
}

impl<const N: usize> Words for [&str; N] {
    fn words(&self) -> Vec<OsString> {
        self[..].words()
    }
}

/// Runs a client until it exits.
pub fn run(command: &mut Command) -> Outcome {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Outcome {
        success: status.success(),
        code: status.code(),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        bytes: stdout,
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Reports that the running test is skipped, and why; `make test` counts these lines.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    println!("skipped: {}: {why}", thread.name().unwrap_or("a test"));
}

/// Whether the test runs as root; if not, reports it as skipped.
pub fn needs_root(what: &str) -> bool {
    // SAFETY: it takes nothing and always succeeds.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skip(&format!("{what} needs root"));
    }
    root
}
