//! A cgroup by its path: the ids by which the kernel's sockets name it and those below it.
//!
//! A socket knows its cgroup of the unified hierarchy (version 2), and no other. The id is the inode of the directory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `CGROUP2_SUPER_MAGIC` (linux/magic.h).
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// A cgroup and those below it (`CGROUPS_MAX`). More: the sockets of the rest do not match, and a line says so.
const CGROUPS_MAX: usize = 4_096;
/// Scans in a row, one a second, that have to find all cgroups within the bounds before a line says that they fit again: at
/// most two lines a minute.
const CGROUP_FITS_SCANS: u32 = 60;
/// How deep cgroups are looked for. Deeper ones: as above.
const CGROUP_DEPTH_MAX: usize = 32;

/// What is found below a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Ids of the cgroup and of those below it, sorted.
    pub ids: Vec<u64>,
    /// There are more than are looked at: [`CGROUPS_MAX`], or some deeper than [`CGROUP_DEPTH_MAX`].
    pub is_cut: bool,
}

/// How much of a cgroup the last scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// It was removed.
    Gone,
    /// A part: see [`Found::is_cut`].
    Cut,
    /// It and all below it.
    Whole,
}

/// The cgroup of `--cgroup`. It is scanned again and again, since cgroups come and go.
#[derive(Debug)]
pub struct ChosenCgroup {
    directory: PathBuf,
    /// What it means for its sockets that it is gone.
    when_gone: &'static str,
    /// What the last line said; at first, that there is nothing to say.
    extent: Extent,
    /// So many scans in a row found it whole, while the last line says that it is cut.
    whole_scans: u32,
}

impl ChosenCgroup {
    /// The cgroup with this path, as [`directory`] takes it. `when_gone` ends the line "the cgroup PATH is gone: ".
    ///
    /// # Errors
    /// As [`directory`].
    pub fn at(path: &Path, when_gone: &'static str) -> Result<ChosenCgroup, String> {
        let directory = directory(path)?;
        Ok(ChosenCgroup {
            directory,
            when_gone,
            extent: Extent::Whole,
            whole_scans: 0,
        })
    }

    /// The ids of the cgroup and of those below it now: none if it is gone, and [`CGROUPS_MAX`] at most. The second value is
    /// a line for the operator, if a scan finds another extent than the one before. One that was cut has to be whole for
    /// [`CGROUP_FITS_SCANS`] scans: near the bound, cgroups that come and go would make two lines of each of them.
    pub fn scan(&mut self) -> (Vec<u64>, Option<String>) {
        let found = below(&self.directory);
        let extent = match &found {
            Err(_) => Extent::Gone,
            Ok(found) if found.is_cut => Extent::Cut,
            Ok(_) => Extent::Whole,
        };
        let extent = self.settled(extent);
        let before = std::mem::replace(&mut self.extent, extent);
        let line = (before != extent).then(|| {
            let what = match (extent, before) {
                (Extent::Gone, _) => format!("is gone: {}", self.when_gone),
                (Extent::Cut, _) => format!(
                    "has more below it than fits: the first {CGROUPS_MAX} cgroups count, down to {CGROUP_DEPTH_MAX} levels, \
                     and the sockets of the rest do not match; name one further down, or use --port or --address instead"
                ),
                (Extent::Whole, Extent::Gone) => "is there again".to_owned(),
                (Extent::Whole, _) => "fits again: the sockets of all below it match".to_owned(),
            };
            format!("the cgroup {} {what}", self.directory.display())
        });
        (found.unwrap_or_default().ids, line)
    }

    /// What a scan that finds this is told as.
    fn settled(&mut self, found: Extent) -> Extent {
        match (self.extent, found) {
            (Extent::Cut, Extent::Whole) if self.whole_scans + 1 < CGROUP_FITS_SCANS => {
                self.whole_scans += 1;
                Extent::Cut
            }
            _ => {
                self.whole_scans = 0;
                found
            }
        }
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

/// The ids of a cgroup and of all below it.
///
/// # Errors
/// The cgroup is gone.
pub fn below(directory: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    found.ids.push(fs::metadata(directory)?.ino());
    let mut level = vec![directory.to_owned()];
    for depth in 0..=CGROUP_DEPTH_MAX {
        let mut next = Vec::new();
        // One that vanishes meanwhile has no sockets to tune.
        let entries = level
            .iter()
            .filter_map(|path| fs::read_dir(path).ok())
            .flatten()
            .flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if found.ids.len() == CGROUPS_MAX || depth == CGROUP_DEPTH_MAX {
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
    /// A directory of a test's own, as if it were a cgroup.
    fn chosen(name: &str) -> ChosenCgroup {
        let name = format!("ackpace-host-cgroups-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        ChosenCgroup {
            directory,
            when_gone: "so much for it",
            extent: Extent::Whole,
            whole_scans: 0,
        }
    }

    #[test]
    fn a_cgroup_with_too_many_below_it_is_told_once_and_when_that_changes() {
        let mut chosen = chosen("many");
        let dir = chosen.directory.clone();
        for nth in 1..CGROUPS_MAX {
            fs::create_dir(dir.join(nth.to_string())).expect("a directory");
        }
        let (ids, line) = chosen.scan();
        assert_eq!((ids.len(), line), (CGROUPS_MAX, None), "all of them fit");
        fs::create_dir(dir.join("one more")).expect("a directory");
        let (ids, line) = chosen.scan();
        let line = line.expect("it is told");
        assert_eq!(ids.len(), CGROUPS_MAX);
        assert!(
            line.contains(&dir.display().to_string())
                && line.contains("first 4096 cgroups count")
                && line.contains("--port"),
            "{line}"
        );
        assert_eq!(chosen.scan().1, None, "once");
        fs::remove_dir_all(&dir).expect("our own");
        let (ids, line) = chosen.scan();
        assert!(
            ids.is_empty()
                && line
                    .expect("it is gone")
                    .ends_with("is gone: so much for it")
        );
        assert_eq!(chosen.scan().1, None, "once");
        fs::create_dir(&dir).expect("a directory");
        let (ids, line) = chosen.scan();
        assert!(ids.len() == 1 && line.expect("it is back").ends_with("is there again"));
        fs::remove_dir_all(&dir).expect("our own");
    }

    #[test]
    fn only_a_cgroup_with_some_below_the_deepest_level_is_cut() {
        let mut chosen = chosen("deep");
        let dir = chosen.directory.clone();
        let deepest = (0..CGROUP_DEPTH_MAX).fold(dir.clone(), |path, _| path.join("a"));
        fs::create_dir_all(&deepest).expect("directories");
        let (ids, line) = chosen.scan();
        assert_eq!((ids.len(), line), (CGROUP_DEPTH_MAX + 1, None));
        fs::create_dir(deepest.join("a")).expect("a directory");
        let (ids, line) = chosen.scan();
        assert_eq!(ids.len(), CGROUP_DEPTH_MAX + 1);
        let line = line.expect("it is told");
        assert!(line.contains("down to 32 levels"), "{line}");
        for _ in 0..CGROUP_FITS_SCANS {
            fs::remove_dir(deepest.join("a")).expect("our own");
            assert_eq!(chosen.scan().1, None, "it may come again");
            fs::create_dir(deepest.join("a")).expect("a directory");
            assert_eq!(chosen.scan().1, None, "it was told");
        }
        fs::remove_dir(deepest.join("a")).expect("our own");
        for _ in 1..CGROUP_FITS_SCANS {
            assert_eq!(chosen.scan().1, None, "it may come again");
        }
        let line = chosen.scan().1.expect("that it fits is told, too");
        assert!(line.ends_with("match"), "{line}");
        assert_eq!(chosen.scan().1, None, "once");
        fs::remove_dir_all(&dir).expect("our own");
    }
}
