//! TPF 4.6, Fig. 16b: the congestion windows of a fifth of the clients are halved at one moment and stay so.

use super::*;
use ackpace_core::disk::Delayed;
use ackpace_sim::worlds::sending::Change;

/// Clients in all; the windows of `CUT` of them are cut.
const CLIENTS: usize = 300;
const CUT: usize = CLIENTS / 5;
const CUT_AT: Instant = Instant { us: 30_000_000 };

/// A run with this `--delay`, which counts from the cut for `after_s`.
fn after(rate_bytes_per_s: u64, delay: Delay, cut: bool, after_s: u64) -> (World, Outcome) {
    let disk = Settings {
        delay,
        reads: Some(4), // a trial of K at the wrong moment would show in 5 s
        ..settings(64)
    };
    let mut world = World {
        measured_from: CUT_AT,
        ends_at: CUT_AT.plus_us(after_s * 1_000_000),
        ..world(downloads(&[(CLIENTS, rate_bytes_per_s)]), disk)
    };
    for download in &mut world.downloads[..CUT] {
        let (at, percent) = (CUT_AT, 50);
        download.client.change = Some(Change { at, percent }).filter(|_| cut);
    }
    let outcome = world.run();
    (world, outcome)
}

/// Result of one of these runs.
#[derive(Clone, Copy)]
struct Way {
    delayed: Delayed,
    read_soon_mb: f64,
    read_mb: f64,
    others_kb_per_s: f64,
    they_kb_per_s: f64,
}

const DELAYS: [(&str, Delay); 3] = [
    ("rate", Delay::Rate),
    ("paper", Delay::Paper),
    ("off", Delay::Off),
];

#[test]
fn reads_for_who_meets_congestion_wait_and_the_others_gain() {
    let mut table = String::from(
        "demand    delay   put off     MB   read for them, MB: 2 s    5 s   they, KB/s   others, KB/s   min   no cut\n",
    );
    for (load, rate) in [("fits", MBIT), ("over", MBIT * 6 / 5)] {
        let (world, calm) = after(rate, Delay::Rate, false, 5);
        let (before, _) = kb_per_s(&world, &calm, CUT..CLIENTS);
        let mut ways: Vec<Way> = Vec::new();
        for (name, delay) in DELAYS {
            let (_, soon) = after(rate, delay, true, 2);
            let (world, outcome) = after(rate, delay, true, 5);
            let (they, _) = kb_per_s(&world, &outcome, 0..CUT);
            let (mean, min) = kb_per_s(&world, &outcome, CUT..CLIENTS);
            let read_for = |outcome: &Outcome| {
                outcome.read_by_client_bytes[..CUT].iter().sum::<u64>() as f64 / 1e6
            };
            table += &format!(
                "{load:5} {name:>9} {:9} {:6.1} {:23.1} {:6.1} {they:12.1} {mean:14.1} {min:5.1} {before:8.1}\n",
                outcome.delayed.wants,
                outcome.delayed.bytes as f64 / 1e6,
                read_for(&soon),
                read_for(&outcome),
            );
            ways.push(Way {
                delayed: outcome.delayed,
                read_soon_mb: read_for(&soon),
                read_mb: read_for(&outcome),
                others_kb_per_s: mean,
                they_kb_per_s: they,
            });
        }
        let [rate, paper, off] = ways[..] else {
            unreachable!("three ways")
        };
        let seed = format!("seed {SEED}, {load}\n{table}");
        assert_eq!(off.delayed, Delayed::default(), "{seed}");
        for (name, way) in [("rate", rate), ("paper", paper)] {
            assert!(way.delayed.wants > 0, "{name} puts nothing off; {seed}");
            let less = way.read_soon_mb < 0.85 * off.read_soon_mb;
            assert!(less, "{name} reads on as before; {seed}");
            // Where all clients are served there is nothing to gain.
            let least = if load == "over" {
                off.others_kb_per_s
            } else {
                0.99 * before
            };
            let gain = way.others_kb_per_s > least;
            assert!(gain, "{name}: nobody gained; {seed}");
        }
        // With the paper's rule, delayed wants are read within the 5 s.
        assert!(rate.read_mb < 0.8 * off.read_mb, "{seed}");
        // Not in the paper: its fixed delay lets some of those clients run dry that were slower already.
        assert!(rate.they_kb_per_s > 0.99 * off.they_kb_per_s, "{seed}");
        assert!(paper.they_kb_per_s <= rate.they_kb_per_s, "{seed}");
    }
    compare("delay", &table);
}
