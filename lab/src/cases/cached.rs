//! A file that is in memory as a whole, downloaded at full speed: what a server costs when nothing
//! stands between memory and socket. The kernel does nearly all of the work, so parity is the aim.

use super::{Bench, check_congestion_control, progress, seconds};
use crate::corpus::BIG_LEN_BYTES;
use crate::cpu::Spent;
use crate::error::Result;
use crate::load::{Framing, Load, Spec, Tally};
use crate::pages;
use crate::peers::{Contender, Running};
use crate::report::{self, Limit, Row};
use crate::verify;

/// Connections at once.
const CONNECTIONS: [usize; 3] = [1, 20, 200];
/// Who takes part.
const CONTENDERS: [Contender; 3] = [Contender::Ackpace, Contender::Nginx, Contender::Lighttpd];
const PATH: &str = "/big.bin";

/// One contender in one round.
#[derive(Debug, serde::Serialize)]
pub struct Round {
    /// Connections at once.
    pub connections: usize,
    /// Number of the round.
    pub round: usize,
    /// Place in the order of the round.
    pub place: usize,
    /// Who.
    pub contender: Contender,
    /// Goodput.
    pub goodput_bytes_per_s: f64,
    /// CPU time of all processes of the server per 10^9 bytes of bodies.
    pub cpu_s_per_gb: f64,
    /// Share of its core that the server used: near 1 it is the bottleneck, as it shall be.
    pub server_core_share: f64,
    /// Share of the window in which the server's busiest thread was ready and others had its core.
    pub server_waited_share: f64,
    /// Share of its core that the load generator used.
    pub load_core_share: f64,
    /// What came.
    pub tally: Tally,
}

/// Runs all rounds.
pub fn run(bench: &Bench) -> Result<Vec<Round>> {
    for contender in bench.order(&CONTENDERS, 0) {
        progress(&format!(
            "cached: comparing every byte from {}",
            contender.name()
        ));
        let server = contender.start(&bench.world, &bench.site())?;
        verify::download(contender.name(), server.address, PATH, &bench.corpus.big())?;
        server.stop()?;
    }
    let _cached = pages::Pinned::new(&bench.corpus.big())?;
    let mut rounds = Vec::new();
    for connections in CONNECTIONS {
        for round in 0..bench.pace.rounds_cached {
            for (place, contender) in bench.order(&CONTENDERS, round).into_iter().enumerate() {
                let nth = round + 1;
                let of = bench.pace.rounds_cached;
                let name = contender.name();
                progress(&format!(
                    "cached: N = {connections}, round {nth} of {of}, {name}"
                ));
                let server = contender.start(&bench.world, &bench.site())?;
                let (tally, spent) = window(bench, &server, connections)?;
                server.stop()?;
                let gb = tally.body_bytes as f64 / 1e9;
                rounds.push(Round {
                    connections,
                    round,
                    place,
                    contender,
                    goodput_bytes_per_s: tally.goodput_bytes_per_s(),
                    cpu_s_per_gb: spent.used_s / gb,
                    server_core_share: spent.used_s / tally.elapsed_s,
                    server_waited_share: spent.waited_s / tally.elapsed_s,
                    load_core_share: tally.load_cpu_s / tally.elapsed_s,
                    tally,
                });
            }
        }
    }
    progress("");
    Ok(rounds)
}

/// Warm-up and one window; the server's CPU time of the window beside what came in it.
fn window(bench: &Bench, server: &Running, connections: usize) -> Result<(Tally, Spent)> {
    let mut load = Load::start(Spec {
        who: server.name().into(),
        address: server.address,
        paths: vec![PATH.into()],
        connections,
        framing: Framing::Length(BIG_LEN_BYTES),
        greeting: None,
    })?;
    load.run_for(seconds(bench.pace.warm_up_s))?;
    check_congestion_control(&mut load, server)?;
    let before = server.look()?;
    let tally = load.run_for(seconds(bench.pace.window_cached_s))?;
    Ok((tally, server.spent_since(&before)?))
}

/// How much strangers took of the servers' time.
pub fn disturbance(rounds: &[Round]) -> Option<f64> {
    let waited = rounds.iter().map(|r| (r.contender, r.server_waited_share));
    report::disturbance(&waited.collect::<Vec<_>>())
}

/// The lines of the report.
pub fn rows(rounds: &[Round]) -> Vec<Row> {
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let case = format!("cached, N = {connections}");
        let of = |who: Contender, value: fn(&Round) -> f64| -> Vec<f64> {
            let mine = rounds
                .iter()
                .filter(|r| r.connections == connections && r.contender == who);
            mine.map(value).collect()
        };
        for peer in [Contender::Nginx, Contender::Lighttpd] {
            let must = peer == Contender::Nginx;
            let goodput = |r: &Round| r.goodput_bytes_per_s / 1e9;
            let cpu = |r: &Round| r.cpu_s_per_gb;
            let ratio = |metric, value: fn(&Round) -> f64, limit: Limit| {
                let (ours, theirs) = (of(Contender::Ackpace, value), of(peer, value));
                let limit = if must { limit } else { Limit::None };
                Row::ratio(&case, metric, peer.name(), &ours, &theirs, limit)
            };
            let at_least = Limit::RatioAtLeast {
                median: 0.98,
                low_above: 0.95,
            };
            let at_most = Limit::RatioAtMost {
                median: 1.03,
                high_below: 1.06,
            };
            rows.push(ratio("goodput GB/s", goodput, at_least));
            rows.push(ratio("CPU-s/GB", cpu, at_most));
        }
    }
    rows.into_iter().flatten().collect()
}
