//! Many equal clients at once.

use super::*;
use ackpace_core::limits::{SEND_BUFFER_BYTES, SEND_QUEUE_BYTES};

/// Time from which the many clients are counted, seconds. The maximum that sockets hold counts from their start.
const MANY_FROM_S: u64 = 14;
/// The bound where a socket holds more bytes than a step of the window.
const WAKES_PER_GB_MAX: f64 = 40.0;
/// The kernel opens a window by this part of the receive buffer.
const WINDOW_STEPS: u64 = 16;

#[test]
fn many_clients_that_read_at_a_pace_of_their_own_cost_few_wake_ups() {
    let mut table = String::from(
        "clients           buffer KiB  wake-ups/GB  top-ups/GB  queue MB  queue max MB  underrun ms\n",
    );
    let loads = [(100, 1_000, 256), (300, 250, 256), (1_000, 100, 256)];
    for (clients, kb_per_s, buffer_kib) in loads.into_iter().chain([(1_000, 100, 6_144)]) {
        let outcomes = SEEDS.map(|seed| many(clients, kb_per_s, buffer_kib, seed));
        let wakes = median(&outcomes, Outcome::wakes_per_gb);
        let queue_bytes = median(&outcomes, |outcome| outcome.queue_mean_bytes as f64);
        let queue_max_bytes = median(&outcomes, |outcome| outcome.queue_max_bytes as f64);
        let underrun_ms = |outcome: &Outcome| {
            let each = outcome.readers.iter().map(|reader| reader.underrun_ms);
            each.sum::<u64>() as f64
        };
        table += &format!("{clients:5} x {kb_per_s:5} KB/s {buffer_kib:11} {wakes:12.1}");
        table += &cell(median(&outcomes, Outcome::top_ups_per_gb), 11, 0);
        table += &cell(queue_bytes / 1e6, 9, 1);
        table += &cell(queue_max_bytes / 1e6, 13, 1);
        table += &(cell(median(&outcomes, underrun_ms), 12, 0) + "\n");
        // A window that opens by all that a socket holds empties it: one wake-up each time.
        let step_bytes = (buffer_kib << 10) / WINDOW_STEPS;
        let wakes_max = match step_bytes * 4 > STEADY_QUEUE_BYTES / clients as u64 {
            true => 1e9 / step_bytes as f64,
            false => WAKES_PER_GB_MAX,
        };
        assert!(
            wakes <= wakes_max,
            "seeds {SEEDS:?}: too many wake-ups\n{table}"
        );
        // First bursts included. A filling may be too much by a buffer of the kernel's.
        let queue_bytes_max =
            STEADY_QUEUE_BYTES + SEND_QUEUE_BYTES + clients as u64 * SEND_BUFFER_BYTES;
        assert!(
            queue_max_bytes <= queue_bytes_max as f64,
            "seeds {SEEDS:?}: above the budget\n{table}"
        );
        assert_eq!(
            median(&outcomes, underrun_ms),
            0.0,
            "seeds {SEEDS:?}: somebody waited\n{table}"
        );
    }
    compare("many", &table);
}

/// Clients that start within a second, at .9 to 1.1 times this rate.
fn many(clients: usize, kb_per_s: u64, buffer_kib: u64, seed: u64) -> Outcome {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let client = |_| {
        let rate_bytes_per_s = kb_per_s * (900 + dice.next_u64() % 201);
        Kind::Steady.client(rate_bytes_per_s, buffer_kib, &mut dice)
    };
    world(
        (0..clients).map(client).collect(),
        MANY_FROM_S,
        MANY_FROM_S + 4,
    )
    .run()
}
