//! Connections that move: each trap of TCP_REPAIR, on the loopback of a network namespace. Needs root and a build with BPF.

mod repair;
mod world;
