//! What lies on the FUSE file: a loop device with direct I/O, and ext4 on it. A process of its own attaches, mounts and removes it:
//! each step waits for the answerer, and a process that waits so can't be ended while somebody has /dev/fuse open. So this one has not.
//!
//! What was left by a supervisor that was killed is found by what the kernel knows: whatever lies on the file in the runtime folder,
//! which only root can enter, is ours.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ackpace_host_base::failure::Failure;
use ackpace_host_base::say;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde::{Deserialize, Serialize};

use super::loops;
use super::mounts::{self, Mount};
use super::options::{Allowed, Stack};

/// How long programs that use the file system may keep it mounted at the end. The unit file gives the stop two minutes.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// How long a dead one is waited for.
const DEAD_MAX: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(50);
/// What has to be zeros before a unit is formatted.
const EMPTY_BYTES: usize = 1 << 20;

/// What is there now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// The loop device.
    pub device: PathBuf,
    /// `st_dev` of the files of the mount; 0: there is none.
    pub st_dev: u64,
}

/// How a step ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is done.
    Built(Built),
    /// It is not.
    Failed {
        /// Why, with the cure.
        text: String,
        /// Trying again does not help.
        lasts: bool,
    },
}

/// Carries out one step, and prints the outcome as JSON.
///
/// # Errors
/// As prctl(2).
pub fn run(order: &Stack) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| Failure::runtime(format!("prctl: {error}")))?;
    let built = match order.down {
        true => down(order).map(|()| Built::default()),
        false => up(order),
    };
    let outcome = built.map_or_else(
        |failure| Outcome::Failed {
            lasts: failure.exit_code() == 2,
            text: failure.to_string(),
        },
        Outcome::Built,
    );
    let text = serde_json::to_string(&outcome).unwrap_or_default();
    ackpace_host_base::tell!("{text}");
    Ok(())
}

fn up(order: &Stack) -> Result<Built, Failure> {
    let access = if order.read_only {
        OFlags::RDONLY
    } else {
        OFlags::RDWR
    };
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::open(&order.file, flags, Mode::empty())
        .map_err(|error| Failure::runtime(format!("{}: {error}", order.file.display())))?;
    let attached = loops::attach(
        &File::from(file),
        &order.file,
        order.block_bytes,
        order.read_only,
        order.mount.is_none(),
    )?;
    let device = attached.path.clone();
    if order.format {
        format(&attached.file, &device)?;
    }
    let Some(mount) = &order.mount else {
        return Ok(Built { device, st_dev: 0 });
    };
    mount_ext4(&device, mount, order)?;
    let stat = fs::metadata(mount)
        .map_err(|error| Failure::runtime(format!("{}: {error}", mount.display())))?;
    Ok(Built {
        device,
        st_dev: stat.dev(),
    })
}

/// Makes an ext4, if there is nothing yet.
fn format(unit: &File, device: &Path) -> Result<(), Failure> {
    let mut first = vec![0; EMPTY_BYTES];
    let len = usize::try_from(size_bytes(unit)?).map_or(EMPTY_BYTES, |len| len.min(EMPTY_BYTES));
    unit.read_exact_at(&mut first[..len], 0)
        .map_err(|error| Failure::runtime(format!("reading the unit: {error}")))?;
    if first.iter().any(|byte| *byte != 0) {
        return Err(Failure::operator(
            "--format: the unit is not empty (its first MiB has other bytes than zeros): start without --format to mount what is on \
             it; to throw that away, start with --no-mount and run mkfs.ext4 on the loop device",
        ));
    }
    let mut command = Command::new("mkfs.ext4");
    // The whole unit would be discarded, which FUSE passes to nobody.
    let output = command
        .args(["-q", "-F", "-E", "nodiscard"])
        .arg(device)
        .output()
        .map_err(|error| {
            Failure::operator(format!("mkfs.ext4: {error}: install the package e2fsprogs"))
        })?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let why = String::from_utf8_lossy(&output.stderr);
            let why: Vec<&str> = why.split_whitespace().collect();
            let why = why.join(" "); // its lines are halves of sentences
            Err(Failure::runtime(format!(
                "mkfs.ext4: {}: {why}",
                output.status
            )))
        }
    }
}

fn size_bytes(device: &File) -> Result<u64, Failure> {
    rustix::fs::seek(device, rustix::fs::SeekFrom::End(0))
        .map_err(|error| Failure::runtime(format!("the size of the unit: {error}")))
}

fn mount_ext4(device: &Path, at: &Path, order: &Stack) -> Result<(), Failure> {
    let mut flags = MountFlags::NOATIME;
    flags.set(MountFlags::NOSUID, !order.allow.contains(&Allowed::Suid));
    flags.set(MountFlags::NODEV, !order.allow.contains(&Allowed::Dev));
    flags.set(MountFlags::NOEXEC, !order.allow.contains(&Allowed::Exec));
    flags.set(MountFlags::RDONLY, order.read_only);
    let data = c"nodiscard,data=ordered,errors=remount-ro";
    mount(device, at, "ext4", flags, data).map_err(|error| refused(error, at, order))
}

/// By mount(2).
fn refused(error: Errno, at: &Path, order: &Stack) -> Failure {
    let at = at.display();
    let by_hand =
        "start with --no-mount, run e2fsck -f on the loop device that it names, and start again";
    match error {
        Errno::INVAL if has_no_ext4(order) => Failure::operator(format!(
            "mount {at}: there is no ext4 on the unit: start with --format if it is new, or with --no-mount to look at it"
        )),
        Errno::ROFS | Errno::ACCESS if order.read_only => Failure::operator(format!(
            "mount {at}: {error}: the journal of the ext4 has to be replayed first, which writes: start once without --read-only"
        )),
        Errno::ROFS | Errno::ACCESS => Failure::operator(format!(
            "mount {at}: {error}: the unit is write-protected: start with --read-only"
        )),
        Errno::NODEV => Failure::operator(format!(
            "mount {at}: {error}: this kernel has no ext4 (modprobe ext4)"
        )),
        Errno::BUSY => Failure::operator(format!(
            "mount {at}: {error}: something is mounted there already"
        )),
        Errno::NOENT | Errno::NOTDIR => {
            Failure::operator(format!("mount {at}: {error}: make the folder"))
        }
        _ => Failure::operator(format!(
            "mount {at}: {error}: the ext4 is damaged, or the unit can't be read or written (dmesg says more): {by_hand}"
        )),
    }
}

/// Whether the magic number of ext4 is missing (0xef53, 56 bytes into the superblock at 1024).
fn has_no_ext4(order: &Stack) -> bool {
    let read = || -> io::Result<[u8; 4096]> {
        let mut head = [0; 4096]; // whole blocks
        File::open(&order.file)?.read_exact(&mut head)?;
        Ok(head)
    };
    read().is_ok_and(|head| head[1024 + 56..][..2] != [0x53, 0xef])
}

/// Removes all that lies on the file, and what is mounted on it.
fn down(order: &Stack) -> Result<(), Failure> {
    let limit = if order.dead { DEAD_MAX } else { BUSY_MAX };
    let failed = |error: io::Error| Failure::runtime(format!("/proc/self/mountinfo: {error}"));
    let all = loops::on(&order.file);
    for device in &all {
        let over = mounts::all().map_err(failed)?;
        for mount in over.iter().rev().filter(|mount| mount.is_of(device)) {
            take_off(mount, limit)?;
        }
    }
    for device in &all {
        detach(device, &order.file);
    }
    let over = mounts::all().map_err(failed)?;
    for mount in over.iter().rev().filter(|mount| mount.at == order.file) {
        if unmount(&mount.at, UnmountFlags::empty()).is_err() {
            let _ = unmount(&mount.at, UnmountFlags::DETACH);
        }
    }
    Ok(())
}

/// Unmounts an ext4. Programs that use it are waited for; then they lose it.
fn take_off(mount: &Mount, limit: Duration) -> Result<(), Failure> {
    let at = mount.at.display();
    let start = Instant::now();
    let mut is_said = false;
    loop {
        match unmount(&mount.at, UnmountFlags::empty()) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) if start.elapsed() < limit => {
                if !is_said && limit == BUSY_MAX {
                    say!(
                        "gateway: {at} is in use: waiting up to {} s ('fuser -vm {at}' shows by whom)",
                        limit.as_secs()
                    );
                }
                is_said = true;
                thread::sleep(AGAIN);
            }
            Err(Errno::BUSY) => break,
            Err(error) => return Err(Failure::runtime(format!("umount {at}: {error}"))),
        }
    }
    if limit == BUSY_MAX {
        say!(
            "gateway: {at} is still in use: it is written out and taken away; what its users write from now on is lost"
        );
        // No later write reaches the target, and all earlier ones do.
        if let Ok(folder) = File::open(&mount.at) {
            let _ = rustix::fs::syncfs(&folder);
        }
    }
    unmount(&mount.at, UnmountFlags::DETACH)
        .map_err(|error| Failure::runtime(format!("umount {at}: {error}")))
}

fn detach(device: &Path, file: &Path) {
    let start = Instant::now();
    loop {
        if !loops::is_on(device, file) {
            return;
        }
        loops::clear(device);
        if start.elapsed() >= DEAD_MAX {
            let name = device.file_name().unwrap_or_default().to_string_lossy();
            say!(
                "gateway: {} stays until the last program that uses it has ended ('grep -l {name} /proc/[0-9]*/mountinfo' shows in which \
                 mounts, 'fuser -v {0}' who has it open)",
                device.display()
            );
            return;
        }
        thread::sleep(AGAIN);
    }
}
