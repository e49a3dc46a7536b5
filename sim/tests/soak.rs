//! A short soak (`cargo xtask soak --seeds N` is the long one): the same few seeds in every run, then some fresh ones.

use std::panic::catch_unwind;
use std::time::{SystemTime, UNIX_EPOCH};

use ackpace_core::units::{Instant, MIB};
use ackpace_sim::worlds::delivery::{Ending, Fault, Faults, World};
use ackpace_sim::worlds::soak::{Part, Tally, parts};

/// Seeds of each kind.
const SEEDS: u64 = 8;

/// Runs seeds from `first` on; a failure's message names the seed.
fn run(first: u64) -> Tally {
    println!("{SEEDS} seeds from {first} on");
    let mut tally = Tally::default();
    for seed in first..first + SEEDS {
        for part in parts(seed) {
            let ended = catch_unwind(|| part.run());
            let replay = format!("cargo xtask soak --seeds 1 --seed {seed}");
            tally.add(ended.unwrap_or_else(|_| panic!("seed {seed}: {replay}; in {part}")));
        }
    }
    tally
}

#[test]
fn known_seeds_break_no_law_and_meet_faults() {
    let tally = run(1);
    assert!(tally.whole > 0 && tally.early > 0, "{tally}");
}

#[test]
fn fresh_seeds_break_no_law() {
    let fresh = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| now.as_millis() as u64 % 1_000_000_000)
    };
    let given = std::env::var("ACKPACE_SEED").ok();
    let first = given.map_or_else(fresh, |text| {
        text.parse().expect("ACKPACE_SEED is a number")
    });
    assert!(run(first).whole > 0);
}

/// A world with one download of one file: the first that seed 1 draws, otherwise as it is drawn.
fn one_download() -> World {
    let drawn = parts(1).into_iter().find_map(|part| match part {
        Part::Downloads { world, .. } => Some(*world),
        Part::Hostile { .. } | Part::Handoff(_) => None,
    });
    let mut world = drawn.expect("worlds of downloads");
    world.downloads.truncate(1);
    world.downloads[0].file = 0;
    world.downloads[0].from_bytes = 0;
    world.downloads[0].resets_at = None;
    (world.files, world.file_bytes) = (1, 8 * MIB);
    world
}

#[test]
fn a_response_through_the_page_cache_ends_where_its_file_was_cut() {
    // The file ends in the middle of a window, and the client is too slow for whole windows. The worker wanted the
    // missing bytes again and again, as fast as the disk answered.
    let mut world = one_download();
    let client = &mut world.downloads[0].client;
    (client.rate_bytes_per_s, client.change) = (200_000, None);
    world.disk.direct = false;
    world.disk.memory_bytes = MIB;
    let at = client.starts_at.plus_us(5_000_000);
    let cut = Fault::Truncated {
        file: 0,
        len_bytes: 100_000,
    };
    let later = Instant { us: at.us + 1 };
    world.faults = Faults {
        bad: Vec::new(),
        timed: vec![(at, cut), (later, Fault::Evicted)],
    };
    let outcome = world.run();
    assert_eq!(outcome.endings, [Ending::Early]);
    assert!(outcome.reads < 100, "{} reads", outcome.reads);
}
