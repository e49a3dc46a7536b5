//! Slots side by side, as numbers and as bits of a map.

use std::sync::atomic::{AtomicU64, Ordering};

use ackpace_core::limits::SLOT_BYTES;
use smallvec::SmallVec;

/// A few runs.
pub type Runs = SmallVec<[Run; 4]>;

/// Slots side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first slot.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Run {
    /// Where its first slot begins in the mapping.
    pub fn start_bytes(self) -> u64 {
        u64::from(self.first) * SLOT_BYTES
    }

    /// Its length.
    pub fn len_bytes(self) -> u64 {
        u64::from(self.count) * SLOT_BYTES
    }

    /// Its words of a map of slots, and its bits in each.
    pub fn words(self) -> impl Iterator<Item = (usize, u64)> {
        let (mut first, end) = (self.first, self.first + self.count);
        std::iter::from_fn(move || {
            let (word, bit) = (first / u64::BITS, first % u64::BITS);
            let count = (end - first).min(u64::BITS - bit);
            first += count;
            (count > 0).then(|| (word as usize, mask(bit, count)))
        })
    }

    /// Takes its first `count` slots off.
    pub fn split_front(&mut self, count: u32) -> Run {
        let front = Run {
            first: self.first,
            count,
        };
        self.first += count;
        self.count -= count;
        front
    }
}

/// Adds a run, which may go on where the last one ends.
pub fn push(runs: &mut Runs, run: Run) {
    match runs.last_mut() {
        Some(last) if last.first + last.count == run.first => last.count += run.count,
        _ => runs.push(run),
    }
}

/// The end of a map from which slots are taken.
#[derive(Clone, Copy)]
pub enum End {
    Low,
    High,
}

/// Takes up to `count` bits of a map. Acquire: their last owner is done.
pub fn take(map: &[AtomicU64], count: u32, end: End) -> Runs {
    let (mut runs, mut left) = (Runs::new(), count);
    for nth in 0..map.len() {
        let at = match end {
            End::Low => nth,
            End::High => map.len() - 1 - nth,
        };
        let bits = map[at].load(Ordering::Relaxed);
        let wanted = match end {
            End::Low => lowest(bits, left),
            End::High => lowest(bits.reverse_bits(), left).reverse_bits(),
        };
        let taken = map[at].fetch_and(!wanted, Ordering::Acquire) & wanted;
        left -= taken.count_ones();
        runs_of(at as u32 * u64::BITS, taken).for_each(|run| push(&mut runs, run));
        if left == 0 {
            break;
        }
    }
    runs
}

/// Sets the bits of a run. Release: whoever takes them next sees our last look at them done.
pub fn set(map: &[AtomicU64], run: Run) {
    for (word, bits) in run.words() {
        let before = map[word].fetch_or(bits, Ordering::Release);
        assert_eq!(before & bits, 0, "a slot comes back once");
    }
}

fn lowest(bits: u64, count: u32) -> u64 {
    let mut rest = bits;
    for _ in 0..count.min(bits.count_ones()) {
        rest &= rest - 1;
    }
    bits & !rest
}

fn mask(first: u32, count: u32) -> u64 {
    match count {
        0 => 0,
        count => (u64::MAX >> (u64::BITS - count)) << first,
    }
}

/// The runs of set bits, where bit 0 is slot `first`.
pub fn runs_of(first: u32, bits: u64) -> impl Iterator<Item = Run> {
    let mut left = bits;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let start = left.trailing_zeros();
        let count = (left >> start).trailing_ones();
        left &= !mask(start, count);
        Some(Run {
            first: first + start,
            count,
        })
    })
}
