//! `ackpace-lab clean`: removes what a run left that could not clean up itself (power loss, SIGKILL of
//! everything).
//!
//! Namespaces, mounts and servers disappear with the run's process; cgroups, and disks of other commands, can
//! stay.

use crate::{leftovers, lock};
use ackpace_lab_base::error::{LabError, Result};

/// Removes leftovers and returns their names.
///
/// # Errors
/// A run is active; nothing of it is touched.
pub fn run() -> Result<Vec<String>> {
    match lock::try_acquire(&lock::place())? {
        Err(holder) => Err(LabError::Setup(format!(
            "a run is under way ({holder}): end it first, it cleans up itself"
        ))),
        Ok(_lock) => {
            ackpace_lab_disk::clean(None);
            Ok(leftovers::remove())
        }
    }
}
