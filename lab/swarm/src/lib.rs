//! HTTP clients by the thousand in one process, who check every byte that they get; and a load generator that checks none.
//!
//! - To describe what clients do (their pace, habits, objects, arrivals): [`workload::Workload`], read from TOML or made in code.
//! - To run that against a server: [`run`], the command line `swarm` of the program that has [`Args`] among its own. It checks each
//!   answer's status, lengths and body against the path (`ackpace_lab_base::content`), so the server needs files of that content:
//!   `--write-files` makes them.
//! - To steer a run and to read its figures from another process: it takes lines that [`command::SwarmCommand`] writes (`--commands`), and
//!   says lines of JSON that are [`summary::Line`]s (`--json -`).
//! - To saturate a server at the least cost to the client: [`load::Load`], keep-alive downloads whose bodies the kernel discards.
//! - To get a single answer and to look at it: [`verify`] (whole downloads, listings), [`head`] (what an answer's head says).
//!
//! Below: `check.rs` says what a workload may ask for, `setup.rs` makes it ready, `fleet.rs` runs a thread for each core, `worker/` is
//! such a thread. Parts know nothing of each other: `objects.rs` (what is asked for next), `trace.rs`, `draw.rs`, `wheel.rs`,
//! `histogram.rs`, `tally.rs`. `files.rs` makes what a workload asks for. `cli.rs` is the command line, `show.rs` its text for people.
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
