//! The door to the kernel for `receive guard`: loads its program (`host/src/bpf/guard.bpf.c`) and hears its events. Without
//! BPF at build time, [`Events::open`] fails and says so.

use std::time::Duration;

use super::tracing::Chosen;
use super::turns::Event;
use crate::failure::Failure;

/// An attached program. Dropping it detaches it.
pub struct Events {
    #[cfg(has_bpf)]
    program: program::Program,
    #[cfg(not(has_bpf))]
    nothing: std::convert::Infallible,
}

#[cfg(not(has_bpf))]
impl Events {
    /// Fails.
    ///
    /// # Errors
    /// This binary has no BPF.
    pub fn open(_: &Chosen) -> Result<Events, Failure> {
        Err(crate::kernel::no_bpf())
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn wait(&mut self, _: Duration, _: &mut Vec<Event>) -> Result<(), Failure> {
        match self.nothing {}
    }
}

#[cfg(has_bpf)]
impl Events {
    /// Loads the program and attaches it to its tracepoints.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(chosen: &Chosen) -> Result<Events, Failure> {
        let program = program::Program::open(chosen)?;
        Ok(Events { program })
    }

    /// Waits for events, at most so long, and takes all that are there.
    ///
    /// # Errors
    /// As epoll_wait(2).
    pub fn wait(&mut self, most: Duration, events: &mut Vec<Event>) -> Result<(), Failure> {
        self.program.wait(most, events)
    }
}

#[cfg(has_bpf)]
mod program;
