//! TPF 4.6, Fig. 16b: the congestion windows of a fifth of the clients are halved at one moment and stay so.

use super::*;
use ackpace_core::disk::Delayed;
use ackpace_sim::worlds::sending::Change;

/// Clients in all; the windows of `CUT` of them are cut.
const CLIENTS: usize = 300;
const CUT: usize = CLIENTS / 5;
const CUT_AT: Instant = Instant { us: 30_000_000 };

/// More of them than elsewhere, since what the others gain is no larger than the difference between two runs.
const SEEDS: [u64; 7] = [
    20_260_102, 20_260_103, 20_260_104, 20_260_105, 20_260_106, 20_260_107, 20_260_108,
];

/// The clients of a run: the seed, and the rate of each.
type SeedAndRate = (u64, u64);

/// A run with this `Delay`, which counts from the cut for `after_s`.
fn after((seed, rate): SeedAndRate, delay: Delay, cut: bool, after_s: u64) -> (World, Outcome) {
    let disk = Settings {
        delay,
        reads: Some(4), // a trial of K at the wrong moment would show in 5 s
        ..settings(64)
    };
    let mut world = World {
        measured_from: CUT_AT,
        ends_at: CUT_AT.plus_us(after_s * 1_000_000),
        ..world(downloads(seed, &[(CLIENTS, rate)]), disk)
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
    others_min_kb_per_s: f64,
    they_kb_per_s: f64,
}

const RATE: usize = 0;
const PAPER: usize = 1;
const OFF: usize = 2;
const DELAYS: [(&str, Delay); 3] = [
    ("rate", Delay::Rate),
    ("paper", Delay::Paper),
    ("off", Delay::Off),
];

#[test]
fn reads_for_who_meets_congestion_wait_and_the_others_gain() {
    let found = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("put off", 0),
            ("MB", 1),
            ("read for them, MB: 2 s", 1),
            ("5 s", 1),
            ("they, KB/s", 1),
            ("others, KB/s", 1),
            ("min", 1),
            ("of off", 3),
            ("no cut", 1),
        ];
        let mut table = Table::new(seed, "demand  delay", columns);
        cut("fits", (seed, MBIT), &mut table);
        let ways = cut("over", (seed, MBIT * 6 / 5), &mut table);
        (table, ways)
    });
    let (tables, ways): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let table = Table::medians(&tables).to_string();
    let of_off = |way: usize, what: fn(Way) -> f64| {
        median(
            ways.iter()
                .map(|ways| what(ways[way]) / what(ways[OFF]))
                .collect(),
        )
    };
    // With `rate`, of twenty seeds 18 gain. They get .970 to 1.062 of what they get with `off`, 1.017 in the median.
    for way in [RATE, PAPER] {
        let gain = of_off(way, |way| way.others_kb_per_s);
        assert!(gain > 1.0, "nobody gained; {table}");
    }
    // Beyond the disk's capacity a sweep takes four seconds, and whom it meets in two is chance: of twenty seeds `rate`
    // reads .76 to 1.16 of what `off` reads. In 5 s it is .31 to .65. With the paper's rule, delayed wants are read
    // within the 5 s.
    let read = of_off(RATE, |way| way.read_mb);
    assert!(read < 0.6, "read on as before; {table}");
    let read_soon = of_off(PAPER, |way| way.read_soon_mb);
    assert!(read_soon < 0.85, "read on as before; {table}");
    compare("delivery/delay", &table);
}

fn cut(demand: &str, load: SeedAndRate, table: &mut Table<9>) -> [Way; 3] {
    let (world, calm) = after(load, Delay::Rate, false, 5);
    let (before, _) = kb_per_s(&world, &calm, CUT..CLIENTS);
    let ways = DELAYS.map(|(_, delay)| way(load, delay));
    let [rate, paper, off] = ways;
    for ((name, _), way) in DELAYS.iter().zip(ways) {
        let figures = [
            way.delayed.wants as f64,
            way.delayed.bytes as f64 / 1e6,
            way.read_soon_mb,
            way.read_mb,
            way.they_kb_per_s,
            way.others_kb_per_s,
            way.others_min_kb_per_s,
            way.others_kb_per_s / off.others_kb_per_s,
            before,
        ];
        table.row(format!("{demand:6}  {name}"), figures);
    }
    let over = demand == "over";
    assert_eq!(off.delayed, Delayed::default(), "{table}");
    for way in [rate, paper] {
        assert!(way.delayed.wants > 0, "nothing is put off; {table}");
        // Where all clients are served there is nothing to gain.
        let least = if over { before } else { 0.98 * before };
        assert!(way.others_kb_per_s > least, "nobody gains; {table}");
    }
    let less =
        |read_mb, off_mb, most| assert!(read_mb < most * off_mb, "read on as before; {table}");
    less(rate.read_mb, off.read_mb, 0.75);
    less(paper.read_soon_mb, off.read_soon_mb, 0.95);
    if over {
        let (others, others_off) = (paper.others_kb_per_s, off.others_kb_per_s);
        assert!(others > 0.97 * others_off, "the others lose; {table}");
    }
    // Not in the paper: its fixed delay lets some of those clients run dry that were slower already. With `rate` they
    // have .972 of what they have with `off` in the worst of twenty seeds, and .997 in the median.
    let (by_rate, by_paper) = (rate.they_kb_per_s, paper.they_kb_per_s);
    assert!(by_rate > 0.96 * off.they_kb_per_s, "they lose; {table}");
    assert!(by_paper <= by_rate, "{table}");
    ways
}

fn way(load: SeedAndRate, delay: Delay) -> Way {
    let (_, soon) = after(load, delay, true, 2);
    let (world, outcome) = after(load, delay, true, 5);
    let (they, _) = kb_per_s(&world, &outcome, 0..CUT);
    let (others, others_min) = kb_per_s(&world, &outcome, CUT..CLIENTS);
    let read_for =
        |outcome: &Outcome| outcome.read_by_client_bytes[..CUT].iter().sum::<u64>() as f64 / 1e6;
    Way {
        delayed: outcome.delayed,
        read_soon_mb: read_for(&soon),
        read_mb: read_for(&outcome),
        others_kb_per_s: others,
        others_min_kb_per_s: others_min,
        they_kb_per_s: they,
    }
}
