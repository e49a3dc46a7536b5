//! The command line: see `ackpace-host --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ackpace_host::cli::main(std::env::args_os())
}
