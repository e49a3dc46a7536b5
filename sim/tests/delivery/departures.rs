//! TPF 4.5 and 4.6, Fig. 16: clients that leave, and clients whose path halves its rate at one moment.

use super::*;
use ackpace_sim::worlds::sending::Change;

/// Number of clients.
const CLIENTS: usize = 300;
const CHANGE_AT: Instant = Instant { us: 30_000_000 };

/// 300 clients of this rate, counted from the change until `after_s` later.
fn before_and_after(seed: u64, rate: u64, disk: Settings, after_s: u64) -> World {
    World {
        measured_from: CHANGE_AT,
        ends_at: CHANGE_AT.plus_us(after_s * 1_000_000),
        ..world(downloads(seed, &[(CLIENTS, rate)]), disk)
    }
}

#[test]
fn nothing_is_read_for_clients_that_left() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("for the dead, KB", 0),
            ("for the living, KB/s each", 1),
            ("had nobody left", 1),
        ];
        let mut table = Table::new(seed, "reads", columns);
        for (name, prefetch) in [("tdap", Prefetch::Tdap), ("fixed", FIXED)] {
            resets(seed, name, prefetch, &mut table);
        }
        table
    });
    compare("delivery/reset", &Table::medians(&tables).to_string());
}

fn resets(seed: u64, name: &str, prefetch: Prefetch, table: &mut Table<3>) {
    const LEFT: usize = 45;
    let run = |cancel, resets| {
        let disk = Settings {
            cancel,
            prefetch,
            ..settings(64)
        };
        let mut world = before_and_after(seed, 2 * MBIT, disk, 5); // more than the disk can deliver
        for download in &mut world.downloads[..LEFT] {
            download.resets_at = Some(CHANGE_AT).filter(|_| resets);
        }
        let outcome = world.run();
        let (living, _) = kb_per_s(&world, &outcome, LEFT..CLIENTS);
        (outcome.dead_read_bytes, living)
    };
    let (_, stayed) = run(true, false);
    let ways = [("cancelled", true), ("kept", false)];
    let [(cancelled, living), (kept, _)] = ways.map(|(way, cancel)| {
        let (dead_bytes, living) = run(cancel, true);
        let figures = [dead_bytes as f64 / 1e3, living, stayed];
        table.row(format!("{name:5}  {way}"), figures);
        (dead_bytes, living)
    });
    assert_eq!(cancelled, 0, "{table}");
    assert!(kept > 0, "{table}");
    assert!(living > stayed, "nobody gained; {table}");
}

#[test]
fn when_a_path_carries_half_as_much_it_is_read_for_half_as_much() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("read for them, MB", 1),
            ("had nothing happened", 1),
            ("ratio", 2),
        ];
        let mut table = Table::new(seed, "within s", columns);
        for (after_s, ratio_max) in [(2, 0.9), (5, 0.65), (10, 0.6)] {
            let [full, half] = [100, 50].map(|percent| read_for_slower(seed, percent, after_s));
            let figures = [half / 1e6, full / 1e6, half / full];
            table.row(format!("{after_s:8}"), figures);
            assert!(half <= ratio_max * full, "read on as before; {table}");
        }
        table
    });
    compare("delivery/congestion", &Table::medians(&tables).to_string());
}

/// Bytes read for the fifth of the clients whose paths carry this much of their rates from the change on.
fn read_for_slower(seed: u64, percent: u64, after_s: u64) -> f64 {
    const SLOWER: usize = CLIENTS / 5;
    let mut world = before_and_after(seed, MBIT, settings(64), after_s);
    for download in &mut world.downloads[..SLOWER] {
        download.client.change = Some(Change {
            at: CHANGE_AT,
            percent,
        });
    }
    let outcome = world.run();
    outcome.read_by_client_bytes[..SLOWER].iter().sum::<u64>() as f64
}
