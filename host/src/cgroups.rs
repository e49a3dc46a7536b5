//! A cgroup by its path: the id by which the kernel's sockets name it, or have it among the ancestors of theirs.
//!
//! A socket knows its cgroup of the unified hierarchy (version 2), and no other. The id is the inode of the directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `CGROUP2_SUPER_MAGIC` (linux/magic.h).
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// The cgroup of `--cgroup`, which may go away and come back.
#[derive(Debug)]
pub struct ChosenCgroup {
    directory: PathBuf,
    /// What was told last: it is gone.
    is_gone: bool,
}

impl ChosenCgroup {
    /// The cgroup with this path, as [`directory`] takes it.
    ///
    /// # Errors
    /// As [`directory`].
    pub fn at(path: &Path) -> Result<ChosenCgroup, String> {
        Ok(ChosenCgroup {
            directory: directory(path)?,
            is_gone: false,
        })
    }

    /// Its id now; 0: it is gone. The second value is a line for the operator, if that is new.
    pub fn look(&mut self) -> (u64, Option<String>) {
        let id = fs::metadata(&self.directory).map_or(0, |meta| meta.ino());
        let is_gone = id == 0;
        if is_gone == std::mem::replace(&mut self.is_gone, is_gone) {
            return (id, None);
        }
        let what = match is_gone {
            true => "is gone: the original settings of its sockets are restored",
            false => "is there again",
        };
        (
            id,
            Some(format!("the cgroup {} {what}", self.directory.display())),
        )
    }
}

/// The directory for a path as an operator gives it: absolute, or below the place where version 2 is mounted
/// (`system.slice/nginx.service`, or with a slash before that, as systemd tells it).
///
/// # Errors
/// What is wrong with it, and what to do.
pub fn directory(path: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let below = mounted().map(|top| top.join(path.strip_prefix("/").unwrap_or(path)));
    let given = match below {
        Some(below) if path.is_relative() || below.exists() => below,
        _ if path.is_absolute() => path.to_owned(),
        _ => {
            return Err(format!(
                "--cgroup {shown}: no cgroups of version 2 are mounted here; use --port or --address instead"
            ));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cgroup_is_named() {
        let error = directory(&std::env::temp_dir()).expect_err("an ordinary directory");
        assert!(
            error.contains("version 2") && error.contains("--port"),
            "{error}"
        );
        let error = directory(Path::new("/none/such")).expect_err("nothing");
        assert!(error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_leading_slash_may_mean_the_top_of_all_cgroups() {
        if let Some(top) = mounted() {
            assert_eq!(directory(Path::new("/")), Ok(top));
        }
    }

    #[test]
    fn one_that_is_gone_or_back_is_told_once() {
        let name = format!("ackpace-host-cgroups-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).expect("a directory");
        let mut chosen = ChosenCgroup {
            directory: directory.clone(),
            is_gone: false,
        };
        let (id, line) = chosen.look();
        assert!(id > 0 && line.is_none());
        fs::remove_dir(&directory).expect("our own");
        let (id, line) = chosen.look();
        assert!(id == 0 && line.is_some_and(|line| line.contains("is gone")));
        assert_eq!(chosen.look(), (0, None));
        fs::create_dir(&directory).expect("a directory");
        assert!(chosen.look().1.is_some_and(|line| line.contains("again")));
        fs::remove_dir(&directory).expect("our own");
    }
}
