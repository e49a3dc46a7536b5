//! The command line: see `ackpace --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ackpace::cli::main(std::env::args_os(), std::env::vars_os())
}
