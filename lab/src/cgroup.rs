//! A cgroup for each contender: limits for its memory and for reads from a throttled disk, and its peak memory.
//! Supports both versions: v1 has a hierarchy for each controller, v2 one for all.

use ackpace_lab_base::error::{Doing, LabError, Result};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Prefix of the names of our groups, which are directly below the root of a hierarchy.
const PREFIX: &str = "ackpace-lab";

/// The name and limits of a group.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Part of its name.
    pub name: String,
    /// Limit of its memory, page cache included.
    pub memory_limit_bytes: Option<u64>,
    /// Limit of what the sockets of a v1 group hold. A v2 group counts that as memory, and has no limit of its own for it.
    pub sockets_limit_bytes: Option<u64>,
    /// Device ("major:minor") and its read limit in bytes per second.
    pub read: Option<(String, u64)>,
}

/// A group. Dropping it removes it, once its processes are gone.
pub struct Group {
    folders: Vec<PathBuf>,
    procs: Vec<File>,
    memory: Option<Memory>,
    killed: Arc<AtomicU64>,
}

/// Where a hierarchy reports on memory.
struct Memory {
    folder: PathBuf,
    files: &'static Files,
}

/// File names, and the names of numbers in them; an empty one means that the number is all of the file.
struct Files {
    peak: &'static str,
    kills: &'static str,
    sockets: (&'static str, &'static str),
}

const V2: Files = Files {
    peak: "memory.peak",
    kills: "memory.events",
    sockets: ("memory.stat", "sock"),
};
const V1: Files = Files {
    peak: "memory.max_usage_in_bytes",
    kills: "memory.oom_control",
    sockets: ("memory.kmem.tcp.usage_in_bytes", ""),
};

/// The machine's cgroup hierarchies that we use.
#[derive(Debug, Default, PartialEq)]
struct Hierarchies {
    /// The v2 hierarchy, if it offers memory and io.
    unified: Option<PathBuf>,
    /// The v1 hierarchy of the memory controller.
    memory: Option<PathBuf>,
    /// The v1 hierarchy of the blkio controller.
    blkio: Option<PathBuf>,
}

impl Group {
    /// Creates the group. A limit that the machine can't enforce is an error. Without limits, a machine without
    /// cgroups gets a group that reports nothing.
    pub fn new(spec: &Spec) -> Result<Self> {
        let at = hierarchies();
        let mut group = Self {
            folders: Vec::new(),
            procs: Vec::new(),
            memory: None,
            killed: Arc::default(),
        };
        if let Some(root) = &at.unified {
            group.add_unified(root, spec)?;
        } else {
            group.add_memory(at.memory.as_deref(), spec)?;
            group.add_blkio(at.blkio.as_deref(), spec)?;
        }
        Ok(group)
    }

    /// The open `cgroup.procs`, one for each hierarchy: a process joins the group by writing 0 to all of them.
    pub fn procs(&self) -> &[File] {
        &self.procs
    }

    /// Peak memory of the group so far. `None` where the kernel does not report it.
    pub fn memory_peak_bytes(&self) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        memory.number((memory.files.peak, ""))
    }

    /// Processes that the kernel killed because the group was full and no memory could be reclaimed. `None`
    /// where it does not report it.
    pub fn oom_kills(&self) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        memory.number((memory.files.kills, "oom_kill"))
    }

    /// What [`Group::oom_kills`] was when the group was removed; 0 until then.
    pub fn killed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.killed)
    }

    /// What the kernel now charges for the group's sockets. A v1 group counts it only if they are limited. `None` where
    /// the kernel does not report it.
    pub fn socket_bytes(&self) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        memory.number(memory.files.sockets)
    }

    /// Page cache now charged to the group. `None` where the kernel does not report it.
    pub fn page_cache_bytes(&self) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        let text = std::fs::read_to_string(memory.folder.join("memory.stat")).ok()?;
        number_of(&text, "total_cache").or_else(|| number_of(&text, "file")) // v1, v2
    }

    fn add_unified(&mut self, root: &Path, spec: &Spec) -> Result<()> {
        // Fails where another manager owns the root: the limits below are then missing and produce the error.
        let _ = std::fs::write(root.join("cgroup.subtree_control"), "+memory +io");
        let folder = self.add(root, &spec.name)?;
        if let Some(limit_bytes) = spec.memory_limit_bytes {
            write(&folder.join("memory.max"), &limit_bytes.to_string())?;
            let _ = std::fs::write(folder.join("memory.swap.max"), "0");
        }
        if let Some((device, rate)) = &spec.read {
            write(&folder.join("io.max"), &format!("{device} rbps={rate}"))?;
        }
        self.memory = Some(Memory { folder, files: &V2 });
        Ok(())
    }

    fn add_memory(&mut self, root: Option<&Path>, spec: &Spec) -> Result<()> {
        let Some(root) = root else {
            return match spec.memory_limit_bytes {
                None => Ok(()),
                Some(_) => Err(lacking("limit memory", "memory of v2 or v1")),
            };
        };
        let folder = self.add(root, &spec.name)?;
        if let Some(limit_bytes) = spec.memory_limit_bytes {
            let limit = folder.join("memory.limit_in_bytes");
            write(&limit, &limit_bytes.to_string())?;
        }
        if let Some(limit_bytes) = spec.sockets_limit_bytes {
            let limit = folder.join("memory.kmem.tcp.limit_in_bytes");
            write(&limit, &limit_bytes.to_string())?;
        }
        self.memory = Some(Memory { folder, files: &V1 });
        Ok(())
    }

    fn add_blkio(&mut self, root: Option<&Path>, spec: &Spec) -> Result<()> {
        let Some((device, rate)) = &spec.read else {
            return Ok(());
        };
        let root = root.ok_or_else(|| lacking("throttle a disk", "io of v2 or blkio of v1"))?;
        let folder = self.add(root, &spec.name)?;
        let limit = folder.join("blkio.throttle.read_bps_device");
        write(&limit, &format!("{device} {rate}"))
    }

    fn add(&mut self, root: &Path, name: &str) -> Result<PathBuf> {
        let folder = root.join(format!("{PREFIX}-{name}"));
        let what = || folder.display().to_string();
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error).doing(what);
            }
            _ => self.folders.push(folder.clone()),
        }
        let procs = OpenOptions::new()
            .write(true)
            .open(folder.join("cgroup.procs"));
        self.procs.push(procs.doing(what)?);
        Ok(folder)
    }
}

impl Memory {
    /// A number in a file, by the names of both.
    fn number(&self, (file, name): (&str, &str)) -> Option<u64> {
        let text = std::fs::read_to_string(self.folder.join(file)).ok()?;
        match name {
            "" => text.trim().parse().ok(),
            name => number_of(&text, name),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.killed.store(self.oom_kills().unwrap_or(0), Relaxed);
        self.procs.clear();
        self.folders.iter().for_each(|folder| remove(folder));
    }
}

/// True if some cgroup can throttle a disk here.
pub fn can_throttle() -> bool {
    let at = hierarchies();
    at.unified.is_some() || at.blkio.is_some()
}

/// Removes the groups left by a run that was killed; their processes are gone by then. Returns the names of the
/// groups found.
pub fn remove_leftovers() -> Vec<String> {
    let at = hierarchies();
    let mut removed = Vec::new();
    for root in [at.unified, at.memory, at.blkio].into_iter().flatten() {
        for entry in std::fs::read_dir(&root).into_iter().flatten().flatten() {
            let path = entry.path();
            let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
            if ours && path.is_dir() {
                remove(&path);
                removed.push(format!("cgroup {}", path.display()));
            }
        }
    }
    removed
}

/// The kernel answers EBUSY until the last killed process is gone, which waits for its reads in flight.
fn remove(folder: &Path) {
    for _ in 0..500 {
        match std::fs::remove_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

fn hierarchies() -> Hierarchies {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let given =
        |root: &Path| std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    read_hierarchies(&mounts, given)
}

/// Parses the text of /proc/self/mounts; `given` returns the controllers of a v2 hierarchy.
fn read_hierarchies(mounts: &str, given: impl Fn(&Path) -> String) -> Hierarchies {
    let mut found = Hierarchies::default();
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(point), Some(kind), Some(options)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let has = |controller: &str| options.split(',').any(|option| option == controller);
        let root = || Some(PathBuf::from(point));
        match kind {
            "cgroup2" => {
                let given = given(Path::new(point));
                let both = ["memory", "io"];
                if both
                    .iter()
                    .all(|c| given.split_whitespace().any(|g| g == *c))
                {
                    found.unified = root();
                }
            }
            "cgroup" if has("memory") => found.memory = root(),
            "cgroup" if has("blkio") => found.blkio = root(),
            _ => {}
        }
    }
    found
}

/// The number after `name` on the line that begins with it.
fn number_of(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

fn lacking(what: &str, which: &str) -> LabError {
    LabError::Setup(format!("no cgroup can {what} here ({which})"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).doing(|| format!("writing {text:?} to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_whole_names() {
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(number_of(v1, "oom_kill"), Some(3));
        let v2 = "low 0\noom 4\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(number_of(v2, "oom_kill"), Some(2));
        assert_eq!(number_of("file_mapped 7\n", "file"), None);
    }

    #[test]
    fn hierarchies_of_both_versions_are_found_among_the_mounts() {
        let v1 = "proc /proc proc rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
            cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
            cgroup /sys/fs/cgroup/blkio cgroup rw,nosuid,blkio 0 0\n";
        let found = read_hierarchies(v1, |_| String::new());
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(found.memory, path("/sys/fs/cgroup/memory"));
        assert_eq!(found.blkio, path("/sys/fs/cgroup/blkio"));
        assert_eq!(found.unified, None, "it has nothing to give");
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let found = read_hierarchies(v2, |_| "cpu io memory pids\n".into());
        assert_eq!(found.unified, path("/sys/fs/cgroup"));
    }
}
