//! The disks below a file system: by sysfs (`/sys/dev/block`, sysfs-block of the kernel's ABI documents), and by the table
//! of mounts (`/proc/self/mountinfo`, proc(5)) for file systems whose `st_dev` is no disk's number.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use ackpace_core::units::KIB;
use rustix::fs::{AtFlags, StatxFlags, makedev, statx};

/// Layers of dm and md between a file system and its disks. More: as above.
const LAYERS_MAX: usize = 8;

/// Disks below one file system that are told apart. More: its device counts as unknown.
const LEAVES_MAX: usize = 64;

/// Where the kernel tells of its disks and mounts.
#[derive(Clone, Debug)]
pub struct KernelFiles {
    pub sysfs: PathBuf,
    pub mountinfo: PathBuf,
}

/// The disks below a file system, and where it lies on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// The numbers (`st_rdev`) of the disks, each once, ascending. A loop device counts as a disk, although the one below
    /// its file is read for it: file systems of one device are read alike, and few images can be read past the page cache.
    /// Empty: not known.
    pub disks: Box<[u64]>,
    /// The name of what shares its disks, where they are not known: a pool of ZFS, or a btrfs in a container.
    pub pool: Option<String>,
    /// Whether one of them has an arm, or may have one.
    pub rotational: bool,
    /// Where the file system's partition starts on its disk, so that offsets on two partitions of a disk can be
    /// compared. 0 on a whole disk, and on dm, md and btrfs, which have offsets of their own.
    pub base_bytes: u64,
}

/// The disks below the file system of a file, which has this `st_dev`. Nothing is known of those of overlayfs, tmpfs and
/// network file systems, nor where the layers can't be followed.
pub fn below(kernel: &KernelFiles, file: &impl AsFd, st_dev: u64) -> Below {
    let sysfs = &kernel.sysfs;
    let mut disks = LeafDisks {
        sysfs,
        found: Vec::new(),
        rotational: false,
        visits_left: LEAVES_MAX * LAYERS_MAX,
    };
    let top = block(sysfs, st_dev);
    let (visited, pool) = match top.exists() {
        true => (disks.visit(&top, 0), None),
        false => match source(&kernel.mountinfo, file) {
            Some(Subvolumes::Btrfs(one)) => (disks.visit_btrfs(&one), Some(format!("btrfs {one}"))),
            Some(Subvolumes::Zfs(pool)) => (None, Some(format!("zfs {pool}"))),
            None => (None, None),
        },
    };
    if visited.is_none() {
        return Below {
            pool,
            rotational: true,
            ..Below::default()
        };
    }
    disks.found.sort_unstable();
    Below {
        disks: disks.found.into(),
        pool: None,
        rotational: disks.rotational,
        base_bytes: base_bytes(&top),
    }
}

/// The longest span that one readahead(2) on this file system is sure to start: `max(read_ahead_kb, max_sectors_kb)`,
/// 128 KiB where that is not known.
pub fn readahead_bytes(sys: &Path, st_dev: u64) -> u64 {
    let top = block(sys, st_dev);
    let queue = disk_of(&top).join("queue");
    let kib = number(&queue.join("read_ahead_kb")).max(number(&queue.join("max_sectors_kb")));
    kib.unwrap_or(128).saturating_mul(KIB).max(128 * KIB)
}

struct LeafDisks<'a> {
    sysfs: &'a Path,
    found: Vec<u64>,
    rotational: bool,
    /// Bounds the visits of layers that lead to the same disks by many paths.
    visits_left: usize,
}

/// `None`: it can't be followed.
impl LeafDisks<'_> {
    /// All disks of a btrfs, by the name of one. In a container that has no node it may be none of sysfs.
    fn visit_btrfs(&mut self, one: &str) -> Option<()> {
        let node = fs::metadata(one).ok();
        let node = node.filter(|node| node.file_type().is_block_device());
        let name = match node.and_then(|node| name(self.sysfs, node.rdev())) {
            Some(name) => name.into(),
            None => Path::new(one).file_name()?.to_owned(),
        };
        let all = fs::read_dir(self.sysfs.join("fs/btrfs")).ok()?;
        let mut all = all.flatten().map(|each| each.path().join("devices"));
        let devices = all.find(|devices| devices.join(&name).exists())?;
        let mut devices = fs::read_dir(devices).ok()?;
        devices.try_for_each(|device| self.visit(&device.ok()?.path(), 0))
    }

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

/// A mount of a kind whose parts (subvolumes, datasets, snapshots) have an `st_dev` each.
enum Subvolumes {
    /// One of the disks of a btrfs.
    Btrfs(String),
    Zfs(String),
}

/// What the table shows for the mount of a file: nothing, if that lies outside of a chroot.
fn source(mountinfo: &Path, file: &impl AsFd) -> Option<Subvolumes> {
    let text = fs::read(mountinfo).ok()?;
    let (text, number) = (
        String::from_utf8_lossy(&text),
        mount_number(file)?.to_string(),
    );
    let mut lines = text.lines();
    let line = lines.find(|line| line.split(' ').next() == Some(&number))?;
    let (_, super_block) = line.split_once(" - ")?;
    let mut fields = super_block.split(' ');
    match (fields.next()?, fields.next()?) {
        ("btrfs", source) => Some(Subvolumes::Btrfs(source.to_owned())),
        ("zfs", source) => Some(Subvolumes::Zfs(source.split(['/', '@']).next()?.to_owned())),
        _ => None,
    }
}

/// The number of a file's mount in the table. It is given out again, unlike [`super::attributes::FileSystemId::mount_id`].
pub fn mount_number(file: &impl AsFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let told = statx(file, c"", flags, StatxFlags::MNT_ID).ok()?;
    Some(told.stx_mnt_id)
}

/// The kernel's name of a disk, such as `sda`.
pub fn name(sys: &Path, disk: u64) -> Option<String> {
    let target = fs::read_link(block(sys, disk)).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

fn block(sys: &Path, st_dev: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(st_dev), rustix::fs::minor(st_dev));
    sys.join(format!("dev/block/{major}:{minor}"))
}

/// The disk of a partition is its parent folder.
fn disk_of(at: &Path) -> PathBuf {
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
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

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

        pub(in crate::store) fn kernel(&self) -> KernelFiles {
            KernelFiles {
                sysfs: self.dir.clone(),
                mountinfo: self.dir.join("mountinfo"),
            }
        }

        /// The table of mounts has that of `file`, with this kind and source.
        pub(in crate::store) fn mount(&self, file: &fs::File, kind: &str, source: &str) {
            let number = mount_number(file).expect("Linux 5.8");
            let line = |number, text| format!("{number} 1 0:40 / /m rw shared:1 - {text} rw\n");
            let (other, own) = (line(number + 1, "tmpfs a"), format!("{kind} {source}"));
            let text = other + &line(number, &own);
            fs::write(self.dir.join("mountinfo"), text).expect("a file");
        }

        fn below(&self, id: (u32, u32)) -> Option<Below> {
            let file = fs::File::open("/").expect("the root directory");
            let found = below(&self.kernel(), &file, makedev(id.0, id.1));
            (!found.disks.is_empty()).then_some(found)
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
    fn file_systems_without_a_disk_s_number_lead_down_to_the_disks_of_their_super_block() {
        let sys = Sysfs::of_a_server("super");
        let devices = sys.dir.join("fs/btrfs/0b6e-uuid/devices");
        fs::create_dir_all(&devices).expect("a directory");
        for disk in ["sda/sda2", "sdb/sdb1"] {
            let (_, name) = disk.split_once('/').expect("a partition");
            symlink(sys.dir.join("devices").join(disk), devices.join(name)).expect("a link");
        }
        fs::create_dir_all(sys.dir.join("fs/btrfs/features")).expect("no file system");
        let file = fs::File::open("/").expect("the root directory");
        let found = |kind, source| {
            sys.mount(&file, kind, source);
            let found = below(&sys.kernel(), &file, makedev(0, 60));
            (found.disks.to_vec(), found.pool)
        };
        let both = vec![makedev(8, 0), makedev(8, 16)];
        assert_eq!(found("btrfs", "/dev/of-no-machine/sdb1"), (both, None));
        let pool = |name: &str| (vec![], Some(name.to_owned()));
        let unseen = found("btrfs", "/dev/mapper/unseen");
        assert_eq!(unseen, pool("btrfs /dev/mapper/unseen"));
        assert_eq!(found("zfs", "tank/a/b@monday"), pool("zfs tank"));
        assert_eq!(found("tmpfs", "tmpfs"), (vec![], None));
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
            let kernel = KernelFiles {
                sysfs: "/sys".into(),
                mountinfo: "/nowhere".into(),
            };
            let root = fs::File::open("/").expect("the root directory");
            let found = below(&kernel, &root, id);
            assert!(!found.disks.is_empty(), "{}", block.path().display());
        }
    }
}
