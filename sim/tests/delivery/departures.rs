//! TPF 4.5 and 4.6, Fig. 16: clients that leave, and clients whose path halves its rate at one moment.

use super::*;
use ackpace_sim::worlds::sending::Change;

/// Number of clients.
const CLIENTS: usize = 300;
const CHANGE_AT: Instant = Instant { us: 30_000_000 };

/// 300 clients of this rate, counted from the change until `after_s` later.
fn before_and_after(rate: u64, disk: Settings, after_s: u64) -> World {
    World {
        measured_from: CHANGE_AT,
        ends_at: CHANGE_AT.plus_us(after_s * 1_000_000),
        ..world(downloads(&[(CLIENTS, rate)]), disk)
    }
}

#[test]
fn nothing_is_read_for_clients_that_left() {
    const LEFT: usize = 45;
    let mut table = String::from(
        "reads           for the dead, KB   for the living, KB/s each   others before\n",
    );
    let run = |cancel, prefetch, resets| {
        let disk = Settings {
            cancel,
            prefetch,
            ..settings(64)
        };
        let mut world = before_and_after(2 * MBIT, disk, 5); // more than the disk can deliver
        for download in &mut world.downloads[..LEFT] {
            download.resets_at = Some(CHANGE_AT).filter(|_| resets);
        }
        let outcome = world.run();
        let (living, _) = kb_per_s(&world, &outcome, LEFT..CLIENTS);
        (outcome, living)
    };
    for (name, prefetch) in [("tdap", Prefetch::Tdap), ("fixed", FIXED)] {
        let (_, stayed) = run(true, prefetch, false);
        let (cancelled, living) = run(true, prefetch, true);
        let (kept, living_beside) = run(false, prefetch, true);
        for (way, outcome, living) in [
            ("cancelled", &cancelled, living),
            ("kept", &kept, living_beside),
        ] {
            table += &format!(
                "{name:5} {way:9} {:16.0} {living:20.1} {stayed:20.1}\n",
                outcome.dead_read_bytes as f64 / 1e3,
            );
        }
        assert_eq!(cancelled.dead_read_bytes, 0, "seed {SEED}, {name}");
        assert!(kept.dead_read_bytes > 0, "seed {SEED}, {name}\n{table}");
        assert!(
            living > stayed,
            "seed {SEED}, {name}: nobody gained\n{table}"
        );
    }
    compare("reset", &table);
}

#[test]
fn when_a_path_carries_half_as_much_it_is_read_for_half_as_much() {
    const SLOWER: usize = CLIENTS / 5;
    let mut table = String::from("within s   read for them, MB   had nothing happened   ratio\n");
    for (after_s, ratio_max) in [(2, 0.9), (5, 0.65), (10, 0.6)] {
        let run = |percent| {
            let mut world = before_and_after(MBIT, settings(64), after_s);
            for download in &mut world.downloads[..SLOWER] {
                download.client.change = Some(Change {
                    at: CHANGE_AT,
                    percent,
                });
            }
            let outcome = world.run();
            let read_bytes = outcome.read_by_client_bytes[..SLOWER].iter().sum::<u64>();
            read_bytes as f64
        };
        let [full, half] = [100, 50].map(run);
        table += &format!(
            "{after_s:8} {:20.1} {:22.1} {:7.2}\n",
            half / 1e6,
            full / 1e6,
            half / full
        );
        assert!(
            half <= ratio_max * full,
            "seed {SEED}: read on as before\n{table}"
        );
    }
    compare("congestion", &table);
}
