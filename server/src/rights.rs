//! A right of root that the process gives up (capabilities(7)).

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities,
};

use crate::options::ServeOptions;

/// Gives up CAP_FSETID if NFS clients may write. With it the kernel leaves the set-user-ID and set-group-ID bits of a file that this
/// process writes, whoever the client is. To be called before other threads start, since each has its own rights.
///
/// # Errors
/// As capset(2), which only a filter of system calls refuses.
pub fn give_up(options: &ServeOptions) -> io::Result<()> {
    if options.nfs_options.is_writable() {
        give_up_set_id_bits()?;
    }
    Ok(())
}

fn give_up_set_id_bits() -> rustix::io::Result<()> {
    let right = CapabilitySet::FSETID;
    let mut sets = capabilities(None)?;
    // First, while CAP_SETPCAP is there: without that no program that this one starts gets the right, either.
    match remove_capability_from_bounding_set(right) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    sets.effective -= right;
    sets.permitted -= right;
    sets.inheritable -= right;
    set_capabilities(None, sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_is_gone_and_the_others_stay() {
        // A thread of its own: the others keep what they have.
        let checked = std::thread::spawn(|| {
            let before = capabilities(None).expect("its own");
            give_up_set_id_bits().expect("giving up is always allowed");
            let after = capabilities(None).expect("its own");
            let right = CapabilitySet::FSETID;
            assert_eq!(after.effective, before.effective - right);
            assert_eq!(after.permitted, before.permitted - right);
            assert!(!after.inheritable.contains(right));
        });
        checked.join().expect("no panic");
    }
}
