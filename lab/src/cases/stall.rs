//! Downloads that wait for a slow disk, and a visitor who wants a small file that is in memory. A
//! server whose loop reads from the disk itself lets the visitor wait for strangers' reads.

use super::{Bench, check_congestion_control, progress, seconds};
use crate::corpus::{self, COLD_FILES, COLD_LEN_BYTES, PROBE_LEN_BYTES};
use crate::cpu::Spent;
use crate::error::Result;
use crate::load::{Framing, Load, Spec, Tally};
use crate::pages;
use crate::peers::{Contender, Running, Site};
use crate::probe::{Latencies, Prober};
use crate::report::{self, Limit, Row};
use crate::throttle::{self, SlowDisk};
use crate::verify;

/// Read rate of the device for the server.
const DISK_BYTES_PER_S: u64 = 52_000_000;
/// Who takes part.
const CONTENDERS: [Contender; 3] = [Contender::Ackpace, Contender::Nginx, Contender::NginxAio];

const PROBE: &str = "/probe.bin";

/// A figure of one round.
type Value = fn(&Round) -> f64;

/// One contender in one round.
#[derive(Debug, serde::Serialize)]
pub struct Round {
    /// Number of the round.
    pub round: usize,
    /// Place in the order of the round.
    pub place: usize,
    /// Who.
    pub contender: Contender,
    /// The probe before the downloads begin: what the machine can do.
    pub idle: Latencies,
    /// The probe beside the downloads.
    pub busy: Latencies,
    /// Share of the window in which the server's busiest thread was ready and others had its core.
    pub server_waited_share: f64,
    /// Goodput of all downloads.
    pub goodput_bytes_per_s: f64,
    /// What came.
    pub tally: Tally,
}

/// All rounds and how the disk was made slow.
#[derive(Debug, serde::Serialize)]
pub struct Stall {
    /// Read rate allowed to the server.
    pub disk_bytes_per_s: u64,
    /// Read-ahead of the device.
    pub read_ahead_kb: u64,
    /// What throttles.
    pub throttle: &'static str,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// Runs all rounds.
pub fn run(bench: &Bench) -> Result<Stall> {
    corpus::mount_slow(&bench.corpus)?;
    let _cached = pages::Pinned::new(&bench.corpus.mount.join("probe.bin"))?;
    let _disk = pages::Pinned::new(&bench.corpus.image)?; // the disk below the loop device shall not be what is slow
    let disk = throttle::throttle(&bench.corpus.mount, DISK_BYTES_PER_S)?;
    for contender in bench.order(&CONTENDERS, 0) {
        progress(&format!(
            "stall: comparing every byte from {}",
            contender.name()
        ));
        drop_cold(bench)?;
        let server = start(bench, &disk, contender)?;
        let (path, file) = (
            format!("/{}", corpus::cold_name(0)),
            &bench.corpus.cold()[0],
        );
        verify::download(contender.name(), server.address, &path, file)?;
        server.stop()?;
    }
    let mut rounds = Vec::new();
    for round in 0..bench.pace.rounds_latency {
        for (place, contender) in bench.order(&CONTENDERS, round).into_iter().enumerate() {
            let (nth, of) = (round + 1, bench.pace.rounds_latency);
            progress(&format!("stall: round {nth} of {of}, {}", contender.name()));
            drop_cold(bench)?;
            let server = start(bench, &disk, contender)?;
            let (idle, busy, tally, spent) = window(bench, &server)?;
            server.stop()?;
            rounds.push(Round {
                round,
                place,
                contender,
                idle,
                busy,
                server_waited_share: spent.waited_s / tally.elapsed_s,
                goodput_bytes_per_s: tally.goodput_bytes_per_s(),
                tally,
            });
        }
    }
    progress("");
    Ok(Stall {
        disk_bytes_per_s: DISK_BYTES_PER_S,
        read_ahead_kb: disk.read_ahead_kb,
        throttle: disk.throttle,
        rounds,
    })
}

fn start(bench: &Bench, disk: &SlowDisk, contender: Contender) -> Result<Running> {
    let site = Site {
        root: &disk.mount,
        cgroup: Some(disk.cgroup()),
        ..bench.site()
    };
    contender.start(&bench.world, &site)
}

fn drop_cold(bench: &Bench) -> Result<()> {
    bench
        .corpus
        .cold()
        .iter()
        .try_for_each(|path| pages::drop_cached(path))
}

/// The probe alone, then beside the downloads.
fn window(bench: &Bench, server: &Running) -> Result<(Latencies, Latencies, Tally, Spent)> {
    let who = server.name();
    let mut visitor = Prober::connect(who, server.address, PROBE, PROBE_LEN_BYTES)?;
    let idle = visitor.run_for(seconds(bench.pace.warm_up_s))?;
    let mut load = Load::start(Spec {
        who: who.into(),
        address: server.address,
        paths: (0..COLD_FILES)
            .map(|nth| format!("/{}", corpus::cold_name(nth)))
            .collect(),
        connections: COLD_FILES,
        framing: Framing::Length(COLD_LEN_BYTES),
        greeting: Some((PROBE.into(), PROBE_LEN_BYTES)),
    })?;
    load.run_for(seconds(bench.pace.warm_up_s))?;
    check_congestion_control(&mut load, server)?;
    let before = server.look()?;
    let busy = visitor.start();
    let tally = load.run_for(seconds(bench.pace.window_latency_s))?;
    let spent = server.spent_since(&before)?;
    Ok((idle, busy.stop()?, tally, spent))
}

/// How much strangers took of the servers' time.
pub fn disturbance(stall: &Stall) -> Option<f64> {
    let waited = stall
        .rounds
        .iter()
        .map(|r| (r.contender, r.server_waited_share));
    report::disturbance(&waited.collect::<Vec<_>>())
}

/// The lines of the report.
pub fn rows(stall: &Stall) -> Vec<Row> {
    let case = "stall, 20 cold";
    let of = |who: Contender, value: Value| -> Vec<f64> {
        stall
            .rounds
            .iter()
            .filter(|r| r.contender == who)
            .map(value)
            .collect()
    };
    let mut rows = Vec::new();
    for peer in [Contender::Nginx, Contender::NginxAio] {
        let metrics: [(&str, Value, Limit); 4] = [
            (
                "probe p50 ms",
                |r| r.busy.p50_us / 1e3,
                Limit::ValueBelow(0.2),
            ),
            (
                "probe p99 ms",
                |r| r.busy.p99_us / 1e3,
                Limit::ValueBelow(1.0),
            ),
            ("probe max ms", |r| r.busy.max_us / 1e3, Limit::None),
            ("goodput MB/s", |r| r.goodput_bytes_per_s / 1e6, Limit::None),
        ];
        for (metric, value, limit) in metrics {
            let (ours, theirs) = (of(Contender::Ackpace, value), of(peer, value));
            rows.push(Row::ratio(case, metric, peer.name(), &ours, &theirs, limit));
        }
    }
    rows.into_iter().flatten().collect()
}
