//! Foundations shared by the crates of the lab.
//!
//! - [`content`]: generated files of any size, in which each wrong byte can be traced to its origin.
//! - [`punctual`]: threads that wake on time.
//! - [`pages`]: files held in the page cache, dropped from it, or inspected in it.
//! - [`stats`]: comparisons of samples without assumptions about their noise.
//! - [`error`]: errors that say what failed, where, and what to do about it.
//!
//! Nothing here knows of disks, networks, clients or servers. Linux only.

pub mod content;
pub mod error;
pub mod pages;
pub mod punctual;
pub mod stats;
