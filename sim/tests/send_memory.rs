//! Send memory by need beside equal shares and shares by window: SSBT's Fig 17 as asserts, and a table with the figures.
//!
//! `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the table.

use ackpace_core::sndbuf::Policy;
use ackpace_core::sndbuf::atbt::Windows;
use ackpace_core::sndbuf::eatbt::Need;
use ackpace_sim::models::link::{Loss, Profile, Queue};
use ackpace_sim::worlds::send_memory::{Flow, Outcome, World};
use std::fmt::Write;

const SEED: u64 = 20_260_101;
const POLICIES: [(&str, Policy); 4] = [
    ("equal", Policy::Equal),
    ("window", Policy::Window(Windows::One)),
    ("need: paper", Policy::ByNeed(Need::Paper)),
    ("need: law", Policy::ByNeed(Need::Law)),
];

fn link(rate_mbits_per_s: u64, delay_us: u64, p: f64) -> Profile {
    Profile {
        rate_bits_per_s: Some(rate_mbits_per_s * 1_000_000),
        delay_us,
        jitter_us: 0,
        may_reorder: false,
        queue: Queue::DropTail {
            limit_bytes: 64 << 10,
        },
        loss: Loss::Bernoulli { p },
        mark: 0.0,
    }
}

/// A world of one connection that is measured, and others.
struct Case {
    name: &'static str,
    links: Vec<Profile>,
    flows: Vec<Flow>,
    pool_bytes: u64,
}

/// As SSBT's Fig 17: one connection on a fast link (60 Mbit/s, 20 ms), `slow` others share one of 10 Mbit/s and 4 ms.
fn many_slow(name: &'static str, slow: usize) -> Case {
    let flow = |nth: usize| Flow {
        link: nth.min(1),
        back_us: if nth == 0 { 10_000 } else { 2_000 },
        starts_at_us: nth as u64 * 137_000,
    };
    Case {
        name,
        links: vec![link(60, 10_000, 0.0001), link(10, 2_000, 0.001)],
        flows: (0..=slow).map(flow).collect(),
        pool_bytes: 160_000,
    }
}

/// The same without loss, and with a queue before the slow link that all of the pool can stand in: who begins late never
/// sees the round trip of an empty one.
fn long_queue(name: &'static str, slow: usize) -> Case {
    let queue = |rate_mbits_per_s| Profile {
        queue: Queue::DropTail {
            limit_bytes: 256 << 10,
        },
        ..link(rate_mbits_per_s, 6_000, 0.0)
    };
    let flow = |nth: usize| Flow {
        link: nth.min(1),
        back_us: 6_000,
        starts_at_us: nth as u64 * 30_000,
    };
    Case {
        name,
        links: vec![queue(300), queue(10)],
        flows: (0..=slow).map(flow).collect(),
        pool_bytes: 160_000,
    }
}

/// As SSBT's Fig 5: eight links of 100 Mbit/s and 12 ms, one of which loses .01 % and the others 2 %; 100 packets.
fn lossy() -> Case {
    let loss = |nth: usize| if nth == 0 { 0.0001 } else { 0.02 };
    let flow = |nth: usize| Flow {
        link: nth,
        back_us: 6_000,
        starts_at_us: nth as u64 * 137_000,
    };
    Case {
        name: "Fig 5, 7 at 2 %",
        links: (0..8).map(|nth| link(100, 6_000, loss(nth))).collect(),
        flows: (0..8).map(flow).collect(),
        pool_bytes: 145_000,
    }
}

/// What became of the first connection, and of the others together.
#[derive(Clone, Copy, Debug)]
struct Measured {
    first_mbits: f64,
    others_mbits: f64,
    first: Outcome,
}

fn run(case: &Case, policy: Policy, seed: u64) -> Measured {
    let world = World {
        links: case.links.clone(),
        flows: case.flows.clone(),
        policy,
        pool_bytes: case.pool_bytes,
        measured_from_us: 30_000_000,
        ends_at_us: 90_000_000,
        seed,
    };
    let outcomes = world.run();
    let rates = outcomes.iter().map(|one| one.bytes_per_s);
    let mbits = |bytes_per_s: u64| bytes_per_s as f64 * 8e-6;
    Measured {
        first_mbits: mbits(outcomes[0].bytes_per_s),
        others_mbits: mbits(rates.skip(1).sum()),
        first: outcomes[0],
    }
}

#[test]
fn a_fast_connection_keeps_its_rate_among_slow_ones() {
    let mut table = format!(
        "{:<18}shares       first Mbit/s  others Mbit/s  its share KB  cv of it\n",
        "case"
    );
    // The least that the first gains by need over equal shares, and over shares by window with a third of their
    // variation. Beside a long queue nothing is lost, and windows divide as equal shares do, without any variation.
    for (case, over_equal, over_window) in [
        (lossy(), 1.3, Some(1.03)),
        (many_slow("Fig 17, alone", 0), 1.0, Some(1.0)),
        (many_slow("Fig 17, 15 slow", 15), 6.0, Some(1.03)),
        (many_slow("Fig 17, 30 slow", 30), 5.0, Some(1.03)),
        (long_queue("queue, 15 slow", 15), 6.0, None),
        (long_queue("queue, 30 slow", 30), 5.0, None),
    ] {
        for seed in (0..7).map(|nth| SEED + 100 * nth) {
            let [equal, window, _, law] = POLICIES.map(|(_, policy)| run(&case, policy, seed));
            let what = format!(
                "{}, seed {seed}: {law:?}, equal {equal:?}, window {window:?}",
                case.name
            );
            assert!(law.first_mbits >= over_equal * equal.first_mbits, "{what}");
            // What the others give is less than what the first gains.
            let all = |of: Measured| of.first_mbits + of.others_mbits;
            assert!(all(law) >= 0.99 * all(equal), "{what}");
            assert!(law.first.share_cv <= 0.08, "{what}");
            if let Some(gain) = over_window {
                assert!(law.first_mbits >= gain * window.first_mbits, "{what}");
                assert!(law.first.share_cv <= window.first.share_cv / 3.0, "{what}");
            }
        }
        for (name, policy) in POLICIES {
            let of = run(&case, policy, SEED);
            let (share_kb, cv) = (of.first.share_bytes as f64 / 1e3, of.first.share_cv);
            writeln!(
                table,
                "{:<18}{name:<11}  {:>12.1}  {:>13.1}  {share_kb:>12.1}  {cv:>8.2}",
                case.name, of.first_mbits, of.others_mbits
            )
            .expect("a string");
        }
    }
    compare("tests/send_memory.txt", &table);
}

#[test]
fn the_same_world_runs_the_same_way() {
    let run = || run(&lossy(), Policy::ByNeed(Need::Law), 3);
    assert_eq!(run().first, run().first);
}

fn compare(path: &str, table: &str) {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_TABLES").is_some() {
        std::fs::write(&path, table).expect("the table");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == table, "{path} differs; now:\n{table}");
}
