//! The same experiments with numbers of processes and round trips that the paper does not have.

use crate::world::{Outcome, World};
use crate::{RULES, Runs, compare, long_waits, timeouts};
use std::fmt::Write;

const HEAD: &str = "rule   Mbit/s  process   CPU %  timeouts  T_wait >= 200 ms\n";

fn row(table: &mut String, name: &str, rule: &str, runs: &Runs) {
    writeln!(
        table,
        "{name:>9}  {rule:<5}{:>8.1}{:>9.1}{:>8.2}{:>10.0}{:>18.0}",
        runs.median(Outcome::mbits_per_s),
        runs.median(Outcome::copied_mbits_per_s),
        runs.median(Outcome::share_percent),
        runs.median(timeouts),
        runs.median(long_waits),
    )
    .expect("a string");
}

/// Eq. 12: a timer of 200 ms expires from three slices of 100 ms on, and not for one. One seed.
#[test]
fn processes_from_none_to_ten() {
    let mut table = format!("processes  {HEAD}");
    for others in 0..=10 {
        let runs = RULES.map(|(_, rule)| {
            Runs(vec![
                World {
                    rule,
                    loops: others,
                    seed: 1,
                    ..World::default()
                }
                .run(),
            ])
        });
        for ((rule, _), runs) in RULES.iter().zip(&runs) {
            row(&mut table, &others.to_string(), rule, runs);
        }
        let [old, new, fair] = runs.map(|runs| timeouts(&runs.0[0]));
        assert!(others > 1 || old == 0.0, "{others}: {old}");
        assert!(others < 3 || old >= 20.0, "{others}: {old}");
        assert!(others < 3 || new <= old / 2.0, "{others}: {new}, {old}");
        assert_eq!(fair, 0.0, "{others}");
    }
    compare("processes", &table);
}

/// With round trips of a millisecond and more, the receiver runs out of data after a timeout. It sleeps, becomes
/// interactive, and gets several times its fair share. So the stall pays that the extra turn avoids.
#[test]
fn round_trips() {
    let mut table = format!("     RTT   {HEAD}");
    for (name, rtt_us) in [
        (".2 ms", 200),
        ("1 ms", 1_000),
        ("10 ms", 10_000),
        ("50 ms", 50_000),
    ] {
        let runs = RULES.map(|(_, rule)| {
            Runs::of(World {
                rule,
                rtt_us,
                loops: 10,
                ..World::default()
            })
        });
        for ((rule, _), runs) in RULES.iter().zip(&runs) {
            row(&mut table, name, rule, runs);
        }
        let [old, new, fair] = &runs;
        assert_eq!(
            (fair.most(timeouts), fair.most(long_waits)),
            (0.0, 0.0),
            "{name}"
        );
        if rtt_us > 200 {
            let share = |runs: &Runs| runs.median(Outcome::share_percent);
            assert!(share(old) > 30.0, "{name}: {}", share(old));
            assert!(
                share(fair) < share(old) && share(new) < 1.05 * share(old),
                "{name}"
            );
        }
    }
    compare("round-trips", &table);
}
