//! The flow switch in network namespaces; as root, skipped elsewhere.

mod ages;
mod checks;
mod cost;
mod guests;
mod moves;
mod outlives;
mod packets;
mod strays;
mod streams;
mod world;
