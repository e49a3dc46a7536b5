//! The rights with which a thread works: user, group and groups of the caller, verified.

use ackpace_host_base::capabilities::CapabilitySet;
use ackpace_wire::files::User;
use rustix::fs::Gid;
use rustix::thread;

/// What root may do with files that others may not: the kernel's CAP_FS_SET. It takes these from a thread whose user for files
/// (setfsuid(2)) stops being root, and gives them back.
pub const FILE_RIGHTS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD);

/// Has this thread touch files as this user from now on, and no other thread. setfsuid(2) does not tell whether it worked, so all is
/// read back.
///
/// # Errors
/// It did not work. The thread may have any of the rights by which it was asked before, and is not to be used.
pub fn become_user(user: &User) -> Result<(), String> {
    if [user.uid, user.gid]
        .iter()
        .chain(&user.gids)
        .any(|id| *id == u32::MAX)
    {
        return Err("4294967295 is no user and no group".to_owned());
    }
    let gids: Vec<Gid> = user.gids.iter().map(|gid| Gid::from_raw(*gid)).collect();
    // The system call sets those of this thread alone.
    thread::set_thread_groups(&gids).map_err(|error| format!("setgroups: {error}"))?;
    set_group(user.gid);
    set_user(user.uid);
    let failed = |what: &str| {
        let (uid, gid) = (user.uid, user.gid);
        Err(format!(
            "{what}: this thread can't be user {uid} of group {gid}"
        ))
    };
    if set_user(u32::MAX) != user.uid {
        return failed("setfsuid");
    }
    if set_group(u32::MAX) != user.gid {
        return failed("setfsgid");
    }
    let mut told = rustix::process::getgroups().map_err(|error| format!("getgroups: {error}"))?;
    let mut asked = gids;
    // The kernel sorts them.
    told.sort_unstable_by_key(|gid| gid.as_raw());
    asked.sort_unstable_by_key(|gid| gid.as_raw());
    if told != asked {
        return failed("setgroups");
    }
    if user.uid != 0 {
        let sets = thread::capabilities(None).map_err(|error| error.to_string())?;
        if sets.effective.intersects(FILE_RIGHTS) {
            return failed("capabilities of root are left");
        }
    }
    Ok(())
}

/// Sets the user for files, which takes no effect for u32::MAX. Returns the one before.
fn set_user(uid: u32) -> u32 {
    // SAFETY: it takes a number, and changes this thread alone.
    unsafe { libc::setfsuid(uid) as u32 }
}

fn set_group(gid: u32) -> u32 {
    // SAFETY: likewise.
    unsafe { libc::setfsgid(gid) as u32 }
}
