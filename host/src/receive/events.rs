//! The door to the kernel for `receive guard`: loads its program (`host/src/bpf/guard.bpf.c`) and hears its events. Without
//! BPF at build time, [`GuardEvents::open`] fails and says so.

use std::time::Duration;

use super::tracing::ReceiverFilter;
use super::turns::GuardEvent;
use crate::failure::Failure;

/// An attached program. Dropping it detaches it.
pub struct GuardEvents {
    #[cfg(has_bpf)]
    program: program::GuardProgram,
    #[cfg(not(has_bpf))]
    nothing: std::convert::Infallible,
}

#[cfg(not(has_bpf))]
impl GuardEvents {
    /// Fails.
    ///
    /// # Errors
    /// This binary has no BPF.
    pub fn open(_: &ReceiverFilter) -> Result<GuardEvents, Failure> {
        Err(crate::kernel::no_bpf())
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn wait(&mut self, _: Duration, _: &mut Vec<GuardEvent>) -> Result<(), Failure> {
        match self.nothing {}
    }
}

#[cfg(has_bpf)]
impl GuardEvents {
    /// Loads the program and attaches it to its tracepoints.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(filter: &ReceiverFilter) -> Result<GuardEvents, Failure> {
        let program = program::GuardProgram::open(filter)?;
        Ok(GuardEvents { program })
    }

    /// Waits for events, at most so long, and takes all that are there.
    ///
    /// # Errors
    /// As epoll_wait(2).
    pub fn wait(&mut self, most: Duration, events: &mut Vec<GuardEvent>) -> Result<(), Failure> {
        self.program.wait(most, events)
    }
}

#[cfg(has_bpf)]
mod program;
