//! Clients of each kind, on a path and a socket whose counters behave like Linux's.

use super::*;
use crate::rate::Rate;
use proptest::prelude::*;

#[path = "flow_laws.rs"]
mod laws;

const MS: u64 = 1000;

/// A client, its path, and our socket.
#[derive(Clone, Copy, Debug)]
struct World {
    /// What the path carries.
    link_bytes_per_s: u64,
    /// What the client's program reads at most.
    program_bytes_per_s: u64,
    /// How often it reads: each time as much as it could have read since the last time.
    burst_ms: u64,
    due_bytes: u64,
    /// Its receive buffer, and how far it grows.
    buffer_bytes: u64,
    grows_to_bytes: u64,
    unsent_bytes: u64,
    unread_bytes: u64,
    flow: Flow,
    now: Instant,
    /// The last sample of a client whose path holds it up: what leaves the socket says the rest.
    sampled_bytes_per_s: u64,
}

impl World {
    fn new(link_bytes_per_s: u64, program_bytes_per_s: u64, buffer_bytes: u64) -> World {
        World {
            link_bytes_per_s,
            program_bytes_per_s,
            burst_ms: 1,
            due_bytes: 0,
            buffer_bytes,
            grows_to_bytes: buffer_bytes,
            unsent_bytes: 0,
            unread_bytes: 0,
            flow: Flow {
                window_bytes: buffer_bytes,
                segment_bytes: 1448,
                ..Flow::default()
            },
            now: Instant { us: 0 },
            sampled_bytes_per_s: 0,
        }
    }

    /// What it takes at best.
    fn bytes_per_s(&self) -> u64 {
        self.link_bytes_per_s.min(self.program_bytes_per_s)
    }

    /// A millisecond passes.
    fn pass(&mut self) {
        let in_a_ms =
            |bytes_per_s: u64, ms: u64| bytes_per_s * (ms + 1) / 1000 - bytes_per_s * ms / 1000;
        let ms = self.now.us / MS;
        let acked_bytes = self.flow.acked_bytes;
        self.flow.quiet_us += MS;
        if self.unsent_bytes > 0 {
            self.flow.busy_us += MS;
            let carried_bytes = in_a_ms(self.link_bytes_per_s, ms);
            let taken_bytes = carried_bytes
                .min(self.unsent_bytes)
                .min(self.flow.window_bytes);
            if taken_bytes < carried_bytes.min(self.unsent_bytes) {
                self.flow.window_limited_us += MS;
            }
            self.unsent_bytes -= taken_bytes;
            if taken_bytes > 0 {
                self.flow.quiet_us = 0;
            }
            self.unread_bytes += taken_bytes;
            self.flow.acked_bytes += taken_bytes;
        }
        if ms % self.burst_ms == 0 {
            self.due_bytes = self.program_bytes_per_s * self.burst_ms / 1000;
        }
        let read_bytes = match self.burst_ms {
            1 => in_a_ms(self.program_bytes_per_s, ms).min(self.unread_bytes),
            _ => self.due_bytes.min(self.unread_bytes),
        };
        self.unread_bytes -= read_bytes;
        self.due_bytes -= read_bytes.min(self.due_bytes);
        // As Linux does it: what is read fast makes the buffer larger.
        let more_bytes = (2 * read_bytes).min(self.grows_to_bytes - self.buffer_bytes);
        self.buffer_bytes += more_bytes;
        // A small window is announced as none. An ACK of bytes announces the window; on its own, it is announced when
        // it is twice as large.
        let segment_bytes = self.flow.segment_bytes;
        let window_bytes = match self.buffer_bytes - self.unread_bytes {
            small if small < segment_bytes.min(self.buffer_bytes / 2) => 0,
            small if small < self.buffer_bytes / 16 => 0,
            window_bytes => window_bytes,
        };
        let step_bytes = (2 * segment_bytes).min(self.buffer_bytes / 2);
        let opened = window_bytes >= self.flow.window_bytes + step_bytes
            || window_bytes > 0 && self.flow.window_bytes == 0;
        let told =
            self.flow.acked_bytes > acked_bytes || window_bytes >= 2 * self.flow.window_bytes;
        if window_bytes < self.flow.window_bytes || opened && told {
            self.flow.window_bytes = window_bytes;
        }
        self.now = self.now.plus_us(MS);
    }

    /// Seconds pass, in which our socket gets a piece each `each_ms`, up to what it has room for. TCP_INFO is sampled
    /// when it gets one, and each second.
    fn run(
        &mut self,
        rate: &mut Rate,
        gauge: &mut Gauge,
        seconds: u64,
        piece_bytes: u64,
        each_ms: u64,
    ) {
        for ms in 0..seconds * 1000 {
            let given = ms % each_ms == 0;
            if given {
                gauge.given(self.now);
                self.unsent_bytes = (self.unsent_bytes + piece_bytes).min(piece_bytes.max(1 << 20));
            }
            let asked = given
                && gauge
                    .sampled_at()
                    .is_none_or(|at| self.now >= at.plus_us(250 * MS));
            if asked || ms % 1000 == 999 {
                if let Some(evidence) = gauge.sample(self.flow, self.now, rate.least_us()) {
                    rate.learn(evidence);
                    self.sampled_bytes_per_s = match evidence {
                        Evidence::Sample {
                            bytes_per_s,
                            by_itself: false,
                        } => bytes_per_s,
                        _ => 0,
                    };
                }
            }
            self.pass();
        }
    }
}

/// What is believed for sending and for prefetch, in percent of the truth; 0: nothing.
fn believed(world: &World, rate: &Rate) -> [u64; 2] {
    let percent = |believed: u64| believed * 100 / world.bytes_per_s();
    match world.sampled_bytes_per_s {
        0 => [rate.send_bytes_per_s(), rate.prefetch_bytes_per_s()].map(percent),
        sampled => [percent(sampled); 2],
    }
}

fn within(percents: [u64; 2], most_percent: u64) -> bool {
    let least_percent = 10_000 / most_percent;
    (percents.iter()).all(|percent| (least_percent..=most_percent).contains(percent))
}

fn close(percents: [u64; 2]) -> bool {
    within(percents, 110)
}

/// Over a network, and over loopback, whose segments are large.
fn kinds() -> impl Strategy<Value = World> {
    let rates = 20_000u64..3_000_000;
    let buffers =
        (14u32..=22, 0u64..1000).prop_map(|(log2, part)| (1 << log2) + (part << log2) / 1000);
    let segments = prop_oneof![Just(1_448), Just(65_483)];
    (rates, buffers, segments, any::<bool>()).prop_map(
        |(rate, buffer_bytes, segment_bytes, by_itself)| {
            let mut world = match by_itself {
                true => World::new(100_000_000, rate, buffer_bytes),
                false => World::new(rate, 1_000_000_000, buffer_bytes),
            };
            world.flow.segment_bytes = segment_bytes;
            world
        },
    )
}

#[test]
fn a_steady_client_with_a_large_receive_buffer_is_found() {
    let mut world = World::new(100_000_000, 654_363, 7_587_495);
    let (mut rate, mut gauge) = (Rate::default(), Gauge::default());
    world.run(&mut rate, &mut gauge, 65, 327_181, 100);
    assert!(close(believed(&world, &rate)), "{rate:?}");
}

#[test]
fn a_client_that_goes_on_after_a_pause_is_found_though_its_buffer_has_grown() {
    let mut world = World::new(100_000_000, 1_000_000, 128 << 10);
    world.grows_to_bytes = 6 << 20;
    let (mut rate, mut gauge) = (Rate::default(), Gauge::default());
    world.run(&mut rate, &mut gauge, 5, 1 << 20, 100);
    world.program_bytes_per_s = 0;
    world.run(&mut rate, &mut gauge, 60, 1 << 20, 100);
    assert!(rate.prefetch_bytes_per_s() < 300_000, "{rate:?}");
    // It takes all that a disk brings, 49 MB/s.
    world.program_bytes_per_s = 1_000_000_000;
    world.run(&mut rate, &mut gauge, 10, 196_000, 4);
    assert!(rate.prefetch_bytes_per_s() > 25_000_000, "{rate:?}");
}

proptest! {
    #[test]
    fn counters_that_wrap_stand_still_or_lie_break_nothing(
        samples in prop::collection::vec((any::<[u64; 6]>(), any::<u32>()), 1..50),
    ) {
        let (mut rate, mut gauge, mut now) = (Rate::default(), Gauge::default(), Instant { us: 0 });
        for (words, us) in samples {
            now = now.plus_us(us.into());
            let [acked_bytes, busy_us, window_limited_us, window_bytes, segment_bytes, quiet_us] = words;
            let flow = Flow { acked_bytes, busy_us, window_limited_us, window_bytes, segment_bytes, quiet_us };
            if let Some(evidence) = gauge.sample(flow, now, rate.least_us()) {
                rate.learn(evidence);
            }
            prop_assert!(rate.send_bytes_per_s() <= crate::limits::RATE_BYTES_PER_S_MAX);
            prop_assert!(rate.prefetch_bytes_per_s() <= crate::limits::RATE_BYTES_PER_S_MAX);
        }
    }
}

#[test]
fn a_burst_into_an_empty_receive_buffer_is_no_pace() {
    let mut world = World::new(1_000_000_000, 300_000, 6 << 20);
    let (mut rate, mut gauge) = (Rate::default(), Gauge::default());
    world.run(&mut rate, &mut gauge, 10, 4 << 20, 20_000);
    // Nothing tells how fast it reads while its window is still large.
    let [send, prefetch] = believed(&world, &rate);
    assert!(send <= 125 && prefetch <= 125, "{rate:?}");
}

#[test]
fn a_buffer_that_grows_misleads_for_a_few_seconds_only() {
    let mut world = World::new(1_000_000_000, 300_000, 64 << 10);
    world.grows_to_bytes = 2 << 20;
    let (mut rate, mut gauge) = (Rate::default(), Gauge::default());
    world.run(&mut rate, &mut gauge, 12, 360_000, 2_000);
    let [send, prefetch] = believed(&world, &rate);
    assert!(send <= 160 && prefetch <= 160, "{send} {prefetch} {rate:?}");
}

#[test]
fn a_client_that_reads_nothing_for_an_hour_is_slow_and_found_again() {
    let mut world = World::new(100_000_000, 500_000, 256 << 10);
    let (mut rate, mut gauge) = (Rate::default(), Gauge::default());
    world.run(&mut rate, &mut gauge, 10, 250_000, 100);
    world.program_bytes_per_s = 0;
    world.run(&mut rate, &mut gauge, 3_600, 250_000, 100);
    assert!(rate.prefetch_bytes_per_s() < 1_000, "{rate:?}");
    assert!(rate.prefetch_bytes_per_s() > 0, "0 is: not known");
    world.program_bytes_per_s = 500_000;
    world.run(&mut rate, &mut gauge, 30, 250_000, 100);
    assert!(close(believed(&world, &rate)), "{rate:?}");
}

#[test]
fn one_that_reads_a_byte_a_second_or_acknowledges_without_reading_is_slow() {
    for program_bytes_per_s in [0, 1] {
        let mut world = World::new(100_000_000, program_bytes_per_s, 256 << 10);
        let mut gauge = Gauge::default();
        let mut rate = Rate::default();
        rate.sample(1 << 20, 10 * MS, false); // as its burst left the socket
        world.run(&mut rate, &mut gauge, 60, 4 << 20, 100);
        let (send, prefetch) = (rate.send_bytes_per_s(), rate.prefetch_bytes_per_s());
        assert!((1..10_000).contains(&send), "{rate:?}");
        assert!((1..10_000).contains(&prefetch), "{rate:?}");
    }
}

#[test]
fn a_closed_window_bounds_a_burst_by_what_was_acknowledged_since() {
    // curl --limit-rate 300k of some releases: 10 MB at once, then nothing for 34 s.
    let mut gauge = Gauge::default();
    let flow = |acked_bytes, ms: u64, window_bytes| Flow {
        acked_bytes,
        busy_us: ms * MS,
        window_limited_us: ms * MS,
        window_bytes,
        segment_bytes: 65_483,
        quiet_us: 0,
    };
    let at = |ms: u64| Instant { us: ms * MS };
    let mut rate = Rate::default();
    rate.sample(10 << 20, 100 * MS, false);
    let mut sample = |flow, ms| {
        if let Some(evidence) = gauge.sample(flow, at(ms), rate.least_us()) {
            rate.learn(evidence);
        }
        rate.send_bytes_per_s()
    };
    sample(flow(160_000, 1, 190_000), 1);
    sample(flow(10_600_000, 1_000, 0), 1_000);
    let closed = |ms: u64| flow(10_600_000, ms, 0);
    let after_3_s = sample(closed(3_000), 3_000);
    assert!((3_400_000..3_700_000).contains(&after_3_s), "{after_3_s}");
    for s in 4..34 {
        sample(closed(s * 1_000), s * 1_000);
    }
    let after_33_s = sample(closed(33_900), 33_900);
    assert!((300_000..330_000).contains(&after_33_s), "{after_33_s}");
}

#[test]
fn what_a_burst_of_two_seconds_takes_is_its_mean() {
    let mut world = World::new(1_000_000_000, 500_000, 256 << 10);
    world.burst_ms = 2_000;
    let (mut rate, mut gauge) = (Rate::default(), Gauge::default());
    world.run(&mut rate, &mut gauge, 12, 4 << 20, 50);
    assert!(within(believed(&world, &rate), 125), "{rate:?}");
}

#[test]
fn a_window_that_stays_closed_tells_that_little_of_a_large_buffer_was_read() {
    const BUFFER: u64 = 6 << 20;
    let flow = |ms: u64, acked_bytes| Flow {
        acked_bytes,
        busy_us: ms * MS,
        window_limited_us: ms.saturating_sub(100) * MS,
        window_bytes: BUFFER - acked_bytes,
        segment_bytes: 1448,
        quiet_us: 0,
    };
    let mut gauge = Gauge::default();
    let samples = [
        (10, 64 << 10),
        (120, BUFFER),
        (1_200, BUFFER),
        (3_200, BUFFER),
    ];
    let evidence = samples.map(|(ms, acked_bytes)| {
        let now = Instant { us: ms * MS };
        gauge.given(now);
        gauge.sample(flow(ms, acked_bytes), now, 500 * MS)
    });
    let at_most = |part: &Option<Evidence>| match part {
        Some(Evidence::AtMost { bytes_per_s }) => *bytes_per_s,
        other => panic!("{other:?}"),
    };
    // A sixteenth, and what was acknowledged before the first sample, in 1.1 and in 3.1 s.
    let bytes = BUFFER / 16 + (64 << 10);
    assert!(at_most(&evidence[2]) <= bytes && at_most(&evidence[3]) <= bytes / 3);
    assert!(at_most(&evidence[3]) >= BUFFER / 16 / 4);
}

/// The client reads 300 KB/s from a buffer of 1 MiB, and the disk gives it some seconds' bytes at once. It has read all when they come, but
/// its window, announced last when half of the buffer was free, does not tell. What it reads then may be of before or of since.
#[test]
fn what_may_have_been_read_since_counts_in_a_bound_from_above() {
    let mut gauge = Gauge::default();
    let mut sample =
        |ms: u64, acked_bytes, window_bytes, (busy_ms, limited_ms): (u64, u64), quiet_ms: u64| {
            let flow = Flow {
                acked_bytes,
                busy_us: busy_ms * MS,
                window_limited_us: limited_ms * MS,
                window_bytes,
                segment_bytes: 1_448,
                quiet_us: quiet_ms * MS,
            };
            let now = Instant { us: ms * MS };
            let evidence = gauge.sample(flow, now, INTERVAL_US_MIN);
            gauge.given(now);
            evidence
        };
    sample(0, 100_000, 1_048_576, (0, 0), 0);
    sample(10, 1_148_576, 0, (10, 0), 0);
    sample(2_000, 1_148_576, 524_288, (10, 0), 1_990);
    sample(6_003, 1_648_576, 548_576, (13, 0), 0);
    match sample(7_300, 2_580_000, 0, (1_310, 1_297), 42) {
        Some(Evidence::AtMost { bytes_per_s }) => {
            assert!((300_000..360_000).contains(&bytes_per_s), "{bytes_per_s}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_time_of_the_last_byte_tells_when_a_window_opened_between_samples() {
    // Over loopback: 300 KB at the beginning of each second, sampled at the end of each.
    let mut gauge = Gauge::default();
    let mut sample = |ms: u64, acked_bytes, window_bytes, quiet_ms: u64| {
        let flow = Flow {
            acked_bytes,
            busy_us: ms * MS,
            window_limited_us: ms * MS,
            window_bytes,
            segment_bytes: 65_483,
            quiet_us: quiet_ms * MS,
        };
        gauge.sample(flow, Instant { us: ms * MS }, INTERVAL_US_MIN / 2)
    };
    sample(0, 327_415, 450_824, 0);
    sample(994, 778_241, 0, 950);
    sample(1_994, 1_105_863, 0, 995);
    match sample(2_994, 1_368_939, 0, 995) {
        Some(Evidence::Sample { bytes_per_s, .. }) => {
            assert!((255_000..345_000).contains(&bytes_per_s), "{bytes_per_s}");
        }
        other => panic!("{other:?}"),
    }
}

/// Samples of a client that reads 300 KB at the beginning of each second, over loopback: milliseconds, acknowledged bytes,
/// window, time since the last byte was sent. Its tuned buffer grows by 900 KB in the third burst.
const BURSTS: [[u64; 4]; 5] = [
    [0, 32_768, 95_232, 0],
    [996, 518_956, 0, 784],
    [1_996, 846_371, 0, 736],
    [2_008, 1_172_762, 851_968, 0],
    [2_996, 2_062_953, 0, 692],
];

#[test]
fn a_receive_buffer_that_is_seen_to_grow_is_not_taken_for_reading() {
    let mut gauge = Gauge::default();
    let mut rate = Rate::default();
    for [ms, acked_bytes, window_bytes, quiet_ms] in BURSTS {
        let flow = Flow {
            acked_bytes,
            busy_us: ms * MS,
            window_limited_us: ms * MS,
            window_bytes,
            segment_bytes: 65_483,
            quiet_us: quiet_ms * MS,
        };
        assert_eq!(gauge.is_grown(flow), ms == 2_008, "after {ms} ms");
        if let Some(evidence) = gauge.sample(flow, Instant { us: ms * MS }, rate.least_us()) {
            rate.learn(evidence);
        }
    }
    let bytes_per_s = rate.send_bytes_per_s();
    assert!((240_000..360_000).contains(&bytes_per_s), "{bytes_per_s}");
}

proptest! {
    #[test]
    fn a_buffer_of_a_fixed_size_is_never_taken_for_one_that_grows(
        mut world in kinds(), burst_ms in 1u64..2_000, each_ms in 20u64..500,
    ) {
        world.burst_ms = burst_ms;
        let mut gauge = Gauge::default();
        for ms in 0..20_000 {
            if ms % each_ms == 0 {
                world.unsent_bytes = (world.unsent_bytes + (1 << 20)).min(4 << 20);
            }
            prop_assert!(!gauge.is_grown(world.flow), "after {ms} ms: {gauge:?} {world:?}");
            gauge.glance(world.flow);
            world.pass();
        }
    }
}

#[test]
fn a_client_that_becomes_slow_is_found_however_much_it_took_before() {
    for fast_s in [1u64, 10, 100] {
        let mut world = World::new(100_000_000, 1_000_000_000, 6 << 20);
        let (mut rate, mut gauge) = (Rate::default(), Gauge::default());
        rate.sample(10_000_000, 100 * MS, false); // what left the socket
        world.run(&mut rate, &mut gauge, fast_s, 20 << 20, 100);
        world.program_bytes_per_s = 100_000;
        world.run(&mut rate, &mut gauge, 20, 20 << 20, 100);
        let found = rate.send_bytes_per_s();
        assert!((80_000..=120_000).contains(&found), "{fast_s} s: {found}");
        assert!(rate.is_counted(), "{fast_s} s");
    }
}
