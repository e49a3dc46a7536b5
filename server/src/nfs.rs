//! NFS version 3 and MOUNT version 3 for what is served (RFC 1813).
//!
//! [`served`] carries out calls: [`mod@mount`] and [`procedures`] with [`lookup`], [`reading`] and [`listing`]. [`call`] finds the file of a
//! handle in a [`tree`], and checks it against the [`exports`] and the rights of the [`caller`].

mod attributes;
mod call;
mod caller;
mod exports;
mod fail;
mod handles;
mod identity;
mod key;
mod listing;
mod lookup;
mod mount;
mod outcome;
mod procedures;
mod reading;
mod search;
pub mod served;
#[cfg(test)]
mod testing;
mod tree;
