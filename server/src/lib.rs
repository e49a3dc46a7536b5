//! The server: shells that do I/O and decide nothing.

pub mod options;
