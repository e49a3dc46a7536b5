//! The door to the kernel for `events`: loads its program (`host/src/bpf/events.bpf.c`) and hears it. Without BPF at build
//! time, [`Source::open`] fails and says so.

use std::time::Duration;

use super::event::TcpEvent;
use crate::failure::Failure;
use crate::matching::Matching;

/// An attached program. Dropping it detaches it.
pub struct Source {
    #[cfg(has_bpf)]
    program: program::EventsProgram,
    #[cfg(not(has_bpf))]
    nothing: std::convert::Infallible,
}

#[cfg(not(has_bpf))]
impl Source {
    /// Fails.
    ///
    /// # Errors
    /// This binary has no BPF.
    pub fn open(_: &Matching) -> Result<Source, Failure> {
        Err(crate::kernel::no_bpf())
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn select_cgroups(&mut self, _: &[u64]) -> Result<(), Failure> {
        match self.nothing {}
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn wait(&mut self, _: Duration, _: &mut Vec<TcpEvent>) -> Result<(), Failure> {
        match self.nothing {}
    }

    /// See the real one.
    pub fn missed(&self) -> u64 {
        match self.nothing {}
    }
}

#[cfg(has_bpf)]
impl Source {
    /// Loads the program and attaches it to its tracepoints. These sockets match.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(matching: &Matching) -> Result<Source, Failure> {
        let program = program::EventsProgram::open(matching)?;
        Ok(Source { program })
    }

    /// From now on the sockets of these cgroups match, of those that match otherwise.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn select_cgroups(&mut self, ids: &[u64]) -> Result<(), Failure> {
        self.program.select_cgroups(ids)
    }

    /// Waits for events, at most so long, and takes what is there, [`crate::limits::TCP_EVENTS_MAX`] at most.
    ///
    /// # Errors
    /// As epoll_wait(2).
    pub fn wait(&mut self, most: Duration, events: &mut Vec<TcpEvent>) -> Result<(), Failure> {
        self.program.wait(most, events)
    }

    /// How many events found no room.
    pub fn missed(&self) -> u64 {
        self.program.missed()
    }
}

#[cfg(has_bpf)]
mod program;
