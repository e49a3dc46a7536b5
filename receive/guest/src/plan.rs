//! Which cases are run: the questions of `docs/host-receive.md`, "Measured in a guest".
//!
//! In each round, a case without help and the same case with it follow each other, so that other load on the machine
//! meets both alike.

use std::fs;
use std::path::Path;

use ackpace_lab_base::error::{LabError, Result};

use crate::case::{self, Case, Help};
use crate::proc;

/// Wu and Crawford's buffers: 40 MB in most experiments, 20 MB in Table 7.
const BUFFER_BYTES: usize = 40_000_000;
const TABLE_7_BUFFER_BYTES: usize = 20_000_000;
/// What iperf's receiver takes by one call. With larger ones a core of this guest copies faster than its sender sends.
const CALL_BYTES: usize = 8 << 10;
/// The slice of Linux 2.6 for nice 0 (Table 1). Ten of them are longer than any sender's first timeout.
const PAPERS_SLICE_US: u64 = 100_000;
/// Loops of BL10, and the counts of Table 7.
const LOOPS: u32 = 10;
const TABLE_7_LOOPS: [u32; 4] = [1, 3, 4, 9];
/// Full preemption: the kernel may take the core anywhere in a copy.
const FULL: &str = "full";

/// Runs all whose labels begin with one of `only`, or all, but for the first `from`, and tells each.
///
/// # Errors
/// None could be run.
pub fn run(only: &[String], from: usize, rounds: u32, seconds: u64) -> Result<()> {
    let sched = Path::new("/sys/kernel/debug/sched");
    let preempt = proc::chosen(&sched.join("preempt"));
    let slice = fs::read_to_string(sched.join("base_slice_ns")).ok();
    let slice_ns = slice.and_then(|text| text.trim().parse::<u64>().ok());
    let (Some(preempt), Some(slice_ns)) = (preempt, slice_ns) else {
        let what = format!("{}: no preempt and base_slice_ns here", sched.display());
        return Err(LabError::Setup(what));
    };
    let is_meant =
        |case: &Case| only.is_empty() || only.iter().any(|label| case.label().starts_with(label));
    let mut done = 0;
    for case in cases(&preempt, slice_ns / 1_000, rounds, seconds)
        .into_iter()
        .filter(is_meant)
        .skip(from)
    {
        match case::run(&case) {
            Ok(outcome) => {
                done += 1;
                println!(
                    "CASE {}",
                    serde_json::to_string(&outcome).unwrap_or_default()
                );
            }
            Err(error) => println!("FAILED {}: {error}", case.label()),
        }
    }
    match done {
        0 => Err(LabError::Setup("no case came to its end".to_owned())),
        _ => Ok(()),
    }
}

/// All of them, in order.
fn cases(preempt: &str, slice_us: u64, rounds: u32, seconds: u64) -> Vec<Case> {
    let usual = Case {
        name: String::new(),
        preempt: preempt.to_owned(),
        slice_us,
        loops: LOOPS,
        buffer_bytes: BUFFER_BYTES,
        call_bytes: CALL_BYTES,
        help: Help::None,
        seconds,
    };
    let worlds = [
        (preempt, slice_us),
        (FULL, slice_us),
        (preempt, PAPERS_SLICE_US),
    ];
    let mut cases = Vec::new();
    for _ in 0..rounds {
        for (preempt, slice_us) in worlds {
            for help in [Help::None, Help::Scheduler, Help::Guard] {
                cases.push(Case {
                    name: "guard".to_owned(),
                    preempt: preempt.to_owned(),
                    slice_us,
                    help,
                    ..usual.clone()
                });
            }
        }
        for loops in TABLE_7_LOOPS {
            for help in [Help::None, Help::Guard] {
                cases.push(Case {
                    name: "table-7".to_owned(),
                    loops,
                    buffer_bytes: TABLE_7_BUFFER_BYTES,
                    help,
                    ..usual.clone()
                });
            }
        }
    }
    cases
}
