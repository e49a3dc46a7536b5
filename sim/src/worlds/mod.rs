//! Worlds in which the machines run without a kernel: what would have been a measurement of hours is a
//! table that is the same on every machine.

pub mod delivery;
pub mod hostile;
pub mod sending;
mod socket;
