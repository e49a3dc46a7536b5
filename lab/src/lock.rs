//! Allows one run at a time on a machine: two would disturb each other's measurements.

use crate::clock;
use ackpace_lab_base::error::{Doing, Result};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Held during a run; the kernel releases it when the process ends, in any way.
#[derive(Debug)]
pub struct RunLock {
    file: File,
}

impl Drop for RunLock {
    /// Unlocks explicitly; closing is not enough. flock(2) belongs to the open file, and a child forked by
    /// another thread has it open, too, until its exec(2).
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Path of the lock: one for the whole machine where we may write there, otherwise one for this user.
pub fn place() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() && Path::new("/run/lock").is_dir() {
        return "/run/lock/ackpace-lab".into();
    }
    std::env::temp_dir().join(format!("ackpace-lab-{}.lock", user.as_raw()))
}

/// Takes the lock at `path`. If it is held, prints the holder and waits.
pub fn acquire(path: &Path) -> Result<RunLock> {
    let what = || format!("lock file {}", path.display());
    let mut file = open(path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("waiting for another run: {}", holder(&mut file, path)?);
        flock(&file, FlockOperation::LockExclusive).doing(what)?;
    }
    let command: Vec<String> = std::env::args().collect();
    let holder = format!(
        "process {}, since {}: {}\n",
        std::process::id(),
        clock::now_utc(),
        command.join(" ")
    );
    file.set_len(0).doing(what)?;
    file.seek(SeekFrom::Start(0)).doing(what)?;
    file.write_all(holder.as_bytes()).doing(what)?;
    Ok(RunLock { file })
}

/// Takes the lock if it is free; otherwise returns the holder's description.
pub fn try_acquire(path: &Path) -> Result<std::result::Result<RunLock, String>> {
    let mut file = open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Ok(RunLock { file })),
        Err(_) => Ok(Err(holder(&mut file, path)?)),
    }
}

fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    options
        .open(path)
        .doing(|| format!("lock file {}", path.display()))
}

fn holder(file: &mut File, path: &Path) -> Result<String> {
    let mut holder = String::new();
    file.read_to_string(&mut holder)
        .doing(|| format!("lock file {}", path.display()))?;
    Ok(holder.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_second_is_told_who_was_first() {
        let path = std::env::temp_dir().join(format!("ackpace-lab-lock-{}", std::process::id()));
        let first = acquire(&path).unwrap();
        let second = try_acquire(&path).unwrap().unwrap_err();
        // As a child holds it between fork(2) and exec(2).
        let elsewhere = first.file.try_clone().unwrap();
        drop(first);
        let third = try_acquire(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(
            second.contains(&format!("process {}", std::process::id())),
            "{second}"
        );
        drop(elsewhere);
        assert!(third.is_ok(), "{third:?}");
    }
}
