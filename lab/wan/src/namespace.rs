//! A network namespace without a name: it exists as long as a process holds it or runs in it, so nothing is
//! left behind however we end.

use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A namespace held by a descriptor.
#[derive(Debug)]
pub struct Namespace {
    handle: OwnedFd,
}

impl Namespace {
    /// Creates an empty namespace; `furnish` runs inside. The caller stays in its own.
    ///
    /// # Errors
    /// It needs root; or the error of `furnish`.
    pub fn new<T: Send>(furnish: impl FnOnce() -> Result<T> + Send) -> Result<(Namespace, T)> {
        in_thread(|| {
            // SAFETY: no pointers; only this thread, which ends soon, moves.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                let error = std::io::Error::last_os_error();
                return Err(error).doing(|| "a new network namespace (needs root)".into());
            }
            let own = "/proc/thread-self/ns/net";
            let handle = File::open(own).doing(|| own.into())?.into();
            Ok((Namespace { handle }, furnish()?))
        })
    }

    /// Runs something inside, on a thread of its own, and waits for it.
    ///
    /// # Errors
    /// The thread can't enter the namespace, or the error of `inside`.
    pub fn run<T: Send>(&self, inside: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        in_thread(|| {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.handle.as_fd(), kind).doing(|| "setns".into())?;
            inside()
        })
    }

    /// Makes the command start inside. The namespace must outlive the spawn.
    pub fn enter_before_exec(&self, command: &mut Command) {
        let handle = self.handle.as_raw_fd();
        let enter = move || {
            // SAFETY: no pointers; the descriptor was copied by the fork.
            match unsafe { libc::setns(handle, libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes one system call; it neither allocates nor locks.
        unsafe { command.pre_exec(enter) };
    }

    /// A path by which other processes find it while this one holds it.
    pub fn path(&self) -> String {
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.handle.as_raw_fd()
        )
    }
}

/// Runs `ip -batch` with these lines in the namespace of the calling thread.
///
/// # Errors
/// Its message, if it refuses a line.
pub fn ip(lines: &[String]) -> Result<()> {
    let what = || "ip (of iproute2)".to_owned();
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .doing(what)?;
    if let Some(mut input) = child.stdin.take() {
        // A refused line ends ip early; its message is then the error.
        let _ = input.write_all((lines.join("\n") + "\n").as_bytes());
    }
    let output = child.wait_with_output().doing(what)?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Setup(format!("ip -batch: {why}")))
}

/// Sets a value below /proc/sys/net of the calling thread's namespace and reads it back.
///
/// # Errors
/// It stayed what it was.
pub fn sysctl(key: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/net/{key}");
    std::fs::write(&path, value).doing(|| format!("writing {value:?} to {path}"))?;
    let got = read_sysctl(key)?;
    if got != value {
        return Err(LabError::Setup(format!(
            "{path} stayed {got:?}, not {value:?}"
        )));
    }
    Ok(())
}

/// Reads a value below /proc/sys/net; its fields are separated by one space.
pub(crate) fn read_sysctl(key: &str) -> Result<String> {
    let path = format!("/proc/sys/net/{key}");
    let text = std::fs::read_to_string(&path).doing(|| path)?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Runs `work` in a short-lived thread: namespaces belong to threads, so it can enter one without moving us.
fn in_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let joined = scope.spawn(work).join();
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
