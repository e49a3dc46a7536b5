//! A slow disk: ext4 on a loop device, whose reads are throttled for the server by its cgroup.
//!
//! Throttling has no seeks, so this is no model of a hard disk; it is enough to ask whether a server
//! stands still while it waits for one. Mount and loop device live in the bench's mount namespace
//! and go with it (`mount -o loop` sets LO_FLAGS_AUTOCLEAR); the cgroup is removed by name.

use crate::error::{Doing, LabError, Result};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of our cgroup, directly below the root of the hierarchy.
const CGROUP: &str = "ackpace-lab";
/// The kernel's default for a disk. A loop device that takes itself for a rotating one gets 2560, and
/// then a server that reads in its loop stands still for seconds instead of half a second.
const READ_AHEAD_KB: u64 = 128;

/// The mounted device and the cgroup that makes it slow.
pub struct SlowDisk {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Read-ahead of the device, set to the kernel's default for disks.
    pub read_ahead_kb: u64,
    /// Which interface throttles: "blkio (cgroup v1)" or "io.max (cgroup v2)".
    pub throttle: &'static str,
    procs: File,
}

enum Hierarchy {
    V1(PathBuf),
    V2(PathBuf),
}

/// Makes an ext4 image at `image` unless one is there; true if it is new (and empty).
pub fn format(image: &Path, len_bytes: u64) -> Result<bool> {
    let what = || image.display().to_string();
    if std::fs::metadata(image).is_ok_and(|meta| meta.len() == len_bytes) {
        return Ok(false);
    }
    let file = File::create(image).doing(what)?;
    file.set_len(len_bytes).doing(what)?;
    // No journal and no lazy initialisation: nothing writes to the device behind the bench.
    let options = [
        "-q",
        "-F",
        "-O",
        "^has_journal",
        "-E",
        "lazy_itable_init=0",
        "-m",
        "0",
    ];
    run(Command::new("mkfs.ext4").args(options).arg(image))?;
    Ok(true)
}

/// Mounts the image by a loop device, unthrottled.
pub fn attach(image: &Path, mount: &Path) -> Result<()> {
    std::fs::create_dir_all(mount).doing(|| mount.display().to_string())?;
    run(Command::new("mount")
        .args(["-o", "loop,noatime"])
        .arg(image)
        .arg(mount))
}

/// Limits the reads of a new cgroup from the device mounted at `mount`.
pub fn throttle(mount: &Path, bytes_per_s: u64) -> Result<SlowDisk> {
    let device = std::fs::metadata(mount)
        .doing(|| mount.display().to_string())?
        .dev();
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    let (group, throttle) = match hierarchy()? {
        Hierarchy::V1(root) => {
            let group = new_group(&root)?;
            let limit = format!("{device} {bytes_per_s}");
            write(&group.join("blkio.throttle.read_bps_device"), &limit)?;
            (group, "blkio (cgroup v1)")
        }
        Hierarchy::V2(root) => {
            write(&root.join("cgroup.subtree_control"), "+io")?;
            let group = new_group(&root)?;
            write(
                &group.join("io.max"),
                &format!("{device} rbps={bytes_per_s}"),
            )?;
            (group, "io.max (cgroup v2)")
        }
    };
    let procs = group.join("cgroup.procs");
    let procs = OpenOptions::new()
        .write(true)
        .open(&procs)
        .doing(|| procs.display().to_string())?;
    let read_ahead = format!("/sys/dev/block/{device}/queue/read_ahead_kb");
    write(Path::new(&read_ahead), &READ_AHEAD_KB.to_string())?;
    Ok(SlowDisk {
        mount: mount.to_owned(),
        read_ahead_kb: READ_AHEAD_KB,
        throttle,
        procs,
    })
}

impl SlowDisk {
    /// The open `cgroup.procs`: a process that writes 0 there becomes slow.
    pub fn cgroup(&self) -> &File {
        &self.procs
    }
}

/// Removes the cgroup of a run that ended without doing so. Its processes are gone by then.
pub fn remove_leftovers() {
    if let Ok(Hierarchy::V1(root) | Hierarchy::V2(root)) = hierarchy() {
        let group = root.join(CGROUP);
        // The kernel answers EBUSY until the last killed process is gone,
        // which waits for its reads in the device.
        for _ in 0..500 {
            match std::fs::remove_dir(&group) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}

fn hierarchy() -> Result<Hierarchy> {
    let unified = Path::new("/sys/fs/cgroup");
    let controllers = std::fs::read_to_string(unified.join("cgroup.controllers"));
    if controllers.is_ok_and(|names| names.split_whitespace().any(|name| name == "io")) {
        return Ok(Hierarchy::V2(unified.to_owned()));
    }
    let mounts =
        std::fs::read_to_string("/proc/self/mounts").doing(|| "/proc/self/mounts".into())?;
    match blkio_mount(&mounts) {
        Some(root) => Ok(Hierarchy::V1(root.into())),
        None => Err(LabError::Setup(
            "no cgroup can throttle a disk here (neither io of v2 nor blkio of v1): skip this case \
             with --only cached --only listing"
                .into(),
        )),
    }
}

/// Mount point of the v1 hierarchy with the blkio controller, from the text of /proc/self/mounts.
fn blkio_mount(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let found = kind == "cgroup" && options.split(',').any(|option| option == "blkio");
        found.then_some(point)
    })
}

fn new_group(root: &Path) -> Result<PathBuf> {
    let group = root.join(CGROUP);
    match std::fs::create_dir(&group) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).doing(|| group.display().to_string())
        }
        _ => Ok(group),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).doing(|| format!("writing {text:?} to {}", path.display()))
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().doing(|| name.clone())?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Setup(format!("{name}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blkio_hierarchy_is_found_among_the_mounts() {
        let mounts = "proc /proc proc rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
            cgroup /sys/fs/cgroup/blkio cgroup rw,nosuid,blkio 0 0\n";
        assert_eq!(blkio_mount(mounts), Some("/sys/fs/cgroup/blkio"));
        assert_eq!(blkio_mount("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), None);
    }
}
