//! The door to the kernel: loads the program that watches receivers (`host/src/bpf/receive.bpf.c`) and reads what it has
//! counted. Without BPF at build time, [`Tracing::open`] fails and says so.

use super::report::Counted;
use crate::failure::Failure;

/// What is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverFilter {
    /// Ports of services, at either end; none: all connections.
    pub ports: Vec<u16>,
    /// This process alone.
    pub pid: Option<u32>,
    /// The local ports that the kernel chooses for clients, first and last.
    pub ephemeral: (u16, u16),
}

impl ReceiverFilter {
    /// As a `struct meant` (`host/src/bpf/receiver.h`).
    pub fn settings(&self) -> [u32; 2] {
        [u32::from(!self.ports.is_empty()), self.pid.unwrap_or(0)]
    }
}

/// An attached program. Dropping it detaches it.
pub struct Tracing {
    #[cfg(has_bpf)]
    program: program::ReceiveProgram,
    #[cfg(not(has_bpf))]
    nothing: std::convert::Infallible,
}

#[cfg(not(has_bpf))]
impl Tracing {
    /// Fails.
    ///
    /// # Errors
    /// This binary has no BPF.
    pub fn open(_: &ReceiverFilter) -> Result<Tracing, Failure> {
        Err(crate::kernel::no_bpf())
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn counted(&self) -> Result<Counted, Failure> {
        match self.nothing {}
    }
}

#[cfg(has_bpf)]
impl Tracing {
    /// Loads the program and attaches it to its tracepoints.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(filter: &ReceiverFilter) -> Result<Tracing, Failure> {
        let program = program::ReceiveProgram::open(filter)?;
        Ok(Tracing { program })
    }

    /// All that was counted so far.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn counted(&self) -> Result<Counted, Failure> {
        self.program.counted()
    }
}

#[cfg(has_bpf)]
mod program;
