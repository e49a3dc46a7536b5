//! `cargo xtask soak`: runs the hunter of `tests/` for minutes or hours, against a server of this tree or any other.
//! With `--seeds N` it runs N seeds of the simulator's soak (`sim/src/worlds/soak/`) instead, without a server.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

/// Usage line of the command.
pub const USAGE: &str = "cargo xtask soak [--minutes M] [--each SECONDS] [--seed S] [--server PATH] [--workers N] [--weather NAME]";

/// Usage line of the command on the simulator.
pub const USAGE_OF_SEEDS: &str = "cargo xtask soak --seeds N [--seed S] [--minutes M]";

/// Settings of the hunt.
#[derive(Debug, Default, PartialEq, Eq)]
struct Soak {
    /// Passed on to the hunter unchanged.
    words: Vec<String>,
    server: Option<PathBuf>,
    workers: Option<String>,
}

/// Builds what is needed and hunts. A file below the target directory receives a copy of all output.
pub fn run(arguments: &[String]) -> ExitCode {
    let ended = if arguments.iter().any(|word| word == "--seeds") {
        simulate(arguments)
    } else if let Some(soak) = parse(arguments) {
        hunt(&soak)
    } else {
        eprintln!("usage: {USAGE}\n       {USAGE_OF_SEEDS}");
        return ExitCode::from(2);
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

fn parse(arguments: &[String]) -> Option<Soak> {
    let mut soak = Soak::default();
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return None };
        match &**name {
            "--minutes" | "--each" | "--seed" | "--weather" => {
                soak.words.extend(pair.iter().cloned())
            }
            // The hunter runs in the directory of its package.
            "--server" => soak.server = std::path::absolute(value).ok(),
            "--workers" => soak.workers = Some(value.clone()),
            _ => return None,
        }
    }
    Some(soak)
}

fn hunt(soak: &Soak) -> std::io::Result<bool> {
    let mut build = cargo();
    build.args([
        "build",
        "--quiet",
        "--locked",
        "--package",
        "ackpace-tests",
        "--package",
        "ackpace-lab",
    ]);
    if soak.server.is_none() {
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
    hunter.env(
        "ACKPACE_BIN",
        soak.server.clone().unwrap_or_else(|| beside("ackpace")),
    );
    hunter.env("ACKPACE_LAB_BIN", beside("ackpace-lab"));
    hunter.args(&soak.words).arg("--log").arg(&log);
    if let Some(workers) = &soak.workers {
        hunter.args(["--", "--workers", workers]);
    }
    Ok(hunter.status()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Soak> {
        parse(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn what_is_for_the_hunter_is_handed_on() {
        let soak = parsed("--minutes 120 --server target/release/ackpace --workers 2 --seed 7")
            .expect("a line as it is typed");
        assert_eq!(soak.words, ["--minutes", "120", "--seed", "7"]);
        let server = std::path::absolute("target/release/ackpace").ok();
        assert_eq!((soak.server, soak.workers), (server, Some("2".into())));
        assert_eq!(parsed(""), Some(Soak::default()));
    }

    #[test]
    fn what_it_does_not_know_is_refused() {
        assert_eq!(parsed("--minutes"), None);
        assert_eq!(parsed("--hours 2"), None);
    }
}
