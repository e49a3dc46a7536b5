//! Send memory by need beside equal shares and shares by window: SSBT's Fig 17 as asserts, and a table with the figures.
//!
//! A claim holds for each seed, and the table has the medians. `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the table.

mod table;

use ackpace_share::Policy;
use ackpace_share::eatbt::Need;
use ackpace_sim::models::link::{LinkProfile, Loss, QueueDiscipline};
use ackpace_sim::worlds::send_memory::{Flow, Outcome, World};
use table::{Table, compare, over_seeds};

const SEEDS: [u64; 7] = [
    20_260_101, 20_260_201, 20_260_301, 20_260_401, 20_260_501, 20_260_601, 20_260_701,
];
const POLICIES: [(&str, Policy); 4] = [
    ("equal", Policy::Equal),
    ("window", Policy::Window),
    ("need: paper", Policy::ByNeed(Need::Paper)),
    ("need: law", Policy::ByNeed(Need::Law)),
];

fn link(rate_mbits_per_s: u64, delay_us: u64, p: f64) -> LinkProfile {
    LinkProfile {
        rate_bits_per_s: Some(rate_mbits_per_s * 1_000_000),
        delay_us,
        jitter_us: 0,
        may_reorder: false,
        queue: QueueDiscipline::DropTail {
            limit_bytes: 64 << 10,
        },
        loss: Loss::Bernoulli { p },
        mark: 0.0,
    }
}

/// A world of one connection that is measured, and others.
struct Case {
    name: &'static str,
    links: Vec<LinkProfile>,
    flows: Vec<Flow>,
    pool_bytes: u64,
}

/// As SSBT's Fig 17: one connection on a fast link (60 Mbit/s, 20 ms), `slow` others share one of 10 Mbit/s and 4 ms.
fn many_slow(name: &'static str, slow: usize) -> Case {
    let flow = |nth: usize| Flow {
        link: nth.min(1),
        network: nth.min(1) as u8,
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

/// The same without loss, and with a queue before the slow link that can hold the whole pool: a connection that begins
/// late never sees the round trip of an empty queue.
fn long_queue(name: &'static str, slow: usize) -> Case {
    let queue = |rate_mbits_per_s| LinkProfile {
        queue: QueueDiscipline::DropTail {
            limit_bytes: 256 << 10,
        },
        ..link(rate_mbits_per_s, 6_000, 0.0)
    };
    let flow = |nth: usize| Flow {
        link: nth.min(1),
        network: nth.min(1) as u8,
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
        network: nth as u8,
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

/// Eight alike behind one link of 40 Mbit/s and 20 ms, whose queue can hold what the pool has beside their product.
fn alike() -> Case {
    let shared = LinkProfile {
        queue: QueueDiscipline::DropTail {
            limit_bytes: 250_000,
        },
        ..link(40, 10_000, 0.0)
    };
    let flow = |nth: usize| Flow {
        link: 0,
        network: 0,
        back_us: 10_000,
        starts_at_us: nth as u64 * 137_000,
    };
    Case {
        name: "8 alike",
        links: vec![shared],
        flows: (0..8).map(flow).collect(),
        pool_bytes: 256 << 10,
    }
}

/// Results of the first connection, and of all others together.
#[derive(Clone, Copy, Debug)]
struct Measured {
    first_mbits: f64,
    others_mbits: f64,
    first: Outcome,
}

fn outcomes(case: &Case, policy: Policy, seed: u64) -> Vec<Outcome> {
    let world = World {
        links: case.links.clone(),
        flows: case.flows.clone(),
        policy,
        pool_bytes: case.pool_bytes,
        measured_from_us: 30_000_000,
        ends_at_us: 90_000_000,
        seed,
    };
    world.run()
}

/// The goodput of each connection, bytes per second.
fn rates(case: &Case, policy: Policy, seed: u64) -> Vec<f64> {
    let outcomes = outcomes(case, policy, seed);
    outcomes.iter().map(|one| one.bytes_per_s as f64).collect()
}

fn run(case: &Case, policy: Policy, seed: u64) -> Measured {
    let outcomes = outcomes(case, policy, seed);
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
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("first Mbit/s", 1),
            ("others Mbit/s", 1),
            ("its share KB", 1),
            ("cv of it", 2),
        ];
        let mut table = Table::new(seed, "case             shares", columns);
        // The least that the first gains by need over equal shares, and over shares by window with no more of their
        // variation. Beside a long queue nothing is lost, and windows divide as equal shares do, without any variation.
        for (case, over_equal, over_window) in [
            (lossy(), 1.3, Some(1.03)),
            (many_slow("Fig 17, alone", 0), 1.0, Some(1.0)),
            (many_slow("Fig 17, 15 slow", 15), 6.0, Some(1.03)),
            (many_slow("Fig 17, 30 slow", 30), 5.0, Some(1.03)),
            (long_queue("queue, 15 slow", 15), 6.0, None),
            (long_queue("queue, 30 slow", 30), 5.0, None),
        ] {
            let [equal, window, _, law] = by_policy(seed, &case, &mut table);
            let (fast, fast_equal) = (law.first_mbits, equal.first_mbits);
            assert!(fast >= over_equal * fast_equal, "{table}");
            // What the others give is less than what the first gains.
            let all = |of: Measured| of.first_mbits + of.others_mbits;
            assert!(all(law) >= 0.99 * all(equal), "{table}");
            assert!(law.first.share_cv <= 0.08, "{table}");
            if let Some(gain) = over_window {
                assert!(fast >= gain * window.first_mbits, "{table}");
                let (cv, window_cv) = (law.first.share_cv, window.first.share_cv);
                assert!(cv <= window_cv, "{cv} of {window_cv}; {table}");
            }
        }
        table
    });
    compare("send_memory", &Table::medians(&tables).to_string());
}

fn by_policy(seed: u64, case: &Case, table: &mut Table<4>) -> [Measured; 4] {
    POLICIES.map(|(name, policy)| {
        let of = run(case, policy, seed);
        let (share_kb, cv) = (of.first.share_bytes as f64 / 1e3, of.first.share_cv);
        let figures = [of.first_mbits, of.others_mbits, share_kb, cv];
        table.row(format!("{:15}  {name}", case.name), figures);
        of
    })
}

#[test]
fn a_fast_connection_keeps_its_rate_among_slow_ones_of_its_own_network() {
    for seed in SEEDS {
        for mut case in [lossy(), many_slow("Fig 17, 15 slow", 15)] {
            let first = |case: &Case| run(case, Policy::ByNeed(Need::Law), seed).first_mbits;
            let apart = first(&case);
            case.flows.iter_mut().for_each(|flow| flow.network = 0);
            let together = first(&case);
            assert!(
                together >= 0.95 * apart,
                "{}, seed {seed}: {together} of {apart}",
                case.name
            );
        }
    }
}

#[test]
fn those_behind_one_link_get_the_same_where_shares_bind_all_of_them() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [("all Mbit/s", 1), ("Jain", 3)];
        let mut table = Table::new(seed, "shares", columns);
        let [equal, .., law] = POLICIES.map(|(name, policy)| {
            let rates = rates(&alike(), policy, seed);
            let sum: f64 = rates.iter().sum();
            let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
            let jain = sum * sum / (rates.len() as f64 * squares);
            table.row(name.into(), [sum * 8e-6, jain]);
            jain
        });
        assert!(law >= 0.95 && law >= 0.99 * equal, "{table}");
        table
    });
    compare("alike", &Table::medians(&tables).to_string());
}

#[test]
fn the_same_world_runs_the_same_way() {
    let run = || run(&lossy(), Policy::ByNeed(Need::Law), 3);
    assert_eq!(run().first, run().first);
}
