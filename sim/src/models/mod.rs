//! Disks, flash devices, links and TCP connections as state machines. The caller submits work with the
//! current time and gets back the time at which it completes.

pub mod array;
pub mod disk;
#[cfg(test)]
mod disk_tests;
pub mod flash;
pub mod link;
pub mod rto;
pub mod tcp;
