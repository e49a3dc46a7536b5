//! Connections that move between nodes of a cluster.

pub mod switch;
