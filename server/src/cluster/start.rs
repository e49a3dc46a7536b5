//! How the thread of a node starts.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ackpace_wire::cluster::Load;

use super::{Cluster, Key};
use crate::options::Peer;

/// Tells how busy this node is.
pub type Busy = Box<dyn Fn() -> Load + Send>;

/// Starts the thread, which lives as long as the process.
pub fn start(
    _cluster: Arc<Cluster>,
    _key: &Key,
    _peers: &[Peer],
    _listener: OwnedFd,
    _busy: Busy,
) -> io::Result<()> {
    Ok(())
}
