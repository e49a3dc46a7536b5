//! Connections that move between nodes of a cluster.

pub mod checks;
pub mod switch;
