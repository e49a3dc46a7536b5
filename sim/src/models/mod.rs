//! Devices and paths as state machines: ask with the time, get the time of the answer.

pub mod array;
pub mod closed;
pub mod disk;
#[cfg(test)]
mod disk_tests;
pub mod flash;
pub mod link;
