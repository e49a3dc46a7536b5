//! Four nodes whose memory holds a third of what is asked for, each with a disk of its own: how placement pays.

use super::super::RoundTimes;
use super::nodes::{Nodes, Start};
use super::segment::Segment;
use super::{Client, Receivers, Scene, Told};
use crate::cgroup::{Group, Spec};
use crate::leftovers;
use crate::metrics::Values;
use ackpace_lab_base::error::{Doing, Result};
use ackpace_lab_disk::{CorpusFile, Disk, profile};
use ackpace_sim::worlds::cluster::Workload;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Nodes, and disks.
pub const NODES: usize = 4;
/// Clients, each with one request at a time.
pub const CLIENTS: usize = 48;
const DAY: &str = include_str!("../../../../sim/data/nasa-1995-08-01.txt");
/// The day's files are so much longer than they were: what a program itself needs, 112 MiB at the least, would else be most of a node's.
const DAY_SCALE: u64 = 12;
/// Long files.
const FILES: usize = 120;
const FILE_BYTES_MIN: f64 = 1e6;
/// The longest over the shortest.
const FILE_SPREAD: f64 = 50.0;
/// Requests for file n are as frequent as n to the power of this.
const ZIPF: f64 = -0.9;
const CONNECTIONS: usize = 4_000;
const REQUESTS_EACH: usize = 4;

/// What is asked for.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trace {
    /// A day of NASA's server in 1995, by the simulator's reading of it, as fast as it is answered.
    Day,
    /// Files of 1 to 50 MB by Zipf's law.
    Long,
}

/// Files by path and length, and what each connection asks for.
struct Asked {
    files: Vec<(String, u64)>,
    connections: Vec<Vec<usize>>,
}

/// What clients and their conductor share.
#[derive(Default)]
struct Count {
    next: AtomicUsize,
    responses: AtomicU64,
    bytes: AtomicU64,
    ends: AtomicBool,
}

impl Trace {
    fn asked(self) -> Asked {
        match self {
            Self::Day => day(),
            Self::Long => long(),
        }
    }

    pub(super) fn run(self, scene: &Scene, times: RoundTimes) -> Result<Told> {
        let asked = self.asked();
        let all_bytes: u64 = asked.files.iter().map(|(_, len_bytes)| len_bytes).sum();
        let disks = disks(&asked.files)?;
        let groups = groups(all_bytes / 3)?;
        let cores = scene.lab().cores;
        let receivers = Receivers {
            home: cores.server_core,
            others: cores.load_core,
        };
        let mut segment = Segment::up(NODES, None, receivers)?;
        segment.add_router(cores.load_core)?;
        match scene.is_ours() {
            true => segment.lead_to_all()?,
            false => segment.lead_to(0)?,
        }
        let roots: Vec<_> = disks.iter().map(Disk::mount_point).collect();
        let nodes = Nodes::start(&Start {
            lab: scene.lab(),
            segment: &segment,
            contender: scene.contender,
            roots: &roots,
            nodes: NODES,
            groups: &groups,
            is_beside_clients: |nth| nth % 2 > 0,
        })?;
        let count = Count::default();
        let measured = std::thread::scope(|scope| {
            let clients = scope.spawn(|| segment.clients().run(|| clients(&asked, &count)));
            std::thread::sleep(times.warm_up);
            let now = || [&count.responses, &count.bytes].map(|it| it.load(Relaxed));
            let (before, read_before, begun) = (now(), read_bytes(&disks), Instant::now());
            std::thread::sleep(times.window);
            let (after, read, elapsed) = (now(), read_bytes(&disks) - read_before, begun.elapsed());
            count.ends.store(true, Relaxed);
            let ended = clients
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.map(|()| (before, after, read, elapsed.as_secs_f64()))
        });
        drop(nodes);
        let (before, after, read, elapsed_s) = measured?;
        let mut values = Values::default();
        values.set("requests_per_s", (after[0] - before[0]) as f64 / elapsed_s);
        values.set(
            "goodput_bytes_per_s",
            (after[1] - before[1]) as f64 / elapsed_s,
        );
        values.set("disk_bytes_per_s", read as f64 / elapsed_s);
        values.set("responses", (after[0] - before[0]) as f64);
        Ok((values, serde_json::json!({ "all_bytes": all_bytes })))
    }
}

fn disks(files: &[(String, u64)]) -> Result<Vec<Disk>> {
    let one = |nth: usize| {
        Disk::up(&ackpace_lab_disk::Spec {
            name: leftovers::disk(nth),
            profile: profile::load("10k-scsi-2003")?,
            corpus: files
                .iter()
                .map(|(path, len_bytes)| CorpusFile {
                    path: path.trim_start_matches('/').into(),
                    len_bytes: *len_bytes,
                })
                .collect(),
            writable: false,
            read_ahead_kb: 128,
        })
    };
    (0..NODES).map(one).collect()
}

fn groups(memory_bytes: u64) -> Result<Vec<Group>> {
    let one = |nth: usize| {
        Group::new(&Spec {
            name: format!("node-{nth}"),
            memory_limit_bytes: Some(memory_bytes),
            ..Spec::default()
        })
    };
    (0..NODES).map(one).collect()
}

fn read_bytes(disks: &[Disk]) -> u64 {
    disks.iter().map(|disk| disk.counters().read_bytes).sum()
}

/// Each takes the next connection of the trace when its last one has ended.
fn clients(asked: &Asked, count: &Count) -> Result<()> {
    let one = || {
        while !count.ends.load(Relaxed) {
            let nth = count.next.fetch_add(1, Relaxed) % asked.connections.len();
            let mut client = Client::connect(None)?;
            for file in &asked.connections[nth] {
                let (path, len_bytes) = &asked.files[*file];
                let body = client.ask(path, *len_bytes)?;
                let mut before = 0;
                client.read(body, (path, *len_bytes), |done, _| {
                    count.bytes.fetch_add(done - before, Relaxed);
                    before = done;
                    !count.ends.load(Relaxed)
                })?;
                if count.ends.load(Relaxed) {
                    break;
                }
                count.responses.fetch_add(1, Relaxed);
            }
        }
        std::io::Result::Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        all.into_iter().try_for_each(|it| {
            let ended = it
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.doing(|| "a client".into())
        })
    })
}

fn day() -> Asked {
    let day = Workload::from_trace(DAY).unwrap_or_default();
    let length = |len_bytes: &u32| u64::from(*len_bytes).max(1) * DAY_SCALE;
    let named = |(nth, len_bytes)| (format!("/day-{nth:05}.bin"), length(len_bytes));
    let mut connections = vec![Vec::new(); day.connections];
    for request in &day.requests {
        connections[request.connection as usize].push(request.file as usize);
    }
    Asked {
        files: day.lengths.iter().enumerate().map(named).collect(),
        connections,
    }
}

fn long() -> Asked {
    // Lengths by the golden ratio: popular files are as long as others.
    let length = |nth: usize| FILE_BYTES_MIN * FILE_SPREAD.powf((nth as f64 * 0.618_034) % 1.0);
    let named = |nth| (format!("/long-{nth:05}.bin"), length(nth) as u64);
    let weights: Vec<f64> = (1..=FILES).map(|nth| (nth as f64).powf(ZIPF)).collect();
    let (sum, mut seed): (f64, u64) = (weights.iter().sum(), 7);
    let mut draw = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut left = (seed >> 11) as f64 / (1u64 << 53) as f64 * sum;
        let found = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        found.unwrap_or(FILES - 1)
    };
    let connection = |_| (0..REQUESTS_EACH).map(|_| draw()).collect();
    Asked {
        files: (0..FILES).map(named).collect(),
        connections: (0..CONNECTIONS).map(connection).collect(),
    }
}
