//! Sockets that their shares of the send memory hold up: filled by a timer, or when the kernel calls.
//!
//! `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the table.

mod table;

use ackpace_core::units::Instant;
use ackpace_sim::worlds::credit::{Client, Outcome, World};
use table::{Table, compare};

/// Clients of this rate, with shares for their bandwidth-delay product and for so much longer. Rates and round trips are
/// spread by a third.
fn clients(count: u64, rate_bytes_per_s: u64, lasts_us: u64) -> Vec<Client> {
    let one = |nth: u64| {
        let spread = |mean: u64| mean * (2 * count + 2 * nth) / (3 * count - 1);
        let (rate_bytes_per_s, rtt_us) = (spread(rate_bytes_per_s), spread(20_000));
        Client {
            rate_bytes_per_s,
            rtt_us,
            share_bytes: rate_bytes_per_s * (rtt_us * 5 / 4 + lasts_us) / 1_000_000 + 2_896,
        }
    };
    (0..count).map(one).collect()
}

fn run(clients: &[Client], timed: bool, late_us: u64) -> Outcome {
    let world = World {
        clients: clients.to_vec(),
        timed,
        late_us,
        measured_from: Instant { us: 2_000_000 },
        ends_at: Instant { us: 8_000_000 },
    };
    world.run()
}

#[test]
fn a_timer_fills_many_sockets_at_once_where_the_kernel_calls_each() {
    let columns = [
        ("wakes/GB", 0),
        ("sends/GB", 0),
        ("in vain %", 1),
        ("idle %", 2),
    ];
    let mut table = Table::new(0, "clients               filled", columns);
    let fast_and_slow = |lasts_us| {
        let fast = clients(4, 6_250_000, lasts_us);
        [fast, clients(60, 250_000, lasts_us)].concat()
    };
    for (name, clients) in [
        ("60 slow, 50 ms", clients(60, 250_000, 50_000)),
        ("4 fast, 60 slow, 50 ms", fast_and_slow(50_000)),
        ("4 fast, 60 slow, 20 ms", fast_and_slow(20_000)),
        ("4 fast, 60 slow, 5 ms", fast_and_slow(5_000)),
    ] {
        let [called, timed] = [false, true].map(|timed| {
            let of = run(&clients, timed, 500);
            let figures = [
                of.per_gb(of.wakes),
                of.per_gb(of.sends),
                100.0 * of.in_vain as f64 / of.sends as f64,
                100.0 * of.idle,
            ];
            let way = if timed { "timer" } else { "kernel" };
            table.row(format!("{name:22}  {way}"), figures);
            of
        });
        assert!(timed.idle <= called.idle + 0.005, "{table}");
        if !name.ends_with(" 5 ms") {
            assert!(timed.wakes * 4 < called.wakes, "{table}");
        }
    }
    compare("credit", &table.to_string());
}
