use super::eatbt::SHARE_SEGMENTS_MIN;
use super::law::{Acks, Loss};
use super::*;
use ackpace_core::addresses::Address;
use ackpace_core::limits::RATE_BYTES_PER_S_MAX;
use proptest::prelude::*;

const MSS_BYTES: u64 = 1_448;
const POLICIES: [Policy; 4] = [
    Policy::ByNeed(Need::Law),
    Policy::ByNeed(Need::Paper),
    Policy::Window,
    Policy::Equal,
];

/// A reno connection on a path without loss or queue that has this bandwidth-delay product, and takes as much.
fn link(rtt_us: u64, rate_bytes_per_s: u64) -> Demand {
    Demand {
        network: Network::default(),
        path: Conditions {
            mss_bytes: MSS_BYTES,
            rtt_us,
            loss: Loss::NONE,
            acks: Acks::Each,
        },
        rto_us: 200_000 + rtt_us,
        rtt_min_us: rtt_us,
        cwnd_bytes: 10 * MSS_BYTES,
        peer_window_bytes: 6 << 20,
        delivered_max_bytes_per_s: rate_bytes_per_s,
        rate_bytes_per_s,
        control: Control::Reno,
        is_own_pace: false,
        is_known: true,
        share_use: ShareUse::default(),
    }
}

fn with_loss(p: f64, mut demand: Demand) -> Demand {
    demand.path.loss = Loss::new(p);
    demand
}

fn claims(policy: Policy, demands: &[Demand]) -> Vec<Claim> {
    let claims = demands.iter().map(|demand| Claim::of(demand, policy));
    claims.collect()
}

fn shares(policy: Policy, demands: &[Demand], pool_bytes: u64) -> Vec<u64> {
    divide(&claims(policy, demands), policy, pool_bytes)
}

/// The need of one connection, by law.
fn need(demand: Demand) -> u64 {
    eatbt::need_bytes(&demand, Need::Law)
}

#[test]
fn a_need_is_the_least_of_law_product_and_window() {
    // 100 ms at 1 MB/s: 100,000 bytes, a quarter more, two segments.
    let product_bytes = 125_000 + 2 * MSS_BYTES;
    let demand = link(100_000, 1_000_000);
    assert_eq!(need(demand), product_bytes);
    // PFTK with T_0 = .3 s: 100 ms / (2,000 + 8 us) = 49.8 segments, 100 ms / (6,325 + 256 us) = 15.2.
    assert_eq!(need(with_loss(0.0006, demand)) / MSS_BYTES, 49);
    assert_eq!(need(with_loss(0.006, demand)) / MSS_BYTES, 15);
    let narrow = Demand {
        peer_window_bytes: 30_000,
        ..demand
    };
    assert_eq!(need(narrow), 30_000);
    let closed = Demand {
        peer_window_bytes: 0,
        ..demand
    };
    assert_eq!(need(closed), SHARE_SEGMENTS_MIN * MSS_BYTES);
    let bbr = Demand {
        control: Control::Model,
        ..with_loss(0.5, demand)
    };
    assert_eq!(
        need(bbr),
        product_bytes,
        "loss does not say what bbr keeps in flight"
    );
    // Cubic at 1 s and 10^-4: 1.0538 * 1,000 segments, where reno has 122.
    let cubic = Demand {
        control: Control::Cubic,
        ..with_loss(1e-4, link(1_000_000, 100_000_000))
    };
    assert_eq!(need(cubic) / MSS_BYTES, 1_053);
    // At 12 ms and 2 % it is as reno, timeouts included: 12 ms / (1,386 + 1,117 us).
    let short = |control| Demand {
        control,
        ..with_loss(0.02, link(12_000, 100_000_000))
    };
    assert_eq!(need(short(Control::Cubic)) / MSS_BYTES, 4);
    assert_eq!(need(short(Control::Cubic)), need(short(Control::Reno)));
}

#[test]
fn a_self_paced_client_needs_what_it_takes() {
    let burst = Demand {
        delivered_max_bytes_per_s: 2_000_000_000,
        rate_bytes_per_s: 300_000,
        is_own_pace: true,
        ..link(20_000, 0)
    };
    assert_eq!(need(burst), 6_000 + 1_500 + 2 * MSS_BYTES);
}

#[test]
fn a_share_that_holds_its_connection_up_grows_unless_a_queue_does() {
    let held = |limited_percent, rtt_us| {
        let share_use = ShareUse {
            share_bytes: 100_000,
            limited_percent,
        };
        // What it delivers is its share in a round trip; it was three times as fast once.
        let mut demand = link(50_000, 100_000 * 1_000_000 / rtt_us);
        demand.delivered_max_bytes_per_s *= 3;
        (demand.path.rtt_us, demand.share_use) = (rtt_us, share_use);
        need(demand)
    };
    assert_eq!(held(9, 50_000), 375_000 + 2 * MSS_BYTES);
    assert_eq!(held(10, 50_000), 150_000);
    assert_eq!(held(u64::MAX, 50_000), 150_000);
    assert_eq!(held(100, 60_000), 124_999);
    assert_eq!(
        held(100, 75_000),
        99_999,
        "a queue half as long as the path"
    );
    assert_eq!(held(100, 150_000), 49_999);
}

/// Connections that their shares of so many bytes hold up all the time.
pub(super) fn share_limited(share_bytes: u64) -> Demand {
    Demand {
        share_use: ShareUse {
            share_bytes,
            limited_percent: 100,
        },
        ..link(50_000, 20 * share_bytes)
    }
}

#[test]
fn in_a_drain_those_whom_their_shares_hold_up_give_most_of_them_up() {
    let free = link(50_000, 1_000_000);
    let drained = |policy, demands: &[Demand]| {
        let claims = claims(policy, demands);
        let before = divide(&claims, policy, 1 << 20);
        let mut after = before.clone();
        drain::lessen(&claims, &mut after);
        (before, after)
    };
    let demands = [share_limited(40_000), share_limited(3_000), free];
    let (before, after) = drained(Policy::ByNeed(Need::Law), &demands);
    assert_eq!(after, [10_000, 2 * MSS_BYTES, before[2]]);
    let (before, after) = drained(Policy::ByNeed(Need::Law), &[share_limited(40_000), free]);
    assert_eq!(before, after, "there is no other whose queue it could be");
    for policy in [Policy::Equal, Policy::ByNeed(Need::Paper)] {
        let (before, after) = drained(policy, &demands);
        assert_eq!(before, after);
    }
}

#[test]
fn a_new_connection_claims_a_first_flight_whatever_it_shows() {
    let new = Demand {
        is_known: false,
        ..with_loss(0.3, link(400_000, 900_000_000))
    };
    let old = link(100_000, 1_000_000);
    let start_bytes = SHARE_SEGMENTS_START * MSS_BYTES;
    for kind in [Need::Law, Need::Paper] {
        assert_eq!(eatbt::need_bytes(&new, kind), start_bytes);
    }
    assert_eq!(eatbt::margin_bytes(&new), 0);
    let pool_bytes = 100_000;
    assert_eq!(
        shares(Policy::ByNeed(Need::Law), &[new, old], pool_bytes)[0],
        start_bytes
    );
}

#[test]
fn first_what_is_in_flight_then_a_margin_then_the_surplus() {
    // Needs of 100,000 and 50,000 by their windows; margins of 200,000 and 20,000.
    let of = |peer_window_bytes, rate_bytes_per_s| Demand {
        peer_window_bytes,
        rate_bytes_per_s,
        ..link(100_000, 10_000_000)
    };
    let demands = [of(100_000, 1_000_000), of(50_000, 100_000)];
    for (pool_bytes, by_law, by_paper) in [
        (120_000, [70_000, 50_000], [70_000, 50_000]), // 60,000 each, 10,000 left over
        (150_000, [100_000, 50_000], [100_000, 50_000]), // all that is in flight
        (260_000, [200_000, 60_000], [173_333, 86_666]), // half of the margins; or 110,000 by need
        (370_000, [300_000, 70_000], [246_666, 123_333]), // all margins
        (740_000, [600_000, 140_000], [493_333, 246_666]), // twice of everything
    ] {
        assert_eq!(
            shares(Policy::ByNeed(Need::Law), &demands, pool_bytes),
            by_law,
            "{pool_bytes}"
        );
        assert_eq!(
            shares(Policy::ByNeed(Need::Paper), &demands, pool_bytes),
            by_paper,
            "{pool_bytes}"
        );
    }
}

#[test]
fn nobody_gets_nothing_of_nothing() {
    for policy in POLICIES {
        assert_eq!(shares(policy, &[], 1 << 20), []);
        assert_eq!(shares(policy, &[link(1, 1), link(3_000_000, 1)], 0), [0, 0]);
        assert_eq!(shares(policy, &[link(1, 1)], 7), [7], "below the floor");
        let unix_socket = Demand {
            path: Conditions::default(),
            rtt_min_us: 0,
            ..link(0, 0)
        };
        assert_eq!(shares(policy, &[unix_socket], 1 << 20), [1 << 20]);
    }
}

/// Numbers of all magnitudes.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..64u32, any::<u64>()).prop_map(|(bits, n)| n >> bits),
        1 => Just(0),
        1 => Just(u64::MAX),
    ]
}

/// A demand that a path may have, or one with hostile numbers.
fn any_demand() -> impl Strategy<Value = Demand> {
    let numbers = [(); 9].map(|()| any_number());
    let kinds = (0..3usize, any::<bool>(), any::<bool>());
    let loss = (0.0..10.0f64).prop_map(|x| 10f64.powf(-x));
    let hostile = (numbers, kinds, loss).prop_map(|(n, (control, by_path, known), p)| Demand {
        network: Address((n[4] % 4) << 8).network(),
        path: Conditions {
            mss_bytes: n[0],
            rtt_us: n[1],
            loss: Loss::new(p),
            acks: Acks::Each,
        },
        rto_us: n[2],
        rtt_min_us: n[3],
        cwnd_bytes: n[4],
        peer_window_bytes: n[5],
        delivered_max_bytes_per_s: n[6],
        rate_bytes_per_s: n[6].min(RATE_BYTES_PER_S_MAX),
        control: [Control::Reno, Control::Cubic, Control::Model][control],
        is_own_pace: !by_path,
        is_known: known,
        share_use: ShareUse {
            share_bytes: n[7],
            limited_percent: n[8],
        },
    });
    let ordinary = (1..300_000u64, 1_000..100_000_000u64, 0.0..0.1f64)
        .prop_map(|(rtt_us, rate, p)| with_loss(p, link(rtt_us, rate)));
    prop_oneof![ordinary, hostile]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (0..POLICIES.len()).prop_map(|at| POLICIES[at])
}

fn any_pool() -> impl Strategy<Value = u64> {
    prop_oneof![0..5_000_000u64, any_number()]
}

fn floor_bytes(demand: &Demand) -> u64 {
    let floor_bytes = demand
        .path
        .mss_bytes
        .max(1)
        .saturating_mul(SHARE_SEGMENTS_MIN);
    floor_bytes.min(NEED_BYTES_MAX)
}

proptest! {
    #[test]
    fn shares_fit_the_pool_and_each_has_its_floor(demands in prop::collection::vec(any_demand(), 1..40), pool_bytes in any_pool(), policy in any_policy()) {
        let shares = shares(policy, &demands, pool_bytes);
        prop_assert_eq!(shares.len(), demands.len());
        let sum: u128 = shares.iter().map(|&share| u128::from(share)).sum();
        prop_assert!(sum <= pool_bytes.into());
        let rounding = 3 * demands.len() as u128;
        prop_assert!(sum + rounding > pool_bytes.min(SEND_POOL_BYTES_MAX).into() || pool_bytes == 0, "memory lies idle: {sum}");
        let equal_bytes = pool_bytes.min(SEND_POOL_BYTES_MAX) / demands.len() as u64;
        for (share, demand) in shares.iter().zip(&demands) {
            prop_assert!(*share >= floor_bytes(demand).min(equal_bytes));
        }
    }

    #[test]
    fn none_exceeds_its_need_before_all_have_theirs(demands in prop::collection::vec(any_demand(), 1..40), pool_bytes in any_pool(), is_paper: bool) {
        let pool_bytes = pool_bytes.min(SEND_POOL_BYTES_MAX);
        let kind = if is_paper { Need::Paper } else { Need::Law };
        let policy = Policy::ByNeed(kind);
        let mut claims = claims(policy, &demands);
        let shares = divide(&claims, policy, pool_bytes);
        bottleneck::even_out(&mut claims);
        for (demand, claim) in demands.iter().zip(&claims).filter(|(_, claim)| claim.queued.is_some()) {
            let within = eatbt::floor_bytes(demand).min(NEED_BYTES_MAX)..=eatbt::in_flight_max_bytes(demand);
            prop_assert!(within.contains(&claim.need_bytes), "evened out, within law and window");
        }
        let needs = needs(&claims);
        let margins: Vec<u64> = claims.iter().map(|claim| claim.margin_bytes).collect();
        let (needed, margin) = (needs.iter().sum::<u64>(), margins.iter().sum::<u64>());
        for ((share, need), margin_bytes) in shares.iter().zip(&needs).zip(&margins) {
            prop_assert!(*share <= *need || pool_bytes >= needed);
            prop_assert!(*share <= need + margin_bytes || pool_bytes >= needed + margin);
            prop_assert!(*share >= *need || pool_bytes < needed);
            prop_assert!(*share >= need + margin_bytes || pool_bytes < needed + margin);
        }
    }

    #[test]
    fn a_larger_pool_takes_from_nobody(demands in prop::collection::vec(any_demand(), 1..40), pool_bytes in any_pool(), more_bytes in prop_oneof![0..5u64, any_number()], policy in any_policy()) {
        let before = shares(policy, &demands, pool_bytes);
        let after = shares(policy, &demands, pool_bytes.saturating_add(more_bytes));
        for (before, after) in before.iter().zip(after) {
            prop_assert!(*before <= after, "{before} > {after}");
        }
    }

    #[test]
    fn the_order_of_demands_does_not_matter(demands in prop::collection::vec(any_demand(), 1..40), pool_bytes in any_pool(), policy in any_policy(), by in 0..40usize) {
        let mut turned: Vec<_> = demands.iter().rev().copied().collect();
        let by = by % turned.len();
        turned.rotate_left(by);
        let mut back = shares(policy, &turned, pool_bytes);
        back.rotate_right(by);
        back.reverse();
        prop_assert_eq!(back, shares(policy, &demands, pool_bytes));
    }

    #[test]
    fn who_needs_more_gets_no_less(demands in prop::collection::vec(any_demand(), 2..40), pool_bytes in any_pool()) {
        let needs: Vec<_> = demands.iter().map(|demand| eatbt::need_bytes(demand, Need::Paper)).collect();
        let shares = shares(Policy::ByNeed(Need::Paper), &demands, pool_bytes);
        for (need, share) in needs.iter().zip(&shares) {
            let smaller = needs.iter().zip(&shares).filter(|(other, _)| *other <= need);
            prop_assert!(smaller.into_iter().all(|(_, other)| other <= share), "{needs:?}: {shares:?}");
        }
    }
}
