//! The multiplying process.

use super::Done;
use ackpace_lab_base::error::{LabError, Result};
use std::hint::black_box;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rows and columns. Three matrices of this size (384 KB) fit the second-level cache. A server's copying takes
/// cache from them, as it takes the core.
const SIDE: usize = 128;

/// Rows in a slice, whose durations are compared; a slice takes a millisecond or two. The core's own speed
/// varies by a tenth from one second to the next (clock rate, other guests on the host). Within a millisecond,
/// few rows meet the server or an interrupt, so the median row shows the core's undisturbed speed.
const SLICE_ROWS: usize = 4 * SIDE;

static PRODUCTS: AtomicU64 = AtomicU64::new(0);
static ROWS: AtomicU64 = AtomicU64::new(0);
static COULD_MILLI: AtomicU64 = AtomicU64::new(0);

fn done() -> Done {
    Done {
        products: PRODUCTS.load(Ordering::Relaxed),
        rows: ROWS.load(Ordering::Relaxed),
        could_milli: COULD_MILLI.load(Ordering::Relaxed),
    }
}

/// The process: multiplies until its input ends, and answers each line of input with its counters.
///
/// # Errors
/// A product differs from the first one: the machine can't be trusted.
pub fn run() -> Result<ExitCode> {
    std::thread::spawn(|| {
        for line in std::io::stdin().lines() {
            if line.is_err() || writeln!(std::io::stdout(), "{}", done()).is_err() {
                break;
            }
        }
        std::process::exit(0); // the input has ended
    });
    let (left, right) = (matrix(1), matrix(2));
    let mut product = vec![0.0; SIDE * SIDE];
    multiply(&left, &right, &mut product, || {});
    let first = product.clone();
    let mut slice = Slice::beginning(Instant::now());
    loop {
        multiply(black_box(&left), black_box(&right), &mut product, || {
            if let Some(could) = slice.row(Instant::now()) {
                ROWS.fetch_add(SLICE_ROWS as u64, Ordering::Relaxed);
                COULD_MILLI.fetch_add((could * 1e3) as u64, Ordering::Relaxed);
            }
        });
        if product != first {
            return Err(LabError::Setup(
                "two products of the same matrices differ".into(),
            ));
        }
        PRODUCTS.fetch_add(1, Ordering::Relaxed);
    }
}

/// The rows of one slice.
struct Slice {
    began: Instant,
    row_began: Instant,
    took: Vec<Duration>,
}

impl Slice {
    fn beginning(at: Instant) -> Self {
        Self {
            began: at,
            row_began: at,
            took: Vec::with_capacity(SLICE_ROWS),
        }
    }

    /// Records the end of a row and the start of the next. At the end of a slice, returns the number of rows it
    /// would have had if each had taken the median time.
    fn row(&mut self, ended: Instant) -> Option<f64> {
        self.took.push(ended - self.row_began);
        self.row_began = ended;
        if self.took.len() < SLICE_ROWS {
            return None;
        }
        let (_, undisturbed, _) = self.took.select_nth_unstable(SLICE_ROWS / 2);
        let could = (ended - self.began).as_secs_f64() / undisturbed.as_secs_f64();
        self.took.clear();
        self.began = ended;
        Some(could)
    }
}

/// Numbers from -1 to 1; a seed always gives the same ones.
fn matrix(seed: u64) -> Vec<f64> {
    let number = |nth: u64| {
        let mixed = (nth + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..(SIDE * SIDE) as u64).map(number).collect()
}

/// Multiplies row by row, so that the inner loop runs along memory; calls `row` at the end of each.
fn multiply(left: &[f64], right: &[f64], product: &mut [f64], mut row: impl FnMut()) {
    product.fill(0.0);
    for (left, product) in left.chunks(SIDE).zip(product.chunks_mut(SIDE)) {
        for (factor, right) in left.iter().zip(right.chunks(SIDE)) {
            for (sum, right) in product.iter_mut().zip(right) {
                *sum += factor * right;
            }
        }
        row();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_core_gives_is_told_by_the_median_row() {
        let mut at = Instant::now();
        let mut slice = Slice::beginning(at);
        let mut could = |took_us: &dyn Fn(usize) -> u64| {
            let told = (0..SLICE_ROWS).map(|nth| {
                at += Duration::from_micros(took_us(nth));
                slice.row(at)
            });
            let mut told: Vec<_> = told.collect();
            let last = told.pop().flatten().unwrap();
            assert!(told.iter().all(Option::is_none));
            last
        };
        let near = |could: f64, rows: f64| (could - rows).abs() < 1e-6;
        assert!(near(could(&|_| 3), 512.0));
        // A quarter of the rows take twice the time, then the server runs for 3 ms.
        assert!(near(could(&|nth| if nth % 4 == 0 { 6 } else { 3 }), 640.0));
        assert!(near(could(&|nth| if nth == 7 { 3003 } else { 3 }), 1512.0));
    }
}
