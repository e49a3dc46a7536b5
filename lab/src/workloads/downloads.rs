//! Repeated downloads of whole files at full speed. Optionally a visitor beside them requests a small file that
//! is in memory.

use super::{RoundResult, RoundTimes, check_congestion_control};
use crate::corpus::Set;
use crate::peers::Running;
use crate::probe::Prober;
use crate::testbed::Testbed;
use crate::watch::{Watch, Work};
use ackpace_lab_base::error::Result;
use ackpace_lab_swarm::load::{Load, Spec};
use ackpace_lab_swarm::verify;
use std::time::Duration;

/// Time for which the visitor is measured before the downloads begin.
const IDLE_PROBE: Duration = Duration::from_millis(500);

/// Downloads at full speed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Downloads {
    /// The files: connection i downloads file i, modulo their number.
    pub of: Set,
    /// Number of concurrent connections.
    pub connections: usize,
    /// A file that a visitor requests again and again.
    pub visitor: Option<Set>,
}

impl Downloads {
    pub(super) fn verify(&self, server: &Running) -> Result<()> {
        let (path, len_bytes) = first(self.of);
        verify::download(&server.name, server.address, &path, len_bytes)
    }

    pub(super) fn run(
        &self,
        server: Running,
        testbed: &Testbed,
        times: RoundTimes,
    ) -> Result<RoundResult> {
        let mut visitor = self
            .visitor
            .map(|file| {
                let (path, len_bytes) = first(file);
                Prober::connect(&server.name, server.address, &path, len_bytes)
            })
            .transpose()?;
        let idle = visitor.as_mut().map(|visitor| visitor.run_for(IDLE_PROBE));
        let idle = idle.transpose()?;
        let files = self.of.list();
        let mut load = Load::start(Spec {
            who: server.name.clone(),
            address: server.address,
            paths: files.iter().map(|(path, _)| path.clone()).collect(),
            connections: self.connections,
            len_bytes: first(self.of).1,
            greeting: self.visitor.map(first),
        })?;
        load.run_for(times.warm_up)?;
        check_congestion_control(&mut load, &server, testbed)?;
        let visitor = visitor.map(Prober::start);
        // A sampler of queues would share the core with the visitor.
        let watch = Watch::begin(&server, &testbed.instruments, false)?;
        let tally = load.run_for(times.window)?;
        let mut values = watch.end()?.values(Work {
            body_bytes: tally.body_bytes,
            responses: tally.responses,
        });
        values.set("load_core_share", tally.load_cpu_s / tally.elapsed_s);
        values.set("jain", tally.fairness);
        values.set("responses", tally.responses as f64);
        values.set("reconnects", tally.reconnects as f64);
        let busy = visitor.map(|visitor| visitor.stop()).transpose()?;
        if let Some(busy) = &busy {
            values.set("probe_p50_us", busy.p50_us);
            values.set("probe_p99_us", busy.p99_us);
            values.set("probe_max_us", busy.max_us);
            values.set("probes", busy.count as f64);
        }
        if let Some(idle) = &idle {
            values.set("probe_idle_p50_us", idle.p50_us);
        }
        drop(load); // a draining server would wait for it
        super::finish(server, testbed, &mut values)?;
        let detail = serde_json::json!({ "tally": tally, "idle": idle, "busy": busy });
        Ok(RoundResult { values, detail })
    }
}

/// Path and length in bytes of the first file.
fn first(set: Set) -> (String, u64) {
    set.list().swap_remove(0)
}
