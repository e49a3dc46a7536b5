//! A place declares the files, disk, network and limits of an experiment; `testbed.rs` builds it.

use crate::corpus::Set;
use ackpace_lab_wan::Topology;
use std::net::Ipv4Addr;

/// The place of an experiment. Points with equal places share one.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Place {
    /// The files that are served.
    pub files: Vec<Set>,
    /// The storage below the files.
    pub disk: Disk,
    /// The network between clients and server.
    pub network: Network,
    /// Memory limit of each contender, page cache included.
    pub memory_limit_bytes: Option<u64>,
    /// Limit of what sockets hold, in a v1 group: other memory is not scarcer for it. A v2 group counts it as memory in any
    /// case, so there the memory limit bounds both.
    pub sockets_limit_bytes: Option<u64>,
    /// Where an origin of the same files listens, for contenders that are gateways: an address of the loopback or of a path of
    /// the WAN. `None`: there is no origin.
    pub origin: Option<Ipv4Addr>,
}

impl Place {
    /// True if both places are equal.
    pub fn is(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}") // it holds numbers and names only
    }

    /// A place with files in memory and clients behind emulated paths.
    pub fn wan(files: &[Set], topology: Topology) -> Self {
        Self {
            network: Network::Wan {
                topology,
                receive: Receive::ServerCore,
            },
            ..Self::memory(files)
        }
    }

    /// A place with files in memory and clients on the same machine.
    pub fn memory(files: &[Set]) -> Self {
        Self {
            files: files.to_vec(),
            disk: Disk::Memory,
            network: Network::Loopback,
            memory_limit_bytes: None,
            sockets_limit_bytes: None,
            origin: None,
        }
    }
}

/// The storage of the files.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Disk {
    /// The page cache: the files are read and locked in memory before the first round.
    Memory,
    /// ext4 on a loop device that is throttled by cgroup. It has no seeks.
    Throttled {
        /// Limit of the server's read rate.
        read_bytes_per_s: u64,
        /// Read-ahead of the device in KB.
        read_ahead_kb: u64,
        /// Sets of files that stay in memory nevertheless.
        cached: &'static [&'static str],
    },
    /// ext4 on an emulated disk with seeks, zones and a queue.
    Emulated {
        /// Name of its profile, from lab/disk/profiles/.
        profile: &'static str,
        /// Read-ahead of the device in KB.
        read_ahead_kb: u64,
        /// Sets of files that stay in memory nevertheless.
        cached: &'static [&'static str],
    },
    /// ext4 on an iSCSI target with a disk in memory. `ackpace-host gateway` mounts it for each contender anew, so it is cold.
    Target {
        /// Where the target is: an address of the loopback or of a path of the WAN.
        at: Ipv4Addr,
        /// Bytes of its disk.
        store_bytes: u64,
        /// Clients write to it.
        is_written: bool,
    },
}

/// The network between clients and server.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// The loopback device of a separate network namespace.
    Loopback,
    /// Emulated paths between two network namespaces.
    Wan {
        /// Links and paths, and TCP's settings at both ends.
        topology: Topology,
        /// The core that receives the server's packets. The server's own core models a network card of its own.
        /// With the clients' core, only the server's own work runs on the server's core.
        receive: Receive,
    },
}

/// The core on which the kernel processes packets received for the server (RPS).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// The server's core.
    ServerCore,
    /// The clients' core.
    ClientsCore,
}
