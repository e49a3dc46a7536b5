//! The cache of small responses under a crawler that asks for every file once: what admission on the second request
//! gains over a cache that admits everything.
//!
//! A claim holds for each seed, and the table has the medians. `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the table.

mod table;

use std::collections::HashMap;

use ackpace_core::response_cache::{Admission, Candidate, Cost, Costly, SecondChance, Space};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use table::{Table, compare, over_seeds};

const SEEDS: [u64; 5] = [20_261_123, 20_261_124, 20_261_125, 20_261_126, 20_261_127];
/// Files that readers ask for, by Zipf's law; the crawler asks for others.
const POPULAR: usize = 10_000;
const REQUESTS: usize = 200_000;
/// Size of each response.
const BYTES: usize = 4_000;

struct Response {
    path: u64,
}

impl Costly for Response {
    fn cost(&self) -> Cost {
        let (bytes, open_files) = (BYTES, 0);
        Cost { bytes, open_files }
    }
}

/// The hash table that a shell has.
struct Cache {
    at: HashMap<u64, usize>,
    responses: SecondChance<Response>,
}

impl Cache {
    /// Whether the response was cached.
    fn find(&mut self, path: u64) -> bool {
        let at = self.at.get(&path).copied();
        at.into_iter().for_each(|at| self.responses.touch(at));
        at.is_some()
    }

    fn insert(&mut self, response: Response) {
        let mut evicted = 0;
        loop {
            match self.responses.space(response.cost(), evicted) {
                Space::Enough => break,
                Space::Evict(at) => self.remove(at),
                Space::None => return,
            }
            evicted += 1;
        }
        self.at.insert(response.path, self.responses.len());
        self.responses.push(response);
    }

    fn remove(&mut self, at: usize) {
        let gone = self.responses.swap_remove(at);
        self.at.remove(&gone.path);
        if let Some(moved) = self.responses.get(at) {
            self.at.insert(moved.path, at);
        }
    }
}

/// The popular file that a reader asks for: the n-th is n times less popular than the first.
fn zipf(sums: &[f64], dice: &mut Pcg64Mcg) -> u64 {
    let part = (dice.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let total = sums.last().expect("files");
    sums.partition_point(|sum| *sum < part * total) as u64
}

/// Hits per hundred requests of readers, when the crawler makes `crawled` of every hundred requests.
fn hits(seed: u64, budget_bytes: usize, crawled: u64, admits_at_once: bool) -> f64 {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let weights = (1..=POPULAR).scan(0.0, |sum, nth| {
        *sum += 1.0 / nth as f64;
        Some(*sum)
    });
    let sums: Vec<f64> = weights.collect();
    let (mut admission, at) = (Admission::default(), HashMap::new());
    let responses = SecondChance::new(budget_bytes);
    let mut cache = Cache { at, responses };
    let (mut hits, mut asked) = (0u32, 0u32);
    for nth in 0..REQUESTS as u64 {
        let crawls = dice.next_u64() % 100 < crawled;
        let path = match crawls {
            true => POPULAR as u64 + nth,
            false => zipf(&sums, &mut dice),
        };
        let hit = cache.find(path);
        asked += u32::from(!crawls);
        hits += u32::from(!crawls && hit);
        let candidate = Candidate {
            path_len_bytes: 20,
            len_bytes: BYTES as u64,
            changed_unix_s: 0,
            varies: false,
        };
        let path_hash = path.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let admitted = admits_at_once
            || (admission.admit(path_hash.rotate_left(32), hit, &candidate, 10)).is_some();
        if !hit && admitted {
            cache.insert(Response { path });
        }
        assert!(cache.responses.held_bytes() <= budget_bytes);
    }
    f64::from(hits) * 100.0 / f64::from(asked)
}

#[test]
fn a_crawler_displaces_nothing_that_readers_ask_for_again() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("hits of readers, admitted at once, %", 1),
            ("by the second request, %", 1),
        ];
        let mut table = Table::new(seed, "files that fit  crawler's part, %", columns);
        for fit in [100, 1_000] {
            for crawled in [0, 50, 90] {
                let budget_bytes = fit * (BYTES + 8);
                let [at_once, second] =
                    [true, false].map(|at_once| hits(seed, budget_bytes, crawled, at_once));
                table.row(format!("{fit:14}  {crawled:17}"), [at_once, second]);
                assert!(second > at_once, "{table}");
            }
        }
        table
    });
    compare("response_cache", &Table::medians(&tables).to_string());
}
