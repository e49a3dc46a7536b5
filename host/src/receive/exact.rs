//! `receive guard --exact`: Wu and Crawford's turn in the exact form, by a scheduler of our own (`host/src/bpf/exact.bpf.c`,
//! sched_ext). It is an experiment: the scheduler is for all usual tasks of the machine, and knows little else than fair
//! shares and this rule.
//!
//! Nothing has to be undone: when this process ends, however it ends, the kernel's own scheduler has all tasks again.

use std::fs;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use ackpace_core::limits::TURN_OWED_US_MAX;
use serde::Serialize;

use super::guard_common;
use super::tracing::ReceiverFilter;
use crate::capabilities::Capability;
use crate::failure::Failure;
use crate::kernel::HAS_BPF;
use crate::options::Guard;
use crate::signals::Caught;

/// How often it looks whether the kernel has ended the scheduler.
const LOOK: Duration = Duration::from_millis(200);
/// Where a kernel with sched_ext tells whether a scheduler by BPF is in charge.
const STATE: &str = "/sys/kernel/sched_ext/state";
/// What a kernel without sched_ext is told.
const LACKS: &str = "this kernel has no sched_ext";
/// The slice where the kernel does not tell its own: between those of machines with one core and with eight.
const SLICE_NS: u64 = 1_500_000;
/// Bytes of a `struct exact_counts` (`host/src/bpf/exact.h`).
const COUNTS_BYTES: usize = 48;

/// What the scheduler has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExactCounts {
    /// Slices that ended while the lock was owned.
    pub lost: u64,
    /// Of these, those after which the thread ran on.
    pub turns: u64,
    /// It owed too much to run on, or any longer.
    pub owed_too_much: u64,
    /// Turns at whose end the thread gave its core away.
    pub yielded: u64,
    /// What all turns took, microseconds.
    pub charged_us: u64,
    /// Why the kernel has ended the scheduler (`enum scx_exit_kind`); 0: it has not.
    pub ended: u64,
}

impl ExactCounts {
    /// From a `struct exact_counts`; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<ExactCounts> {
        let bytes: &[u8; COUNTS_BYTES] = bytes.try_into().ok()?;
        let mut longs = bytes.chunks_exact(8).filter_map(|long| long.first_chunk());
        let mut next = || longs.next().map(|long| u64::from_ne_bytes(*long));
        Some(ExactCounts {
            lost: next()?,
            turns: next()?,
            owed_too_much: next()?,
            yielded: next()?,
            charged_us: next()? / 1_000,
            ended: next()?,
        })
    }
}

/// Whether this kernel would take a scheduler now; if not, why. It only looks, since a scheduler that is attached has the whole
/// machine.
///
/// # Errors
/// Why not.
pub fn can_schedule() -> Result<(), String> {
    allows(fs::read_to_string(STATE))
}

fn allows(state: io::Result<String>) -> Result<(), String> {
    let state = state.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{LACKS} (CONFIG_SCHED_CLASS_EXT)"),
        _ => format!("{STATE}: {error}"),
    })?;
    match state.trim() {
        "disabled" => Ok(()),
        other => Err(format!("another scheduler by BPF is in charge ({other})")),
    }
}

/// Schedules until it is stopped.
///
/// # Errors
/// What the operator has to mend, or what failed.
pub fn run(options: &Guard, filter: &ReceiverFilter, signals: Caught) -> Result<(), Failure> {
    if HAS_BPF {
        can_schedule().map_err(|why| {
            Failure::operator(format!(
                "--exact: {why}: it was run on Linux 7.2; 'receive guard' without --exact needs less"
            ))
        })?;
    }
    let exact = Exact::open(filter, slice_ns(), TURN_OWED_US_MAX * 1_000)?;
    let runs_as = "the scheduler of this machine";
    let stopped = guard_common::begin(options, Capability::Bpf, signals, runs_as)?;
    let result = wait(&exact, &stopped);
    let counts = exact.counted()?;
    guard_common::report(options, &counts, &summary(&counts));
    result
}

fn wait(exact: &Exact, stopped: &Receiver<()>) -> Result<(), Failure> {
    loop {
        if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
        let ended = exact.counted()?.ended;
        if ended != 0 {
            let what =
                format!("the kernel has ended the scheduler (reason {ended}); 'dmesg' tells why");
            return Err(Failure::runtime(what));
        }
    }
}

/// What the scheduler has done, in words.
fn summary(counts: &ExactCounts) -> String {
    format!(
        "receive: {} slices ended with the lock; {} extra turns, {} of them given away at the end of the call; {} us charged; \
         {} ended or refused since too much was owed",
        counts.lost, counts.turns, counts.yielded, counts.charged_us, counts.owed_too_much
    )
}

/// The kernel's own, so that nothing else changes.
fn slice_ns() -> u64 {
    let text = fs::read_to_string("/sys/kernel/debug/sched/base_slice_ns").unwrap_or_default();
    text.trim().parse().unwrap_or(SLICE_NS)
}

/// An attached scheduler. Dropping it gives all tasks back to the kernel's own.
pub struct Exact {
    #[cfg(has_bpf)]
    program: program::ExactProgram,
    #[cfg(not(has_bpf))]
    nothing: std::convert::Infallible,
}

#[cfg(not(has_bpf))]
impl Exact {
    /// Fails.
    ///
    /// # Errors
    /// This binary has no BPF.
    pub fn open(_: &ReceiverFilter, _: u64, _: u64) -> Result<Exact, Failure> {
        Err(crate::kernel::no_bpf())
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn counted(&self) -> Result<ExactCounts, Failure> {
        match self.nothing {}
    }
}

#[cfg(has_bpf)]
impl Exact {
    /// Loads the scheduler and puts it in charge. A thread may owe `owed_ns`.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(filter: &ReceiverFilter, slice_ns: u64, owed_ns: u64) -> Result<Exact, Failure> {
        let program = program::ExactProgram::open(filter, slice_ns, owed_ns)?;
        Ok(Exact { program })
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn counted(&self) -> Result<ExactCounts, Failure> {
        self.program.counted()
    }
}

#[cfg(has_bpf)]
mod program;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_in_their_order() {
        let longs = [1u64, 2, 3, 4, 5_999, 1 << 40];
        let bytes: Vec<u8> = longs.into_iter().flat_map(u64::to_ne_bytes).collect();
        let counts = ExactCounts {
            lost: 1,
            turns: 2,
            owed_too_much: 3,
            yielded: 4,
            charged_us: 5,
            ended: 1 << 40,
        };
        assert_eq!(ExactCounts::parse(&bytes), Some(counts));
        assert_eq!(ExactCounts::parse(&bytes[1..]), None);
    }

    #[test]
    fn a_scheduler_is_tried_only_where_there_is_room_for_one() {
        assert_eq!(allows(Ok("disabled\n".to_owned())), Ok(()));
        let other = allows(Ok("enabled\n".to_owned())).unwrap_err();
        assert!(other.contains("in charge (enabled)"), "{other}");
        let none = allows(Err(io::ErrorKind::NotFound.into())).unwrap_err();
        assert!(none.contains(LACKS), "{none}");
        let refused = allows(Err(io::ErrorKind::PermissionDenied.into())).unwrap_err();
        assert!(
            refused.contains(STATE) && !refused.contains(LACKS),
            "{refused}"
        );
    }
}
