//! `ackpace-lab clean`: removes what a run left that ended without doing so (power, SIGKILL of everything).
//!
//! Namespaces, mounts, loop devices and servers go with the run's process; cgroups are what can stay.

use crate::error::{LabError, Result};
use crate::{cgroup, lock};

/// Removes leftovers and gives their names.
///
/// # Errors
/// A run is under way: nothing of it is touched.
pub fn run() -> Result<Vec<String>> {
    match lock::try_acquire(&lock::place())? {
        Err(holder) => Err(LabError::Setup(format!(
            "a run is under way ({holder}): end it first, it cleans up itself"
        ))),
        Ok(_lock) => Ok(cgroup::remove_leftovers()),
    }
}
