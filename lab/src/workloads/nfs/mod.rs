//! Clients of NFS version 3: connections with several READs of one length under way, at a common rate or as fast as they are
//! answered.

mod calls;
mod conn;
mod load;
mod walk;

use super::{RoundResult, RoundTimes};
use crate::corpus::Set;
use crate::peers::Running;
use crate::testbed::Testbed;
use crate::watch::{Watch, Work};
use ackpace_lab_base::content::Tag;
use ackpace_lab_base::error::Result;
use calls::Blocking;
use load::Load;
use std::net::SocketAddr;

/// Bytes of each file that are compared before the rounds.
const VERIFIED_BYTES: u64 = 4 << 20;
/// Length of these READs; no multiple of a block.
const VERIFIED_READ_BYTES: u32 = 50_000;

/// READs of a set of files.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Reads {
    /// The files: connection i reads file i, modulo their number. Their length is a multiple of that of a READ, or what is behind
    /// the last whole one is not read.
    pub of: Set,
    /// Number of connections.
    pub connections: usize,
    /// READs of each connection that are under way at a time.
    pub under_way: usize,
    /// Length of a READ.
    pub len_bytes: u32,
    /// Which part of the file comes next.
    pub order: ReadOrder,
    /// Payload of all connections together, if the server can; without it as much as it can.
    pub rate_bytes_per_s: Option<u64>,
}

/// The order of a connection's READs.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadOrder {
    /// At any multiple of their length.
    Anywhere,
    /// From the begin to the end, again and again.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of a target that is far away"))]
    Onwards {
        /// So many neighbours come in random order.
        among: u32,
    },
}

/// Where a contender serves NFS.
pub struct Server {
    /// Name of the contender.
    pub name: String,
    /// NFS.
    pub nfs: SocketAddr,
    /// MOUNT.
    pub mount: SocketAddr,
}

impl Server {
    fn of(running: &Running) -> Self {
        let port = running.kind.mount_port(running.address.port());
        Self {
            name: running.name.clone(),
            nfs: running.address,
            mount: SocketAddr::new(running.address.ip(), port),
        }
    }
}

impl Reads {
    pub(super) fn verify(&self, running: &Running) -> Result<()> {
        let server = Server::of(running);
        let top = Blocking::connect(&server.name, server.mount)?.mount()?;
        let mut client = Blocking::connect(&server.name, server.nfs)?;
        for (path, len_bytes) in self.of.list() {
            let file = client.look_up(&top, path.trim_start_matches('/'))?;
            let mut at_bytes = 0;
            while at_bytes < len_bytes.min(VERIFIED_BYTES) {
                let bytes = client.read(&file, at_bytes, VERIFIED_READ_BYTES)?;
                load::compare(&server.name, Tag::of(&path), at_bytes, &bytes)?;
                at_bytes += (bytes.len() as u64).max(1);
            }
        }
        Ok(())
    }

    pub(super) fn run(
        &self,
        running: Running,
        testbed: &Testbed,
        times: RoundTimes,
    ) -> Result<RoundResult> {
        let mut load = Load::start(&Server::of(&running), self)?;
        load.run_for(times.warm_up)?;
        testbed.congestion_control_checked(&running)?;
        let watch = Watch::begin(&running, &testbed.instruments, false)?;
        let counts = load.run_for(times.window)?;
        let mut values = watch.end()?.values(Work {
            body_bytes: counts.body_bytes,
            responses: counts.responses,
        });
        values.set("load_core_share", counts.load_cpu_s / counts.elapsed_s);
        values.set("responses", counts.responses as f64);
        values.set("completion_p50_us", counts.read_p50_us as f64);
        values.set("completion_p99_us", counts.read_p99_us as f64);
        if let Some(rate) = self.rate_bytes_per_s {
            let asked_bytes = rate as f64 * counts.elapsed_s;
            values.set("demand_met_mean", counts.body_bytes as f64 / asked_bytes);
        }
        drop(load); // a draining server would wait for it
        super::finish(running, testbed, &mut values)?;
        let detail = serde_json::json!({ "counts": counts });
        Ok(RoundResult { values, detail })
    }
}
