//! Clients of NFS version 3: connections with several READs of one length under way, at a common rate or as fast as they are
//! answered.

mod calls;
mod conn;
mod load;
mod serving;
mod tcp;
mod walk;
mod writer;
mod writes;

pub use writes::Writes;

use super::{RoundResult, RoundTimes};
use crate::corpus::Set;
use crate::peers::Running;
use crate::scrape::Unit;
use crate::testbed::Testbed;
use crate::watch::{Watch, Work};
use ackpace_lab_base::content::Tag;
use ackpace_lab_base::error::Result;
use calls::Blocking;
use load::Load;
use serving::Serving;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Bytes of each file that are compared before the rounds.
const VERIFIED_BYTES: u64 = 4 << 20;
/// Length of these READs; no multiple of a block.
const VERIFIED_READ_BYTES: u32 = 50_000;

/// Length of the READs that warm a cache.
const WARMING_READ_BYTES: u32 = 256 << 10;
/// Time limit for one pass of them.
const WARMING_MAX: Duration = Duration::from_secs(60);

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
    /// So often each file is read from begin to end before, by a connection of its own at a time.
    pub warm_passes: u32,
    /// Each connection reads its file once and then nothing: the window ends with the last one. There is no warm-up.
    pub is_once: bool,
    /// The clients' address on an emulated network.
    pub source: Option<Ipv4Addr>,
    /// The goodput is compared with that of one TCP connection from this address of an emulated network.
    pub compared_with: Option<Ipv4Addr>,
}

/// The order of a connection's READs.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadOrder {
    /// At any multiple of their length.
    Anywhere,
    /// From the begin to the end, again and again.
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
    /// The address that clients bind.
    pub source: Option<Ipv4Addr>,
}

impl Server {
    fn of(running: &Running, source: Option<Ipv4Addr>) -> Self {
        let port = running.kind.mount_port(running.address.port());
        Self {
            name: running.name.clone(),
            nfs: running.address,
            mount: SocketAddr::new(running.address.ip(), port),
            source,
        }
    }
}

impl Reads {
    pub(super) fn verify(&self, running: &Running) -> Result<()> {
        let server = Server::of(running, self.source);
        let top = Blocking::connect(&server, server.mount)?.mount()?;
        let mut client = Blocking::connect(&server, server.nfs)?;
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

    /// Reads each file once, as fast as it comes.
    fn warming(&self) -> Self {
        Self {
            connections: self.of.list().len(),
            len_bytes: WARMING_READ_BYTES,
            order: ReadOrder::Onwards { among: 1 },
            rate_bytes_per_s: None,
            is_once: true,
            ..self.clone()
        }
    }

    pub(super) fn run(
        &self,
        running: Running,
        testbed: &Testbed,
        times: RoundTimes,
    ) -> Result<RoundResult> {
        let server = Server::of(&running, self.source);
        for _ in 0..self.warm_passes {
            let pass = self.warming();
            testbed
                .in_clients_network(|| Load::start(&server, &pass))?
                .run_for(WARMING_MAX)?;
        }
        let mut load = testbed.in_clients_network(|| Load::start(&server, self))?;
        if !self.is_once {
            load.run_for(times.warm_up)?;
        }
        testbed.congestion_control_checked(&running)?;
        let unit = Unit::take(testbed)?;
        let serving = Serving::begin(testbed)?;
        let watch = Watch::begin(&running, &testbed.instruments, false)?;
        let counts = load.run_for(times.window)?;
        let mut values = watch.end()?.values(Work {
            body_bytes: counts.body_bytes,
            responses: counts.responses,
        });
        values.set_some("serving_s_per_gb", serving.end(counts.body_bytes)?);
        Unit::add(unit, Unit::take(testbed)?, &mut values);
        values.set("load_core_share", counts.load_cpu_s / counts.elapsed_s);
        values.set("responses", counts.responses as f64);
        values.set("completion_p50_us", counts.read_p50_us as f64);
        values.set("completion_p99_us", counts.read_p99_us as f64);
        if let Some(rate) = self.rate_bytes_per_s {
            let asked_bytes = rate as f64 * counts.elapsed_s;
            values.set("demand_met_mean", counts.body_bytes as f64 / asked_bytes);
        }
        if let (Some(from), Some(wan)) = (self.compared_with, &testbed.instruments.wan) {
            let tcp_bytes_per_s = tcp::rate_bytes_per_s(wan, from, counts.body_bytes)?;
            let goodput_bytes_per_s = counts.body_bytes as f64 / counts.elapsed_s;
            values.set("tcp_bytes_per_s", tcp_bytes_per_s);
            values.set("goodput_over_tcp", goodput_bytes_per_s / tcp_bytes_per_s);
        }
        drop(load); // a draining server would wait for it
        super::finish(running, testbed, &mut values)?;
        if self.warm_passes > 0 {
            let peak = values.get("memory_peak_bytes");
            let hot_bytes = self.of.len_bytes() as f64;
            values.set_some("memory_over_hot", peak.map(|peak| peak / hot_bytes));
        }
        let detail = serde_json::json!({ "counts": counts });
        Ok(RoundResult { values, detail })
    }
}
