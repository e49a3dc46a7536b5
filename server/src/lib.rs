//! The server: shells that do I/O and decide nothing.

pub mod cli;
pub mod config;
pub mod failure;
pub mod help;
pub mod limits;
pub mod log;
pub mod options;
pub mod serve;
