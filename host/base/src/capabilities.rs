//! The rights of this process (capabilities(7)): what it has, and giving up all that it does not use any more.

use rustix::thread::{self, CapabilitySets};

pub use rustix::thread::CapabilitySet;

use crate::failure::Failure;

/// Whether this thread has these.
pub fn has(wanted: CapabilitySet) -> bool {
    thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
}

/// Keeps these of the capabilities that the thread has, and nothing else, also for programs that it would start. To be
/// called before other threads start, since each has its own.
///
/// # Errors
/// As capset(2) and prctl(2).
pub fn keep_only(kept: CapabilitySet) -> Result<(), Failure> {
    let kept = || -> rustix::io::Result<()> {
        let kept = thread::capabilities(None)?.effective & kept;
        thread::set_no_new_privs(true)?;
        let sets = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        };
        thread::set_capabilities(None, sets)
    };
    kept().map_err(|error| Failure::runtime(format!("capabilities: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_gone() {
        // A thread of its own: the others keep what they have.
        let checked = std::thread::spawn(|| {
            keep_only(CapabilitySet::BPF).expect("giving up is always allowed");
            let left = thread::capabilities(None).expect("its own").permitted;
            assert!(CapabilitySet::BPF.contains(left), "{left:?}");
        });
        checked.join().expect("no panic");
    }
}
