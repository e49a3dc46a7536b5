//! What stops a bench. Each text says where, what, and what to do.

use std::io;

/// Why the lab could not go on. A missed target is no error: it is a line of the report.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine or the caller lacks something that a person has to provide.
    #[error("{0}")]
    Setup(String),
    /// A system call or a file failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, with the path or address.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A contender answered wrongly, died, or did not come up: its figures would mean nothing.
    #[error("{who}: {what}")]
    Contender {
        /// Name of the contender.
        who: String,
        /// What it did.
        what: String,
    },
}

impl LabError {
    /// 2 where the caller has to act first, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Setup(_) => 2,
            Self::Io { .. } | Self::Contender { .. } => 1,
        }
    }

    /// A contender's fault.
    pub fn contender(who: &str, what: impl Into<String>) -> Self {
        Self::Contender {
            who: who.to_owned(),
            what: what.into(),
        }
    }
}

/// Result of everything in the lab.
pub type Result<T> = std::result::Result<T, LabError>;

/// Adds "what was being done" to a failed call.
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
