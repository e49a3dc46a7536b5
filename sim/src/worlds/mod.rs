//! Simulated worlds that drive the state machines without a kernel. What would be a measurement of hours becomes a
//! table that is the same on every machine.

pub mod credit;
pub mod delivery;
pub mod hostile;
pub mod reading;
pub mod receiving;
pub mod send_memory;
pub mod sending;
pub mod soak;
mod socket;
