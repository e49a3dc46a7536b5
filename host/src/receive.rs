//! `receive`: what a busy machine does to processes that receive by TCP (Wu and Crawford), for every program.
//!
//! A process that loses its core while it owns its socket's lock leaves segments without an answer until it is back, and
//! the sender's timer may expire meanwhile. [`watch`] measures how long segments wait; [`rows`] is what the kernel counts,
//! [`report`] what is made of it, [`page`] how it is told. [`advise`] tells what of the machine's settings bears on that
//! ([`facts`]), and changes nothing. [`guard`] gives such a process an extra turn, which it pays back ([`turns`]);
//! [`exact`] does so by a scheduler of its own; [`guard_common`] is what both share.

pub mod advise;
pub mod counters;
pub mod events;
pub mod exact;
pub mod facts;
pub mod guard;
pub mod guard_common;
pub mod ledger;
pub mod page;
pub mod priority;
pub mod report;
pub mod rows;
pub mod tracing;
pub mod turns;
pub mod watch;
