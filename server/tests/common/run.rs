//! Runs of the real binary that end by themselves.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::directory;

/// Runs in this directory, with these variables and no others.
pub struct Run<'a>(pub &'a Path, pub &'a [(&'a str, &'a str)]);

impl Run<'_> {
    /// The command, with nothing on standard input.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ackpace"));
        command
            .args(arguments)
            .current_dir(self.0)
            .env_clear()
            .envs(self.1.iter().copied())
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
    Run(&directory(test), &[]).run(arguments)
}
