//! What share of clients is found. None of these laws holds for each client, since some windows tell nothing until much
//! later. The shares hold for each of 81 seeds, with room to spare.

use core::ops::RangeInclusive;

use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;

/// What is believed of 512 clients of a kind that lived as told, in percent ([`believed`]). PROPTEST_RNG_SEED draws them.
fn found<S: Strategy>(
    kind: &S,
    live: impl Fn(S::Value, &mut Rate, &mut Gauge) -> World,
) -> Vec<[u64; 2]> {
    let mut runner = TestRunner::default();
    let drawn = (0..512).map(|_| kind.new_tree(&mut runner).expect("no filter").current());
    let believed = drawn.map(|client| {
        let (mut rate, mut gauge) = (Rate::default(), Gauge::default());
        let world = live(client, &mut rate, &mut gauge);
        believed(&world, &rate)
    });
    believed.collect()
}

/// Of so many clients in a thousand, at least, what is believed lies in the range, percent.
fn holds(found: &[[u64; 2]], laws: &[(usize, RangeInclusive<u64>)]) {
    for (of_1000, range) in laws {
        let lies = |percents: &&[u64; 2]| percents.iter().all(|percent| range.contains(percent));
        let (inside, all) = (found.iter().filter(lies).count(), found.len());
        let outside = found.iter().filter(|percents| !lies(percents));
        assert!(
            inside * 1000 >= of_1000 * all,
            "{inside} of {all} lie in {range:?} %, not {:?}",
            outside.collect::<Vec<_>>()
        );
    }
}

#[test]
fn one_that_reads_in_bursts_is_found() {
    let found = found(
        &(kinds(), 100u64..2000),
        |(mut world, burst_ms), rate, gauge| {
            world.link_bytes_per_s = 100_000_000;
            world.program_bytes_per_s = world.program_bytes_per_s.min(2_000_000);
            world.burst_ms = burst_ms;
            world.run(rate, gauge, 40, 4 << 20, 50);
            world
        },
    );
    holds(
        &found,
        &[(950, 96..=104), (990, 90..=110), (1000, 62..=160)],
    );
}

#[test]
fn a_steady_client_that_always_has_something_to_take_is_found() {
    let found = found(&kinds(), |mut world, rate, gauge| {
        // Until a buffer is full nothing is known, and then it opens in steps of up to a sixteenth.
        let seconds = 30 + 3 * world.buffer_bytes / world.bytes_per_s();
        world.run(rate, gauge, seconds, world.bytes_per_s() / 2, 100);
        world
    });
    holds(
        &found,
        &[(950, 98..=102), (990, 90..=110), (1000, 62..=160)],
    );
}

#[test]
fn one_that_is_starved_is_seldom_believed_faster_than_it_is() {
    let found = found(
        &(kinds(), 20u64..90),
        |(mut world, percent), rate, gauge| {
            let piece_bytes = 5 * world.bytes_per_s() / 2;
            world.run(rate, gauge, 60, piece_bytes, 250_000 / percent);
            world
        },
    );
    // A large window that is open tells no more than a bound: what its receive buffer took at once.
    holds(
        &found,
        &[
            (600, 90..=110),
            (900, 0..=110),
            (950, 0..=160),
            (1000, 0..=1000),
        ],
    );
}

#[test]
fn one_that_gets_crumbs_is_seldom_believed_faster_than_it_is() {
    let kind = (kinds(), 5u64..90, 50u64..1000);
    let found = found(&kind, |(mut world, percent, each_ms), rate, gauge| {
        let piece_bytes = (world.bytes_per_s() * each_ms / 1000 * percent / 100).max(1);
        world.run(rate, gauge, 60, piece_bytes, each_ms);
        world
    });
    holds(&found, &[(950, 0..=105), (980, 0..=125), (1000, 0..=500)]);
}

#[test]
fn a_buffer_that_grows_does_not_keep_a_client_that_reads_in_bursts_from_being_found() {
    let segments = prop_oneof![Just(1_448u64), Just(65_483)];
    let kind = (100_000u64..2_000_000, 250u64..1_500, 64u64..6_144, segments);
    let found = found(
        &kind,
        |(program, burst_ms, grows_kib, segment), rate, gauge| {
            let mut world = World::new(100_000_000, program, 128 << 10);
            world.flow.segment_bytes = segment;
            world.grows_to_bytes = world.buffer_bytes + (grows_kib << 10);
            world.burst_ms = burst_ms;
            world.run(rate, gauge, 40, 4 << 20, 50);
            world
        },
    );
    holds(
        &found,
        &[(900, 94..=106), (970, 85..=118), (1000, 50..=200)],
    );
}
