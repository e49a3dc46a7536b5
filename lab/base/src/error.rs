//! Errors of the lab. Each text says where it happened, what failed, and what to do.

use std::io;

/// Why the lab could not continue. A missed target is not an error but a line of the report.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine or the caller lacks something that a person must provide.
    #[error("{0}")]
    Setup(String),
    /// A system call or a file failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed, with its path or address.
        what: String,
        /// The error from the kernel.
        source: io::Error,
    },
    /// A contender answered wrongly, died, or did not start: its figures would be meaningless.
    #[error("{who}: {what}")]
    Contender {
        /// Name of the contender.
        who: String,
        /// What it did wrong.
        what: String,
    },
}

impl LabError {
    /// Exit code of the process: 2 where the caller must act first, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Setup(_) => 2,
            Self::Io { .. } | Self::Contender { .. } => 1,
        }
    }

    /// The error of a contender that failed.
    pub fn contender(who: &str, what: impl Into<String>) -> Self {
        Self::Contender {
            who: who.to_owned(),
            what: what.into(),
        }
    }
}

/// Result type of the lab.
pub type Result<T> = std::result::Result<T, LabError>;

/// Adds the operation to the error of a failed call.
pub trait Doing<T> {
    /// Wraps the error with `what`; the closure runs only on failure.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| LabError::Io {
            what: what(),
            source: error.into(),
        })
    }
}
