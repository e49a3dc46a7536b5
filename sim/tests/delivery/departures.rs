//! TPF 4.5, Fig. 16: clients that leave.

use super::*;

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
