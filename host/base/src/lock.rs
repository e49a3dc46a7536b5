//! The right to change something alone: a locked file in [`RUN_DIR`], which names the process that has it.

use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::failure::Failure;

/// Where locks, sockets and records are.
pub const RUN_DIR: &str = "/run/ackpace-host";

/// The right, as long as it lives.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "locked as long as it is open")] File);

impl Lock {
    /// Takes the lock at this path. `does`: what the one does who has it, for whoever finds it taken.
    ///
    /// # Errors
    /// Another instance has it: its process is named. Or the file can't be made.
    pub fn take(path: &Path, does: &str) -> Result<Lock, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::runtime(format!("{}: {error}; run it as root", path.display()))
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(RUN_DIR).map_err(|error| failed(&error))?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(|error| failed(&error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let _ = file.set_len(0);
                let _ = writeln!(file, "{}", std::process::id());
                Ok(Lock(file))
            }
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                Err(Failure::operator(format!(
                    "process {} {does} already; two would undo each other: stop it first",
                    pid.trim()
                )))
            }
            Err(error) => Err(failed(&error)),
        }
    }
}
