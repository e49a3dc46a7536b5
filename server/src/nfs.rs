//! NFS version 3 and MOUNT version 3 for what is served (RFC 1813): [`served`] carries out calls.
//!
//! Beside each worker is a thread ([`thread`]) with connections of its own ([`conn`]), each with a machine
//! ([`ackpace_core::nfs`]). To the disks such a thread is one more worker.

mod conn;
mod conns;
mod hands;
mod input;
mod sending;
pub mod served;
mod start;
mod tally;
mod thread;

pub use self::served::{Outcome, Served};
pub use self::start::{Nfs, connection_bytes, readers_of, tallies};
pub use self::tally::{Ended, Path, Tally};
