//! Where an instance keeps what outlives it, one set for each network namespace: a lock, a socket for the status, and the
//! map with the records of changed sockets, pinned in a BPF file system.
//!
//! The records themselves lie in the sockets, so they go away with these. The pin keeps them when the process is killed:
//! by it the next start, or `--restore`, finds them again.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ackpace_host_base::lock::RUN_DIR;
use rustix::mount::MountFlags;

use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::failure::Failure;

/// Where BPF objects are pinned.
pub const BPF_DIR: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` (linux/magic.h).
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;
/// Part of the name of the pin: another layout of `struct touched` gets another number.
const LAYOUT: u32 = 1;

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
        Ok(Place {
            lock: Path::new(RUN_DIR).join(format!("tune-{space}.lock")),
            socket: Path::new(RUN_DIR).join(format!("tune-{space}.sock")),
            pin: Path::new(BPF_DIR).join(format!("ackpace-host-{space}-v{LAYOUT}")),
        })
    }
}

/// Provides the BPF file system for the pin: mounts it where the system has none.
///
/// # Errors
/// It can't be mounted, or what is mounted there would vanish with this process, and the records with it.
pub fn ensure_bpf_fs() -> Result<(), Failure> {
    if is_bpf_fs() {
        return Ok(());
    }
    if has_mounts_of_its_own() {
        return Err(Failure::operator(format!(
            "no BPF file system at {BPF_DIR}, and this mount namespace ends with the process (`ip netns exec` makes such \
             ones): after a kill nothing could be undone. Use `nsenter --net=/run/netns/NAME ackpace-host ...`"
        )));
    }
    let options = CString::new("mode=700").ok();
    rustix::mount::mount("bpf", BPF_DIR, "bpf", MountFlags::empty(), options.as_deref()).map_err(|error| {
        Failure::operator(format!(
            "no BPF file system at {BPF_DIR}, and it can't be mounted ({error}): type 'mount -t bpf bpf {BPF_DIR}'"
        ))
    })
}

/// Whether [`ensure_bpf_fs`] has a chance where none is mounted.
pub fn may_mount() -> bool {
    !has_mounts_of_its_own() && capabilities::has(CapabilitySet::SYS_ADMIN)
}

/// Whether one is mounted.
pub fn is_bpf_fs() -> bool {
    rustix::fs::statfs(BPF_DIR).is_ok_and(|kind| kind.f_type == BPF_FS_MAGIC)
}

fn has_mounts_of_its_own() -> bool {
    let space = |process: &str| {
        fs::metadata(format!("/proc/{process}/ns/mnt")).map(|meta| (meta.dev(), meta.ino()))
    };
    match (space("self"), space("1")) {
        (Ok(own), Ok(first)) => own != first,
        _ => false,
    }
}
