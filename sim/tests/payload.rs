//! How well the slab of a gateway keeps what is asked for again: segments that leave by second chance, beside a cache that
//! forgets the least recently used piece, and one that forgets the oldest. The paper on the network-centric cache leaves this open ("cache
//! effectiveness", section 6).
//!
//! A claim holds for each seed, and the table has the medians. `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the table.

mod table;

use std::collections::{BTreeMap, BTreeSet};

use ackpace_core::conn::{ObjectId, Span};
use ackpace_core::payload::{Payload, SEGMENT_BYTES};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use table::{Table, compare, over_seeds};

const SEEDS: [u64; 5] = [20_261_128, 20_261_129, 20_261_130, 20_261_131, 20_261_132];
/// Pieces that clients ask for, by Zipf's law.
const PIECES: usize = 20_000;
const REQUESTS: usize = 80_000;
/// Length of each piece: 32 of them are a segment.
const PIECE_BYTES: u64 = SEGMENT_BYTES / 32;

/// A cache of pieces by their numbers.
trait Cache {
    /// Whether the piece was there. It is afterwards.
    fn ask(&mut self, piece: u64) -> bool;
}

struct Segments(Payload);

impl Cache for Segments {
    fn ask(&mut self, piece: u64) -> bool {
        let object = ObjectId {
            device: 0,
            index: piece as u32,
            generation: 0,
        };
        let span = Span {
            offset_bytes: 0,
            len_bytes: PIECE_BYTES,
        };
        if self.0.find(object, span).is_some() {
            return true;
        }
        let room = self
            .0
            .reserve(PIECE_BYTES, |_| false)
            .expect("nothing is pinned");
        self.0.filled(object, 0, room.rows[0]);
        false
    }
}

/// Pieces by when they were last asked for, or by when they came.
struct Ordered {
    most: usize,
    renews: bool,
    at: BTreeMap<u64, u64>,
    by_time: BTreeSet<(u64, u64)>,
    now: u64,
}

impl Ordered {
    fn new(most: usize, renews: bool) -> Ordered {
        Ordered {
            most,
            renews,
            at: BTreeMap::new(),
            by_time: BTreeSet::new(),
            now: 0,
        }
    }
}

impl Cache for Ordered {
    fn ask(&mut self, piece: u64) -> bool {
        self.now += 1;
        let before = self.at.get(&piece).copied();
        if let Some(at) = before.filter(|_| self.renews) {
            self.by_time.remove(&(at, piece));
        }
        if before.is_none() || self.renews {
            self.at.insert(piece, self.now);
            self.by_time.insert((self.now, piece));
        }
        if self.at.len() > self.most {
            let (_, gone) = self.by_time.pop_first().expect("it is full");
            self.at.remove(&gone);
        }
        before.is_some()
    }
}

/// Hits per hundred requests, once the cache is warm.
fn hits(seed: u64, cache: &mut dyn Cache) -> f64 {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let weights = (1..=PIECES).scan(0.0, |sum, nth| {
        *sum += 1.0 / nth as f64;
        Some(*sum)
    });
    let sums: Vec<f64> = weights.collect();
    let total = sums.last().expect("pieces");
    let (mut hits, half) = (0u32, REQUESTS / 2);
    for nth in 0..REQUESTS {
        let part = (dice.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let piece = sums.partition_point(|sum| *sum < part * total) as u64;
        hits += u32::from(cache.ask(piece) && nth >= half);
    }
    f64::from(hits) * 100.0 / half as f64
}

#[test]
fn whole_segments_by_second_chance_keep_about_what_the_best_order_of_pieces_keeps() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("segments by second chance, %", 1),
            ("pieces, least recently used, %", 1),
            ("pieces, oldest first, %", 1),
        ];
        let mut table = Table::new(seed, "part of all pieces that fits, %", columns);
        for percent in [1, 4, 16, 50] {
            let pieces = PIECES * percent / 100;
            let segments = Payload::new((pieces / 32) as u32);
            let ours = hits(seed, &mut Segments(segments));
            let [recent, oldest] =
                [true, false].map(|renews| hits(seed, &mut Ordered::new(pieces, renews)));
            table.row(format!("{percent:31}"), [ours, recent, oldest]);
            assert!(ours > recent * 0.85, "{table}");
        }
        table
    });
    compare("payload", &Table::medians(&tables).to_string());
}
