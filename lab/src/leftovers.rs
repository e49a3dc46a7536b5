//! What a run that ended without doing so leaves: cgroups, and the folder of an emulated disk. All else
//! goes with its processes.

use crate::cgroup;

/// Name of the emulated disk of a run.
pub const DISK: &str = "run";

/// Removes it and gives the names of what was there.
pub fn remove() -> Vec<String> {
    ackpace_lab_disk::clean(Some(DISK));
    cgroup::remove_leftovers()
}
