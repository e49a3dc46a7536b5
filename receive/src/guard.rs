//! `receive guard`: gives a receiver an extra turn, and has it pay for that afterwards (Wu and Crawford), by a scheduler of our own
//! for all usual tasks of the machine (`receive/src/bpf/guard.bpf.c`, sched_ext). It knows fair shares by weight and this rule.
//!
//! Nothing has to be undone: when this process ends, however it ends, the kernel's own scheduler has all tasks again.

use std::fmt::{Display, Formatter, Result as Formatted};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use ackpace_host_base::bpf::{self, Aligned, Program};
use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::fields::Fields;
use ackpace_host_base::lines::{Lines, To};
use ackpace_host_base::lock::{Lock, RUN_DIR};
use ackpace_host_base::{object, signals};
use serde::Serialize;

use crate::facts;
use crate::filter::Filter;
use crate::options::Guard;
use crate::turn::TURN_OWED_US_MAX;

static OBJECT: &Aligned<[u8]> = object!("guard");
const NEEDS: &str = "this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT, Linux 6.19 or later), or lacks a function that the \
                     program uses: it was run on Linux 7.2. 'receive advise' says what helps elsewhere";
/// Cores of a machine (`CORES_MAX`), a queue each. More: refused.
const CORES_MAX: usize = 256;

/// How often it looks whether the kernel has ended the scheduler.
const LOOK: Duration = Duration::from_millis(200);
/// Where a kernel with sched_ext tells whether a scheduler by BPF is in charge.
const STATE: &str = "/sys/kernel/sched_ext/state";
/// What a kernel without sched_ext is told.
const LACKS: &str = "this kernel has no sched_ext";
/// The slice where the kernel does not tell its own: between those of machines with one core and with eight.
const SLICE_NS: u64 = 1_500_000;

/// Guards until it is stopped.
///
/// # Errors
/// What the operator has to mend, or what failed.
pub fn run(options: &Guard) -> Result<(), Failure> {
    let signals = signals::catch()?;
    let filter = Filter::of(&options.port, options.pid)?;
    let _lock = Lock::take(
        &Path::new(RUN_DIR).join("guard.lock"),
        "guards this machine",
    )?;
    let scheduler = Scheduler::open(&filter)?;
    capabilities::keep_only(CapabilitySet::BPF)?;
    let stopped = signals.hear()?;
    let mut lines = Lines::new();
    lines.write(
        To::Errors,
        format!("receive: guards {filter} as the scheduler of this machine; Ctrl-C ends it"),
    );
    let result = scheduler.wait(&filter, &stopped);
    let counts = scheduler.counted()?;
    match options.json {
        true => lines.write(
            To::Output,
            serde_json::to_string(&counts).unwrap_or_default(),
        ),
        false => lines.write(To::Errors, counts.to_string()),
    }
    result
}

/// What the scheduler has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GuardCounts {
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

impl GuardCounts {
    /// From a `struct guard_counts`.
    fn parse(bytes: &[u8]) -> GuardCounts {
        let mut fields = Fields(bytes);
        GuardCounts {
            lost: fields.long(),
            turns: fields.long(),
            owed_too_much: fields.long(),
            yielded: fields.long(),
            charged_us: fields.long() / 1_000,
            ended: fields.long(),
        }
    }
}

/// In words.
impl Display for GuardCounts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        write!(
            f,
            "receive: {} slices ended with the lock; {} extra turns, {} of them given away at the end of the call; {} us charged; \
             {} ended or refused since too much was owed",
            self.lost, self.turns, self.yielded, self.charged_us, self.owed_too_much
        )
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

/// The scheduler, in charge as long as this lives; then all tasks are the kernel's own again.
pub struct Scheduler(Program);

impl Scheduler {
    /// Loads the scheduler and puts it in charge.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(filter: &Filter) -> Result<Scheduler, Failure> {
        if !OBJECT.0.is_empty() {
            can_schedule().map_err(|why| {
                Failure::operator(format!(
                    "guard: {why}: it takes Linux 6.19 or later with CONFIG_SCHED_CLASS_EXT; 'receive advise' says what helps here"
                ))
            })?;
        }
        let cores = bpf::cores()?;
        if cores > CORES_MAX {
            return Err(Failure::operator(format!(
                "guard knows {CORES_MAX} cores at most, this machine has {cores}"
            )));
        }
        let mut program = Program::load(OBJECT, NEEDS, None)?;
        // The kernel's own slice, so that nothing else changes.
        let slice_ns = facts::slice_ns().unwrap_or(SLICE_NS);
        let times_ns = [slice_ns, TURN_OWED_US_MAX * 1_000];
        filter.choose(&program, &settings(filter, times_ns, cores as u32))?;
        program.attach()?;
        Ok(Scheduler(program))
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn counted(&self) -> Result<GuardCounts, Failure> {
        Ok(GuardCounts::parse(&self.0.only("counts")?))
    }

    /// Waits until it is stopped, or the one process that is meant ends.
    ///
    /// # Errors
    /// The kernel has ended the scheduler.
    fn wait(&self, filter: &Filter, stopped: &Receiver<()>) -> Result<(), Failure> {
        while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            if filter.is_over() {
                return Ok(());
            }
            let ended = self.counted()?.ended;
            if ended != 0 {
                return Err(Failure::runtime(format!(
                    "the kernel has ended the scheduler (reason {ended}); 'dmesg' tells why"
                )));
            }
        }
        Ok(())
    }
}

/// A `struct guard_settings`, with a slice and what a thread may owe.
fn settings(filter: &Filter, times_ns: [u64; 2], cores: u32) -> Vec<u8> {
    let [by_port, pid] = filter.meant();
    let mut bytes = times_ns.map(u64::to_ne_bytes).concat();
    bytes.extend([by_port, pid, cores, 0].map(u32::to_ne_bytes).concat());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_in_their_order() {
        let longs = [1u64, 2, 3, 4, 5_999, 1 << 40];
        let bytes: Vec<u8> = longs.into_iter().flat_map(u64::to_ne_bytes).collect();
        let counts = GuardCounts {
            lost: 1,
            turns: 2,
            owed_too_much: 3,
            yielded: 4,
            charged_us: 5,
            ended: 1 << 40,
        };
        assert_eq!(GuardCounts::parse(&bytes), counts);
    }

    #[test]
    fn settings_stand_in_their_order() {
        let filter = Filter::of(&[80], Some(std::process::id())).expect("this process");
        let bytes = settings(&filter, [1 << 40, 3], 2);
        let mut fields = Fields(&bytes);
        assert_eq!([fields.long(), fields.long()], [1 << 40, 3]);
        let words: [u32; 4] = std::array::from_fn(|_| fields.word());
        assert_eq!(words, [1, std::process::id(), 2, 0]);
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
