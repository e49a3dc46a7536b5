//! Random inputs for the hostile worlds, the same in every run. `fuzz/` guides such inputs by coverage; these are cheap
//! enough for every `make test`.

use std::panic::catch_unwind;

use ackpace_sim::worlds::hostile;

/// Runs a world on the inputs of consecutive seeds; a failure's message names the seed.
fn run(world: fn(&[u8]), seeds: std::ops::Range<u64>, len_bytes: usize) {
    println!("seeds {seeds:?}, {len_bytes} bytes each");
    for seed in seeds {
        let input = hostile::random_input(seed, len_bytes);
        let ended = catch_unwind(|| world(&input));
        assert!(
            ended.is_ok(),
            "seed {seed}, {len_bytes} bytes: see above, and with ACKPACE_TRACE=1 how it came to that"
        );
    }
}

#[test]
fn whatever_two_machines_hear_and_when_all_that_was_asked_for_is_sent_and_nothing_else() {
    run(hostile::both, 0..20_000, 300);
    run(hostile::both, 100_000..104_000, 1_200);
}

#[test]
fn a_worker_machine_survives_whatever_it_is_told() {
    run(hostile::worker_alone, 0..10_000, 400);
}

#[test]
fn a_disk_machine_survives_whatever_it_is_told() {
    run(hostile::disk_alone, 0..10_000, 400);
}
