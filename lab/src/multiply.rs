//! Work that is nobody's network: a matrix multiplication, again and again, on the core of a server that is
//! measured. What is left of it tells what the server takes from its neighbours (TPF 4.2, Figure 13).
//!
//! It is a process of its own (`ackpace-lab multiply`), scheduled as the servers are: the same niceness, the same
//! session, no groups between them.

use crate::arena::Arena;
use crate::cpu::{self, Usage};
use crate::error::{Doing, LabError, Result};
use crate::metrics::Values;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Rows and columns: three matrices of it (384 KB) lie in the second-level cache, which a server's copying
/// then takes from them, as it takes the core.
const SIDE: usize = 128;

/// The process: multiplies until its input ends, and answers each line of it with the multiplications so far.
///
/// # Errors
/// A product that is not the first one: then the machine can't be trusted.
pub fn run() -> Result<ExitCode> {
    static DONE: AtomicU64 = AtomicU64::new(0);
    std::thread::spawn(|| {
        for line in std::io::stdin().lines() {
            let done = DONE.load(Ordering::Relaxed);
            if line.is_err() || writeln!(std::io::stdout(), "{done}").is_err() {
                break;
            }
        }
        std::process::exit(0); // nobody asks any more
    });
    let (left, right) = (matrix(1), matrix(2));
    let mut product = vec![0.0; SIDE * SIDE];
    multiply(&left, &right, &mut product);
    let first = product.clone();
    loop {
        multiply(black_box(&left), black_box(&right), &mut product);
        if product != first {
            return Err(LabError::Setup(
                "two products of the same matrices differ".into(),
            ));
        }
        DONE.fetch_add(1, Ordering::Relaxed);
    }
}

/// A running multiplication, killed when dropped.
pub struct Multiplication {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Multiplication {
    /// Starts it on the server's core.
    pub fn start(arena: &Arena) -> Result<Self> {
        let program = std::env::current_exe().doing(|| "our own program".into())?;
        let mut command = Command::new(program);
        command.arg("multiply");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = arena
            .beside_server(command)
            .spawn()
            .doing(|| "the multiplication: start".into())?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(questions), Some(answers)) => Ok(Self {
                child,
                questions,
                answers: BufReader::new(answers),
            }),
            _ => Err(LabError::Setup("the multiplication has no pipes".into())),
        }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Multiplications since its start.
    pub fn done(&mut self) -> Result<u64> {
        let what = || "asking the multiplication".to_owned();
        writeln!(self.questions).doing(what)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).doing(what)?;
        let done = answer.trim().parse();
        done.map_err(|_| LabError::Setup(format!("the multiplication says {answer:?}")))
    }
}

/// Multiplications in a window.
pub struct Counted<'a> {
    of: &'a mut Multiplication,
    before: u64,
    usage: Usage,
    start: Instant,
}

impl<'a> Counted<'a> {
    /// The window begins.
    pub fn begin(of: &'a mut Multiplication) -> Result<Self> {
        let before = of.done()?;
        let usage = cpu::usage(of.pid())?;
        Ok(Self {
            of,
            before,
            usage,
            start: Instant::now(),
        })
    }

    /// It is over: the figures of the multiplication.
    pub fn end(self) -> Result<Values> {
        let done = self.of.done()?.saturating_sub(self.before);
        let elapsed_s = self.start.elapsed().as_secs_f64();
        let spent = cpu::usage(self.of.pid())?.since(&self.usage);
        let mut values = Values::default();
        values.set("multiplications_per_s", done as f64 / elapsed_s);
        values.set("multiplying_core_share", spent.used_s / elapsed_s);
        values.set("multiplying_waited_share", spent.waited_s / elapsed_s);
        Ok(values)
    }
}

impl Drop for Multiplication {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// Numbers from -1 to 1, the same each time.
fn matrix(seed: u64) -> Vec<f64> {
    let number = |nth: u64| {
        let mixed = (nth + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..(SIDE * SIDE) as u64).map(number).collect()
}

/// Row by row, so that the inner loop runs along memory.
fn multiply(left: &[f64], right: &[f64], product: &mut [f64]) {
    product.fill(0.0);
    for (left, product) in left.chunks(SIDE).zip(product.chunks_mut(SIDE)) {
        for (factor, right) in left.iter().zip(right.chunks(SIDE)) {
            for (sum, right) in product.iter_mut().zip(right) {
                *sum += factor * right;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_rows_times_columns() {
        let (left, right) = (matrix(1), matrix(2));
        let mut product = vec![7.0; SIDE * SIDE];
        multiply(&left, &right, &mut product);
        for (row, column) in [(0, 0), (3, 127), (127, 64)] {
            let terms = (0..SIDE).map(|k| left[row * SIDE + k] * right[k * SIDE + column]);
            let sum: f64 = terms.sum();
            let off = (product[row * SIDE + column] - sum).abs();
            assert!(off < 1e-9, "row {row}, column {column}: {off}");
        }
        assert!(left.iter().all(|number| (-1.0..=1.0).contains(number)) && left != right);
    }
}
