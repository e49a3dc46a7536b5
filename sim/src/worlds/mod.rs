//! Simulated worlds that drive the state machines without a kernel. What would be a measurement of hours becomes a
//! table that is the same on every machine.
//!
//! Each world that measures has the same three types in its module: a `World` is the scenario and its seed, a `Run` is
//! one execution of it, and an `Outcome` is what was measured. `World::run` leads from the first to the last.
//!
//! | module | what is simulated | question |
//! |---|---|---|
//! | [`sending`] | clients at their own rates, files in memory | how many wake-ups does sending take? |
//! | [`delivery`] | clients, a disk, a page cache, faults | who gets what the disk can deliver? |
//! | [`reading`] | clients that read at a pace of their own, perhaps a disk | does the worker estimate their rates, and who gets what? |
//! | [`send_memory`] | connections that share the send memory | who gets which share? |
//! | [`cluster`] | nodes with CPU, disk and cache, and what connects them | which node serves what, and what does a hand-off gain? |
//! | [`hostile`] | messages in any order, from the bytes of an input | does any input break a law? |
//! | [`handoff`] | nodes that hand each other live connections, and all that may befall them | do two ever send at a time, does a connection ever hang? |
//! | [`soak`] | all of `hostile` and `delivery`, drawn by a seed | does any seed break a law? |

pub mod cluster;
pub mod delivery;
mod dice;
pub mod handoff;
pub mod hostile;
mod laws;
pub mod reading;
mod response;
pub mod send_memory;
pub mod sending;
mod shell;
pub mod soak;
mod socket;
mod store;
mod tcp_socket;
