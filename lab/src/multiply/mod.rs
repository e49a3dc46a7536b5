//! A neighbour without network I/O: it multiplies matrices on the core of the measured server. Its remaining
//! speed shows what the server takes from its neighbours (TPF 4.2, Figure 13).
//!
//! It is a process of its own (`ackpace-lab multiply`), scheduled like the servers: same niceness, same
//! session, and no cgroup that divides CPU time.

mod work;

use crate::cpu::{self, Usage};
use crate::metrics::Values;
use crate::testbed::Testbed;
use ackpace_lab_base::error::{Doing, LabError, Result};
use std::fmt::{Display, Formatter};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

pub use work::run;

/// A running multiplication, killed when dropped.
pub struct Multiplication {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Multiplication {
    /// Starts it on the server's core.
    pub fn start(testbed: &Testbed) -> Result<Self> {
        let program = std::env::current_exe().doing(|| "our own program".into())?;
        let mut command = Command::new(program);
        command.arg("multiply");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = testbed
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

    /// Reads its counters since its start.
    fn done(&mut self) -> Result<Done> {
        let what = || "asking the multiplication".to_owned();
        writeln!(self.questions).doing(what)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).doing(what)?;
        Done::of(&answer)
            .ok_or_else(|| LabError::Setup(format!("the multiplication says {answer:?}")))
    }
}

/// Counts the multiplications of a window.
pub struct Counted<'a> {
    of: &'a mut Multiplication,
    before: Done,
    usage: Usage,
    start: Instant,
}

impl<'a> Counted<'a> {
    /// Begins the window.
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

    /// Ends the window; returns the figures of the multiplication.
    pub fn end(self) -> Result<Values> {
        let now = self.of.done()?;
        let elapsed_s = self.start.elapsed().as_secs_f64();
        let done = now.products.saturating_sub(self.before.products);
        let rows = now.rows.saturating_sub(self.before.rows);
        let could_milli = now.could_milli.saturating_sub(self.before.could_milli);
        let spent = cpu::usage(self.of.pid())?.since(&self.usage);
        let mut values = Values::default();
        values.set("multiplications_per_s", done as f64 / elapsed_s);
        if could_milli > 0 {
            let could = could_milli as f64 / 1e3;
            values.set("multiplications_left_share", rows as f64 / could);
        }
        values.set("multiplying_core_share", spent.used_s / elapsed_s);
        values.set("multiplying_waited_share", spent.waited_s / elapsed_s);
        Ok(values)
    }
}

impl Drop for Multiplication {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

/// One line of the process's output: its counters since its start, in the order of the fields.
struct Done {
    /// Finished multiplications.
    products: u64,
    /// Rows of products in finished slices.
    rows: u64,
    /// Rows that these slices would have had undisturbed, in thousandths.
    could_milli: u64,
}

impl Done {
    fn of(line: &str) -> Option<Self> {
        let mut counters = line.split_whitespace().map(|counter| counter.parse().ok());
        let mut next = || counters.next().flatten();
        Some(Self {
            products: next()?,
            rows: next()?,
            could_milli: next()?,
        })
    }
}

impl Display for Done {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.products, self.rows, self.could_milli)
    }
}
