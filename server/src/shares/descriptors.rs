//! Descriptors: how many are wanted at worst, how many are needed, and what is lost with fewer.

use ackpace_core::limits::CACHED_OPEN_MAX;

use super::Shares;
use crate::cluster;
use crate::config::{self, Layer};
use crate::limits::{
    CONNECTIONS_COMMON, DESCRIPTORS_OWN, DESCRIPTORS_PER_WORKER, DESCRIPTORS_START,
};
use crate::nfs::{FILES_DESCRIPTORS, WRITES_DESCRIPTORS};
use crate::options::{FollowSymlinks, ServeOptions};
use crate::store::closing::CLOSING_MAX;

/// How many descriptors this process may have at most; `None`: any number.
pub fn allowed() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum
}

impl Shares {
    /// Descriptors that the process opens at worst: a connection with a response needs up to three (socket, file, and the
    /// file past the page cache).
    pub fn descriptors(&self) -> u64 {
        let open_files = u64::from(self.workers) * CACHED_OPEN_MAX as u64;
        let own = DESCRIPTORS_OWN + self.of_cluster() + self.of_nfs();
        3 * self.connections() + open_files + CLOSING_MAX as u64 + own
    }

    /// Those of a cluster: its thread's, and the listener of each worker for other nodes.
    fn of_cluster(&self) -> u64 {
        match self.nodes {
            0 => 0,
            nodes => cluster::descriptors(nodes) + u64::from(self.workers),
        }
    }

    /// Those of NFS: its threads', and for each connection its socket and files that it reads; and those that are open for handles; 0
    /// without it.
    fn of_nfs(&self) -> u64 {
        let connections = 3 * u64::from(self.nfs_connections);
        let writes = if self.nfs_writes {
            WRITES_DESCRIPTORS
        } else {
            0
        };
        match self.nfs_connections {
            0 => 0,
            _ => {
                FILES_DESCRIPTORS
                    + writes
                    + u64::from(self.workers) * (DESCRIPTORS_PER_WORKER + connections)
            }
        }
    }

    /// How many downloads at once have enough descriptors where the process may have `allowed` (`None`: any number); `None`:
    /// all connections.
    pub fn downloads(&self, allowed: Option<u64>) -> Option<u64> {
        let wanted = self.descriptors();
        let allowed = allowed.filter(|allowed| *allowed < wanted)?;
        Some(allowed.saturating_sub(wanted - 3 * self.connections()) / 3)
    }

    /// What is lost where the process may have `allowed` only (`None`: any number), and the cure. The default of
    /// `connections_max` asks for no certain number of connections, so it loses nothing as long as there is enough for
    /// [`CONNECTIONS_COMMON`] downloads of each worker.
    pub fn lost_descriptors(&self, given: &Layer, allowed: Option<u64>) -> Option<String> {
        let (wanted, downloads) = (self.descriptors(), self.downloads(allowed)?);
        let allowed = allowed?;
        let is_asked_for = config::is_given(given, "connections_max");
        if !is_asked_for && downloads >= CONNECTIONS_COMMON * u64::from(self.workers) {
            return None;
        }
        let beyond = match downloads {
            0 => "With a few downloads".to_owned(),
            enough => format!("Beyond some {enough} downloads"),
        };
        Some(format!(
            "lost: descriptors: {allowed} are allowed (ulimit -Hn), and {} connections want {wanted} at worst. {beyond}, clients \
             wait or get 503; set LimitNOFILE={wanted} in the unit (or ulimit -n), or lower connections_max",
            self.connections(),
        ))
    }

    /// A line of `ackpace doctor`: what is allowed, and for what it is enough.
    pub fn tell_descriptors(&self, given: &Layer, allowed: Option<u64>) -> String {
        if let Some(lost) = self.lost_descriptors(given, allowed) {
            return lost;
        }
        let (wanted, connections) = (self.descriptors(), self.connections());
        let told = allowed.map_or("any number of".to_owned(), |allowed| allowed.to_string());
        match self.downloads(allowed) {
            None => format!(
                "ok: {told} descriptors are allowed (ulimit -Hn), enough for {connections} connections"
            ),
            Some(enough) => format!(
                "ok: {told} descriptors are allowed (ulimit -Hn), enough for some {enough} downloads at once; if you expect more, set \
                 LimitNOFILE={wanted} in the unit (or ulimit -n), which is enough for {connections}"
            ),
        }
    }

    /// Descriptors without which nothing is served: those of a start, three for one download, and `inherited` ones, which who
    /// started the process left open.
    pub fn descriptors_least(&self, options: &ServeOptions, inherited: u64) -> u64 {
        let listeners = options.listen.len() as u64;
        let allowed_roots = options.allow_roots.len() as u64;
        let anywhere = u64::from(options.follow_symlinks == FollowSymlinks::All);
        let each_worker = DESCRIPTORS_PER_WORKER + listeners;
        let start = DESCRIPTORS_START + inherited + anywhere + allowed_roots;
        let of_nfs = match options.nfs_options.nfs.len() as u64 {
            0 => 0,
            places => u64::from(self.workers) * (DESCRIPTORS_PER_WORKER + places),
        };
        start + u64::from(self.workers) * each_worker + self.of_cluster() + of_nfs + 3
    }

    /// Whether the process may have enough of them to start; `allowed` is `None` for any number, `inherited` are open already
    /// besides the standard ones.
    /// Errors: One sentence with how many are needed, and how to get them.
    pub fn check_descriptors(
        &self,
        options: &ServeOptions,
        allowed: Option<u64>,
        inherited: u64,
    ) -> Result<(), String> {
        let (least, wanted) = (
            self.descriptors_least(options, inherited),
            self.descriptors() + inherited,
        );
        let Some(allowed) = allowed.filter(|allowed| *allowed < least) else {
            return Ok(());
        };
        Err(format!(
            "descriptors: {allowed} are allowed (ulimit -Hn), and a start with workers = {} needs {least}; {} connections want {wanted} \
             at worst. Set LimitNOFILE={wanted} in the unit (or ulimit -n {wanted} before the start)",
            self.workers,
            self.connections(),
        ))
    }
}
