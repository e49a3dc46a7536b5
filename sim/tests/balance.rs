//! Workers that give each other live connections, beside workers that keep what the kernel's hash gives them.
//!
//! A claim holds for each seed, and the table has the medians. `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the table.

mod table;

use ackpace_core::balance::{Relief, WorkerLoad, relief};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use table::{Table, compare, over_seeds};

/// Far apart, since the number of workers is added.
const SEEDS: [u64; 5] = [20_260_102, 20_260_202, 20_260_302, 20_260_402, 20_260_502];
/// Mean number of connections per worker once arrivals and departures balance.
const EACH: usize = 20;
/// How often a worker looks whether it should give one away, and how long a connection lasts in the mean, in looks.
const LIFE_LOOKS: usize = 200;
/// Looks in all, and after how many of them measurement begins.
const LOOKS: usize = 20 * LIFE_LOOKS;
const MEASURED_FROM: usize = 5 * LIFE_LOOKS;
/// The rate of a connection is known after so many looks.
const KNOWN_AFTER: usize = 20;

#[derive(Clone, Copy)]
struct Conn {
    born: usize,
    ends: usize,
    worker: usize,
    rate: u64,
}

struct Dice(Pcg64Mcg);

impl Dice {
    /// Uniform from 0 (exclusive) to 1.
    fn part(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Pareto from 1 to 50 Mbit/s, index 1: most are slow, few carry most of the traffic.
    fn rate(&mut self) -> u64 {
        let (least, most) = (125_000.0, 6_250_000.0);
        (least / (1.0 - self.part() * (1.0 - least / most))) as u64
    }
}

fn loads(conns: &[Conn], workers: usize, now: usize) -> Vec<WorkerLoad> {
    let mut loads = vec![WorkerLoad::default(); workers];
    for conn in conns {
        let load = &mut loads[conn.worker];
        load.connections += 1;
        if now >= conn.born + KNOWN_AFTER {
            load.rate_bytes_per_s += conn.rate;
        }
    }
    loads
}

/// The connection that a worker gives away: the fastest of known rate that may go.
fn given(conns: &mut [Conn], from: usize, relief: Relief, now: usize) -> Option<&mut Conn> {
    let known = conns
        .iter_mut()
        .filter(|conn| conn.worker == from && now >= conn.born + KNOWN_AFTER);
    let fits = known.filter(|conn| conn.rate <= relief.rate_max_bytes_per_s);
    fits.max_by_key(|conn| conn.rate)
}

/// Mean over many looks of the largest load over the mean load, and connections given away over all.
fn run(seed: u64, workers: usize, gives: bool) -> (f64, f64) {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed + workers as u64));
    let (mut conns, mut ratios): (Vec<Conn>, Vec<f64>) = (Vec::new(), Vec::new());
    let (mut came, mut moves) = (0, 0);
    let per_look = (workers * EACH) as f64 / LIFE_LOOKS as f64;
    for now in 0..LOOKS {
        conns.retain(|conn| conn.ends > now);
        while (came as f64) < now as f64 * per_look {
            came += 1;
            conns.push(Conn {
                born: now,
                ends: now + 1 + (-dice.part().ln() * LIFE_LOOKS as f64) as usize,
                worker: (dice.0.next_u64() % workers as u64) as usize,
                rate: dice.rate(),
            });
        }
        let mut seen = loads(&conns, workers, now);
        for from in (0..workers).filter(|_| gives) {
            let Some(relief) = relief(from, &seen, u64::MAX) else {
                continue;
            };
            if let Some(conn) = given(&mut conns, from, relief, now) {
                conn.worker = relief.to;
                moves += 1;
                seen = loads(&conns, workers, now);
            }
        }
        if now > MEASURED_FROM {
            let mut rates = vec![0; workers];
            conns
                .iter()
                .for_each(|conn| rates[conn.worker] += conn.rate);
            let (sum, most) = (rates.iter().sum::<u64>(), rates.iter().max());
            ratios.push(*most.expect("a worker") as f64 * workers as f64 / sum as f64);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    (mean, f64::from(moves) / f64::from(came))
}

#[test]
fn giving_away_takes_off_much_of_what_the_hash_leaves_uneven() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("hash alone", 2),
            ("given away", 2),
            ("of all connections, %", 1),
        ];
        let mut table = Table::new(seed, "workers", columns);
        for workers in [2, 8, 32] {
            let (alone, _) = run(seed, workers, false);
            let (balanced, given) = run(seed, workers, true);
            table.row(format!("{workers:7}"), [alone, balanced, given * 100.0]);
            assert!(balanced - 1.0 < 0.7 * (alone - 1.0), "{table}");
        }
        table
    });
    compare("balance", &Table::medians(&tables).to_string());
}
