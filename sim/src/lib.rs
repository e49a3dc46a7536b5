//! Models of the disks and links around a server, and simulated worlds that drive its state machines.
//!
//! Everything here is a pure function of its inputs: the caller passes the time, and randomness comes from a seeded
//! generator. The lab's emulators run the same models against the real kernel.
#![forbid(unsafe_code)]

pub mod models;
pub mod worlds;
