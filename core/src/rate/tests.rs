//! Clients of each kind, on a path and a socket whose counters behave like Linux's, and what is believed of them.

use super::*;
use proptest::prelude::*;

const MS: u64 = 1000;
const AT: fn(u64) -> Instant = |ms| Instant { us: ms * MS };

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
    given_bytes: u64,
    unsent_bytes: u64,
    unread_bytes: u64,
    flow: Flow,
    now: Instant,
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
            given_bytes: 0,
            unsent_bytes: 0,
            unread_bytes: 0,
            flow: Flow {
                window_bytes: buffer_bytes,
                segment_bytes: 1448,
                ..Flow::default()
            },
            now: Instant { us: 0 },
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

    /// Seconds pass, in which our socket gets a piece each `each_ms`, up to what it has room for. It is looked at then, and
    /// TCP_INFO is sampled each 400 ms.
    fn run(&mut self, rate: &mut Rate, seconds: u64, piece_bytes: u64, each_ms: u64) {
        for ms in 0..seconds * 1000 {
            if ms % each_ms == 0 {
                let gone_bytes = self.given_bytes - self.unsent_bytes;
                rate.look(gone_bytes, self.unsent_bytes == 0, self.now);
                let room_bytes = piece_bytes.max(1 << 20) - self.unsent_bytes;
                self.given_bytes += piece_bytes.min(room_bytes);
                self.unsent_bytes += piece_bytes.min(room_bytes);
            }
            if ms % 400 == 399 {
                rate.count(self.flow, self.now);
            }
            self.pass();
        }
    }

    /// How long its window may stay closed: until a part of its receive buffer is free. Over loopback it opens by whole segments.
    fn step_ms(&self) -> u64 {
        let step_bytes = (self.buffer_bytes / 16).max(2 * self.flow.segment_bytes);
        step_bytes * 1000 / self.bytes_per_s()
    }
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

/// What is believed, in percent of the truth.
fn percent(world: &World, rate: &Rate) -> u64 {
    rate.bytes_per_s() * 100 / world.bytes_per_s()
}

proptest! {
    /// Behind a link or self-paced, by a receive buffer of any size, and fed all the time.
    #[test]
    fn a_steady_client_is_found_within_3_s_and_three_steps_of_its_window_and_stays_found(mut world in kinds()) {
        let mut rate = Rate::default();
        let found_s = 3 + 3 * world.step_ms() / 1000;
        world.run(&mut rate, found_s, world.bytes_per_s() / 2, 100);
        // Half of a buffer may be one segment over loopback.
        let part = 15 + 100 * world.flow.segment_bytes / 1448 / 15;
        for _ in 0..10 {
            world.run(&mut rate, 1, world.bytes_per_s() / 2, 100);
            let percent = percent(&world, &rate);
            prop_assert!(percent.abs_diff(100) <= part, "{percent} %: {rate:?} {world:?}");
        }
    }

    #[test]
    fn a_starved_client_is_believed_to_take_at_least_half_of_what_it_gets_and_seldom_more_than_it_could(
        mut world in kinds(), fed in 20u64..90,
    ) {
        let mut rate = Rate::default();
        world.run(&mut rate, 30, 5 * world.bytes_per_s() / 2, 250_000 / fed);
        let percent = percent(&world, &rate);
        prop_assert!((fed / 2..=250).contains(&percent), "{percent} % of {fed}: {rate:?} {world:?}");
    }

    #[test]
    fn a_client_that_pauses_and_comes_back_is_found_again(mut world in kinds(), pause_s in 1u64..100) {
        let mut rate = Rate::default();
        let (found_s, reads) = (3 + 3 * world.step_ms() / 1000, world.program_bytes_per_s);
        world.run(&mut rate, found_s, 1 << 20, 100);
        world.program_bytes_per_s = 0;
        world.run(&mut rate, pause_s, 1 << 20, 100);
        world.program_bytes_per_s = reads;
        world.run(&mut rate, found_s, 1 << 20, 100);
        let percent = percent(&world, &rate);
        prop_assert!((50..=200).contains(&percent), "{percent} %: {rate:?} {world:?}");
    }

    #[test]
    fn counters_that_wrap_stand_still_or_lie_break_nothing(
        samples in prop::collection::vec((any::<[u64; 7]>(), any::<u32>(), any::<bool>()), 1..50),
    ) {
        let (mut rate, mut now) = (Rate::default(), AT(0));
        for ([acked_bytes, busy_us, window_limited_us, window_bytes, segment_bytes, quiet_us, gone_bytes], us, is_dry) in samples {
            now = now.plus_us(us.into());
            rate.look(gone_bytes, is_dry, now);
            rate.count(Flow { acked_bytes, busy_us, window_limited_us, window_bytes, segment_bytes, quiet_us }, now);
            rate.raise();
            rate.congest(Some(quiet_us));
            prop_assert!(rate.bytes_per_s() <= RATE_BYTES_PER_S_MAX);
        }
    }
}

#[test]
fn a_burst_into_an_empty_receive_buffer_is_a_guess_until_the_counters_tell() {
    let mut world = World::new(100_000_000, 300_000, 4 << 20);
    let mut rate = Rate::default();
    world.run(&mut rate, 2, 1 << 20, 10);
    assert!(
        rate.is_own_pace() && rate.bytes_per_s() < 1_500_000,
        "{rate:?}"
    );
    let mut burst = Rate::default();
    [0, 1_000_000, 2_000_000]
        .into_iter()
        .zip(0..)
        .for_each(|(gone_bytes, nth)| burst.look(gone_bytes, false, AT(10 * nth)));
    assert!(
        burst.is_guess() && burst.bytes_per_s() == 100_000_000,
        "{burst:?}"
    );
}

#[test]
fn a_client_that_reads_nothing_for_an_hour_is_slow_and_found_again() {
    let mut world = World::new(100_000_000, 1_000_000, 1 << 20);
    let mut rate = Rate::default();
    world.run(&mut rate, 10, 1 << 20, 100);
    world.program_bytes_per_s = 0;
    world.run(&mut rate, 3_600, 1 << 20, 1_000);
    assert!(rate.bytes_per_s() < 100_000, "{rate:?}");
    world.program_bytes_per_s = 1_000_000;
    world.run(&mut rate, 5, 1 << 20, 100);
    assert!(percent(&world, &rate).abs_diff(100) <= 10, "{rate:?}");
}

#[test]
fn where_tcp_counts_nothing_what_leaves_the_socket_over_a_second_has_to_do() {
    let mut rate = Rate::default();
    for n in 0..=40 {
        rate.look(n * 50_000, false, AT(100 * n));
    }
    assert_eq!((rate.bytes_per_s(), rate.is_of_path()), (500_000, true));
    for n in 41..=50 {
        rate.look(2_000_000, true, AT(100 * n));
    }
    assert_eq!(rate.bytes_per_s(), 500_000, "it had nothing to take");
    rate.raise();
    assert_eq!(
        rate.bytes_per_s(),
        625_001,
        "but it has taken more than was believed"
    );
}

#[test]
fn after_a_sign_of_congestion_the_path_bounds_it_and_the_next_sample_comes_soon_and_counts_whole() {
    let mut world = World::new(1_000_000, 1_000_000_000, 1 << 20);
    let mut rate = Rate::default();
    rate.congest(Some(1));
    assert_eq!(rate.bytes_per_s(), 0, "still unknown");
    world.run(&mut rate, 5, 1 << 20, 100);
    rate.congest(Some(600_000));
    assert_eq!(rate.bytes_per_s(), 600_000);
    world.link_bytes_per_s = 200_000;
    world.run(&mut rate, 2, 1 << 20, 100);
    assert!(rate.bytes_per_s().abs_diff(200_000) < 20_000, "{rate:?}");
    rate.learn_own_pace(300_000);
    rate.congest(Some(1));
    assert_eq!(
        rate.bytes_per_s(),
        300_000,
        "about a pace of its own it says nothing"
    );
}

impl Rate {
    /// The client reads this fast at its own pace.
    pub(crate) fn learn_own_pace(&mut self, bytes_per_s: u64) {
        self.step_bytes = bytes_per_s;
        self.sample(bytes_per_s, true);
    }

    /// The client's path carries this much.
    pub(crate) fn learn_path(&mut self, bytes_per_s: u64) {
        self.sample(bytes_per_s, false);
    }
}
