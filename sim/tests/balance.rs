//! Workers that hand over new connections, beside workers that keep what the kernel's hash gives them.
//!
//! A claim holds for each seed, and the table has the medians. `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the table.

mod table;

use ackpace_core::balance::{WorkerLoad, place};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use table::{Table, compare, over_seeds};

/// Far apart, since the number of workers is added.
const SEEDS: [u64; 5] = [20_260_102, 20_260_202, 20_260_302, 20_260_402, 20_260_502];
/// Mean number of connections per worker once arrivals and departures balance.
const EACH: usize = 200;
/// Arrivals per connection in balance, and after how many of them measurement begins.
const ARRIVALS: usize = 40;
const LOOKS_FROM: usize = 10;
/// Rates of this many latest arrivals per worker are not known yet.
const UNKNOWN: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Conn {
    ends_ns: u64,
    worker: usize,
    rate: u64,
    born: usize,
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

/// Mean over many samples of the largest load over the mean load, with and without hand-over; and the fraction handed
/// over.
fn run(seed: u64, workers: usize, gives: bool) -> (f64, f64) {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed + workers as u64));
    let total = workers * EACH;
    // A mean lifetime of a second: EACH connections a worker.
    let wait_ns = |dice: &mut Dice, mean_ns: f64| (-dice.part().ln() * mean_ns) as u64;
    let (mut conns, mut young) = (BinaryHeap::new(), VecDeque::new());
    let (mut loads, mut rates) = (vec![WorkerLoad::default(); workers], vec![0; workers]);
    let (mut now_ns, mut ratios, mut given) = (0, Vec::new(), 0);
    for born in 0..total * ARRIVALS {
        now_ns += wait_ns(&mut dice, 1e9 / total as f64);
        while let Some(Reverse(conn)) = conns
            .peek()
            .copied()
            .filter(|c: &Reverse<Conn>| c.0.ends_ns <= now_ns)
        {
            conns.pop();
            loads[conn.worker].connections -= 1;
            rates[conn.worker] -= conn.rate;
            if born > conn.born + UNKNOWN * workers {
                loads[conn.worker].known -= 1;
                loads[conn.worker].rate_bytes_per_s -= conn.rate;
            }
        }
        // Their rates are known now, if they are still there.
        while let Some(conn) = young
            .front()
            .copied()
            .filter(|c: &Conn| born > c.born + UNKNOWN * workers)
        {
            young.pop_front();
            if conn.ends_ns > now_ns {
                loads[conn.worker].known += 1;
                loads[conn.worker].rate_bytes_per_s += conn.rate;
            }
        }
        let hashed = (dice.0.next_u64() % workers as u64) as usize;
        let worker = match gives {
            true => place(hashed, &loads, u64::MAX).expect("places for all"),
            false => hashed,
        };
        given += usize::from(worker != hashed);
        let (rate, ends_ns) = (dice.rate(), now_ns + wait_ns(&mut dice, 1e9));
        let conn = Conn {
            ends_ns,
            worker,
            rate,
            born,
        };
        loads[worker].connections += 1;
        rates[worker] += rate;
        conns.push(Reverse(conn));
        young.push_back(conn);
        if born > total * LOOKS_FROM && born % total == 0 {
            let (sum, most) = (
                rates.iter().sum::<u64>(),
                rates.iter().max().expect("a worker"),
            );
            ratios.push(*most as f64 * workers as f64 / sum as f64);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    (mean, given as f64 / (total * ARRIVALS) as f64)
}

#[test]
fn giving_away_keeps_every_workers_load_within_a_tenth_of_the_mean() {
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
            assert!(balanced <= 1.1 && balanced < alone, "{table}");
        }
        table
    });
    compare("balance", &Table::medians(&tables).to_string());
}
