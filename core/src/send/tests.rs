//! One socket: its level, its rate, its refill.

use super::control::{Controller, SendPolicy, Taken, first_flight_rate_bytes_per_s};
use super::rounds::Target;
use super::*;
use crate::congestion::Path;
use crate::limits::{OWN_BYTES_MAX, TOP_UP_BYTES_MIN, UNKNOWN_MARGIN_US};
use proptest::prelude::*;

const MS: u64 = 1000;
const AT: fn(u64) -> Instant = |ms| Instant { us: ms * MS };
const TARGET: Target = Target {
    us: 200 * MS,
    least_bytes: TOP_UP_BYTES_MIN,
    steady_per_root: 0,
};

impl SendQueue {
    /// An empty socket of a client whose rate is known.
    pub(super) fn at_rate(bytes_per_s: u64) -> SendQueue {
        let mut margin = SendQueue::new(AT(0));
        if bytes_per_s > 0 {
            margin.rate.learn_path(bytes_per_s);
        }
        margin
    }
}

/// A socket is filled.
fn fill(margin: &mut SendQueue, socket: &mut u64, now: Instant) {
    loop {
        let refill = margin.refill(None, u64::MAX, TARGET, now);
        let taken_bytes = match refill.bytes {
            u64::MAX => u64::from(refill.lowat_bytes).saturating_sub(*socket),
            bytes => bytes,
        };
        margin.given(taken_bytes);
        *socket += taken_bytes;
        if !margin.full(*socket, TARGET, now) {
            return;
        }
    }
}

#[test]
fn a_socket_is_filled_with_what_its_client_takes_in_t_and_what_is_left_when_it_calls() {
    let (mut margin, mut socket) = (SendQueue::new(AT(0)), 0);
    let rate = 2_500_000; // 20 Mbit/s
    margin.begin(AT(0));
    let refill = margin.refill(None, u64::MAX, TARGET, AT(0));
    let start = (u64::MAX, LOWAT_BYTES_START, LOWAT_BYTES_START / 2);
    assert_eq!(
        (refill.bytes, refill.lowat_bytes, refill.epollout_bytes),
        start
    );
    fill(&mut margin, &mut socket, AT(0));
    for round in 1..20 {
        socket = socket.saturating_sub(rate / 20);
        fill(&mut margin, &mut socket, AT(round * 50));
    }
    let near = |bytes: u64, wanted: u64| bytes.abs_diff(wanted) < wanted / 50;
    assert!(near(margin.rate_bytes_per_s(), rate), "{margin:?}");
    assert!(near(socket, rate * 230 / 1000), "{socket}");
    let mut refill = |ms: u64| margin.refill(None, u64::MAX, TARGET, AT(950 + ms));
    assert!(near(refill(0).epollout_bytes.into(), rate * 30 / 1000));
    assert!(near(refill(100).bytes, rate / 10));
    assert!(!margin.joins(AT(950 + 190)) && margin.joins(AT(950 + 210)));
    assert_eq!(margin.margin_us(AT(950)).map(|us| us / MS / 10), Some(23));
}

#[test]
fn a_slow_client_is_topped_up_by_a_buffer_of_the_kernel_and_a_very_slow_one_calls_in_time() {
    let mut margin = SendQueue::at_rate(100_000);
    let refill = margin.refill(None, u64::MAX, TARGET, AT(0));
    let fill_bytes = EPOLLOUT_BYTES_MIN + TOP_UP_BYTES_MIN;
    assert_eq!(
        (refill.bytes, refill.epollout_bytes),
        (fill_bytes, EPOLLOUT_BYTES_MIN as u32)
    );
}

#[test]
fn what_is_read_for_one_alone_goes_in_as_soon_as_it_can() {
    let refill =
        |rate, own_bytes| SendQueue::at_rate(rate).refill(Some(own_bytes), u64::MAX, TARGET, AT(0));
    for (rate, bytes) in [(100_000, OWN_BYTES_MAX), (10_000_000, 2_300_000)] {
        let refill = refill(rate, OWN_BYTES_MAX);
        let up_to = (u64::MAX, bytes as u32, bytes as u32 / 2);
        assert_eq!(
            (refill.bytes, refill.lowat_bytes, refill.epollout_bytes),
            up_to
        );
    }
}

#[test]
fn the_kernels_call_is_believed_and_not_the_prediction() {
    let mut margin = SendQueue::at_rate(1_000_000);
    margin.given(230_000);
    margin.full(230_000, TARGET, AT(0));
    let room_bytes = |margin: &mut SendQueue| margin.refill(None, u64::MAX, TARGET, AT(50)).bytes;
    assert_eq!(room_bytes(&mut margin), 50_000);
    let supply_bytes = |margin: &SendQueue| margin.supply(false, AT(50)).socket_bytes;
    assert!(supply_bytes(&margin) >= 180_000);
    margin.became_writable(); // after 50 ms, though it should have lasted for 200
    assert_eq!(room_bytes(&mut margin), 200_000);
    assert_eq!(supply_bytes(&margin), 30_000, "for reading ahead, too");
}

#[test]
fn if_a_socket_should_be_full_the_kernel_is_asked() {
    let mut margin = SendQueue::at_rate(1_000_000);
    margin.given(1_000_000);
    margin.full(1_000_000, TARGET, AT(0));
    let refill = margin.refill(None, u64::MAX, TARGET, AT(0));
    let asked = (u64::MAX, 230_000, 30_000);
    assert_eq!(
        (refill.bytes, refill.lowat_bytes, refill.epollout_bytes),
        asked
    );
}

#[test]
fn a_pause_between_two_responses_is_nobodys_rate() {
    let (mut margin, mut socket) = (SendQueue::new(AT(0)), 0);
    margin.begin(AT(0));
    fill(&mut margin, &mut socket, AT(0));
    socket -= 50_000;
    fill(&mut margin, &mut socket, AT(50));
    let rate = margin.rate_bytes_per_s();
    margin.begin(AT(60_000));
    fill(&mut margin, &mut 0, AT(60_000));
    assert_eq!((rate, margin.rate_bytes_per_s()), (1_000_000, 1_000_000));
}

#[test]
fn a_first_rate_is_measured_from_where_there_is_something_to_take() {
    let mut margin = SendQueue::new(AT(0));
    margin.begin(AT(0));
    margin.taken(300, 300, AT(0)); // the head, into an empty socket
    margin.taken(131_072, 131_072, AT(200)); // it was empty before
    assert_eq!(margin.supply(false, AT(200)).rate_bytes_per_s, 0);
    margin.full(130_072, TARGET, AT(1_200));
    assert_eq!(margin.supply(true, AT(1_200)).rate_bytes_per_s, 1_000);
}

#[test]
fn who_took_more_than_was_believed_is_called_faster_and_who_did_not_is_not() {
    let known = || {
        let mut margin = SendQueue::new(AT(0));
        margin.begin(AT(0));
        margin.given(200_000);
        margin.full(100_000, TARGET, AT(1_000)); // 100 KB/s, and a second's worth is left
        margin
    };
    assert_eq!(known().rate_bytes_per_s(), 100_000);
    let mut faster = known();
    faster.taken(50_000, 50_000, AT(1_200)); // 80 KB should have been left
    assert_eq!(faster.rate_bytes_per_s(), 125_001);
    let mut as_believed = known();
    as_believed.taken(50_000, 50_000, AT(2_500)); // nothing should have been left
    assert_eq!(as_believed.rate_bytes_per_s(), 100_000);
    let mut not_dry = known();
    not_dry.taken(50_000, 130_000, AT(1_200));
    assert_eq!(not_dry.rate_bytes_per_s(), 100_000);
}

#[test]
fn a_stream_runs_dry_when_socket_and_memory_are_used_up() {
    let supply = |rate_bytes_per_s, full| Supply {
        socket_bytes: 100_000,
        rate_bytes_per_s,
        full,
    };
    let underrun_at = |supply: Supply, memory_bytes| supply.underrun_at(memory_bytes, AT(5_000));
    assert_eq!(underrun_at(supply(100_000, true), 300_000), AT(9_000));
    assert_eq!(underrun_at(supply(100_000, false), 0), AT(6_000));
    assert_eq!(underrun_at(supply(0, false), 0), AT(5_000), "it took all");
    let guess = AT(5_000).plus_us(UNKNOWN_MARGIN_US);
    assert_eq!(underrun_at(supply(0, true), 0), guess);
    assert_eq!(underrun_at(supply(0, false), 1), guess);
    assert!(underrun_at(supply(1, true), u64::MAX) > AT(u64::MAX / 2_000));
}

#[test]
fn nobody_is_near_before_its_rate_is_known() {
    let mut margin = SendQueue::new(AT(0));
    margin.given(1000);
    assert!(!margin.joins(AT(10_000)));
    assert_eq!(margin.margin_us(AT(1)), None);
}

#[test]
fn a_window_after_a_pause_is_spread_over_its_round_trip() {
    let sample = TcpSample {
        rtt_us: 20_000,
        path: Path {
            cwnd_bytes: 500_000,
            rtt_min_us: 20_000,
            ..Path::default()
        },
        ..TcpSample::default()
    };
    assert_eq!(first_flight_rate_bytes_per_s(&sample), Some(31_250_000));
    let under_way = TcpSample {
        unacked_bytes: 1,
        ..sample
    };
    let (small, near) = (
        TcpSample {
            path: Path {
                cwnd_bytes: 14_000,
                ..sample.path
            },
            ..sample
        },
        // Its round trips are long, since a queue is.
        TcpSample {
            path: Path {
                rtt_min_us: 100,
                ..sample.path
            },
            ..sample
        },
    );
    for sample in [under_way, small, near, TcpSample::default()] {
        assert_eq!(first_flight_rate_bytes_per_s(&sample), None, "{sample:?}");
    }
}

proptest! {
    #[test]
    fn room_and_call_stay_in_their_bounds(samples in proptest::collection::vec((0u64..1 << 50, 0u64..1 << 50, 0u64..1 << 40), 1..50)) {
        let mut margin = SendQueue::new(AT(0));
        let mut now = AT(0);
        for (given, unsent, us) in samples {
            now = now.plus_us(us);
            margin.given(given);
            margin.full(unsent, TARGET, now);
            let refill = margin.refill(None, u64::MAX, TARGET, now);
            prop_assert!(refill.lowat_bytes <= LOWAT_BYTES_MAX);
            prop_assert!(refill.bytes >= ROOM_BYTES_MIN && refill.lowat_bytes >= LOWAT_BYTES_START / 2);
            prop_assert!(refill.bytes == u64::MAX || refill.bytes <= LOWAT_BYTES_MAX.into());
            // TCP_NOTSENT_LOWAT is twice that.
            prop_assert!(refill.epollout_bytes <= LOWAT_BYTES_MAX / 2);
            prop_assert!(u64::from(refill.epollout_bytes) >= EPOLLOUT_BYTES_MIN);
        }
    }
}

#[test]
fn the_end_of_a_response_goes_in_late_whoever_reads_it() {
    let target = Target {
        steady_per_root: 4_000,
        ..TARGET
    };
    let mut margin = SendQueue::new(AT(0));
    margin.rate.learn_own_pace(250_000);
    let mut bytes =
        |own_bytes, rest_bytes| margin.refill(own_bytes, rest_bytes, target, AT(0)).bytes;
    let short_bytes = bytes(None, STEADY_BYTES_MAX);
    assert_eq!(short_bytes, EPOLLOUT_BYTES_MIN + TOP_UP_BYTES_MIN);
    assert_eq!(bytes(None, STEADY_BYTES_MAX + 1), 1_000_000, "4 s");
    assert_eq!(bytes(Some(0), u64::MAX), u64::MAX, "as much as it takes");
    assert!(
        !margin.is_steady(),
        "and no more than others have of their own"
    );
}

#[test]
fn a_socket_without_samples_is_told_what_it_was_given_since_it_was_last_full() {
    let controller = Controller::new(SendPolicy::Eager);
    let mut queue = SendQueue::new(AT(0)); // of a unix socket
    let mut given_bytes = |taken_bytes, full| {
        let taken = Taken {
            taken_bytes,
            full,
            unsent_bytes: None,
        };
        let socket_full = controller.taken(&mut queue, taken, AT(1));
        socket_full.map(|socket_full| socket_full.given_bytes)
    };
    assert_eq!(given_bytes(1000, false), None);
    assert_eq!(given_bytes(500, true), Some(1500));
    assert_eq!(given_bytes(700, true), Some(700));
}
