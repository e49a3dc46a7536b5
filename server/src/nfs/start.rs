//! How the threads start, and what they cost.

use std::io;
use std::sync::Arc;

use ackpace_core::limits as core;
use ackpace_core::nfs::READERS;

use super::conn::CONN_BYTES;
use super::conns::PLACE_BYTES;
use super::hands::Hands;
use super::served::Served;
use super::thread::{Given, Thread};
use crate::limits::{COPIED_BYTES_MAX, NFS_INPUT_BYTES_MAX};
use crate::listeners::Listener;
use crate::resolver::Inbox;
use crate::worker::Shared;

/// What NFS needs to start, in the order of its threads.
pub struct Nfs {
    pub served: Arc<Served>,
    pub listeners: Vec<Vec<Listener>>,
    /// Connections of a thread.
    pub connections: u32,
    pub send_timeout_us: u64,
    pub drain_timeout_us: u64,
}

impl Nfs {
    /// The threads, ready to run, each with its counters. `inboxes` are the ends of their queues of results; the first thread's
    /// number among those whom the disks answer is `first`.
    pub fn threads(
        self,
        first: usize,
        shared: &Arc<Shared>,
        inboxes: impl IntoIterator<Item = Inbox>,
    ) -> io::Result<Vec<Thread>> {
        Served::watch(&self.served)?;
        let mut threads = Vec::new();
        for (nth, (listeners, inbox)) in self.listeners.into_iter().zip(inboxes).enumerate() {
            let tally = shared.nfs.get(nth).map(Arc::clone).unwrap_or_default();
            let hands = Hands::new(
                (Arc::clone(shared), Arc::clone(&self.served), tally),
                (first + nth) as u16, // at most twice the workers
                self.send_timeout_us,
                COPIED_BYTES_MAX,
            );
            let given = Given {
                listeners,
                inbox,
                connections: self.connections,
                drain_timeout_us: self.drain_timeout_us,
            };
            threads.push(Thread::new(hands, given)?);
        }
        Ok(threads)
    }
}

/// Readers of so many connections, as mailboxes have places.
pub fn readers_of(connections: u32) -> u32 {
    connections * READERS as u32
}

/// Memory of a connection at worst, without its mailboxes: its machine, its replies, one of which may exceed the bound, input, and
/// what the disks know of its readers.
pub fn connection_bytes() -> u64 {
    let listing_bytes = u64::from(ackpace_wire::limits::NFS_LISTING_BYTES_MAX);
    let head_bytes = ackpace_wire::limits::RPC_HEAD_BYTES_MAX as u64;
    ackpace_core::nfs::CONNECTION_BYTES
        + CONN_BYTES
        + PLACE_BYTES
        + core::NFS_REPLIES_BYTES_MAX
        + listing_bytes
        + head_bytes
        + NFS_INPUT_BYTES_MAX as u64
        + READERS as u64 * (ackpace_core::disk::STREAM_BYTES + core::OBJECT_BYTES)
}
