//! The server: shells that do I/O and decide nothing.

pub mod cli;
pub mod clock;
pub mod config;
pub mod desk;
pub mod disk;
pub mod disks;
pub mod failure;
pub mod front;
pub mod greeting;
pub mod help;
pub mod hot;
pub mod limits;
pub mod log;
pub mod mailbox;
pub mod memory;
pub mod options;
pub mod resolver;
pub mod sched;
pub mod serve;
pub mod shares;
pub mod store;
pub mod tcp;
pub mod turns;
pub mod worker;
