//! Runs of the real binary that end by themselves.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::directory;

/// Ends a run in this directory, with these variables and no others.
pub struct Run<'a> {
    /// Where it runs.
    pub directory: &'a Path,
    /// Its environment.
    pub variables: &'a [(&'a str, &'a str)],
}

impl Run<'_> {
    /// The command, with nothing on standard input.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ackpace"));
        command
            .args(arguments)
            .current_dir(self.directory)
            .env_clear()
            .envs(self.variables.iter().copied())
            .stdin(Stdio::null());
        command
    }

    /// Exit code, standard output, standard error.
    pub fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            status.code().expect("no signal"),
            text(stdout),
            text(stderr),
        )
    }
}

/// Runs in an empty directory without variables.
pub fn ackpace(test: &str, arguments: &[&str]) -> (i32, String, String) {
    Run {
        directory: &directory(test),
        variables: &[],
    }
    .run(arguments)
}
