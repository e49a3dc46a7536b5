//! The programs that take part.

/// A program that serves files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Ours.
    Ackpace,
    /// nginx, one worker.
    Nginx,
    /// lighttpd.
    Lighttpd,
    /// Apache with a process for each connection: the blocking baseline.
    ApachePrefork,
    /// h2o.
    H2o,
    /// Ours before the place's origin.
    Gateway,
    /// nginx before the place's origin, one worker.
    NginxGateway,
    /// Varnish before the place's origin.
    Varnish,
    /// Ours, as the nodes of a cluster.
    Cluster,
    /// HAProxy before single servers of ours.
    Haproxy,
    /// nginx before a single server of ours, one worker.
    NginxProxy,
    /// Ours by NFS.
    Nfs,
    /// NFS-Ganesha.
    Ganesha,
    /// The lab's own server of NFS, which copies payload.
    PlainNfs,
}

impl Kind {
    /// True for the server of this project, which takes options of its command line.
    pub fn is_ours(self) -> bool {
        matches!(
            self,
            Self::Ackpace | Self::Gateway | Self::Cluster | Self::Nfs
        )
    }

    /// Where it answers MOUNT if it serves NFS at this port.
    pub fn mount_port(self, nfs_port: u16) -> u16 {
        match self {
            Self::Ganesha => second_port(nfs_port), // it can't share one
            _ => nfs_port,
        }
    }
}

/// A port for what else a contender serves: ports of contenders begin at 8001, one for each start.
pub fn second_port(port: u16) -> u16 {
    port.wrapping_add(20_000)
}
