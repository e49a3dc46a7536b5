//! Runs seeds of the simulator's soak, one after the other; started by `cargo xtask soak --seeds N`.

use std::any::Any;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ackpace_sim::worlds::soak::{self, Tally};

const USAGE: &str = "usage: soak --seeds N [--seed S] [--minutes M] [--commit C]
Runs the N seeds from S on (default: a fresh one), for M minutes at most. Exit code 1 if any fails.";

/// Seeds from one line of progress to the next.
const REPORTED_EACH: u64 = 100;

struct Arguments {
    seeds: u64,
    first: u64,
    length: Duration,
    commit: String,
}

fn main() -> ExitCode {
    let Some(arguments) = arguments(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let failed = run(&arguments);
    ExitCode::from(u8::from(failed > 0))
}

fn arguments(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments {
        seeds: 0,
        first: fresh(),
        length: Duration::MAX,
        commit: "unknown".into(),
    };
    while let Some(word) = words.next() {
        let value = words.next()?;
        match &*word {
            "--seeds" => arguments.seeds = value.parse().ok()?,
            "--seed" => arguments.first = value.parse().ok()?,
            "--minutes" => {
                let minutes: f64 = value.parse().ok()?;
                arguments.length = Duration::try_from_secs_f64(minutes * 60.0).ok()?;
            }
            "--commit" => arguments.commit = value,
            _ => return None,
        }
    }
    (arguments.seeds > 0).then_some(arguments)
}

/// A seed that is short enough to type.
fn fresh() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64 % 1_000_000_000)
}

/// Returns the number of seeds that failed.
fn run(arguments: &Arguments) -> u64 {
    let Arguments {
        seeds,
        first,
        length,
        commit,
    } = arguments;
    println!("soak: {seeds} seeds from {first} on, commit {commit}");
    let start = Instant::now();
    let (mut done, mut failed, mut tally) = (0, 0, Tally::default());
    while done < *seeds && start.elapsed() < *length {
        let seed = first.wrapping_add(done);
        match one(seed) {
            Ok(one) => tally.add(one),
            Err(what) => {
                failed += 1;
                println!("soak: seed {seed} fails: {what}");
                println!("soak: at commit {commit}: cargo xtask soak --seeds 1 --seed {seed}");
            }
        }
        done += 1;
        if done % REPORTED_EACH == 0 || done == *seeds {
            report(done, failed, start, &tally);
        }
    }
    if done < *seeds {
        report(done, failed, start, &tally);
    }
    failed
}

fn report(done: u64, failed: u64, start: Instant, tally: &Tally) {
    let seconds = start.elapsed().as_secs_f64();
    println!("soak: {done} seeds, {failed} failed, {seconds:.0} s: {tally}");
}

/// Runs one seed. An error says which of its parts broke a law, and which one.
fn one(seed: u64) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for part in soak::parts(seed) {
        let ended = catch_unwind(|| part.run());
        tally.add(ended.map_err(|panic| format!("{}\nin {part}", text(&*panic)))?);
    }
    Ok(tally)
}

/// What a panic said.
fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    let text = owned.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text")
}
