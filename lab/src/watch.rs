//! What a server costs in a window: CPU and switches from /proc, send queues sampled by sock_diag. Begun
//! before the window, ended after it.

use crate::cpu::{self, Core, Usage};
use crate::error::{LabError, Result};
use crate::metrics::Values;
use crate::peers::Running;
use crate::sockets::{Queues, Sockets};
use crate::stats::percentile;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between two samples of the send queues: they cost the clients' core a millisecond each.
const SAMPLE_PAUSE: Duration = Duration::from_millis(100);

/// A window that was begun.
pub struct Watch<'a> {
    server: &'a Running,
    usage: Usage,
    core: Core,
    sampler: Option<Sampler>,
    start: Instant,
}

/// What clients got in the window, to which costs are related.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Responses that ended.
    pub responses: u64,
}

struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Result<Vec<Queues>>>,
}

impl<'a> Watch<'a> {
    /// Begins; with `sockets` the send queues are sampled, too.
    pub fn begin(server: &'a Running, sockets: Option<&Arc<Sockets>>) -> Result<Self> {
        let sampler = sockets.map(|sockets| Sampler::start(sockets.clone(), server));
        Ok(Self {
            server,
            usage: cpu::usage(server.pid())?,
            core: cpu::core(server.core)?,
            sampler,
            start: Instant::now(),
        })
    }

    /// Ends it: the server's figures, related to the work that was done.
    pub fn end(self, work: impl FnOnce(f64) -> Work) -> Result<Values> {
        let elapsed_s = self.start.elapsed().as_secs_f64();
        let spent = cpu::usage(self.server.pid())?.since(&self.usage);
        let core = cpu::core(self.server.core)?;
        let stolen_s = core.stolen_s - self.core.stolen_s;
        let mut values = Values::from([
            ("server_core_share", spent.used_s / elapsed_s),
            (
                "server_waited_share",
                (spent.waited_s + stolen_s) / elapsed_s,
            ),
            (
                "switches_per_s",
                (spent.voluntary + spent.involuntary) as f64 / elapsed_s,
            ),
        ]);
        let work = work(elapsed_s);
        let gb = work.body_bytes as f64 / 1e9;
        if work.body_bytes > 0 {
            values.insert("goodput_bytes_per_s", work.body_bytes as f64 / elapsed_s);
            values.insert("cpu_s_per_gb", spent.used_s / gb);
            values.insert(
                "softirq_s_per_gb",
                (core.softirq_s - self.core.softirq_s) / gb,
            );
            values.insert("voluntary_per_gb", spent.voluntary as f64 / gb);
            values.insert("involuntary_per_gb", spent.involuntary as f64 / gb);
        }
        if work.responses > 0 {
            let responses = work.responses as f64;
            values.insert("requests_per_s", responses / elapsed_s);
            values.insert("cpu_us_per_request", spent.used_s * 1e6 / responses);
        }
        if let Some(sampler) = self.sampler {
            add_queues(&mut values, &sampler.stop()?);
        }
        Ok(values)
    }
}

impl Sampler {
    fn start(sockets: Arc<Sockets>, server: &Running) -> Self {
        let (stop, stopped) = channel();
        let address = server.address;
        let thread = std::thread::spawn(move || {
            let mut samples = Vec::new();
            while stopped.recv_timeout(SAMPLE_PAUSE) == Err(RecvTimeoutError::Timeout) {
                samples.push(sockets.queues(address.ip(), address.port())?);
            }
            Ok(samples)
        });
        Self { stop, thread }
    }

    fn stop(self) -> Result<Vec<Queues>> {
        let _ = self.stop.send(()); // its end was an error, which join gives
        let joined = self.thread.join();
        joined.map_err(|_| LabError::Setup("the sampler of send queues panicked".into()))?
    }
}

fn add_queues(values: &mut Values, samples: &[Queues]) {
    let mut queued: Vec<u64> = samples.iter().map(|sample| sample.queued_bytes).collect();
    queued.sort_unstable();
    let Some(p99) = percentile(&queued, 99.0) else {
        return;
    };
    let mean = queued.iter().sum::<u64>() as f64 / queued.len() as f64;
    values.insert("send_queue_mean_bytes", mean);
    values.insert("send_queue_p99_bytes", p99 as f64);
    let connections: usize = samples.iter().map(|sample| sample.connections).sum();
    if connections > 0 {
        let unsent: u64 = samples.iter().map(|sample| sample.unsent_bytes).sum();
        values.insert(
            "unsent_per_connection_bytes",
            unsent as f64 / connections as f64,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_mean_percentile_and_bytes_of_a_connection() {
        let sample = |connections, queued_bytes, unsent_bytes| Queues {
            connections,
            queued_bytes,
            unsent_bytes,
            congestion_controls: Vec::new(),
        };
        let mut values = Values::new();
        add_queues(&mut values, &[sample(1, 100, 40), sample(3, 300, 80)]);
        assert_eq!(values["send_queue_mean_bytes"], 200.0);
        assert_eq!(values["send_queue_p99_bytes"], 300.0);
        assert_eq!(values["unsent_per_connection_bytes"], 30.0);
        add_queues(&mut values, &[]);
        assert_eq!(values.len(), 3, "no sample says nothing");
    }
}
