//! `ackpace-fuzz` lists the targets. `ackpace-fuzz TARGET FILE...` runs one on files, without libFuzzer, to examine a
//! crash that `fuzz/run.sh` reported.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(name) = args.next() else {
        for target in ackpace_fuzz::TARGETS {
            println!("{}", target.name);
        }
        return ExitCode::SUCCESS;
    };
    let Some(target) = name.to_str().and_then(ackpace_fuzz::find) else {
        eprintln!("no fuzz target {name:?}; without arguments all are listed");
        return ExitCode::from(2);
    };
    for path in args {
        match std::fs::read(&path) {
            Ok(data) => (target.run)(&data),
            Err(error) => {
                eprintln!("{}: {error}", std::path::Path::new(&path).display());
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::SUCCESS
}
