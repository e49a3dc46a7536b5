//! NFS version 3 and MOUNT version 3 for what is served (RFC 1813).
//!
//! Beside each worker is a thread ([`thread`]) with connections of its own ([`conn`]), each with a machine
//! ([`ackpace_core::nfs`]). To the disks such a thread is one more worker.
//!
//! Exports that may be changed take a [`broker`], which has the clients' rights: [`changing`] is the tree's, [`mod@writing`] the files' with
//! [`writers`]; [`repeats`] has replies to repeated calls.
//!
//! Where an origin is served in place of a directory, [`mod@origin`] carries out calls, [`asking`] has their questions asked, and [`errand`] has them go on.
//!
//! [`served`] carries out calls on files: [`mod@mount`] and [`procedures`] with [`lookup`], [`reading`] and [`listing`]. [`call`] finds the file of a
//! handle in a [`tree`], and checks it against the [`exports`] and the rights of the [`caller`].

mod alone;
mod asking;
mod attributes;
mod broker;
mod call;
mod caller;
mod changing;
mod conn;
mod conns;
mod errand;
mod exports;
mod eyes;
mod fail;
mod handles;
mod hands;
mod identity;
mod input;
mod key;
mod listing;
mod lookup;
mod means;
mod mount;
mod origin;
mod outcome;
mod procedures;
mod reading;
mod refusing;
mod repeats;
mod room;
mod search;
mod sending;
mod served;
mod start;
#[cfg(test)]
mod testing;
mod thread;
mod tree;
mod writers;
mod writing;

pub use self::broker::Broker;
pub use self::served::{FILES_BYTES, FILES_DESCRIPTORS, Served, WRITES_BYTES, WRITES_DESCRIPTORS};
pub use self::start::{Nfs, connection_bytes, readers_of};
