//! What a killed run leaves: cgroups, and the folder of an emulated disk. All else disappears with its
//! processes.

use crate::cgroup;

/// Name of the emulated disk of a run.
pub const DISK: &str = "run";

/// Removes the leftovers and returns their names.
pub fn remove() -> Vec<String> {
    ackpace_lab_disk::clean(Some(DISK));
    cgroup::remove_leftovers()
}
