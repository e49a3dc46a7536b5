//! Where an experiment happens, declared; `arena.rs` builds it.

use crate::corpus::Set;
use ackpace_lab_wan::Topology;

/// Where it happens. Points with equal places share one.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Place {
    /// The files that are served.
    pub files: Vec<Set>,
    /// What they lie on.
    pub disk: Disk,
    /// What is between clients and server.
    pub network: Network,
    /// Memory of each contender, page cache included.
    pub memory_limit_bytes: Option<u64>,
}

impl Place {
    /// Whether both are the same place.
    pub fn is(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}") // it holds numbers and names only
    }

    /// Files in memory, clients behind emulated paths.
    pub fn wan(files: &[Set], topology: Topology) -> Self {
        Self {
            network: Network::Wan {
                topology,
                receive: Receive::ServerCore,
            },
            ..Self::memory(files)
        }
    }

    /// Files in memory, clients on the same machine.
    pub fn memory(files: &[Set]) -> Self {
        Self {
            files: files.to_vec(),
            disk: Disk::Memory,
            network: Network::Loopback,
            memory_limit_bytes: None,
        }
    }
}

/// What the files lie on.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Disk {
    /// The page cache: read and locked before the first round.
    Memory,
    /// ext4 on a loop device that is throttled by cgroup. It has no seeks.
    Throttled {
        /// Read rate for the server.
        read_bytes_per_s: u64,
        /// Read-ahead of the device.
        read_ahead_kb: u64,
        /// Sets of files that are in memory all the same.
        cached: &'static [&'static str],
    },
    /// ext4 on an emulated disk with seeks, zones and a queue.
    Emulated {
        /// Name of its profile, as in lab/disk/profiles/.
        profile: &'static str,
        /// Read-ahead of the device.
        read_ahead_kb: u64,
        /// Sets of files that are in memory all the same.
        cached: &'static [&'static str],
    },
}

/// What is between clients and server.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// The loopback device of a network namespace of our own.
    Loopback,
    /// Emulated paths between two network namespaces.
    Wan {
        /// Links and paths, and TCP's settings at both ends.
        topology: Topology,
        /// Where the server's packets are received: on its own core, as by a network card of its own,
        /// or on the clients' core, so that only what the server itself does is on its core.
        receive: Receive,
    },
}

/// Which core does the kernel's part of receiving for the server (RPS).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// The server's.
    ServerCore,
    /// The clients'.
    ClientsCore,
}
