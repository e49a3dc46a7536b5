//! A receiver on a busy machine: Wu and Crawford's tables and figures beside what comes out here.
//!
//! Each row is the median of five seeds unless its test says otherwise; they are printed on failure. Where a claim of the paper is not reproduced, the
//! test asserts the result that we get instead; `docs/papers.md` gives the reasons. `UPDATE_TABLES=1 cargo test -p ackpace-receive --test
//! receiving` rewrites the tables.

mod fairness;
mod o1;
mod paths;
mod throughput;
mod world;

use crate::o1::Rule;
use crate::world::{Outcome, World};
use ackpace_receive::turn::When;

const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// Linux as it was, with the paper's rule, and with the fair rule for the owner of the lock.
const RULES: [(&str, Rule); 3] = [
    ("O", Rule::Usual),
    ("N", Rule::Listing1),
    ("fair", Rule::Charged(When::LockOwned)),
];

/// The runs of one case, a seed each.
struct Runs(Vec<Outcome>);

impl Runs {
    fn of(world: World) -> Runs {
        println!("seeds {SEEDS:?}: {world:?}");
        let run = |seed| World { seed, ..world }.run();
        Runs(SEEDS.iter().map(|&seed| run(seed)).collect())
    }

    /// The median over the seeds.
    fn median(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        let mut all: Vec<_> = self.0.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }

    fn most(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        self.0.iter().map(of).fold(f64::MIN, f64::max)
    }

    fn least(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        self.0.iter().map(of).fold(f64::MAX, f64::min)
    }
}

fn timeouts(of: &Outcome) -> f64 {
    of.counted.timeouts as f64
}

/// Packets that waited for 200 ms or longer: roughly those that cause a timeout.
fn long_waits(of: &Outcome) -> f64 {
    (of.waits[4] + of.waits[5]) as f64
}

/// Mean length of the receive queue, in per cent of the buffer.
fn fill_percent(of: &Outcome, buffer: u64) -> f64 {
    let sum: u64 = of.queues.iter().map(|queues| queues.receive).sum();
    100.0 * sum as f64 / of.queues.len() as f64 / buffer as f64
}

fn compare(name: &str, table: &str) {
    let path = format!("{}/tests/receiving/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_TABLES").is_some() {
        std::fs::write(&path, table).expect("the table");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == table,
        "{path} differs, seeds {SEEDS:?}; now:\n{table}"
    );
}

#[test]
fn the_same_world_runs_the_same_way() {
    let world = World {
        loops: 10,
        loss: 1e-4,
        seconds: 5,
        ..World::default()
    };
    assert_eq!(world.run(), world.run());
}
