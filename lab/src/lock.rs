//! One bench at a time: two would measure each other.

use crate::clock;
use crate::error::{Doing, Result};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Held while a bench runs; the kernel drops it with the process, however that ends.
pub struct RunLock {
    _file: File,
}

/// Takes the lock at `path`; waits for another holder and says for whom.
pub fn acquire(path: &Path) -> Result<RunLock> {
    let what = || format!("lock file {}", path.display());
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .doing(what)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        file.read_to_string(&mut holder).doing(what)?;
        eprintln!("waiting for another run: {}", holder.trim());
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
    Ok(RunLock { _file: file })
}
