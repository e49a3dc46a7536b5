//! `receive guard --exact`: Wu and Crawford's turn in the exact form, by a scheduler of our own (`receive/src/bpf/exact.bpf.c`,
//! sched_ext). It is an experiment: the scheduler is for all usual tasks of the machine, and knows little else than fair
//! shares and this rule.
//!
//! Nothing has to be undone: when this process ends, however it ends, the kernel's own scheduler has all tasks again.

use std::fmt::{Display, Formatter, Result as Formatted};
use std::fs;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use ackpace_host_base::bpf::{self, Aligned, Program};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::fields::Fields;
use ackpace_host_base::object;
use serde::Serialize;

use crate::facts;
use crate::filter::Filter;
use crate::turn::TURN_OWED_US_MAX;

static OBJECT: &Aligned<[u8]> = object!("exact");
const NEEDS: &str = "this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT), or lacks a function that the program uses: it was \
                     run on Linux 7.2; 'receive guard' without --exact needs less";
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
    /// From a `struct exact_counts`.
    fn parse(bytes: &[u8]) -> ExactCounts {
        let mut fields = Fields(bytes);
        ExactCounts {
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
impl Display for ExactCounts {
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
pub struct Exact(Program);

impl Exact {
    /// Loads the scheduler and puts it in charge.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(filter: &Filter) -> Result<Exact, Failure> {
        if !OBJECT.0.is_empty() {
            can_schedule().map_err(|why| {
                Failure::operator(format!(
                    "--exact: {why}: it was run on Linux 7.2; 'receive guard' without --exact needs less"
                ))
            })?;
        }
        let cores = bpf::cores()?;
        if cores > CORES_MAX {
            return Err(Failure::operator(format!(
                "--exact knows {CORES_MAX} cores at most, this machine has {cores}: leave it out"
            )));
        }
        let mut program = Program::load(OBJECT, NEEDS, None)?;
        // The kernel's own slice, so that nothing else changes.
        let slice_ns = facts::slice_ns().unwrap_or(SLICE_NS);
        let times_ns = [slice_ns, TURN_OWED_US_MAX * 1_000];
        filter.choose(&program, &settings(filter, times_ns, cores as u32))?;
        program.attach()?;
        Ok(Exact(program))
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn counted(&self) -> Result<ExactCounts, Failure> {
        Ok(ExactCounts::parse(&self.0.only("counts")?))
    }

    /// Waits until it is stopped.
    ///
    /// # Errors
    /// The kernel has ended the scheduler.
    pub fn wait(&self, stopped: &Receiver<()>) -> Result<(), Failure> {
        while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
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

/// A `struct exact_settings`, with a slice and what a thread may owe.
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
        let counts = ExactCounts {
            lost: 1,
            turns: 2,
            owed_too_much: 3,
            yielded: 4,
            charged_us: 5,
            ended: 1 << 40,
        };
        assert_eq!(ExactCounts::parse(&bytes), counts);
    }

    #[test]
    fn settings_stand_in_their_order() {
        let filter = Filter {
            ports: vec![80],
            pid: Some(7),
            ..Filter::default()
        };
        let bytes = settings(&filter, [1 << 40, 3], 2);
        let mut fields = Fields(&bytes);
        assert_eq!([fields.long(), fields.long()], [1 << 40, 3]);
        let words: [u32; 4] = std::array::from_fn(|_| fields.word());
        assert_eq!(words, [1, 7, 2, 0]);
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
