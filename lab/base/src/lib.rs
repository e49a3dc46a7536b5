//! What the rooms of the lab share.
//!
//! - To have files of any size without writing them, and to know of any wrong byte where it came from: [`content`].
//! - To run a thread that is on time: [`punctual`].
//! - To hold files in memory, to drop them from it, and to look what is there: [`pages`].
//! - To use a program that may not be installed: [`packages`].
//! - To compare samples without assumptions about their noise: [`stats`].
//! - To say what failed, where, and what to do about it: [`error`].
//!
//! Nothing here knows of disks, networks, clients or servers. Linux only.

pub mod content;
pub mod error;
pub mod packages;
pub mod pages;
pub mod punctual;
pub mod stats;
