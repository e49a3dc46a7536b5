//! The right to change something alone: a locked file in [`RUN_DIR`], which names the process that has it. Folder and file
//! belong to this user, and nobody else may read them.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::failure::Failure;

/// Where locks, sockets and records are.
pub const RUN_DIR: &str = "/run/ackpace-host";

/// For so long it is waited for: a `--restore` in another network namespace takes it for a moment, to clear up.
const WAITS: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(20);

/// The right, as long as it lives.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes the lock at this path. `does`: what the one does who has it, for whoever finds it taken.
    ///
    /// # Errors
    /// Another instance has it: its process is named. Or the folder or the file is another user's, or can't be made.
    pub fn take(path: &Path, does: &str) -> Result<Lock, Failure> {
        Lock::take_or(path, does, "")
    }

    /// Takes it as [`Lock::take`] does. `instead`: what whoever finds it taken may do in place of stopping the other.
    ///
    /// # Errors
    /// As there.
    pub fn take_or(path: &Path, does: &str, instead: &str) -> Result<Lock, Failure> {
        let until = Instant::now() + WAITS;
        loop {
            if let Some(lock) = Lock::take_free(path)? {
                return Ok(lock);
            }
            if Instant::now() >= until {
                let pid = fs::read_to_string(path).unwrap_or_default();
                return Err(Failure::operator(format!(
                    "process {} {does} already; two would undo each other: stop it first{instead}",
                    pid.trim()
                )));
            }
            thread::sleep(AGAIN);
        }
    }

    /// Takes the lock at this path; `None`: another process has it.
    ///
    /// # Errors
    /// The folder or the file is another user's, or can't be made.
    pub fn take_free(path: &Path) -> Result<Option<Lock>, Failure> {
        own_folder(Path::new(RUN_DIR))?;
        loop {
            let Some(lock) = Lock::try_take(path)? else {
                return Ok(None);
            };
            // Whoever had it may have removed the file before it was locked here.
            let stat = |path: &Path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
            let own = rustix::fs::fstat(&lock.0).map(|stat| (stat.st_dev, stat.st_ino));
            if own.is_ok() && own == stat(path) {
                return Ok(Some(lock));
            }
        }
    }

    fn try_take(path: &Path) -> Result<Option<Lock>, Failure> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(file.map_err(|error| failed(path, error))?);
        make_own(&file, FileType::RegularFile, 0o600, path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let _ = file.set_len(0);
                let _ = writeln!(file, "{}", std::process::id());
                Ok(Some(Lock(file)))
            }
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed(path, error)),
        }
    }
}

/// Without the right to do it, the administrator has to act; what else is wrong may pass.
fn failed(path: &Path, error: impl Into<io::Error>) -> Failure {
    let error = error.into();
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        ErrorKind::PermissionDenied => Failure::operator(text + "; run it as root"),
        ErrorKind::ReadOnlyFilesystem => Failure::operator(text),
        _ => Failure::runtime(text),
    }
}

/// Makes a folder that only this user may enter, or takes it if it is that already.
///
/// # Errors
/// It is another user's, or no folder.
pub fn own_folder(path: &Path) -> Result<(), Failure> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(path).map_err(|error| failed(path, error))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(path, error))?;
    make_own(&folder, FileType::Directory, 0o700, path)
}

/// Takes all rights of others away from what this user owns.
fn make_own(open: &impl AsFd, kind: FileType, mode: u32, path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let stat = rustix::fs::fstat(open).map_err(|error| failed(path, error))?;
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid != user || FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(Failure::operator(format!(
            "{shown} is user {}'s, or not what it should be, and user {user} would trust it: look at it, remove it and start \
             again",
            stat.st_uid
        )));
    }
    match stat.st_mode & 0o777 == mode {
        true => Ok(()),
        false => {
            rustix::fs::fchmod(open, Mode::from_raw_mode(mode)).map_err(|error| failed(path, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_is_closed_to_others_and_what_is_no_folder_is_refused() {
        let name = format!("ackpace-own-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mode = |path: &Path| {
            fs::metadata(path)
                .expect("it is there")
                .permissions()
                .mode()
        };
        own_folder(&path).expect("a new one");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our own");
        own_folder(&path).expect("our own");
        assert_eq!(mode(&path) & 0o777, 0o700);
        let link = path.join("link");
        symlink("/tmp", &link).expect("our own folder");
        assert!(own_folder(&link).is_err(), "it leads elsewhere");
        let refused = own_folder(Path::new("/sys/none")).expect_err("nobody may make it");
        assert_eq!(refused.exit_code(), 2, "a restart does not help");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).expect("root may");
            let why = own_folder(&path).expect_err("another user's").to_string();
            assert!(why.contains("is user 65534's"), "{why}");
        }
        fs::remove_dir_all(&path).expect("our own");
    }
}
