//! Pure policy: every decision of ackpace, without I/O, clock or threads.
//!
//! A decision lives in a [`Machine`]: evidence comes in by [`Machine::on`], orders go out by [`Machine::poll`]. The
//! shell that owns the machine executes each order at once and reports its result by `on`. Time is an argument. So the
//! server and a simulation drive the same file, and a test writes the time that it needs.
//!
//! Read [`worker`] first (one connection from accept to close), then [`send`] (which socket is given bytes, and when)
//! and [`disk`] (which read is next). Their shared vocabulary is in [`conn`]; every bound, with its reason, is in
//! [`limits`].
//!
//! This crate is `no_std`: no clock, no thread and no randomly ordered map compiles here.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod addresses;
pub mod ahead;
pub mod balance;
pub mod blocks;
pub mod cache;
pub mod congestion;
pub mod conn;
pub mod disk;
pub mod handoff;
pub mod limits;
pub mod machine;
pub mod model;
pub mod nfs;
pub mod payload;
pub mod place;
pub mod prefetch;
pub mod rate;
pub mod residency;
pub mod response_cache;
pub mod send;
pub mod tier;
pub mod units;
pub mod upstream;
pub mod why;
pub mod worker;

pub use machine::Machine;
