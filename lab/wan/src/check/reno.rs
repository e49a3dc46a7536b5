//! Reno's throughput on lossy paths against the square-root law (Mathis et al. 1997): MSS/RTT sqrt(1.5/p), for
//! one acknowledgement a packet. The law counts 1/p packets sent from one loss to the next, including the lost
//! one. It therefore gives the rate of sending and not of delivery (at 3 % loss they differ by 3 %). PFTK
//! (Padhye et al. 1998, eq. 30), which models timeouts, is only reported.

use super::links::{client, clients};
use super::tcp_info::tcp_info;
use super::traffic::{Buffers, Moved, Pair, Sender, connect_all, pump};
use super::{Outcome, Row, punctuality};
use crate::counters::PathCounters;
use crate::topology::{Ecn, Mode, PathSpec, Topology};
use crate::{LinkSpec, Wan};
use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::net::sockopt::tcp_congestion;
use std::time::Duration;

const PORT: u16 = 5002;
const RTTS_MS: [f64; 3] = [12.0, 50.0, 100.0];
/// Loss, and connections for each round trip. They give about a thousand losses in a cell in 90 s. More
/// connections would make the emulator late, which lengthens the round trip.
const LOSSES: [(f64, [usize; 3]); 3] =
    [(0.001, [3, 8, 20]), (0.01, [4, 8, 16]), (0.03, [4, 8, 16])];
const ALLOWED: f64 = 0.10;
/// Linux's minimum retransmission timeout.
const RTO_MIN_S: f64 = 0.2;

struct Cell {
    p: f64,
    rtt_ms: f64,
    first: usize,
    count: usize,
}

/// Runs the nine cells for `seconds` each; only cells with the same round trip run together. All nine at once
/// would keep the emulator so busy that the shortest round trips grow by some percent and slow Reno down as
/// much.
pub fn run(seconds: u64) -> Result<Outcome> {
    let mut all = Outcome {
        rows: Vec::new(),
        notes: Vec::new(),
    };
    for nth in 0..RTTS_MS.len() {
        let outcome = at_rtt(nth, seconds)?;
        all.rows.extend(outcome.rows);
        all.notes.extend(outcome.notes);
    }
    Ok(all)
}

fn at_rtt(nth: usize, seconds: u64) -> Result<Outcome> {
    let cells = cells(nth);
    let topology = topology(&cells);
    let wan = Wan::up(&topology)?;
    let pairs = connect_all(&wan, &clients(topology.path.len())?, PORT, |_| {
        Buffers::both(768 << 10)
    })?;
    check_used(&pairs, &topology.congestion_control)?;
    let pairs: Vec<(Pair, Sender)> = pairs
        .into_iter()
        .map(|pair| (pair, Sender::Server))
        .collect();
    let moved = pump(&pairs, Duration::from_secs(8), Duration::from_secs(seconds))?;
    let counters = wan.counters()?;
    let mut rows = Vec::new();
    let (mut limited_us, mut busy_us) = (0, 0);
    let mut extra = Vec::new();
    for cell in &cells {
        let within = cell.first..cell.first + cell.count;
        let told = Told::of(&pairs[within.clone()])?;
        limited_us += told.limited_us;
        busy_us += told.busy_us;
        let (row, note) = cell.judged(&told, &moved[within.clone()], &counters.paths[within]);
        rows.push(row);
        extra.push(note);
    }
    let mut notes = vec![
        format!(
            "{} ms: {seconds} s, per connection; reno, read back from every socket; an ACK a packet; \
             packet mode; no ECN; seed {}",
            RTTS_MS[nth], topology.seed
        ),
        format!(
            "limited by windows or buffers: {:.2} % of the time",
            limited_us as f64 / busy_us as f64 * 100.0
        ),
        punctuality(&counters),
    ];
    notes.extend(extra);
    Ok(Outcome { rows, notes })
}

/// Every live connection must use the requested congestion control.
fn check_used(pairs: &[Pair], wanted: &str) -> Result<()> {
    for pair in pairs {
        let used = tcp_congestion(&pair.server).doing(|| "TCP_CONGESTION".into())?;
        if used != wanted {
            let what = format!("a live connection uses {used}: nothing measured");
            return Err(LabError::Setup(what));
        }
    }
    Ok(())
}

/// Sums of the kernel's TCP_INFO over the connections of a cell.
#[derive(Default)]
struct Told {
    mss_bytes: u32,
    retransmits: u32,
    limited_us: u64,
    busy_us: u64,
}

impl Told {
    fn of(pairs: &[(Pair, Sender)]) -> Result<Told> {
        let mut told = Told::default();
        for (pair, _) in pairs {
            let info = tcp_info(&pair.server)?;
            told.mss_bytes = info.snd_mss_bytes;
            told.retransmits += info.total_retrans_segments;
            told.limited_us += info.rwnd_limited_us + info.sndbuf_limited_us;
            told.busy_us += info.busy_time_us;
        }
        Ok(told)
    }
}

impl Cell {
    /// The measured rate compared with the law, and a note with further figures.
    fn judged(&self, told: &Told, moved: &[Moved], paths: &[PathCounters]) -> (Row, String) {
        let goodput: f64 = moved.iter().map(|m| m.bytes as f64 / m.seconds).sum();
        let rtt_s = self.rtt_ms / 1e3;
        let mss_bytes = f64::from(told.mss_bytes);
        let law = |packets_per_rtt: f64| mss_bytes * 8.0 / 1e6 / rtt_s * packets_per_rtt;
        let expected = law((1.5 / self.p).sqrt());
        let pftk = law(pftk_packets_per_rtt(self.p, rtt_s));
        let what = format!("{:.1} %, {} ms", self.p * 100.0, self.rtt_ms);
        let entered: u64 = paths.iter().map(|path| path.down.entered_packets).sum();
        let lost: u64 = paths.iter().map(|path| path.down.lost_packets).sum();
        // The law counts what is sent, including the lost packets.
        let sent = entered as f64 / (entered - lost).max(1) as f64;
        let got = goodput * sent * 8.0 / 1e6 / self.count as f64;
        let note = format!(
            "{what}: PFTK {pftk:.2} Mbit/s ({:+.0} %); lost {:.3} % of {entered}, sent again {:.3} %; {} connections",
            (got / pftk - 1.0) * 100.0,
            lost as f64 / entered as f64 * 100.0,
            f64::from(told.retransmits) / entered as f64 * 100.0,
            self.count,
        );
        (Row::ratio(what, expected, got, "Mbit/s", ALLOWED), note)
    }
}

/// The cells of the nth round trip.
fn cells(nth: usize) -> Vec<Cell> {
    let mut first = 0;
    let cell = |(p, counts): (f64, [usize; 3])| {
        let cell = Cell {
            p,
            rtt_ms: RTTS_MS[nth],
            first,
            count: counts[nth],
        };
        first += cell.count;
        cell
    };
    LOSSES.into_iter().map(cell).collect()
}

fn topology(cells: &[Cell]) -> Topology {
    let mut topology = Topology {
        mode: Mode::Packets, // each loss would cut a run anyway
        ecn: Ecn::Off,
        quickack: true,
        ..Topology::default()
    };
    for cell in cells {
        for nth in cell.first..cell.first + cell.count {
            let mut path = PathSpec::new(&format!("reno{nth}"), &client(nth));
            path.down = LinkSpec {
                delay_ms: Some(cell.rtt_ms / 2.0),
                loss: Some(cell.p),
                ..LinkSpec::default()
            };
            path.up.delay_ms = Some(cell.rtt_ms / 2.0);
            topology.path.push(path);
        }
    }
    topology
}

/// PFTK's approximation for one acknowledgement a packet and an unlimited window, in packets per round trip.
fn pftk_packets_per_rtt(p: f64, rtt_s: f64) -> f64 {
    let timeout_s = RTO_MIN_S + rtt_s; // Linux: the variance term alone is at least RTO_MIN_S
    let often = (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0);
    rtt_s / (rtt_s * (2.0 * p / 3.0).sqrt() + timeout_s * often * p * (1.0 + 32.0 * p * p))
}

#[cfg(test)]
mod tests {
    #[test]
    fn without_timeouts_pftk_is_the_square_root_law() {
        let rare = super::pftk_packets_per_rtt(1e-7, 0.1);
        assert!((rare / (1.5f64 / 1e-7).sqrt() - 1.0).abs() < 0.01);
        assert!(super::pftk_packets_per_rtt(0.03, 0.012) < 0.6 * (1.5f64 / 0.03).sqrt());
    }
}
