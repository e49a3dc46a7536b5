//! What a pass of `ackpace-host tune` costs for each socket that matches: builds side by side, over the same connections.
//!
//! `cargo run --release -p ackpace-lab --example tune_pass -- [--sockets N] [--sending N] [--lap-ms N] [--rounds N]
//! BUILD...`, as root. A build is a path of `ackpace-host`, with its feature `bpf`. Rounds are interleaved; each build is compared with the
//! first one.
//!
//! Senders and receivers have a network namespace each, with a link in between. The senders' namespace has the
//! kernel's own table of connections, as on a server; the receivers' has one of its own, so no pass walks over them. Of all
//! connections, `--sending` always have more to send, and their receivers take two segments in each lap. The others
//! were never used.

mod ends;
mod tuning;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, thread};

use ackpace_lab_base::error::{LabError, Result};
use ackpace_lab_base::stats::median;

use self::ends::Connections;
use self::tuning::Tuning;

/// For each connection: its share binds.
const BUDGET_EACH_KIB: usize = 10;
/// Counted from its first pass: by then all have joined, and their rates are known.
const SETTLE: Duration = Duration::from_secs(7);
/// Two periods of drains.
const WINDOW: Duration = Duration::from_secs(16);

fn main() -> Result<()> {
    let (mut sockets, mut sending, mut lap_ms, mut rounds) = (50_000, usize::MAX, 2_000, 5);
    let mut builds = Vec::new();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let number = arguments.next().and_then(|text| text.parse().ok());
            number.ok_or_else(|| LabError::Setup(format!("{argument}: how many?")))
        };
        match &*argument {
            ends::SERVE => return ends::serve(number()?, number()?, number()?),
            ends::CONNECT => return ends::connect(number()?, number()?, number()?, number()?),
            ends::CLIENTS => return ends::clients(),
            "--sockets" => sockets = number()?,
            "--sending" => sending = number()?,
            "--lap-ms" => lap_ms = number()?,
            "--rounds" => rounds = number()?,
            _ => builds.push(PathBuf::from(argument)),
        }
    }
    let connections = Connections::start(sockets, sending.min(sockets), lap_ms)?;
    println!(
        "{sockets} connections, {} of them send",
        sending.min(sockets)
    );
    println!("round  build  CPU time of a pass, us: for each     all    user  kernel  sockets");
    let mut all = vec![Vec::new(); builds.len()];
    for round in 0..rounds {
        for turn in 0..builds.len() {
            let nth = (turn + round) % builds.len();
            let cost = measure(&builds[nth], &connections.ports(), sockets)?;
            let each = cost.pass_us / cost.sockets;
            println!(
                "{round:<6} {nth:<6} {each:>29.3} {:>7.0} {:>7.0} {:>7.0} {:>8.0}",
                cost.pass_us, cost.user_us, cost.kernel_us, cost.sockets
            );
            all[nth].push(each);
        }
    }
    for (nth, each) in all.iter().enumerate() {
        let ratios: Vec<f64> = each
            .iter()
            .zip(&all[0])
            .map(|(it, first)| it / first)
            .collect();
        println!(
            "build {nth}: {} us for each, {} of the first one",
            spread(each),
            spread(&ratios)
        );
    }
    Ok(())
}

/// Median, smallest and largest.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!(
        "{:.3} ({least:.3} to {most:.3})",
        median(values).unwrap_or(f64::NAN)
    )
}

/// CPU time of a pass, with all that follows from it.
struct Cost {
    pass_us: f64,
    /// Those that are there: on a crowded machine some time out.
    sockets: f64,
    /// Of the whole process; the kernel divides it by ticks.
    user_us: f64,
    kernel_us: f64,
}

/// One build on its own, for [`SETTLE`] and [`WINDOW`].
fn measure(build: &Path, ports: &str, sockets: usize) -> Result<Cost> {
    let mut tuning = Tuning::start(build, ports, sockets * BUDGET_EACH_KIB)?;
    thread::sleep(SETTLE);
    let before = tuning.counters()?;
    thread::sleep(WINDOW);
    let after = tuning.counters()?;
    let passes = after.passes - before.passes;
    if passes < 1.0 {
        let what = "no pass in the window: is the machine overloaded?";
        return Err(LabError::contender(&build.display().to_string(), what));
    }
    let ticks_us = 1e6 / 100.0; // USER_HZ
    Ok(Cost {
        sockets: after.sockets.max(1.0),
        pass_us: (after.cpu_us - before.cpu_us) / passes,
        user_us: (after.user_ticks - before.user_ticks) * ticks_us / passes,
        kernel_us: (after.kernel_ticks - before.kernel_ticks) * ticks_us / passes,
    })
}
