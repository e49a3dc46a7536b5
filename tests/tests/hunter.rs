//! A short hunt with a fresh seed each time. `ACKPACE_SEED=N` replays one; `cargo xtask soak` goes on for hours.

use std::time::Duration;

use ackpace_tests::hunter::{Hunt, seed};

#[test]
fn half_a_minute_of_any_weather_breaks_no_promise() {
    let hunt = Hunt {
        seed: seed(),
        each: Duration::from_secs(4),
        length: Duration::from_secs(24),
        only: std::env::var("ACKPACE_WEATHER").ok(),
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
