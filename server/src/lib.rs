//! The server: shells that do I/O and decide nothing.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "what is public is so for fuzz targets and tests; the documentation is built with private items"
)]

mod admin;
mod answers;
pub mod cli;
mod clock;
mod cluster;
pub mod config;
mod count;
mod descriptors;
mod disk;
mod divider;
mod doctor;
mod ending;
mod ends;
mod failure;
mod front;
mod gateway;
mod greeting;
mod help;
mod interest;
mod ledger;
pub mod limits;
mod listeners;
mod log;
mod lun;
pub mod mailbox;
mod memory;
mod mistyped;
mod moving;
mod named_paths;
mod needs;
mod nfs;
mod nfs_tally;
mod nfs_threads;
mod node;
mod notify;
mod options;
mod resolver;
pub mod response_cache;
mod rights;
mod sched;
mod serve;
mod shares;
mod signals;
mod sites;
mod socket_file;
mod source;
pub mod store;
mod tally;
mod tcp;
mod transport;
mod turns;
mod unit;
mod upstream;
mod worker;
