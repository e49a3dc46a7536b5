//! Clients of each kind, and how fast they are believed to be: the claims of the estimator (`core/src/rate.rs`) as
//! asserts, and tables with the figures.
//!
//! `UPDATE_TABLES=1 cargo test -p ackpace-sim` rewrites the tables. Each figure of a table is the median over the
//! seeds.

mod beginnings;
mod kinds;
mod many;
mod pauses;

use ackpace_core::limits::{FIRST_READ_BYTES, STEADY_QUEUE_BYTES};
use ackpace_core::worker::SendPolicy;
use ackpace_sim::models::tcp::ConnectionProfile;
use ackpace_sim::models::tcp::receiver::Program;
use ackpace_sim::worlds::reading::{NOTED_EACH_MS, Outcome, Reader, ReadingClient, Supply, World};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SEEDS: [u64; 3] = [20_261_101, 20_261_102, 20_261_103];
const BUFFERS_KIB: [u64; 4] = [32, 256, 1_024, 6_144];
const SEND: SendPolicy = SendPolicy::Margin {
    budget_bytes: STEADY_QUEUE_BYTES,
};
/// Until when a starved client is starved, milliseconds.
const LATE_UNTIL_MS: u64 = 12_000;

/// What limits a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its program, which reads steadily.
    Steady,
    /// Its program, which reads all it needs for half a second as fast as it can.
    Bursty,
    /// Its program, which reads four seconds of film at four times its rate.
    Pausing,
    /// Its path.
    Link,
    /// A path of 1 Gbit/s, or its receive buffer in a round trip.
    Fast,
    /// Its program, which reads steadily, and a disk that brings three quarters of that at first.
    Starved,
    /// Its path, and such a disk.
    StarvedLink,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::Steady, "steady"),
    (Kind::Bursty, "bursty"),
    (Kind::Pausing, "pausing"),
    (Kind::Link, "link"),
    (Kind::Fast, "fast"),
    (Kind::Starved, "starved"),
    (Kind::StarvedLink, "starved link"),
];

impl Kind {
    fn is_by_link(self) -> bool {
        matches!(self, Kind::Link | Kind::StarvedLink)
    }

    fn is_starved(self) -> bool {
        matches!(self, Kind::Starved | Kind::StarvedLink)
    }

    fn program(self, rate_bytes_per_s: u64) -> Program {
        let periodic = |every_ms, times| Program::Periodic {
            rate_bytes_per_s,
            every_ms,
            times,
        };
        match self {
            Kind::Link | Kind::StarvedLink | Kind::Fast => Program::All,
            Kind::Bursty => periodic(500, 1_000),
            Kind::Pausing => periodic(4_000, 4),
            Kind::Steady | Kind::Starved => Program::Steady(rate_bytes_per_s),
        }
    }

    fn client(self, rate_bytes_per_s: u64, buffer_kib: u64, dice: &mut Pcg64Mcg) -> ReadingClient {
        let piece_bytes = (rate_bytes_per_s / 2).max(FIRST_READ_BYTES);
        let late = Supply::Late {
            piece_bytes,
            every_ms: piece_bytes * 1_000 / (rate_bytes_per_s * 3 / 4),
            until_ms: LATE_UNTIL_MS,
        };
        ReadingClient {
            profile: ConnectionProfile {
                program: self.program(rate_bytes_per_s),
                buffer_bytes: buffer_kib << 10,
                link_bytes_per_s: if self.is_by_link() {
                    rate_bytes_per_s
                } else {
                    125_000_000
                },
                rtt_ms: 10,
                segment_bytes: 1_448,
            },
            starts_ms: dice.next_u64() % 1_000,
            supply: if self.is_starved() {
                late
            } else {
                Supply::Cached
            },
        }
    }
}

/// From 100 KB/s to 1.6 MB/s, with equal chances for each doubling.
fn any_rate(dice: &mut Pcg64Mcg) -> u64 {
    let part = (dice.next_u64() % 1_000) as f64 / 1_000.0;
    (100_000.0 * 16.0_f64.powf(part)) as u64
}

fn world(clients: Vec<ReadingClient>, measured_from_s: u64, ends_s: u64) -> World {
    World {
        clients,
        disk: None,
        send: SEND,
        measured_from_ms: measured_from_s * 1_000,
        ends_ms: ends_s * 1_000,
    }
}

/// Believed over true at this age; 0: not known.
fn believed(reader: &Reader, age_ms: u64) -> f64 {
    let noted = reader.believed_bytes_per_s[(age_ms / NOTED_EACH_MS) as usize];
    noted as f64 / reader.true_bytes_per_s as f64
}

/// From which age on it is within a tenth of the true rate, seconds; infinite if it is not at the end.
fn found_s(reader: &Reader) -> f64 {
    let noted = reader.believed_bytes_per_s.len() as u64;
    let is_off = |n: &u64| (believed(reader, n * NOTED_EACH_MS) - 1.0).abs() > 0.1;
    match (0..noted).rev().find(is_off) {
        Some(n) if n + 1 == noted => f64::INFINITY,
        Some(n) => ((n + 1) * NOTED_EACH_MS) as f64 / 1e3,
        None => 0.0,
    }
}

fn percentile(values: impl IntoIterator<Item = f64>, percent: usize) -> f64 {
    let mut values = values.into_iter().collect::<Vec<_>>();
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent).div_ceil(100) - 1]
}

/// How far off beliefs are.
#[derive(Clone, Copy, Debug)]
struct Error {
    /// The median error, percent; 100: nothing is known.
    median_percent: f64,
    /// The 95th percentile of the factor between believed and true rate; infinite: nothing is known.
    factor: f64,
}

impl Error {
    fn of(ratios: &[f64]) -> Error {
        let off = ratios.iter().map(|ratio| (ratio - 1.0).abs() * 100.0);
        let factors = ratios.iter().map(|ratio| ratio.max(1.0 / ratio));
        Error {
            median_percent: percentile(off, 50),
            factor: percentile(factors, 95),
        }
    }

    fn over_seeds(errors: &[Error]) -> Error {
        Error {
            median_percent: percentile(errors.iter().map(|error| error.median_percent), 50),
            factor: percentile(errors.iter().map(|error| error.factor), 50),
        }
    }

    /// A median error of 15 %, and a 95th percentile within a factor of 1.6.
    fn is_small(&self) -> bool {
        self.median_percent <= 15.0 && self.factor <= 1.6
    }
}

/// The errors at this age, the median over the seeds of those of these readers of each.
fn errors(by_seed: &[Vec<&Reader>], age_ms: u64) -> Error {
    let of = |readers: &Vec<&Reader>| {
        let ratios = readers.iter().map(|reader| believed(reader, age_ms));
        Error::of(&ratios.collect::<Vec<_>>())
    };
    Error::over_seeds(&by_seed.iter().map(of).collect::<Vec<_>>())
}

/// From which age on half and 95 % of the readers are found within a tenth, seconds; the median over the seeds.
fn found(by_seed: &[Vec<&Reader>]) -> [f64; 2] {
    [50, 95].map(|percent| {
        let of = |readers: &Vec<&Reader>| {
            percentile(readers.iter().map(|reader| found_s(reader)), percent)
        };
        percentile(by_seed.iter().map(of), 50)
    })
}

/// The median over the seeds.
fn median(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    percentile(outcomes.iter().map(figure), 50)
}

/// A figure, or a dash where it is infinite.
fn cell(value: f64, width: usize, digits: usize) -> String {
    match value.is_finite() {
        true => format!(" {value:width$.digits$}"),
        false => format!(" {:>width$}", "-"),
    }
}

/// An error, as columns.
fn cells(error: &Error) -> String {
    cell(error.median_percent, 6, 0) + &cell(error.factor, 6, 2)
}

fn compare(name: &str, table: &str) {
    let path = format!("{}/tests/reading/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_TABLES").is_some() {
        std::fs::write(&path, table).expect("the table");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == table,
        "{path} differs; seeds {SEEDS:?}; now:\n{table}"
    );
}

#[test]
fn the_same_world_runs_the_same_way() {
    let run = || {
        let mut dice = Pcg64Mcg::seed_from_u64(SEEDS[0]);
        let clients = KINDS.map(|(kind, _)| kind.client(any_rate(&mut dice), 256, &mut dice));
        world(clients.into(), 5, 15).run()
    };
    assert_eq!(run(), run());
}
