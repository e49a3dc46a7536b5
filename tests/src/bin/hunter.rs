//! Long hunts, started by `cargo xtask soak`. The server is `ACKPACE_BIN`, the lab `ACKPACE_LAB_BIN`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ackpace_tests::hunter::{Hunt, seed};

const USAGE: &str = "usage: hunter [--minutes M] [--each SECONDS] [--seed S] [--weather NAME] [--log FILE] [-- ARGUMENTS OF THE SERVER]
Hunts for M minutes (10), a seed after the other; each weather lasts 20 seconds. Exit code 1 if anything was found.";

fn main() -> ExitCode {
    match arguments(std::env::args().skip(1)) {
        Some((hunt, minutes)) => soak(hunt, Duration::from_secs_f64(minutes * 60.0)),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Parses the settings of a hunt with one seed, and the minutes it lasts.
fn arguments(mut words: impl Iterator<Item = String>) -> Option<(Hunt, f64)> {
    let mut hunt = Hunt {
        seed: 0,
        each: Duration::from_secs(20),
        length: Duration::ZERO,
        only: None,
        args: Vec::new(),
        log: None,
    };
    let (mut minutes, mut given) = (10.0, None);
    while let Some(word) = words.next() {
        if word == "--" {
            hunt.args = words.by_ref().collect();
            break;
        }
        let value = words.next()?;
        match &*word {
            "--minutes" => {
                minutes = value
                    .parse()
                    .ok()
                    .filter(|minutes: &f64| minutes.is_finite() && *minutes >= 0.0)?
            }
            "--each" => hunt.each = Duration::from_secs(value.parse().ok()?),
            "--seed" => given = Some(value.parse().ok()?),
            "--weather" => hunt.only = Some(value),
            "--log" => hunt.log = Some(PathBuf::from(value)),
            _ => return None,
        }
    }
    hunt.seed = given.unwrap_or_else(seed);
    Some((hunt, minutes))
}

fn soak(first: Hunt, length: Duration) -> ExitCode {
    let start = Instant::now();
    let mut hunt = first;
    let (mut count, mut seeds) = (0, 0);
    loop {
        // A seed goes through each weather about twice.
        let left = length.saturating_sub(start.elapsed());
        hunt.length = left.min(hunt.each * 16);
        count += hunt.run();
        seeds += 1;
        if start.elapsed() >= length {
            break;
        }
        hunt.seed += 1;
    }
    println!(
        "soak: {seeds} seeds, the last one {}, {count} findings in {:.0} s",
        hunt.seed,
        start.elapsed().as_secs_f64()
    );
    ExitCode::from(u8::from(count > 0))
}
