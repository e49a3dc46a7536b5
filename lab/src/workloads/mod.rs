//! What the clients do, and what they saw: a file for each kind.

mod after;
mod downloads;
mod idle;
mod listing;
pub mod profile;
mod swarm;

pub use downloads::Downloads;
pub use idle::Idle;
pub use listing::Listing;
pub use swarm::{Act, Deed, Swarm};

use crate::arena::Arena;
use crate::metrics::Values;
use crate::peers::{Contender, Running};
use ackpace_lab_base::error::{LabError, Result};
use ackpace_lab_swarm::load::Load;
use std::time::Duration;

/// What the clients do.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Whole files again and again at full speed.
    Downloads(Downloads),
    /// A big directory again and again.
    Listing(Listing),
    /// Connections that ask once and then stay open.
    Idle(Idle),
    /// Clients of the swarm.
    Swarm(Swarm),
}

/// Length of the two parts of a round.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Load before the window.
    pub warm_up: Duration,
    /// What is measured.
    pub window: Duration,
}

/// What a round gave.
pub struct Seen {
    /// Figures, by the keys of `metrics::all`.
    pub values: Values,
    /// Everything else that is worth keeping.
    pub detail: serde_json::Value,
}

impl Workload {
    /// Connections that a server must hold at once.
    pub fn connections(&self) -> usize {
        match self {
            Self::Downloads(downloads) => downloads.connections,
            Self::Listing(listing) => listing.clients,
            Self::Idle(idle) => idle.connections,
            Self::Swarm(swarm) => swarm.connections(),
        }
    }

    /// Whether rounds check all bytes, so that nothing has to be compared before them.
    pub fn checks_itself(&self) -> bool {
        matches!(self, Self::Swarm(_))
    }

    /// Compares what the server sends with what it should, once before the rounds.
    ///
    /// # Errors
    /// The first wrong byte, name or length.
    pub fn verify(&self, server: &Running) -> Result<()> {
        match self {
            Self::Downloads(downloads) => downloads.verify(server),
            Self::Listing(listing) => listing.verify(server),
            Self::Idle(idle) => idle.verify(server),
            Self::Swarm(_) => Ok(()), // checks every byte of every round
        }
    }

    /// One round with a server that was just started, which it ends.
    pub fn run(
        &self,
        contender: &Contender,
        server: Running,
        arena: &Arena,
        pace: Pace,
    ) -> Result<Seen> {
        match self {
            Self::Downloads(downloads) => downloads.run(server, arena, pace),
            Self::Listing(listing) => listing.run(contender, server, arena, pace),
            Self::Idle(idle) => idle.run(server, arena, pace),
            Self::Swarm(swarm) => swarm.run(server, arena, pace),
        }
    }
}

/// Checks the congestion control of the load's connections. A server that is busy may be late with
/// them: the load goes on until it is not.
fn check_congestion_control(load: &mut Load, server: &Running, arena: &Arena) -> Result<()> {
    for _ in 0..200 {
        if arena.congestion_control_checked(server)? {
            return Ok(());
        }
        load.run_for(Duration::from_millis(20))?;
    }
    let what = "has no connection: congestion control unchecked";
    Err(LabError::contender(&server.name, what))
}

/// Takes the group's peak and the memory before the end, and ends the server; gives what it wrote.
fn finish(server: Running, values: &mut Values) -> Result<String> {
    if let Some(kills @ 1..) = server.group.oom_kills() {
        // A master that starts its workers anew would go on as if nothing had happened.
        let what =
            format!("needs more memory than its limit: the kernel ended {kills} of its processes");
        return Err(LabError::contender(&server.name, what));
    }
    if let Some(peak_bytes) = server.group.memory_peak_bytes() {
        values.set("memory_peak_bytes", peak_bytes as f64);
    }
    let resident_bytes = crate::cpu::resident_bytes(server.pid())?;
    if values.get("resident_bytes").is_none() {
        values.set("resident_bytes", resident_bytes as f64);
    }
    server.stop()
}
