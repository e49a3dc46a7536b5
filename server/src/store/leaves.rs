//! The disks below a file system, by sysfs (`/sys/dev/block`, sysfs-block of the kernel's ABI documents).

use std::fs;
use std::path::Path;

use ackpace_core::units::KIB;

use crate::limits::{LAYERS_MAX, LEAVES_MAX};

/// The disks below a file system, and where it lies on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// The numbers (`st_rdev`) of the disks, each once, ascending. A loop device counts as a disk: the one below its
    /// file is read for others too.
    pub disks: Box<[u64]>,
    /// Whether one of them has an arm, or may have one.
    pub rotational: bool,
    /// Where the file system's partition starts on its disk, so that offsets on two partitions of a disk can be
    /// compared. 0 on a whole disk, and on dm and md, which have offsets of their own.
    pub base_bytes: u64,
}

/// The disks below the file system with this `st_dev`, found in the sysfs at `sys`. `None` where it has no block device
/// (btrfs, overlayfs, tmpfs, network), or where the layers can't be followed.
pub fn below(sys: &Path, st_dev: u64) -> Option<Below> {
    let top = block(sys, st_dev);
    let mut disks = LeafDisks {
        found: Vec::new(),
        rotational: false,
        visits_left: LEAVES_MAX * LAYERS_MAX,
    };
    disks.visit(&top, 0)?;
    disks.found.sort_unstable();
    Some(Below {
        disks: disks.found.into(),
        rotational: disks.rotational,
        base_bytes: base_bytes(&top),
    })
}

/// The longest span that one readahead(2) on this file system is sure to start: `max(read_ahead_kb, max_sectors_kb)`,
/// 128 KiB where that is not known.
pub fn readahead_bytes(sys: &Path, st_dev: u64) -> u64 {
    let top = block(sys, st_dev);
    let queue = disk_of(&top).join("queue");
    let kib = number(&queue.join("read_ahead_kb")).max(number(&queue.join("max_sectors_kb")));
    kib.unwrap_or(128).saturating_mul(KIB).max(128 * KIB)
}

struct LeafDisks {
    found: Vec<u64>,
    rotational: bool,
    /// Bounds the visits of layers that lead to the same disks by many paths.
    visits_left: usize,
}

impl LeafDisks {
    /// `None`: it can't be followed.
    fn visit(&mut self, at: &Path, layer: usize) -> Option<()> {
        self.visits_left = self.visits_left.checked_sub(1)?;
        if layer > LAYERS_MAX {
            return None;
        }
        let disk = disk_of(at);
        let mut slaves = fs::read_dir(disk.join("slaves"))
            .into_iter()
            .flatten()
            .peekable();
        if slaves.peek().is_some() {
            return slaves.try_for_each(|slave| self.visit(&slave.ok()?.path(), layer + 1));
        }
        let id = device_id(&disk)?;
        if !self.found.contains(&id) {
            if self.found.len() == LEAVES_MAX {
                return None;
            }
            self.found.push(id);
            self.rotational |= number(&disk.join("queue/rotational")) != Some(0);
        }
        Some(())
    }
}

/// The kernel's name of a disk, such as `sda`.
pub fn name(sys: &Path, disk: u64) -> Option<String> {
    let target = fs::read_link(block(sys, disk)).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

fn block(sys: &Path, st_dev: u64) -> std::path::PathBuf {
    let (major, minor) = (rustix::fs::major(st_dev), rustix::fs::minor(st_dev));
    sys.join(format!("dev/block/{major}:{minor}"))
}

/// The disk of a partition is its parent folder.
fn disk_of(at: &Path) -> std::path::PathBuf {
    if at.join("partition").exists() {
        at.join("..") // not its lexical parent: the path is a link
    } else {
        at.to_owned()
    }
}

fn base_bytes(at: &Path) -> u64 {
    const SECTOR_BYTES: u64 = 512; // in sysfs always, whatever the disk's own
    let partition = at.join("partition").exists();
    let start = number(&at.join("start")).filter(|_| partition);
    start.unwrap_or(0).saturating_mul(SECTOR_BYTES)
}

fn device_id(disk: &Path) -> Option<u64> {
    let text = fs::read_to_string(disk.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use rustix::fs::makedev;

    use super::*;

    /// A sysfs of our own. Removed at the end of the test.
    pub(in crate::store) struct Sysfs {
        pub(in crate::store) dir: PathBuf,
    }

    impl Sysfs {
        pub(in crate::store) fn new(name: &str) -> Sysfs {
            let name = format!("ackpace-sysfs-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(dir.join("dev/block")).expect("a directory");
            Sysfs { dir }
        }

        /// A block device at `path` below `devices`, with files in it.
        fn add(&self, path: &str, id: (u32, u32), files: &[(&str, &str)]) {
            let at = self.dir.join("devices").join(path);
            let id = format!("{}:{}", id.0, id.1);
            fs::create_dir_all(at.join("queue")).expect("a directory");
            fs::write(at.join("dev"), format!("{id}\n")).expect("a file");
            for (name, text) in files {
                fs::write(at.join(name), format!("{text}\n")).expect("a file");
            }
            symlink(&at, self.dir.join("dev/block").join(id)).expect("a link");
        }

        fn slave(&self, of: &str, path: &str) {
            let slaves = self.dir.join("devices").join(of).join("slaves");
            fs::create_dir_all(&slaves).expect("a directory");
            let to = self.dir.join("devices").join(path);
            symlink(&to, slaves.join(path.replace('/', "-"))).expect("a link");
        }

        fn below(&self, id: (u32, u32)) -> Option<Below> {
            below(&self.dir, makedev(id.0, id.1))
        }

        /// Two disks with an arm, one without, partitions, and a dm over an md over two of them.
        pub(in crate::store) fn of_a_server(name: &str) -> Sysfs {
            let sys = Sysfs::new(name);
            let arm = [("queue/rotational", "1"), ("queue/read_ahead_kb", "256")];
            sys.add("sda", (8, 0), &arm);
            sys.add("sda/sda1", (8, 1), &[("partition", "1"), ("start", "2048")]);
            sys.add(
                "sda/sda2",
                (8, 2),
                &[("partition", "2"), ("start", "409600")],
            );
            sys.add("sdb", (8, 16), &arm);
            sys.add(
                "sdb/sdb1",
                (8, 17),
                &[("partition", "1"), ("start", "2048")],
            );
            sys.add("nvme0n1", (259, 0), &[("queue/rotational", "0")]);
            sys.add("md0", (9, 0), &[]);
            sys.slave("md0", "sda/sda2");
            sys.slave("md0", "sdb/sdb1");
            sys.add("dm-0", (253, 0), &[("queue/max_sectors_kb", "1280")]);
            sys.slave("dm-0", "md0");
            fs::create_dir_all(sys.dir.join("devices/nvme0n1/slaves")).expect("an empty folder");
            sys
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    #[test]
    fn partitions_and_layers_lead_down_to_the_disks() {
        let sys = Sysfs::of_a_server("down");
        let (sda, sdb, nvme) = (makedev(8, 0), makedev(8, 16), makedev(259, 0));
        let found = |id| {
            sys.below(id)
                .map(|below| (below.disks.to_vec(), below.rotational, below.base_bytes))
        };
        assert_eq!(found((8, 1)), Some((vec![sda], true, 1 << 20)));
        assert_eq!(found((8, 0)), Some((vec![sda], true, 0)));
        assert_eq!(found((253, 0)), Some((vec![sda, sdb], true, 0)));
        assert_eq!(found((259, 0)), Some((vec![nvme], false, 0)));
        assert_eq!(found((0, 40)), None, "an anonymous number");
        assert_eq!(name(&sys.dir, nvme).as_deref(), Some("nvme0n1"));
        assert_eq!(name(&sys.dir, makedev(0, 40)), None);
        assert_eq!(
            readahead_bytes(&sys.dir, makedev(8, 1)),
            256 * KIB,
            "its disk's queue"
        );
        assert_eq!(readahead_bytes(&sys.dir, makedev(253, 0)), 1280 * KIB);
        assert_eq!(readahead_bytes(&sys.dir, makedev(0, 40)), 128 * KIB);
    }

    #[test]
    fn layers_without_an_end_are_not_followed_for_ever() {
        let sys = Sysfs::new("rings");
        sys.add("dm-1", (253, 1), &[]);
        sys.add("dm-2", (253, 2), &[]);
        sys.slave("dm-1", "dm-2");
        sys.slave("dm-2", "dm-1");
        assert_eq!(sys.below((253, 1)), None);
        // Ten layers of ten would be ten thousand million visits.
        for layer in 0..LAYERS_MAX as u32 {
            for twin in 0..10 {
                sys.add(
                    &format!("layer-{layer}-{twin}"),
                    (300 + layer, twin),
                    &[("queue/rotational", "0")],
                );
            }
        }
        for layer in 1..LAYERS_MAX {
            for twin in 0..10 {
                for lower in 0..10 {
                    sys.slave(
                        &format!("layer-{layer}-{twin}"),
                        &format!("layer-{}-{lower}", layer - 1),
                    );
                }
            }
        }
        assert_eq!(sys.below((300 + LAYERS_MAX as u32 - 1, 0)), None);
        let two = sys.below((301, 0)).expect("two layers can be followed");
        assert_eq!((two.disks.len(), two.rotational), (10, false));
    }

    #[test]
    fn the_disks_of_this_machine_are_found() {
        let Ok(blocks) = fs::read_dir("/sys/block") else {
            return;
        };
        for block in blocks.flatten() {
            let Some(id) = device_id(&block.path()) else {
                continue;
            };
            let found = below(Path::new("/sys"), id).expect("a real one");
            assert!(!found.disks.is_empty(), "{}", block.path().display());
        }
    }
}
