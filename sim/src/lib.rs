//! Models of what lies around a server, and worlds that drive its machines.
//!
//! Everything here is a pure function of its inputs: time comes as an argument, chance from a seeded
//! generator. The lab's emulators run the same models against the real kernel.
#![forbid(unsafe_code)]

pub mod models;
pub mod worlds;
