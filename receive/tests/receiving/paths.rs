//! The same experiments with numbers of processes, round trips and losses that the paper does not have.

use crate::world::{Costs, Load, Outcome, PENTIUM_III, World};
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
            let load = Load::Loops(others);
            let seed = 1;
            Runs(vec![
                World {
                    rule,
                    load,
                    seed,
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
                load: Load::Loops(10),
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

/// Where losses keep the sender below what the receiver can take, no slice ends while packets wait for long.
#[test]
fn losses() {
    let mut table = format!("    loss   {HEAD}");
    for (name, loss) in [
        (".001 %", 1e-5),
        (".01 %", 1e-4),
        (".03 %", 3e-4),
        ("1 %", 1e-2),
    ] {
        let runs = RULES.map(|(_, rule)| {
            Runs::of(World {
                rule,
                loss,
                load: Load::Loops(10),
                ..World::default()
            })
        });
        for ((rule, _), runs) in RULES.iter().zip(&runs) {
            row(&mut table, name, rule, runs);
        }
        let [old, new, fair] = &runs;
        assert_eq!(fair.most(long_waits), 0.0, "{name}");
        if loss >= 1e-2 {
            assert_eq!(
                (old.most(long_waits), new.most(long_waits)),
                (0.0, 0.0),
                "{name}"
            );
        }
    }
    compare("losses", &table);
}

/// The paper does not say how the CPU time of a packet divides between softirq and process. For any division, the rule
/// moves no CPU time, and the process gets no more data by it.
#[test]
fn other_divisions_of_the_cost() {
    let mut table = format!(" softirq   {HEAD}");
    for (irq_ns, tcp_ns) in [(5_000, 3_000), (7_500, 4_500), (9_500, 6_500)] {
        let all_ns = PENTIUM_III.irq_ns + PENTIUM_III.tcp_ns + PENTIUM_III.copy_ns;
        let costs = Costs {
            irq_ns,
            tcp_ns,
            copy_ns: all_ns - irq_ns - tcp_ns,
            ..PENTIUM_III
        };
        let runs = RULES.map(|(_, rule)| {
            Runs::of(World {
                rule,
                costs,
                load: Load::Loops(10),
                ..World::default()
            })
        });
        let name = format!("{} us", (irq_ns + tcp_ns) / 1_000);
        for ((rule, _), runs) in RULES.iter().zip(&runs) {
            row(&mut table, &name, rule, runs);
        }
        let [old, new, fair] = &runs;
        let share = |runs: &Runs| runs.median(Outcome::share_percent);
        let copied = |runs: &Runs| runs.median(Outcome::copied_mbits_per_s);
        assert!((share(new) - share(old)).abs() < 0.2, "{name}");
        assert!((share(fair) - share(old)).abs() < 0.2, "{name}");
        assert!(
            copied(new) <= 1.02 * copied(old) && copied(fair) <= 1.02 * copied(old),
            "{name}"
        );
    }
    compare("costs", &table);
}
