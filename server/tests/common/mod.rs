//! What the tests of the real binary share.

use std::path::{Path, PathBuf};

/// A directory of its own for one test, empty at its start.
pub fn directory(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
