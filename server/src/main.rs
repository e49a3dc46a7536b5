//! The command line: see `ackpace --help`.

fn main() {}
