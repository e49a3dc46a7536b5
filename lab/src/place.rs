//! Where an experiment happens, declared; `arena.rs` builds it.

use crate::corpus::Set;

/// Where it happens. Points with equal places share one.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
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
        /// Files that are in memory all the same.
        cached: &'static [&'static str],
    },
}

/// What is between clients and server.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// The loopback device of a network namespace of our own.
    Loopback,
}
