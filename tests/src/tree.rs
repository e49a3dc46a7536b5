//! A directory of a test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use crate::eventually;

/// A new directory, removed with its content when it is dropped.
pub struct Tree {
    path: PathBuf,
}

impl Tree {
    /// An empty directory that every user may read.
    #[allow(clippy::new_without_default, reason = "it creates a directory")]
    pub fn new() -> Tree {
        static NTH: AtomicU32 = AtomicU32::new(0);
        let nth = NTH.fetch_add(1, Ordering::Relaxed);
        let name = format!("ackpace-tests-{}-{nth}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path); // of a killed test whose process id has come round again
        fs::create_dir(&path).expect("a directory for the test");
        // Servers know the real path.
        let path = path.canonicalize().expect("its real path");
        Tree { path }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a name in it.
    pub fn at(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Creates a directory in it, with its parents.
    pub fn dir(&self, name: impl AsRef<OsStr>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(&path).expect("a directory");
        path
    }

    /// Creates a file in it, modified an hour ago, with its parent directories. Its ETag is weak until it has
    /// [`rested`].
    pub fn file(&self, name: impl AsRef<OsStr>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a name in the tree")).expect("directories");
        fs::write(&path, content).expect("a file");
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(SystemTime::now() - Duration::from_secs(3600)))
            .expect("its time");
        path
    }
}

/// Waits until a file's last change is old enough for a strong ETag and for the response cache. No call can set that
/// time (ctime).
pub fn rested(path: &Path) {
    let changed_s = fs::metadata(path).expect("the file").ctime();
    eventually("the file has rested", || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.is_ok_and(|now| now.as_secs() as i64 > changed_s + 2)
    });
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
