//! A cgroup by its path: the ids by which the kernel's sockets name it and those below it.
//!
//! A socket knows its cgroup of the unified hierarchy (version 2), and no other. The id is the inode of the directory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::limits::{CGROUP_DEPTH_MAX, CGROUPS_MAX};

/// `CGROUP2_SUPER_MAGIC` (linux/magic.h).
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// What is found below a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Ids of the cgroup and of those below it, sorted.
    pub ids: Vec<u64>,
    /// There are more than are looked at.
    pub is_cut: bool,
}

/// The directory for a path as an operator gives it: absolute, or below the place where version 2 is mounted
/// (`system.slice/nginx.service`).
///
/// # Errors
/// What is wrong with it, and what to do.
pub fn directory(path: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let given = match path.is_absolute() {
        true => path.to_owned(),
        false => mounted()
            .ok_or_else(|| {
                format!("--cgroup {shown}: no cgroups of version 2 are mounted here; use --port or --address instead")
            })?
            .join(path),
    };
    let kind = rustix::fs::statfs(&given).map_err(|error| format!("--cgroup {shown}: {error}"))?;
    match kind.f_type {
        CGROUP2_MAGIC => Ok(given),
        _ => Err(format!(
            "--cgroup {shown}: not a cgroup of version 2, by which alone the kernel knows sockets; \
             use --port or --address instead"
        )),
    }
}

/// Where version 2 is mounted.
pub fn mounted() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    line.split(' ').nth(1).map(PathBuf::from)
}

/// The ids of a cgroup and of all below it.
///
/// # Errors
/// The cgroup is gone.
pub fn below(directory: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    found.ids.push(fs::metadata(directory)?.ino());
    let mut level = vec![directory.to_owned()];
    for _ in 0..CGROUP_DEPTH_MAX {
        let mut next = Vec::new();
        // One that vanishes meanwhile has no sockets to tune.
        let entries = level
            .iter()
            .filter_map(|path| fs::read_dir(path).ok())
            .flatten()
            .flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if found.ids.len() == CGROUPS_MAX {
                found.is_cut = true;
                found.ids.sort_unstable();
                return Ok(found);
            }
            if let Ok(meta) = entry.metadata() {
                found.ids.push(meta.ino());
                next.push(entry.path());
            }
        }
        level = next;
    }
    found.is_cut = !level.is_empty();
    found.ids.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cgroup_is_named_and_all_below_one_are_found() {
        let dir = std::env::temp_dir().join(format!("ackpace-host-cgroups-{}", std::process::id()));
        fs::create_dir_all(dir.join("a/b")).expect("a directory");
        fs::write(dir.join("file"), "").expect("a file");
        let error = directory(&dir).expect_err("an ordinary directory");
        assert!(
            error.contains("version 2") && error.contains("--port"),
            "{error}"
        );
        assert!(
            directory(&dir.join("none"))
                .expect_err("nothing")
                .contains("No such file")
        );
        let found = below(&dir).expect("a directory");
        assert_eq!((found.ids.len(), found.is_cut), (3, false));
        fs::remove_dir_all(&dir).expect("our own");
        assert!(below(&dir).is_err(), "it has vanished");
    }
}
