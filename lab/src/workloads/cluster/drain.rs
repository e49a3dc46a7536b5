//! Downloads that move while they run: of a node that is emptied, and one that goes to and fro.

use super::nodes::Nodes;
use super::segment::{Segment, vip};
use super::{Client, Path, Scene, Told};
use crate::corpus::Set;
use crate::metrics::Values;
use crate::sockets::Sockets;
use ackpace_lab_base::error::{Doing, Result};
use ackpace_lab_base::stats::percentile;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// For all clients to have begun, before the second node takes requests.
const BEGIN: Duration = Duration::from_secs(3);
/// From then until the first node is emptied.
const SETTLE: Duration = Duration::from_millis(700);
/// How long gaps are looked for afterwards, and how long an emptying may take.
const LOOK: Duration = Duration::from_secs(4);
/// What a client's buffer holds beside a round trip's bytes.
const BUFFER: Duration = Duration::from_millis(30);
const BUFFER_BYTES_MIN: f64 = 16_384.0;

/// The first node serves all clients, and is emptied.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Drain {
    /// The path.
    pub path: Path,
    /// How many clients; they read at 1 to 20 Mbit/s, at rates with equal factors between them.
    pub clients: usize,
    /// What they read, again and again.
    pub of: Set,
    /// Whether it is emptied; otherwise nothing happens.
    pub is_drained: bool,
}

/// What clients and their conductor share.
struct Shared {
    begun: Instant,
    /// When gaps begin to count, us; 0: not yet.
    counts_from_us: AtomicU64,
    ends: AtomicBool,
}

impl Drain {
    pub(super) fn run(&self, scene: &Scene) -> Result<Told> {
        let segment = scene.segment(2, Some(&self.path))?;
        // 200 clients and their path need a core of their own.
        let nodes = scene.nodes_on(&segment, 2, |_| false)?;
        nodes.drain(1, true)?;
        std::thread::sleep(Duration::from_millis(300));
        let shared = Shared {
            begun: Instant::now(),
            counts_from_us: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        };
        let (gaps, conducted) = std::thread::scope(|scope| {
            let clients = scope.spawn(|| segment.clients().run(|| Ok(self.clients(&shared))));
            let conducted = self.conduct(&segment, &nodes, &shared);
            shared.ends.store(true, Relaxed);
            let gaps = clients
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (gaps, conducted)
        });
        let (there, empty_after) = conducted?;
        let (all, mut faults) = (gaps?, Vec::new());
        let mut gaps_us = Vec::new();
        for one in all {
            match one {
                Ok(gap) => gaps_us.push(gap.as_micros() as u64),
                Err(fault) => faults.push(fault.to_string()),
            }
        }
        gaps_us.sort_unstable();
        let mut values = Values::default();
        for (key, percent) in [
            ("gap_p50_us", 50.0),
            ("gap_p99_us", 99.0),
            ("gap_max_us", 100.0),
        ] {
            values.set_some(key, percentile(&gaps_us, percent).map(|us| us as f64));
        }
        values.set("errors", faults.len() as f64);
        values.set("connections_before", there as f64);
        values.set_some(
            "empty_after_us",
            empty_after.map(|it| it.as_micros() as f64),
        );
        Ok((
            values,
            serde_json::json!({ "gaps_us": gaps_us, "faults": faults }),
        ))
    }

    /// Empties the first node. Returns how many connections it had, and how long it took until it had none.
    fn conduct(
        &self,
        segment: &Segment,
        nodes: &Nodes,
        shared: &Shared,
    ) -> Result<(usize, Option<Duration>)> {
        std::thread::sleep(BEGIN);
        nodes.drain(1, false)?;
        std::thread::sleep(SETTLE);
        let sockets = segment.node(0).run(Sockets::open)?;
        let there = connections(&sockets)?;
        let (begun, mut empty_after) = (Instant::now(), None);
        shared
            .counts_from_us
            .store(shared.begun.elapsed().as_micros() as u64, Relaxed);
        if self.is_drained {
            nodes.drain(0, true)?;
            while empty_after.is_none() && begun.elapsed() < LOOK {
                empty_after = (connections(&sockets)? == 0).then(|| begun.elapsed());
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        std::thread::sleep(LOOK.saturating_sub(begun.elapsed()));
        Ok((there, empty_after))
    }

    fn clients(&self, shared: &Shared) -> Vec<std::io::Result<Duration>> {
        std::thread::scope(|scope| {
            let spawn = |nth| scope.spawn(move || self.client(nth, shared));
            let all: Vec<_> = (0..self.clients).map(spawn).collect();
            let joined = all.into_iter().map(|it| it.join());
            joined
                .map(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }

    /// Reads at its rate. Returns the longest wait for bytes since the emptying began.
    fn client(&self, nth: usize, shared: &Shared) -> std::io::Result<Duration> {
        let part = nth as f64 / (self.clients - 1).max(1) as f64;
        let rate_bytes_per_s = 125_000.0 * 20f64.powf(part);
        let delay_s = self.path.rtt_ms / 1e3 + BUFFER.as_secs_f64();
        let buffer_bytes = (rate_bytes_per_s * delay_s).max(BUFFER_BYTES_MIN);
        std::thread::sleep(Duration::from_millis(5 * nth as u64));
        let mut client = Client::connect(Some(buffer_bytes as usize))?;
        let (files, mut longest) = (self.of.list(), Duration::ZERO);
        let (path, len_bytes) = &files[nth % files.len()];
        while !shared.ends.load(Relaxed) {
            let (begun, body) = (Instant::now(), client.ask(path, *len_bytes)?);
            client.read(body, (path, *len_bytes), |done_bytes, waited| {
                let now_us = shared.begun.elapsed().as_micros() as u64;
                let counts_from_us = shared.counts_from_us.load(Relaxed);
                // A wait that had begun before counts, too.
                if counts_from_us > 0 && now_us > counts_from_us {
                    longest = longest.max(waited);
                }
                let due = begun + Duration::from_secs_f64(done_bytes as f64 / rate_bytes_per_s);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                !shared.ends.load(Relaxed)
            })?;
        }
        Ok(longest)
    }
}

fn connections(sockets: &Sockets) -> Result<usize> {
    Ok(sockets.queues(vip().ip(), vip().port())?.connections)
}

/// One download, between two nodes that are emptied in turn.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Moved {
    /// The path; `None`: clients are on the segment.
    pub path: Option<Path>,
    /// What is read.
    pub of: Set,
    /// Whether it moves.
    pub moves: bool,
}

/// Longest and shortest time between two moves.
const REST_MS: std::ops::Range<u64> = 50..500;
/// How long after a move its gap is looked for.
const AFTER: Duration = Duration::from_millis(45);

impl Moved {
    pub(super) fn run(&self, scene: &Scene, window: Duration) -> Result<Told> {
        let segment = scene.segment(2, self.path.as_ref())?;
        let nodes = scene.nodes(&segment, 2)?;
        nodes.drain(1, true)?;
        std::thread::sleep(Duration::from_millis(300));
        let (path, len_bytes) = self.of.list().swap_remove(0);
        let (ends, begins) = (AtomicBool::new(false), AtomicBool::new(false));
        let waits: Mutex<Vec<(Instant, Duration)>> = Mutex::default();
        let download = || {
            let mut client = Client::connect(None)?;
            let (mut from, mut bytes) = (None, 0);
            while !ends.load(Relaxed) {
                let (body, mut before) = (client.ask(&path, len_bytes)?, 0);
                client.read(body, (&path, len_bytes), |done, waited| {
                    if from.is_none() && begins.load(Relaxed) {
                        (from, bytes) = (Some(Instant::now()), 0);
                    }
                    bytes += done - before;
                    before = done;
                    if waited > Duration::from_micros(50) {
                        let mut waits = waits.lock().unwrap_or_else(|it| it.into_inner());
                        waits.push((Instant::now(), waited));
                    }
                    !ends.load(Relaxed)
                })?;
            }
            let elapsed = from.map_or(Duration::ZERO, |from| from.elapsed());
            std::io::Result::Ok(bytes as f64 / elapsed.as_secs_f64())
        };
        let (rate, moves) = std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                segment
                    .clients()
                    .run(|| download().doing(|| "the download".into()))
            });
            std::thread::sleep(Duration::from_secs(1)); // past its slow start
            begins.store(true, Relaxed);
            let moves = self.conduct(&segment, &nodes, window);
            ends.store(true, Relaxed);
            let rate = client
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (rate, moves)
        });
        let (rate, moves) = (rate?, moves?);
        let waits = waits.into_inner().unwrap_or_else(|it| it.into_inner());
        let mut gaps_us: Vec<u64> = moves.iter().map(|at| longest_us(&waits, *at)).collect();
        gaps_us.sort_unstable();
        let mut values = Values::default();
        values.set("goodput_bytes_per_s", rate);
        values.set("moves", moves.len() as f64);
        for (key, percent) in [
            ("gap_p50_us", 50.0),
            ("gap_p99_us", 99.0),
            ("gap_max_us", 100.0),
        ] {
            values.set_some(key, percentile(&gaps_us, percent).map(|us| us as f64));
        }
        Ok((values, serde_json::json!({ "gaps_us": gaps_us })))
    }

    /// Empties the nodes in turn. Returns when the connection was asked to move, of the times that it did.
    fn conduct(&self, segment: &Segment, nodes: &Nodes, window: Duration) -> Result<Vec<Instant>> {
        nodes.drain(1, false)?;
        let sockets = [0, 1].map(|nth| segment.node(nth).run(Sockets::open));
        let [a, b] = sockets;
        let sockets = [a?, b?];
        let (begun, mut at, mut moves, mut seed) = (Instant::now(), 0, Vec::new(), 1u64);
        while begun.elapsed() < window {
            let asked = Instant::now();
            if self.moves {
                nodes.drain(1 - at, false)?;
                nodes.drain(at, true)?;
            }
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let rest_ms = REST_MS.start + (seed >> 33) % (REST_MS.end - REST_MS.start);
            std::thread::sleep(Duration::from_millis(rest_ms));
            if self.moves && connections(&sockets[1 - at])? > 0 {
                moves.push(asked);
                at = 1 - at;
            }
        }
        Ok(moves)
    }
}

/// The longest wait that ended shortly after this time.
fn longest_us(waits: &[(Instant, Duration)], at: Instant) -> u64 {
    let near = waits
        .iter()
        .filter(|(ended, _)| *ended >= at && ended.duration_since(at) < AFTER);
    near.map(|(_, waited)| waited.as_micros() as u64)
        .max()
        .unwrap_or(0)
}
