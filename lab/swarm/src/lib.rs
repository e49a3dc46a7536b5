//! Thousands of HTTP clients in one process that check every byte they receive; and a load generator that
//! checks none.
//!
//! - [`workload::Workload`] describes the clients: their pace, habits, objects and arrivals.
//! - [`run`] runs a workload against a server, as the subcommand `swarm` of a program that includes [`Args`]. It checks
//!   the status, lengths and body of each answer against the path (`ackpace_lab_base::content`).
//! - Another process steers it and reads its figures: it reads lines of JSON that are [`command::SwarmCommand`]s, and
//!   prints lines of JSON that are [`summary::Line`]s.
//! - [`load::Load`] saturates a server at the least cost to the client: keep-alive downloads whose bodies the
//!   kernel discards.
//! - [`verify`] fetches and checks a single answer; [`head`] parses the head of an answer.
//!
//! Inside, `setup.rs` prepares a workload, `fleet.rs` runs its threads, and `worker/` is such a thread. Independent parts
//! are `objects.rs` (chooses the next object), `draw.rs`, `wheel.rs`, `histogram.rs` and `tally.rs`.
//!
//! Linux only: epoll, sched_setaffinity(2), `MSG_TRUNC`.

mod cli;
pub mod command;
pub mod draw;
mod fleet;
pub mod head;
pub mod histogram;
pub mod load;
mod objects;
mod setup;
pub mod summary;
mod tally;
pub mod verify;
mod wheel;
mod worker;
pub mod workload;

#[cfg(test)]
mod tests;

pub use cli::{Args, run};
