//! The memory available to this process: the machine's, or less if a cgroup limits it.

use std::fs;
use std::path::Path;

/// Memory for this process, and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usable {
    /// The smaller of RAM and the cgroup's limit.
    pub bytes: u64,
    /// Whether it is the limit of a cgroup, which then has no other big users, or nearly so.
    pub by_cgroup: bool,
}

/// Anonymous memory of this process now (`RssAnon`), as near as the kernel counts it; `None` where it does not say.
pub fn held_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

/// The smaller of RAM and the limits of our cgroup and those above it (v2 `memory.max`, v1
/// `memory.limit_in_bytes`), in bytes.
pub fn usable() -> Usable {
    let info = rustix::system::sysinfo();
    let ram_bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit_bytes = limits(&cgroups, |path| fs::read_to_string(path).ok()).min();
    Usable {
        bytes: limit_bytes.unwrap_or(u64::MAX).min(ram_bytes),
        by_cgroup: limit_bytes.is_some_and(|bytes| bytes < ram_bytes),
    }
}

/// The memory of the sockets of all programs at which the kernel begins to make buffers smaller (tcp(7), `tcp_mem`), in
/// bytes; `u64::MAX` where it does not say.
pub fn tcp_bytes() -> u64 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").unwrap_or_default();
    let pages: Option<u64> = text
        .split_whitespace()
        .next()
        .and_then(|low| low.parse().ok());
    pages.map_or(u64::MAX, |pages| {
        pages.saturating_mul(rustix::param::page_size() as u64)
    })
}

/// The limits that apply to the cgroups listed in the form of /proc/self/cgroup.
fn limits<'a>(
    cgroups: &'a str,
    read: impl Fn(&Path) -> Option<String> + 'a,
) -> impl Iterator<Item = u64> + 'a {
    let files = cgroups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        match controllers {
            "" => Some(("/sys/fs/cgroup", path, "memory.max")),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some(("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"))
            }
            _ => None,
        }
    });
    files.flat_map(move |(mount, path, file)| {
        // In a container the path may be the host's, and only the mount itself the process's own.
        let folders = Path::new(path)
            .ancestors()
            .map(|up| Path::new(mount).join(up).join(file));
        let limits = folders.filter_map(|path| read(&path)?.trim().parse().ok());
        limits.collect::<Vec<u64>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_both_cgroup_versions_and_of_outer_groups_count() {
        let read = |path: &Path| match path.to_str()? {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("1000\n".to_owned()),
            "/sys/fs/cgroup/memory/x/memory.limit_in_bytes" => Some("2000\n".to_owned()),
            _ => None,
        };
        let cgroups = "12:cpu,cpuacct:/x\n7:memory:/x\n0::/a/b\nrubbish\n";
        let mut found: Vec<u64> = limits(cgroups, read).collect();
        found.sort_unstable();
        assert_eq!(found, [1000, 2000]);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(usable().bytes > 1 << 20);
        assert!((1 << 16..usable().bytes).contains(&held_bytes().expect("/proc")));
    }
}
