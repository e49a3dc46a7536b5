//! Thousands of HTTP clients in one process that check every byte they receive; and a load generator that
//! checks none.
//!
//! - [`workload::Workload`] describes the clients (their pace, habits, objects and arrivals), as TOML or in
//!   code.
//! - [`run`] runs a workload against a server. It is the subcommand `swarm` of a program that includes
//!   [`Args`]. It checks the status, lengths and body of each answer against the path
//!   (`ackpace_lab_base::content`), so the server needs files with that content: `--write-files` creates them.
//! - Another process can steer a run and read its figures. The swarm reads lines written by
//!   [`command::SwarmCommand`] (`--commands`), and prints lines of JSON that are [`summary::Line`]s
//!   (`--json -`).
//! - [`load::Load`] saturates a server at the least cost to the client: keep-alive downloads whose bodies the
//!   kernel discards.
//! - [`verify`] fetches and checks a single answer (whole downloads, listings); [`head`] parses the head of an
//!   answer.
//!
//! Inside, `check.rs` validates a workload, `setup.rs` prepares it, `fleet.rs` runs a thread for each core, and
//! `worker/` is such a thread. Independent parts are `objects.rs` (chooses the next object), `trace.rs`,
//! `draw.rs`, `wheel.rs`, `histogram.rs` and `tally.rs`. `files.rs` creates the files of a workload. `cli.rs`
//! is the command line, and `show.rs` its text for people.
//!
//! Linux only: epoll, sched_setaffinity(2), `MSG_TRUNC`.

mod check;
mod cli;
pub mod command;
mod draw;
mod files;
mod fleet;
pub mod head;
mod histogram;
pub mod load;
mod objects;
mod setup;
mod show;
pub mod summary;
mod tally;
mod trace;
pub mod verify;
mod wheel;
mod worker;
pub mod workload;

#[cfg(test)]
mod tests;

pub use cli::{Args, run};
