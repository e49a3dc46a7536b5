//! Before the first process is started: what has to be there, what was left, and the FUSE file.

use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ackpace_host_base::failure::Failure;
use ackpace_host_base::lock::RUN_DIR;
use ackpace_host_base::say;
use ackpace_wire::iscsi::Address;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::MountFlags;

use super::child::Step;
use super::messages::Unit;
use super::{loops, mounts};

/// Bytes of a block: a loop device can have those of a page. More: the unit is refused.
const BLOCK_BYTES_MAX: u32 = 4096;
/// As mount(8) shows it.
const TYPE: &str = "fuse.ackpace";

/// Two mounts of one unit would destroy it. A target's name is unique in the world (RFC 7143 section 4.2.7.1), so the lock is by name and
/// number, whatever the host is called. Both may be longer than a file's name.
pub fn unit_lock(unit: &Address) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (&unit.target, unit.lun).hash(&mut hasher);
    Path::new(RUN_DIR).join(format!("gateway-{:016x}.lock", hasher.finish()))
}

/// What allocates memory for this process and those that it starts must not wait until the file system has written something, which
/// waits for them.
pub fn set_io_flusher() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        say!(
            "gateway: PR_SET_IO_FLUSHER: {error}: without CAP_SYS_RESOURCE (the unit file gives it) a machine that is short of memory \
             may stall while the gateway connects to the target"
        );
    }
}

/// The OOM killer spares this process and those that it starts: the mount ends with them, and their memory is small and fixed. The unit
/// file says the same.
pub fn set_oom_score() {
    let file = "/proc/self/oom_score_adj";
    if let Err(error) = fs::write(file, "-1000") {
        say!(
            "gateway: {file}: {error}: without CAP_SYS_RESOURCE (the unit file gives it) the OOM killer may end the gateway, and the \
             mount with it"
        );
    }
}

/// Removes what a supervisor has left that was killed.
///
/// # Errors
/// It can't be removed.
pub fn clear(file: &Path) -> Result<(), Failure> {
    if loops::on(file).is_empty() && !mounts::is_mounted(file) {
        return Ok(());
    }
    say!("gateway: removing what an instance has left that was killed");
    let mut step = Step::down(file, true)?;
    loop {
        let mut fds = [PollFd::from_borrowed_fd(step.fd(), PollFlags::IN)];
        let _ = poll(&mut fds, None);
        if let Some(ended) = step.ended() {
            return ended.map(|_| ());
        }
    }
}

/// Opens /dev/fuse and mounts it on the file. The kernel's first question waits for the answerer; nobody waits for its answer.
///
/// # Errors
/// FUSE is missing, or may not be used.
pub fn mount_fuse(file: &Path) -> Result<OwnedFd, Failure> {
    let failed = |error: std::io::Error| Failure::runtime(format!("{}: {error}", file.display()));
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let fuse = options
        .clone()
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/fuse");
    let fuse = fuse.map_err(|error| {
        Failure::operator(format!(
            "/dev/fuse: {error}: the gateway needs FUSE (modprobe fuse; in a container --device /dev/fuse)"
        ))
    })?;
    let created = options
        .clone()
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file);
    drop(created.map_err(failed)?);
    let data = format!(
        "fd={},rootmode=100000,user_id=0,group_id=0",
        fuse.as_raw_fd()
    );
    let data = std::ffi::CString::new(data).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("ackpace-gateway", file, TYPE, flags, &*data).map_err(|error| {
        Failure::operator(format!(
            "mounting FUSE on {}: {error}: the gateway needs CAP_SYS_ADMIN, and FUSE in the kernel",
            file.display()
        ))
    })?;
    Ok(fuse.into())
}

/// Whether it can be mounted.
///
/// # Errors
/// Its blocks are too long.
pub fn check(unit: &Unit) -> Result<(), Failure> {
    if unit.block_bytes > BLOCK_BYTES_MAX {
        return Err(Failure::operator(format!(
            "the unit has blocks of {} bytes, and ext4 on a loop device takes up to {BLOCK_BYTES_MAX}: make it with smaller ones at the \
             target",
            unit.block_bytes
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_has_one_lock_whatever_its_host_is_called() {
        let lock = |url: &str| unit_lock(&url.parse().expect("an address"));
        let one = lock("iscsi://127.0.0.1/iqn.2026-01.org.example:disk/1");
        assert_eq!(
            one,
            lock("iscsi://localhost:3261/IQN.2026-01.org.example:disk/1")
        );
        assert_ne!(
            one,
            lock("iscsi://127.0.0.1/iqn.2026-01.org.example:disk/2")
        );
        assert_ne!(
            one,
            lock("iscsi://127.0.0.1/iqn.2026-01.org.example:disc/1")
        );
    }
}
