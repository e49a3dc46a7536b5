//! What ackpace does for other programs of this machine. The only privileged program, and the only one with BPF; the
//! server runs without it.
//!
//! `tune` divides one send memory among the TCP sockets of any program, by the same policy as the server does for its own
//! ([`ackpace_share`]). Read [`tuner`] first: it is pure, and says what a pass over the sockets leads to.
//! A process of its own makes them ([`passes`], [`kernel`]), [`tune`] drives both, and [`status`] tells how it stands. Whatever is
//! changed is undone at the end; the record for that lies in the sockets ([`place`]).
//!
//! `gateway` mounts the ext4 of an iSCSI target through a FUSE file ([`gateway`]).
//!
//! `files` changes files with the rights of users for a server that has none ([`files`]).
//!
//! `receive` tells what a busy machine does to processes that receive, and can help: [`ackpace_receive`].

pub mod cgroups;
pub mod cli;
pub mod doctor;
pub mod files;
pub mod gateway;
pub mod handoff;
pub mod journal;
pub mod kernel;
pub mod matching;
pub mod options;
pub mod passes;
pub mod place;
pub mod snapshot;
pub mod status;
pub mod tally;
pub mod tune;
pub mod tuner;
