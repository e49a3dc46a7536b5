//! Connections that move: each trap of TCP_REPAIR, on the loopback of a network namespace, and moves between nodes. Needs root and a
//! build with BPF.

mod client;
mod example;
mod hostile;
mod moving;
mod node;
mod repair;
#[path = "../switch/world.rs"]
#[allow(dead_code, reason = "the tests of the switch use more of it")]
mod segment;
mod world;
