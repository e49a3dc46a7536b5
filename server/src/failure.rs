//! Why a command ends early: the message, and the exit code that tells a script who has to act.

use std::fmt::Display;

use crate::config::{self, Layer};
use crate::greeting::write_while_read;

/// Why a command ended without having done its work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line is wrong, or it asked for help or version.
    #[error("{0}")]
    Usage(#[from] clap::Error),
    /// The configuration, or what it names, is wrong; one sentence for each thing that the operator has to mend.
    #[error("{}", .0.join("\n"))]
    Operator(Vec<String>),
    /// The system refuses what the configuration names: it is missing, taken or forbidden now. A later start may do, so
    /// that service managers should try again; one sentence for each.
    #[error("{}", .0.join("\n"))]
    NotNow(Vec<String>),
    /// Valid input, but something failed at run time.
    #[error("{0}")]
    Runtime(String),
}

impl Failure {
    /// One thing that the operator has to mend: exit code 2.
    pub fn operator(text: impl Into<String>) -> Self {
        Self::Operator(vec![text.into()])
    }

    /// One thing that a later start may find mended: exit code 75.
    pub fn not_now(text: impl Into<String>) -> Self {
        Self::NotNow(vec![text.into()])
    }

    /// A value that this machine refuses for good; `error` begins with the value.
    pub fn value(given: &Layer, key: &str, error: &dyn Display) -> Self {
        Self::operator(config::refused(given, key, error))
    }

    /// A value that this machine refuses now.
    pub fn value_now(given: &Layer, key: &str, error: &dyn Display) -> Self {
        Self::not_now(config::refused(given, key, error))
    }

    /// All of these together; `None`: there are none. They pass by themselves only if each of them does.
    pub fn all(failures: impl Iterator<Item = Failure>) -> Option<Self> {
        let failures: Vec<Failure> = failures.collect();
        let pass = failures.iter().all(|one| matches!(one, Self::NotNow(_)));
        let lines: Vec<String> = failures.into_iter().flat_map(Self::lines).collect();
        match (lines.is_empty(), pass) {
            (true, _) => None,
            (false, true) => Some(Self::NotNow(lines)),
            (false, false) => Some(Self::Operator(lines)),
        }
    }

    fn lines(self) -> Vec<String> {
        match self {
            Self::Operator(lines) | Self::NotNow(lines) => lines,
            Self::Usage(error) => vec![error.to_string()],
            Self::Runtime(line) => vec![line],
        }
    }

    /// A failure at run time: exit code 1.
    pub fn runtime(text: impl Into<String>) -> Self {
        Self::Runtime(text.into())
    }

    /// 0 for help and version, 1 for a failure at run time, 2 for what the operator has to mend, 75 (EX_TEMPFAIL of
    /// sysexits.h) for what may pass by itself.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(error) => u8::from(error.use_stderr()) * 2,
            Self::Operator(_) => 2,
            Self::NotNow(_) => 75,
            Self::Runtime(_) => 1,
        }
    }

    /// Prints the message, on the stream where it belongs. A closed stream is no failure, and what nobody reads is left out: a
    /// start that failed has to end.
    pub fn print(&self) {
        match self {
            Self::Usage(error) => {
                let _ = error.print();
            }
            Self::Operator(lines) | Self::NotNow(lines) => {
                lines.iter().for_each(|line| print_line(line))
            }
            Self::Runtime(line) => print_line(line),
        }
    }
}

fn print_line(line: &str) {
    let line = format!("ackpace: {line}\n");
    let _ = write_while_read(&std::io::stderr(), line.as_bytes());
}
