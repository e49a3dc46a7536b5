//! Connections that request one small file and then stay open: the cost of an idle visitor.

use super::downloads::first;
use super::{RoundResult, RoundTimes};
use crate::corpus;
use crate::cpu;
use crate::metrics::Values;
use crate::peers::Running;
use crate::probe::Prober;
use crate::testbed::Testbed;
use crate::watch::{Watch, Work};
use ackpace_lab_base::error::{LabError, Result};
use ackpace_lab_swarm::verify;
use std::net::TcpStream;

/// Idle connections.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Idle {
    /// Number of connections.
    pub connections: usize,
}

impl Idle {
    pub(super) fn verify(&self, server: &Running) -> Result<()> {
        let (path, len_bytes) = first(corpus::PROBE);
        verify::download(&server.name, server.address, &path, len_bytes)
    }

    pub(super) fn run(
        &self,
        server: Running,
        testbed: &Testbed,
        times: RoundTimes,
    ) -> Result<RoundResult> {
        let (path, len_bytes) = first(corpus::PROBE);
        let mut visitor = Prober::connect(&server.name, server.address, &path, len_bytes)?;
        let before_bytes = cpu::resident_bytes(server.pid())?;
        let sockets = (0..self.connections)
            .map(|_| verify::ask_once(&server.name, server.address, &path, len_bytes))
            .collect::<Result<Vec<TcpStream>>>()?;
        std::thread::sleep(times.warm_up);
        let watch = Watch::begin(&server, &testbed.instruments, false)?;
        std::thread::sleep(times.window);
        let spent = watch.end()?.values(Work::default());
        let after_bytes = cpu::resident_bytes(server.pid())?;
        let probe = visitor.run_for(times.window)?;
        let grown_bytes = after_bytes.saturating_sub(before_bytes) as f64;
        let each_bytes = grown_bytes / self.connections as f64;
        let mut values = Values::default();
        values.set("resident_per_connection_bytes", each_bytes);
        values.set("resident_bytes", after_bytes as f64);
        values.set_some("idle_cpu_share", spent.get("server_core_share"));
        values.set_some("server_waited_share", spent.get("server_waited_share"));
        values.set("probe_p50_us", probe.p50_us);
        values.set("probe_p99_us", probe.p99_us);
        still_open(&server.name, &sockets)?;
        drop((sockets, visitor)); // a draining server would wait for them
        super::finish(server, &mut values)?;
        let detail = serde_json::json!({ "before_bytes": before_bytes, "after_bytes": after_bytes, "probe": probe });
        Ok(RoundResult { values, detail })
    }
}

/// Checks that the connections are open: on a server that closed them, idle clients would cost nothing.
fn still_open(who: &str, sockets: &[TcpStream]) -> Result<()> {
    let closed = sockets.iter().filter(|socket| {
        let quiet = socket
            .set_nonblocking(true)
            .and_then(|()| socket.peek(&mut [0]));
        !quiet.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    });
    match closed.count() {
        0 => Ok(()),
        some => Err(LabError::contender(
            who,
            format!("closed {some} of {} idle connections", sockets.len()),
        )),
    }
}
