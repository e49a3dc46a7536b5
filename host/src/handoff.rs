//! `handoff`: the broker of connections that move between the nodes of a cluster (DTCP). It has the rights for that, and one
//! server at a time asks it by a socket; it decides nothing.

use std::io;

use ackpace_host_base::failure::Failure;

pub mod look;
mod packet;
pub mod repair;
mod socket;

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For the operator.
    pub text: String,
    /// errno of the system call, or 0.
    pub errno: i32,
}

impl Refused {
    /// No system call failed.
    pub fn new(text: impl Into<String>) -> Refused {
        Refused {
            text: text.into(),
            errno: 0,
        }
    }

    /// A system call, or option, failed.
    pub fn os(what: &str, error: io::Error) -> Refused {
        Refused {
            text: format!("{what}: {error}"),
            errno: error.raw_os_error().unwrap_or(0),
        }
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::new(failure.to_string())
    }
}
