//! The clients' workloads and their results: a file for each kind.

mod after;
pub mod cluster;
mod downloads;
mod nfs;
pub mod profile;
mod swarm;

pub use cluster::Cluster;
pub use downloads::Downloads;
pub use nfs::{ReadOrder, Reads, Writes};
pub use swarm::{Event, Swarm, TimedEvent};

use crate::metrics::Values;
use crate::peers::Running;
use crate::testbed::Testbed;
use ackpace_lab_base::error::{LabError, Result};
use ackpace_lab_swarm::load::Load;
use std::time::Duration;

/// The clients' workload.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Repeated downloads of whole files at full speed.
    Downloads(Downloads),
    /// Clients of the swarm.
    Swarm(Swarm),
    /// Clients of several nodes, which it starts itself.
    Cluster(Cluster),
    /// READs by NFS.
    Nfs(Reads),
    /// WRITEs by NFS.
    NfsWrites(Writes),
}

/// Lengths of the two parts of a round.
#[derive(Clone, Copy, Debug)]
pub struct RoundTimes {
    /// Time under load before the window.
    pub warm_up: Duration,
    /// The measured window.
    pub window: Duration,
}

/// The results of a round.
pub struct RoundResult {
    /// Figures, by the keys of `metrics::all`.
    pub values: Values,
    /// Further results that are kept.
    pub detail: serde_json::Value,
}

impl Workload {
    /// Number of connections that a server must hold at once.
    pub fn connections(&self) -> usize {
        match self {
            Self::Downloads(downloads) => downloads.connections,
            Self::Swarm(swarm) => swarm.connections(),
            Self::Cluster(cluster) => cluster.connections(),
            Self::Nfs(reads) => reads.connections,
            Self::NfsWrites(writes) => writes.connections(),
        }
    }

    /// True if rounds check all bytes themselves, so that no check has to precede them.
    pub fn checks_itself(&self) -> bool {
        matches!(self, Self::Swarm(_) | Self::Cluster(_) | Self::NfsWrites(_))
    }

    /// Checks the server's answers once before the rounds.
    ///
    /// # Errors
    /// The first wrong byte, name or length.
    pub fn verify(&self, server: &Running, testbed: &Testbed) -> Result<()> {
        match self {
            Self::Downloads(downloads) => downloads.verify(server),
            Self::Nfs(reads) => testbed.in_clients_network(|| reads.verify(server)),
            // They check the bytes of each round.
            Self::Swarm(_) | Self::Cluster(_) | Self::NfsWrites(_) => Ok(()),
        }
    }

    /// Runs one round with a server that was just started, and ends the server.
    pub fn run(
        &self,
        server: Running,
        testbed: &Testbed,
        times: RoundTimes,
    ) -> Result<RoundResult> {
        match self {
            Self::Downloads(downloads) => downloads.run(server, testbed, times),
            Self::Swarm(swarm) => swarm.run(server, testbed, times),
            Self::Nfs(reads) => reads.run(server, testbed, times),
            Self::NfsWrites(writes) => writes.run(server, testbed, times),
            Self::Cluster(_) => Err(LabError::Setup("a cluster is no single server".into())),
        }
    }
}

/// Checks the congestion control of the load's connections. A busy server may accept them late, so the load
/// goes on until it has.
fn check_congestion_control(load: &mut Load, server: &Running, testbed: &Testbed) -> Result<()> {
    for _ in 0..200 {
        if testbed.congestion_control_checked(server)? {
            return Ok(());
        }
        load.run_for(Duration::from_millis(20))?;
    }
    let what = "has no connection: congestion control unchecked";
    Err(LabError::contender(&server.name, what))
}

/// Reads the group's peak and the memory before the end, and ends the server. What it fetched from an origin is known then.
fn finish(server: Running, testbed: &Testbed, values: &mut Values) -> Result<()> {
    if let Some(peak_bytes) = server.group.memory_peak_bytes() {
        values.set("memory_peak_bytes", peak_bytes as f64);
    }
    let resident_bytes = crate::cpu::resident_bytes(server.pid())?;
    values.set("resident_bytes", resident_bytes as f64);
    server.stop()?;
    match &testbed.instruments.origin {
        Some(origin) => origin.add(values),
        None => Ok(()),
    }
}
