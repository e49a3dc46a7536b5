//! Sending by margins beside sending eagerly: the claims of IDSR as asserts, and a table with the figures.
//!
//! A claim holds for each seed, and the table has the medians. `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the table.

mod table;

use ackpace_core::limits::{
    EPOLLOUT_US, SEND_QUEUE_BYTES, SEND_QUEUE_PERCENT, TARGET_US_MAX, TARGET_US_MIN,
    TOP_UP_BYTES_MAX,
};
use ackpace_core::units::Instant;
use ackpace_core::worker::SendPolicy;
use ackpace_sim::worlds::sending::{Change, Client, Outcome, Pace, SOCKET_BYTES, World};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use table::{Table, compare, over_seeds};

const MARGIN: SendPolicy = SendPolicy::Margin {
    budget_bytes: SEND_QUEUE_BYTES,
};
const MBIT: u64 = 125_000;
/// Far apart, since a world takes seeds for its clients from the next three hundred.
const SEEDS: [u64; 3] = [20_260_101, 20_261_101, 20_262_101];

/// Clients that start within a second, at 0.6 to 1.4 times `rate`: equal rates would synchronise them and flatter every
/// policy.
fn spread(clients: usize, rate: u64, seed: u64) -> Vec<Client> {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut below = |bound: u64| dice.next_u64() % bound;
    let client = |_| Client {
        rate_bytes_per_s: rate * (600 + below(801)) / 1000,
        starts_at: Instant {
            us: below(1_000_000),
        },
        change: None,
        pace: Pace::Steady,
        socket_bytes: SOCKET_BYTES,
    };
    (0..clients).map(client).collect()
}

/// 300 clients from 1 to 50 Mbit/s, most of them slow (Pareto's distribution, 1.2), all of them unsteady.
fn pareto(seed: u64) -> Vec<Client> {
    let mut clients = spread(300, MBIT, seed);
    for (nth, client) in clients.iter_mut().enumerate() {
        let part = (nth as f64 + 0.5) / 300.0;
        let tail = 1.0 - part * (1.0 - (1.0_f64 / 50.0).powf(1.2));
        client.rate_bytes_per_s = (MBIT as f64 * tail.powf(-1.0 / 1.2)) as u64;
        client.pace = Pace::Unsteady(seed + nth as u64);
    }
    clients
}

fn run(clients: Vec<Client>, send: SendPolicy) -> Outcome {
    let world = World {
        clients,
        send,
        measured_from: Instant { us: 4_000_000 },
        ends_at: Instant { us: 9_000_000 },
    };
    world.run()
}

fn cases(seed: u64) -> [(&'static str, Vec<Client>); 5] {
    let mixed = [
        spread(10, 100 * MBIT, seed),
        spread(500, 2 * MBIT, seed + 1),
    ]
    .concat();
    [
        ("10 x 20 Mbit/s", spread(10, 20 * MBIT, seed)),
        ("100 x 20 Mbit/s", spread(100, 20 * MBIT, seed)),
        ("10 x 100 + 500 x 2", mixed),
        ("1000 x 2 Mbit/s", spread(1000, 2 * MBIT, seed)),
        ("300 unsteady, 1-50", pareto(seed)),
    ]
}

#[test]
fn margins_save_wake_ups_and_queue_and_no_client_waits() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("wakes/GB", 0),
            ("refused, %", 0),
            ("queue MB", 1),
            ("queue max MB", 1),
            ("idle ms", 0),
        ];
        let mut table = Table::new(seed, "case                sends", columns);
        for (name, clients) in cases(seed) {
            eager_and_margin(name, &clients, &mut table);
        }
        table
    });
    compare("sending", &Table::medians(&tables).to_string());
}

fn eager_and_margin(name: &str, clients: &[Client], table: &mut Table<5>) {
    let [eager, margin] = [SendPolicy::Eager, MARGIN].map(|send| run(clients.to_vec(), send));
    for (way, outcome) in [("eager", &eager), ("margin", &margin)] {
        let figures = [
            outcome.wakes_per_gb(),
            100.0 * outcome.refused as f64 / outcome.sends as f64,
            outcome.queue_mean_bytes as f64 / 1e6,
            outcome.queue_max_bytes as f64 / 1e6,
            (outcome.idle_us / 1000) as f64,
        ];
        table.row(format!("{name:18}  {way}"), figures);
    }
    assert_eq!(margin.idle_us, 0, "a path stood idle; {table}");
    assert!(
        margin.sent_bytes >= eager.sent_bytes,
        "somebody got less; {table}"
    );
    // Steady clients become writable T after the last round, if they were given what their rate asks for. Unsteady
    // ones become writable earlier, and a round comes 0.2 T after the last one at the earliest.
    let steady = clients.iter().all(|client| client.pace == Pace::Steady);
    let target_us =
        SEND_QUEUE_BYTES / 100 * SEND_QUEUE_PERCENT * 5_000_000 / margin.sent_bytes - EPOLLOUT_US;
    let target_us = target_us.clamp(TARGET_US_MIN, TARGET_US_MAX);
    let wakes_max = match steady {
        true => 5_000_000 * 10 / (9 * target_us) + 10,
        false => 5_000_000 * 10 / (3 * target_us),
    };
    let wakes = margin.wakes;
    assert!(wakes <= wakes_max, "{wakes} of {wakes_max} wakes; {table}");
    // The bytes that slow clients hold have a bound of their own.
    let slow_bytes = clients.len() as u64 * TOP_UP_BYTES_MAX;
    let queue_max_bytes = SEND_QUEUE_BYTES + slow_bytes;
    assert!(margin.queue_max_bytes <= queue_max_bytes, "{table}");
}

#[test]
fn a_client_that_becomes_ten_times_faster_is_not_kept_waiting() {
    over_seeds(&SEEDS, |seed| {
        let mut clients = spread(24, 20 * MBIT, seed);
        for client in &mut clients[..2] {
            client.change = Some(Change {
                at: Instant { us: 5_000_000 },
                percent: 1_000,
            });
        }
        let idle_us = run(clients, MARGIN).idle_us;
        assert!(idle_us <= 5_000, "seed {seed}: {idle_us} us");
    });
}

#[test]
fn clients_that_change_their_pace_a_hundredfold_each_second_cost_neither_wake_ups_nor_queue() {
    over_seeds(&SEEDS, |seed| {
        let mut clients = spread(100, 20 * MBIT, seed);
        for client in clients.iter_mut().step_by(2) {
            client.pace = Pace::Swings;
        }
        let [eager, margin] = [SendPolicy::Eager, MARGIN].map(|send| run(clients.clone(), send));
        let (sent, eager_sent) = (margin.sent_bytes, eager.sent_bytes);
        assert!(
            sent * 100 >= eager_sent * 99,
            "seed {seed}: {sent} of {eager_sent} bytes"
        );
        // Every two seconds half of them become a hundred times faster in one moment: their sockets hold T of the mean
        // rate, not of the slow one.
        let idle_us = margin.idle_us;
        assert!(idle_us <= 5_000 * 50, "seed {seed}: {idle_us} us");
        // At most one wake-up in ten milliseconds: until a second's interval has told the new rate, sockets are filled by
        // the mean of both.
        let (wakes, eager_wakes) = (margin.wakes, eager.wakes);
        assert!(
            wakes <= 500 && wakes * 4 <= eager_wakes,
            "seed {seed}: {wakes} of {eager_wakes} wakes"
        );
        let queue_bytes = margin.queue_max_bytes;
        assert!(
            queue_bytes <= 2 * SEND_QUEUE_BYTES,
            "seed {seed}: {queue_bytes} bytes"
        );
    });
}

#[test]
fn the_same_world_runs_the_same_way() {
    let clients = || spread(50, 5 * MBIT, 3);
    assert_eq!(run(clients(), MARGIN), run(clients(), MARGIN));
}
