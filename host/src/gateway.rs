//! `gateway`: a logical unit of an iSCSI target as a mounted ext4, whose blocks pass through one FUSE file. The server learns there
//! which blocks change, and reads payload from the target itself.
//!
//! Three kinds of processes of this program, because each would hang in another one's place
//! ([decision 38](../../docs/decisions/0038-a-file-system-on-an-iscsi-target.md)):
//! - the `supervisor` has /dev/fuse open, mounts the file, starts the others, and greets servers (`door`). It never touches the
//!   file system;
//! - the `answerer` answers the kernel from the target (`tasks`, `link`). It has no rights, fixed memory and no cache;
//! - one for each step that waits for answers (`stack`): loop device, mkfs, mount, umount.

use ackpace_host_base::failure::Failure;

use self::options::Gateway;

mod answerer;
mod child;
mod door;
mod link;
mod loops;
mod memory;
mod messages;
mod mounts;
mod notify;
pub mod options;
mod stack;
mod start;
mod supervisor;
mod tasks;

pub use self::answerer::run as answer;
pub use self::stack::run as step;

/// Mounts the unit and answers until SIGTERM or SIGINT.
///
/// # Errors
/// The options are wrong, something is missing, or the target can't be reached at the start.
pub fn run(options: &Gateway) -> Result<(), Failure> {
    supervisor::run(options)
}
