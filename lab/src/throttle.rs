//! A slow disk: ext4 on a loop device, whose reads are throttled for the server by its cgroup.
//!
//! Throttling has no seeks, so it does not model a hard disk. It is enough to show whether a server stalls
//! while it waits for a disk. Mount and loop device live in the run's mount namespace and disappear with it
//! (`mount -o loop` sets LO_FLAGS_AUTOCLEAR).

use crate::corpus::{self, Set};
use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::mount::{UnmountFlags, unmount};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Image size beyond the files: metadata and slack.
const OVERHEAD_BYTES: u64 = 96 << 20;

/// A mounted image; unmounted when dropped.
pub struct LoopDisk {
    /// The mount point.
    pub mount: PathBuf,
    /// "major:minor", as used by cgroups and /sys/dev/block.
    pub device: String,
    /// The image file behind the loop device.
    pub image: PathBuf,
}

impl LoopDisk {
    /// Mounts an image with these files; the first use creates and fills it. It is not throttled yet.
    pub fn up(scratch: &Path, sets: &[Set], read_ahead_kb: u64) -> Result<Self> {
        let key = sets.iter().map(Set::key).collect::<Vec<_>>().join("+");
        let len_bytes: u64 = sets.iter().map(Set::len_bytes).sum();
        let image = scratch.join(format!("slow-{key}.ext4"));
        let mount = scratch.join("slow");
        format(&image, len_bytes + len_bytes / 64 + OVERHEAD_BYTES)?;
        std::fs::create_dir_all(&mount).doing(|| mount.display().to_string())?;
        run(Command::new("mount")
            .args(["-o", "loop,noatime"])
            .arg(&image)
            .arg(&mount))?;
        let mut disk = Self {
            mount,
            device: String::new(),
            image,
        };
        corpus::make(&disk.mount, sets)?;
        rustix::fs::sync();
        let device = std::fs::metadata(&disk.mount)
            .doing(|| disk.mount.display().to_string())?
            .dev();
        disk.device = format!("{}:{}", libc::major(device), libc::minor(device));
        let read_ahead = format!("/sys/dev/block/{}/queue/read_ahead_kb", disk.device);
        // A loop device that reports itself as rotational starts with 2560.
        std::fs::write(&read_ahead, read_ahead_kb.to_string()).doing(|| read_ahead.clone())?;
        Ok(disk)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.mount, UnmountFlags::DETACH); // otherwise the end of the namespace unmounts it
    }
}

/// Creates an ext4 image unless one of this length exists.
fn format(image: &Path, len_bytes: u64) -> Result<()> {
    let what = || image.display().to_string();
    if std::fs::metadata(image).is_ok_and(|meta| meta.len() == len_bytes) {
        return Ok(());
    }
    let new = image.with_extension("new"); // renamed when it is complete
    let file = File::create(&new).doing(what)?;
    file.set_len(len_bytes).doing(what)?;
    // No journal and no lazy initialisation: no background writes reach the device during a run.
    let options = "-q -F -O ^has_journal -E lazy_itable_init=0 -m 0";
    run(Command::new("mkfs.ext4").args(options.split(' ')).arg(&new))?;
    std::fs::rename(&new, image).doing(what)
}

/// Runs a program to its end.
///
/// # Errors
/// What it says when it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().doing(|| name.clone())?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Setup(format!("{name}: {why}")))
}
