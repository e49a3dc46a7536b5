//! Tables 3 to 6 and Figs 8 to 12: a receiver alone (BL0) and beside ten processes (BL10).

use crate::o1::Rule;
use crate::world::{Outcome, Queues, World};
use crate::{RULES, Runs, compare, fill_percent, long_waits, timeouts};
use std::fmt::Write;

const ALONE: World = World {
    rule: Rule::Usual,
    loops: 0,
    rtt_us: 200,
    loss: 0.0,
    buffer: 40_000_000 / 1_448,
    seconds: 20,
    seed: 1,
};

/// BL10 by what is known of it, and the same with one packet of 10,000 dropped by the network card, which the paper
/// says may happen (section 4).
fn cases() -> [(&'static str, World); 2] {
    let loops = World { loops: 10, ..ALONE };
    [
        ("10 loops", loops),
        (
            "10 loops, drops",
            World {
                loss: 1e-4,
                ..loops
            },
        ),
    ]
}

fn row(name: &str, rule: &str, runs: &Runs, tables: &mut (String, String)) {
    let median = |of: fn(&Outcome) -> f64| runs.median(of);
    writeln!(
        tables.0,
        "{name:<16}{rule:<5}{:>7.1} {:>5.0}-{:<4.0}{:>9.1}{:>8.2}{:>9.0}{:>10.0}{:>8.0}",
        median(Outcome::mbits_per_s),
        runs.least(Outcome::mbits_per_s),
        runs.most(Outcome::mbits_per_s),
        median(Outcome::copied_mbits_per_s),
        median(Outcome::share_percent),
        runs.median(|of| fill_percent(of, ALONE.buffer)),
        median(timeouts),
        runs.median(|of| of.counted.retransmitted as f64),
    )
    .expect("a string");
    let bins = [0, 1, 2, 3, 4, 5].map(|bin: usize| runs.median(|of| of.waits[bin] as f64));
    let bins: String = bins.iter().map(|count| format!("{count:>9.0}")).collect();
    let longest = runs.most(|of| of.longest_wait_ms as f64);
    writeln!(tables.1, "{name:<16}{rule:<5}{bins}{longest:>12.0}").expect("a string");
}

#[test]
fn tables_3_to_6() {
    let mut tables = (
        "load            rule   Mbit/s of sender  process  CPU %  buffer %  timeouts  resent\n"
            .to_string()
            + "BL0, paper      O      504.0\nBL10, paper     O       72.1\nBL10, paper     N       88.8\n",
        "T_wait          rule    < 1 ms    10 ms   100 ms   200 ms      1 s     more  longest ms\n"
            .to_string()
            + "BL0, paper      O       862429      636        0        0        0        0\n"
            + "BL10, paper     O       122657      744      896       40      300       75\n"
            + "BL10, paper     N       156300      851      618       29        0        0\n",
    );
    let alone = Runs::of(ALONE);
    row("alone", "O", &alone, &mut tables);
    // Table 3, Table 4 and Fig 8a of BL0. The sum of CPU times is fitted to 504, what follows from it is not.
    let mbits = alone.median(Outcome::mbits_per_s);
    assert!((mbits / 504.0 - 1.0).abs() < 0.05, "{mbits}");
    assert_eq!(
        alone.most(|of| of.waits[2..].iter().sum::<u64>() as f64),
        0.0,
        "10 ms"
    );
    assert_eq!(alone.most(timeouts), 0.0);
    for (name, world) in cases() {
        let runs = RULES.map(|(_, rule)| Runs::of(World { rule, ..world }));
        for ((rule, _), runs) in RULES.iter().zip(&runs) {
            row(name, rule, runs, &mut tables);
        }
        claims(name, &runs);
    }
    compare("tables-3-5", &tables.0);
    compare("tables-4-6", &tables.1);
}

fn claims(name: &str, [old, new, fair]: &[Runs; 3]) {
    // Tables 3 and 4 and Fig 8b: throughput breaks down, packets wait for more than a second, and the sender times out
    // although hardly anything is lost.
    let mbits = old.median(Outcome::mbits_per_s);
    assert!((mbits / 72.1 - 1.0).abs() < 0.2, "{name}: {mbits}");
    assert!(
        old.least(long_waits) >= 200.0 && old.most(|of| of.waits[5] as f64) > 0.0,
        "{name}"
    );
    assert!(old.least(timeouts) >= 20.0, "{name}");
    // Table 6 says that no packet waits for 200 ms with the paper's rule. Here it is a few: a lock that is owned while
    // nothing waits yet is no reason for Listing 1. It is one for the fair form.
    assert!(
        new.median(long_waits) <= old.median(long_waits) / 4.0,
        "{name}"
    );
    assert!(new.most(long_waits) > 0.0, "{name}: Table 6 has none");
    assert!(new.median(timeouts) <= old.median(timeouts) / 2.0, "{name}");
    assert_eq!(
        (fair.most(long_waits), fair.most(timeouts)),
        (0.0, 0.0),
        "{name}"
    );
    // Table 5's gain (1.23, or 1.26 by its bytes) does not come out. The process gets no more with the paper's rule, since
    // it gets no more of the CPU. What the sender counts is more by what stands in the receive buffer at the end.
    let gain = |of: fn(&Outcome) -> f64| new.median(of) / old.median(of);
    assert!(gain(Outcome::copied_mbits_per_s) <= 1.02, "{name}");
    let sent = gain(Outcome::mbits_per_s);
    let (least, most) = match name {
        "10 loops, drops" => (1.05, 1.2),
        _ => (0.98, 1.05),
    };
    assert!((least..most).contains(&sent), "{name}: {sent}");
    // Figs 10 and 12: the buffer is near full with the rule, and without it is not, once packets are lost.
    let fill = |runs: &Runs| runs.median(|of| fill_percent(of, ALONE.buffer));
    assert!(fill(new) > 75.0, "{name}: {}", fill(new));
    if name == "10 loops, drops" {
        assert!(fill(old) < 50.0, "{name}: {}", fill(old));
    }
}

/// One of the queues.
type Length = fn(&Queues) -> u64;

fn part(queues: &[Queues], of: Length) -> String {
    let mut all: Vec<_> = queues.iter().map(of).collect();
    all.sort_unstable();
    let at = |percent: usize| all[(all.len() - 1) * percent / 100];
    [0, 50, 90, 100]
        .map(|percent| format!("{:>7}", at(percent)))
        .concat()
}

/// Of five seeds the one whose buffer is filled to the median.
fn usual_fill(world: World) -> Outcome {
    let mut runs = Runs::of(world).0;
    let fill = |of: &Outcome| fill_percent(of, world.buffer);
    runs.sort_by(|one, other| fill(one).total_cmp(&fill(other)));
    runs.swap_remove(runs.len() / 2)
}

/// Figs 8 and 11 as a row for every other second, Figs 9, 10 and 12 by their least, median, ninth tenth and most. One run
/// each: alone seed 1, else the one of five seeds whose buffer is filled to the median.
#[test]
fn figures_8_to_12() {
    let drops = cases()[1].1;
    let with_rule = World {
        rule: Rule::Listing1,
        ..drops
    };
    let runs = [
        ("Figs 8a, 9: alone", ALONE.run()),
        ("Figs 8b, 10, 11a: O, drops", usual_fill(drops)),
        ("Figs 11b, 12: N, drops", usual_fill(with_rule)),
    ];
    let mut table = String::new();
    for (name, run) in &runs {
        writeln!(
            table,
            "{name}\nsecond  MB acknowledged  resent  timeouts  zero windows"
        )
        .expect("a string");
        for (nth, second) in run
            .seconds
            .iter()
            .enumerate()
            .filter(|(nth, _)| nth % 2 == 1)
        {
            writeln!(
                table,
                "{:>6}{:>17.1}{:>8}{:>10}{:>14}",
                nth + 1,
                (second.acknowledged * 1_448) as f64 / 1e6,
                second.retransmitted,
                second.timeouts,
                second.zero_windows
            )
            .expect("a string");
        }
        writeln!(table, "queue, packets  least median    90 %   most").expect("a string");
        let queues: [(&str, Length); 4] = [
            ("receive", |of| of.receive),
            ("backlog", |of| of.backlog),
            ("prequeue", |of| of.prequeue),
            ("out of order", |of| of.out_of_order),
        ];
        for (queue, of) in queues {
            writeln!(table, "{queue:<12}{}", part(&run.queues, of)).expect("a string");
        }
        table.push('\n');
    }
    let [alone, old, new] = runs.map(|(_, run)| run);
    assert_eq!(alone.counted.retransmitted, 0, "Fig 8a: no retransmission");
    assert!(
        old.counted.retransmitted > 2 * new.counted.retransmitted,
        "Figs 11a and 11b"
    );
    let median = |run: &Outcome, of: Length| {
        let mut all: Vec<_> = run.queues.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    for run in [&alone, &old, &new] {
        assert_eq!(
            median(run, |of| of.prequeue),
            0,
            "normally empty, as in Figs 9 and 10"
        );
        assert_eq!(median(run, |of| of.out_of_order), 0);
    }
    assert!(
        median(&old, |of| of.backlog) > 0,
        "not empty while the process does not run"
    );
    compare("figures-8-12", &table);
}
