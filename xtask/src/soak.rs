//! `cargo xtask soak`: runs the hunter of `tests/` for minutes or hours, against a server of this tree or any other.
//! With `--seeds N` it runs N seeds of the simulator's soak (`sim/src/worlds/soak/`) instead, without a server.

use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

/// Usage line of the command.
pub const USAGE: &str = "cargo xtask soak [--minutes M] [--each SECONDS] [--seed S] [--server PATH] [--workers N] [--weather NAME]";

/// Usage line of the command on the simulator.
pub const USAGE_OF_SEEDS: &str = "cargo xtask soak --seeds N [--seed S] [--minutes M]";

/// Builds what is needed and hunts. A file below the target directory receives a copy of all output.
pub fn run(arguments: &[String]) -> ExitCode {
    let ended = if arguments.iter().any(|word| word == "--seeds") {
        simulate(arguments)
    } else {
        hunt(arguments)
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the simulator's soak in a build that checks every sum and every claim. A failure names seed and commit.
fn simulate(arguments: &[String]) -> std::io::Result<bool> {
    let git = |words: &[&str]| Command::new("git").args(words).output();
    let head = git(&["rev-parse", "--short", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let mut commit = String::from_utf8_lossy(&head.stdout).trim().to_owned();
    if !changed.stdout.is_empty() {
        commit += "+changes";
    }
    let mut soak = cargo();
    soak.args(["run", "--quiet", "--locked", "--profile", "soak"]);
    soak.args(["--package", "ackpace-sim", "--bin", "soak", "--"]);
    soak.args(arguments).args(["--commit", &commit]);
    Ok(soak.status()?.success())
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn hunt(arguments: &[String]) -> std::io::Result<bool> {
    let (mut words, mut server, mut workers) = (Vec::new(), None, None);
    for pair in arguments.chunks(2) {
        match pair {
            // The hunter runs in the directory of its package.
            [name, path] if name == "--server" => server = Some(std::path::absolute(path)?),
            [name, count] if name == "--workers" => workers = Some(count),
            // It refuses what it does not know.
            _ => words.extend(pair),
        }
    }
    let mut build = cargo();
    build.args("build --quiet --locked --package ackpace-tests".split(' '));
    build.args("--package ackpace-lab --package ackpace-host".split(' '));
    if server.is_none() {
        build.args(["--package", "ackpace"]);
    }
    if !build.status()?.success() {
        return Ok(false);
    }
    // The hunter is in the directory of this program.
    let built = std::env::current_exe()?;
    let beside = |name: &str| built.with_file_name(name);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    let log = beside(&format!("soak-{now}.log"));
    println!("soak: log in {}", log.display());
    let mut hunter = Command::new(beside("hunter"));
    hunter.env("ACKPACE_BIN", server.unwrap_or_else(|| beside("ackpace")));
    hunter.env("ACKPACE_LAB_BIN", beside("ackpace-lab"));
    hunter.env("ACKPACE_HOST_BIN", beside("ackpace-host"));
    hunter.args(words).arg("--log").arg(&log);
    if let Some(workers) = workers {
        hunter.args(["--", "--workers", workers]);
    }
    Ok(hunter.status()?.success())
}
