//! Where an instance keeps what outlives it, one set for each network namespace: a lock, a socket for the status, and the
//! map with the records of changed sockets, pinned in a BPF file system.
//!
//! The records themselves lie in the sockets, so they go away with these. The pin keeps them when the process is killed:
//! by it the next start, or `--restore`, finds them again.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ackpace_host_base::lock::{self, Lock, RUN_DIR};
use rustix::fs::Access;
use rustix::mount::MountFlags;

use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::failure::Failure;

use crate::kernel::is_empty_record;

/// Where BPF objects are pinned.
pub const BPF_DIR: &str = "/sys/fs/bpf";
/// Where ours are: a folder that only root may enter.
const PIN_DIR: &str = "/sys/fs/bpf/ackpace-host";
/// `BPF_FS_MAGIC` (linux/magic.h).
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;
/// Mounts one in which only root may make anything.
pub const MOUNT: &str = "mount -t bpf -o mode=700 bpf /sys/fs/bpf";
/// Part of the name of the pin: another layout of `struct touched` gets another number.
const LAYOUT: u32 = 2;

/// The paths for this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Held by the instance that tunes.
    pub lock: PathBuf,
    /// Its status socket.
    pub socket: PathBuf,
    /// The records.
    pub pin: PathBuf,
}

impl Place {
    /// That of the namespace in which this process is.
    ///
    /// # Errors
    /// /proc is not there.
    pub fn here() -> Result<Place, Failure> {
        let space = fs::metadata("/proc/self/ns/net")
            .map_err(|error| Failure::runtime(format!("/proc/self/ns/net: {error}")))?
            .ino();
        Ok(Place::of(space))
    }

    /// That of the network namespace with this number.
    fn of(space: u64) -> Place {
        Place {
            lock: Path::new(RUN_DIR).join(format!("tune-{space}.lock")),
            socket: Path::new(RUN_DIR).join(format!("tune-{space}.sock")),
            pin: Path::new(PIN_DIR).join(format!("tune-{space}-v{LAYOUT}")),
        }
    }
}

/// Removes what killed instances have left in other namespaces, where nothing is left to undo: a record goes away with its socket, and
/// all sockets with their namespace.
pub fn clear_dead() {
    let entries = [RUN_DIR, PIN_DIR].map(fs::read_dir).into_iter().flatten();
    let spaces = entries.flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let digits = name.strip_prefix("tune-")?;
        let end = digits.find(|sign: char| !sign.is_ascii_digit())?;
        digits[..end].parse().ok()
    });
    for space in spaces.collect::<BTreeSet<u64>>() {
        let place = Place::of(space);
        // An instance that runs has the lock, and so has this one.
        let Ok(Some(_lock)) = Lock::take_free(&place.lock) else {
            continue;
        };
        if !place.pin.exists() || is_empty_record(&place.pin).unwrap_or(false) {
            for path in [&place.pin, &place.socket, &place.lock] {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Provides a folder for the pin that only this user may enter. Mounts the BPF file system where the system has none.
///
/// # Errors
/// It can't be mounted, or what is mounted there would vanish with this process, and the records with it. Or the folder is another
/// user's.
pub fn ensure_pin_folder() -> Result<(), Failure> {
    sees_records()?;
    if is_bpf_fs() {
        return lock::own_folder(Path::new(PIN_DIR));
    }
    let options = CString::new("mode=700").ok();
    rustix::mount::mount(
        "bpf",
        BPF_DIR,
        "bpf",
        MountFlags::empty(),
        options.as_deref(),
    )
    .map_err(|error| {
        Failure::operator(format!(
            "no BPF file system at {BPF_DIR}, and it can't be mounted ({error}): type '{MOUNT}'"
        ))
    })?;
    lock::own_folder(Path::new(PIN_DIR))
}

/// Refuses where records may be that are not seen from here, or would vanish with this process: there is no BPF file system, and the
/// mount namespace is not known to be the first one's.
///
/// # Errors
/// As above; what to do.
pub fn sees_records() -> Result<(), Failure> {
    if is_bpf_fs() || !has_mounts_of_its_own() {
        return Ok(());
    }
    Err(Failure::operator(format!(
        "no BPF file system at {BPF_DIR}, and this mount namespace may not be the machine's (`ip netns exec` makes a new one): \
         records of changed sockets that are kept elsewhere are not seen from it, and new ones would vanish with it. Use \
         `nsenter --net=/run/netns/NAME ackpace-host ...`; if the machine itself has none, mount it there first: '{MOUNT}'"
    )))
}

/// Whether [`ensure_pin_folder`] has a chance where none is mounted.
pub fn may_mount() -> bool {
    !has_mounts_of_its_own() && capabilities::has(CapabilitySet::SYS_ADMIN)
}

/// Whether this user may write to the folders of lock and record, or make them.
///
/// # Errors
/// Which one not.
pub fn may_write() -> Result<(), String> {
    let user = rustix::process::geteuid().as_raw();
    for path in [RUN_DIR, PIN_DIR].map(Path::new) {
        let owner = fs::symlink_metadata(path).map_or(user, |meta| meta.uid());
        if owner != user {
            return Err(format!("{} is user {owner}'s", path.display()));
        }
        let there = path.ancestors().find(|it| it.exists()).unwrap_or(path);
        rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| format!("{}: {error}", there.display()))?;
    }
    Ok(())
}

/// Whether one is mounted.
pub fn is_bpf_fs() -> bool {
    rustix::fs::statfs(BPF_DIR).is_ok_and(|kind| kind.f_type == BPF_FS_MAGIC)
}

/// Whether this mount namespace is another than that of the first process, or is not known to be the same.
fn has_mounts_of_its_own() -> bool {
    let space = |process: &str| {
        fs::metadata(format!("/proc/{process}/ns/mnt")).map(|meta| (meta.dev(), meta.ino()))
    };
    match (space("self"), space("1")) {
        (Ok(own), Ok(first)) => own != first,
        _ => true,
    }
}
