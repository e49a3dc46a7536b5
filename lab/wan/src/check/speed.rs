//! Throughput of one path, and of a thousand.

use super::links::{HEADERS_LEN_BYTES, client, clients};
use super::tcp_info::tcp_info;
use super::traffic::{Buffers, Pair, QUEUE_MS, Sender, connect_all, pump};
use super::{Outcome, Row, punctuality};
use crate::topology::{Mode, PathSpec, Topology};
use crate::{LinkSpec, Wan};
use ackpace_lab_base::error::{Doing, Result};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PORT: u16 = 5003;
const SPEED_GBIT_PER_S: f64 = 10.0;
const PATHS: usize = 1000;
const PATH_MBIT_PER_S: f64 = 1.0;
/// The time of two packets at that rate. Each frame of the emulator costs a pass through TCP at both ends, and
/// hosts send and receive in pairs at this rate anyway.
const PATHS_RUN_US: u32 = 25_000;

/// One connection through a perfect path, in both modes; only the fast mode has a requirement.
pub fn one_path() -> Result<Outcome> {
    let mut outcome = Outcome {
        rows: Vec::new(),
        notes: vec!["one connection; the receiver lets the kernel discard (MSG_TRUNC)".into()],
    };
    for (mode, promise) in [(Mode::Runs, Some(SPEED_GBIT_PER_S)), (Mode::Packets, None)] {
        let topology = Topology {
            mode,
            path: vec![PathSpec::new("fast", &client(0))],
            ..Topology::default()
        };
        let wan = Wan::up(&topology)?;
        let pairs = connect_all(&wan, &clients(1)?, PORT, |_| Buffers::both(8 << 20))?;
        let got = flat_out(&pairs[0])?;
        let expected = promise.map_or("-".into(), |gbit| format!("{gbit:.0} Gbit/s"));
        outcome.rows.push(Row {
            what: format!("{mode:?}").to_lowercase(),
            expected,
            got: format!("{got:.1} Gbit/s"),
            off: String::new(),
            allowed: if promise.is_some() {
                "or more".into()
            } else {
                "-".into()
            },
            kept: promise.map(|gbit| got >= gbit),
        });
        outcome.notes.push(punctuality(&wan.counters()?));
    }
    Ok(outcome)
}

/// A thousand saturated paths at once, each compared with its own rate.
pub fn many_paths() -> Result<Outcome> {
    let mut path = PathSpec::new("many", "10.1.0.1-10.1.3.232");
    path.per_client = true;
    path.down = LinkSpec {
        rate_mbit_per_s: Some(PATH_MBIT_PER_S),
        delay_ms: Some(10.0),
        queue_ms: Some(QUEUE_MS),
        ..LinkSpec::default()
    };
    path.up.delay_ms = Some(10.0);
    path.delay_spread = 0.5; // otherwise all thousand paths are due at the same moments
    let topology = Topology {
        run_us: PATHS_RUN_US,
        path: vec![path],
        ..Topology::default()
    };
    let wan = Wan::up(&topology)?;
    let plan =
        crate::plan::Plan::of(&topology).map_err(ackpace_lab_base::error::LabError::Setup)?;
    let clients: Vec<_> = plan
        .paths
        .iter()
        .map(|path| *path.clients.start())
        .collect();
    let pairs = connect_all(&wan, &clients, PORT, |_| Buffers::filling(PATH_MBIT_PER_S))?;
    let pairs: Vec<(Pair, Sender)> = pairs
        .into_iter()
        .map(|pair| (pair, Sender::Server))
        .collect();
    let moved = pump(&pairs, Duration::from_secs(6), Duration::from_secs(15))?;
    let mss = tcp_info(&pairs[0].0.server)?.snd_mss_bytes;
    let wire = f64::from(mss + HEADERS_LEN_BYTES) / f64::from(mss);
    let rates = moved
        .iter()
        .map(|m| m.bytes as f64 * wire * 8.0 / 1e6 / m.seconds);
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    let kinds = [
        ("slowest", 0),
        ("median", PATHS / 2),
        ("fastest", PATHS - 1),
    ];
    let row = |(kind, nth): (&str, usize)| {
        let what = format!("{kind} of {} paths", rates.len());
        Row::ratio(what, PATH_MBIT_PER_S, rates[nth], "Mbit/s", 0.01)
    };
    let notes = vec![
        format!(
            "one connection and one client address each, on one device; runs of up to {} ms",
            PATHS_RUN_US / 1000
        ),
        punctuality(&wan.counters()?),
    ];
    Ok(Outcome {
        rows: kinds.into_iter().map(row).collect(),
        notes,
    })
}

/// Goodput of one connection in Gbit/s: another thread sends, this one receives.
fn flat_out(pair: &Pair) -> Result<f64> {
    let what = || "sending flat out".to_owned();
    for end in [&pair.server, &pair.client] {
        rustix::io::ioctl_fionbio(end, false).doing(what)?;
    }
    let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let chunk = vec![0x5a; 256 << 10];
            while !stop.load(Ordering::Relaxed) {
                if send(&pair.server, &chunk, SendFlags::NOSIGNAL).is_err() {
                    break; // the receiver then reports how little arrived
                }
            }
            let _ = rustix::net::shutdown(&pair.server, rustix::net::Shutdown::Write);
        });
        scope.spawn(|| {
            let mut sink = vec![0; 1 << 20];
            while let Ok((_, len @ 1..)) = recv(&pair.client, &mut sink, RecvFlags::TRUNC) {
                received.fetch_add(len as u64, Ordering::Relaxed);
            }
        });
        std::thread::sleep(Duration::from_secs(1));
        let (began, before) = (Instant::now(), received.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_secs(5));
        let bytes = received.load(Ordering::Relaxed) - before;
        let seconds = began.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        Ok(bytes as f64 * 8.0 / 1e9 / seconds)
    })
}
