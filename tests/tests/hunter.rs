//! A short hunt with a fresh seed each time. `ACKPACE_SEED=N` replays one; `cargo xtask soak` goes on for hours.

use std::time::Duration;

use ackpace_tests::hunter::{Hunt, seed};

fn hunt(each_s: u64, length_s: u64, only: Option<String>) {
    let hunt = Hunt {
        seed: seed(),
        each: Duration::from_secs(each_s),
        length: Duration::from_secs(length_s),
        only,
        args: Vec::new(),
        log: None,
    };
    let count = hunt.run();
    assert_eq!(
        count, 0,
        "findings; ACKPACE_SEED={} goes through the same weathers",
        hunt.seed
    );
}

#[test]
fn a_while_of_any_weather_breaks_no_promise() {
    hunt(4, 16, std::env::var("ACKPACE_WEATHER").ok());
}

#[test]
fn clients_of_nfs_see_nothing_of_a_target_that_restarts_but_time() {
    hunt(8, 1, Some("target".to_owned()));
}
