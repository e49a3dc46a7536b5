//! The two logs: of requests ([`AccessLog`]) and of diagnostics ([`Diagnostics`]).
//!
//! Both leave the process through a [`pump`]: a bounded queue and a thread of its own, since a write to a full disk, a
//! stuck pipe or a stopped terminal may block for ever, and a worker may not. Lines that do not fit are dropped and
//! counted.

mod access;
mod diagnostics;
mod losses;
pub mod pump;
mod seldom;

pub use access::{AccessHandle, AccessLog, BRIEF_HELD_BYTES, Record, RequestText, check};
pub use diagnostics::{Diagnostics, DiagnosticsHandle};
pub use seldom::{Seldom, Topic};
