//! Objects that the second node has in memory and the first does not, asked for at the first: what that costs it.

use super::{Client, Scene, Seen, Told, add_moved, add_times};
use crate::corpus::Set;
use crate::cpu;
use crate::metrics::Values;
use ackpace_lab_base::error::{Doing, Result};
use std::time::{Duration, Instant};

/// Clients, each with one request at a time.
pub const CLIENTS: usize = 8;
/// For how long the core is looked at before.
const BACKGROUND: Duration = Duration::from_secs(2);
/// Of the files, a tenth is asked for before the window.
const WARM_UP_PART: usize = 10;

/// Files, each asked for once, on a connection of its own, at times that don't depend on the answers.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Relay {
    /// The files.
    pub of: Set,
    /// Requests a second.
    pub per_s: f64,
}

impl Relay {
    pub(super) fn run(&self, scene: &Scene) -> Result<Told> {
        let segment = scene.segment(2, None)?;
        let nodes = scene.nodes(&segment, 2)?;
        let files = self.of.list();
        scene.warm((&segment, &nodes), 1, &files)?;
        let (first, window) = files.split_at(files.len() / WARM_UP_PART);
        let ask = |files| segment.clients().run(|| ask_all(files, self.per_s));
        ask(first)?;
        std::thread::sleep(super::LOGGED_AFTER);
        let core = scene.lab().cores.server_core;
        let background = background_share(core)?;
        let before = (home_cpu_s(&nodes.pids(0))?, nodes.sent_at_home());
        let (busy, begun) = (cpu::unused_s(core)?, Instant::now());
        let seen = ask(window)?;
        let (unused_s, elapsed_s) = (cpu::unused_s(core)? - busy, begun.elapsed().as_secs_f64());
        let processes_s = home_cpu_s(&nodes.pids(0))? - before.0;
        let (mut values, count) = (Values::default(), seen.len() as f64);
        values.set(
            "home_cpu_us_per_response",
            (elapsed_s * (1.0 - background) - unused_s) * 1e6 / count,
        );
        values.set("home_process_us_per_response", processes_s * 1e6 / count);
        add_moved(&mut values, &nodes, before.1, seen.len());
        values.set("responses", count);
        values.set("requests_per_s", count / elapsed_s);
        add_times(&mut values, &seen);
        Ok((
            values,
            serde_json::json!({ "elapsed_s": elapsed_s, "unused_s": unused_s, "background_share": background }),
        ))
    }
}

/// The share of a core that is used while nobody asks for anything: ticks, heartbeats, the machine's own.
fn background_share(core: usize) -> Result<f64> {
    let (unused_s, begun) = (cpu::unused_s(core)?, Instant::now());
    std::thread::sleep(BACKGROUND);
    Ok(1.0 - (cpu::unused_s(core)? - unused_s) / begun.elapsed().as_secs_f64())
}

fn home_cpu_s(pids: &[i32]) -> Result<f64> {
    let none = cpu::Usage::default();
    let used = pids
        .iter()
        .map(|pid| Ok(cpu::usage(*pid)?.since(&none).used_s));
    used.sum()
}

/// Asks for each file when its time comes.
fn ask_all(files: &[(String, u64)], per_s: f64) -> Result<Vec<Seen>> {
    let begun = Instant::now();
    let one = |nth: usize| {
        let mut seen = Vec::new();
        for (at, (path, len_bytes)) in files.iter().enumerate().skip(nth).step_by(CLIENTS) {
            let due = begun + Duration::from_secs_f64(at as f64 / per_s);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let got = Client::connect(None).and_then(|mut client| client.get(path, *len_bytes));
            seen.push(got.doing(|| format!("asking for {path}"))?);
        }
        Ok(seen)
    };
    let all: Vec<Result<Vec<Seen>>> = std::thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..CLIENTS)
            .map(|nth| scope.spawn(move || one(nth)))
            .collect();
        let joined = all.into_iter().map(|it| it.join());
        joined
            .map(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    Ok(all.into_iter().collect::<Result<Vec<_>>>()?.concat())
}
