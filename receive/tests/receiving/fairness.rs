//! Table 7: what the extra turn costs others.

use crate::world::{MSS_BYTES, Outcome, World};
use crate::{RULES, Runs, compare};
use std::fmt::Write;

/// Background processes; Mbit/s and share of the CPU in the paper, per cent, as printed: by its times the first is 52.59,
/// the second 28.36.
const PAPER: [(usize, f64, f64); 4] = [
    (1, 265.0, 52.58),
    (3, 143.0, 28.38),
    (4, 117.0, 23.8),
    (9, 70.0, 13.86),
];
/// The head start is over by then.
const LATER_S: u64 = 5;

/// The receiver gets the paper's excess over its fair share with the rule and without it. The excess is a head start: the
/// process begins as an interactive one, and runs alone for most of a second. After that all get their fair share.
#[test]
fn table_7() {
    let mut table = String::from(
        "others  rule   Mbit/s  paper   CPU %  paper   fair  from 5 s on  extra turns  T_wait >= 200 ms\n",
    );
    for (others, mbits, share) in PAPER {
        let fair = 100.0 / (others + 1) as f64;
        let mut usual = f64::NAN;
        for (name, rule) in RULES {
            let runs = Runs::of(World {
                rule,
                loops: others,
                buffer: 20_000_000 / MSS_BYTES,
                ..World::default()
            });
            let later = |of: &Outcome| of.later_share_percent(LATER_S);
            let (ours, ours_share) = (
                runs.median(Outcome::mbits_per_s),
                runs.median(Outcome::share_percent),
            );
            writeln!(
                table,
                "{others:>6}  {name:<5}{ours:>8.1}{mbits:>7.0}{ours_share:>8.2}{share:>7.2}{fair:>7.2}{:>13.2}{:>13.0}{:>18.0}",
                runs.median(later),
                runs.median(|of| of.scheduled.extra as f64),
                runs.median(crate::long_waits),
            )
            .expect("a string");
            assert!((ours / mbits - 1.0).abs() < 0.06, "{others} {name}: {ours}");
            assert!(
                (ours_share - share).abs() < 0.9,
                "{others} {name}: {ours_share}"
            );
            let excess = runs.median(later) - fair;
            assert!(
                excess.abs() < 0.7,
                "{others} {name}: {excess} over a fair share"
            );
            if name == "O" {
                usual = runs.median(later);
            }
            let gained = runs.median(later) - usual;
            assert!(
                gained <= 0.2,
                "{others} {name}: {gained} over what it has without a turn"
            );
        }
    }
    compare("table-7", &table);
}
