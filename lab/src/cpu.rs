//! CPU time of a server: all threads of all its processes, to the nanosecond.

use crate::error::{Doing, LabError, Result};
use std::collections::HashMap;
use std::path::Path;

/// Time that a server's threads got, and time for which they were ready and had to wait for a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Usage {
    /// On a core.
    pub used_s: f64,
    /// Ready, but another thread had the core: a stranger, or the server's own.
    pub waited_s: f64,
}

impl Usage {
    /// What was added since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            used_s: self.used_s - before.used_s,
            waited_s: self.waited_s - before.waited_s,
        }
    }
}

/// Usage of the process `root` and all its descendants since their start, from
/// /proc/PID/task/TID/schedstat. Threads that ended are not in it: the contenders keep theirs.
pub fn usage(root: i32) -> Result<Usage> {
    let (mut used_ns, mut waited_ns) = (0, 0);
    for pid in tree(root)? {
        let tasks = format!("/proc/{pid}/task");
        for task in std::fs::read_dir(&tasks).doing(|| tasks.clone())? {
            let path = task.doing(|| tasks.clone())?.path().join("schedstat");
            if let Ok(text) = std::fs::read_to_string(&path) {
                let (used, waited) = schedstat(&text).ok_or_else(|| unreadable(&path))?;
                used_ns += used;
                waited_ns += waited;
            }
        }
    }
    Ok(Usage {
        used_s: used_ns as f64 / 1e9,
        waited_s: waited_ns as f64 / 1e9,
    })
}

/// The process and all its descendants.
pub fn tree(root: i32) -> Result<Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").doing(|| "/proc".into())? {
        let entry = entry.doing(|| "/proc".into())?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        if let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) {
            let parent = parent(&stat).ok_or_else(|| unreadable(&entry.path()))?;
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut tree, mut next) = (vec![root], 0);
    while let Some(pid) = tree.get(next) {
        tree.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    Ok(tree)
}

/// First two fields of schedstat, in ns: time on a core, time on a run queue (kernel:
/// Documentation/scheduler/sched-stats).
fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Fourth field of stat, counted from the end of the name, which may hold anything.
fn parent(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(1)?.parse().ok()
}

fn unreadable(path: &Path) -> LabError {
    LabError::Setup(format!("{}: not in the known form", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_are_read_whatever_the_name() {
        assert_eq!(schedstat("935838 89052 2\n"), Some((935_838, 89_052)));
        assert_eq!(parent("17 (a) b) S 42 17 0"), Some(42));
        assert_eq!(parent("nonsense"), None);
    }

    #[test]
    fn our_own_time_grows_with_work() {
        let pid = std::process::id() as i32;
        let before = usage(pid).unwrap().used_s;
        let mut sum = 0u64;
        for n in 0..50_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(n));
        }
        assert!(usage(pid).unwrap().used_s > before);
    }
}
