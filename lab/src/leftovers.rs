//! What a killed run leaves: cgroups, and the folder of an emulated disk. All else disappears with its
//! processes.

use crate::cgroup;

/// Name of the emulated disk of a run.
pub const DISK: &str = "run";
/// Nodes that have a disk of their own each.
const NODES: usize = 4;

/// Name of the emulated disk of a node.
pub fn disk(node: usize) -> String {
    format!("{DISK}-{node}")
}

/// Removes the leftovers and returns their names.
pub fn remove() -> Vec<String> {
    ackpace_lab_disk::clean(Some(DISK));
    (0..NODES).for_each(|node| ackpace_lab_disk::clean(Some(&disk(node))));
    cgroup::remove_leftovers()
}
