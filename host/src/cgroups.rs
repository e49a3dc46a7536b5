//! A cgroup by its path: the ids by which the kernel's sockets name it and those below it.
//!
//! A socket knows its cgroup of the unified hierarchy (version 2), and no other. The id is the inode of the directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `CGROUP2_SUPER_MAGIC` (linux/magic.h).
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// A cgroup and those below it (`CGROUPS_MAX`). More: the sockets of the rest do not match, and a line says so.
const CGROUPS_MAX: usize = 4_096;
/// How deep cgroups are looked for. Deeper ones: as above.
const CGROUP_DEPTH_MAX: usize = 32;

/// What a scan finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// It was removed.
    Gone,
    /// There are more than are looked at: [`CGROUPS_MAX`], or some deeper than [`CGROUP_DEPTH_MAX`].
    Cut,
    /// It and all below it.
    Whole,
}

/// The cgroup of `--cgroup`. It is scanned again and again, since cgroups come and go.
#[derive(Debug)]
pub struct ChosenCgroup {
    directory: PathBuf,
    /// What the last line said; at first, that there is nothing to say.
    told: Extent,
}

impl ChosenCgroup {
    /// The cgroup with this path, as [`directory`] takes it.
    ///
    /// # Errors
    /// As [`directory`].
    pub fn at(path: &Path) -> Result<ChosenCgroup, String> {
        let directory = directory(path)?;
        let told = Extent::Whole;
        Ok(ChosenCgroup { directory, told })
    }

    /// The ids of the cgroup and of those below it now: none if it is gone, and 4,096 at most. The second value is
    /// a line for the operator, if it has gone or come back, or when it is cut for the first time.
    pub fn scan(&mut self) -> (Vec<u64>, Option<String>) {
        let (ids, extent) = below(&self.directory);
        let what = match (self.told, extent) {
            (Extent::Gone | Extent::Whole, Extent::Cut) => format!(
                "has more below it than fits: the first {CGROUPS_MAX} cgroups count, down to {CGROUP_DEPTH_MAX} levels, \
                 and the sockets of the rest do not match; name one further down, or use --port or --address instead"
            ),
            (Extent::Cut | Extent::Whole, Extent::Gone) => {
                "is gone: its sockets have back what they had".to_owned()
            }
            (Extent::Gone, Extent::Whole) => "is there again".to_owned(),
            // Near the bound, cgroups that come and go would make two lines of each of them.
            _ => return (ids, None),
        };
        self.told = extent;
        (
            ids,
            Some(format!("the cgroup {} {what}", self.directory.display())),
        )
    }
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

/// The ids of a cgroup and of those below it, level by level.
fn below(directory: &Path) -> (Vec<u64>, Extent) {
    let Ok(meta) = fs::metadata(directory) else {
        return (Vec::new(), Extent::Gone);
    };
    let (mut ids, mut level) = (vec![meta.ino()], vec![directory.to_owned()]);
    for depth in 0..=CGROUP_DEPTH_MAX {
        let mut next = Vec::new();
        // One that vanishes meanwhile has no sockets to tune.
        let entries = level.iter().filter_map(|path| fs::read_dir(path).ok());
        for entry in entries.flatten().flatten() {
            let Some(meta) = entry.metadata().ok().filter(fs::Metadata::is_dir) else {
                continue;
            };
            if ids.len() == CGROUPS_MAX || depth == CGROUP_DEPTH_MAX {
                return (ids, Extent::Cut);
            }
            ids.push(meta.ino());
            next.push(entry.path());
        }
        level = next;
    }
    (ids, Extent::Whole)
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
    fn one_that_is_cut_or_gone_or_back_is_told_once() {
        let name = format!("ackpace-host-cgroups-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let deepest = (0..CGROUP_DEPTH_MAX).fold(directory.clone(), |path, _| path.join("a"));
        fs::create_dir_all(&deepest).expect("directories");
        fs::write(directory.join("file"), "").expect("a file");
        let told = Extent::Whole;
        let mut chosen = ChosenCgroup { directory, told };
        let (ids, line) = chosen.scan();
        assert_eq!((ids.len(), line), (CGROUP_DEPTH_MAX + 1, None));
        let mut says = |words: &str, cgroups: usize| {
            let (ids, line) = chosen.scan();
            let line = line.expect("it is told");
            assert!(line.contains(words), "{line}");
            assert_eq!(ids.len(), cgroups);
            assert_eq!(chosen.scan().1, None, "once");
        };
        fs::create_dir(deepest.join("a")).expect("a directory");
        says("down to 32 levels", CGROUP_DEPTH_MAX + 1);
        let top = deepest
            .ancestors()
            .nth(CGROUP_DEPTH_MAX)
            .expect("the first one");
        fs::remove_dir_all(top).expect("our own");
        says("is gone: its sockets", 0);
        fs::create_dir(top).expect("a directory");
        says("is there again", 1);
        for nth in 1..=CGROUPS_MAX {
            fs::create_dir(top.join(nth.to_string())).expect("a directory");
        }
        says("first 4096 cgroups count", CGROUPS_MAX);
        fs::remove_dir_all(top).expect("our own");
    }
}
