//! E-ATBT (SSBT 3.1): divides the pool by what each connection can use, in three rounds.
//!
//! 1. The needs: what each can have in flight, B_i (`need_bytes`). That is the least of rate times round trip, the law of its
//!    congestion control, and the client's window. If the pool is smaller than their sum, each gets its need or an equal part,
//!    whichever is less. The others divide what small needs leave of their equal parts, in proportion to need (`max_min`).
//! 2. The margins: what each socket should hold unsent, rate times margin time, B_n T (`margin_bytes`). If what is left of the
//!    pool is smaller than their sum, each gets a margin for the same time. The paper has no such round: its sockets need
//!    nothing unsent.
//! 3. What is left of the pool, in proportion to need and margin together, so that those who need much can grow.
//!
//! Before the first round, `super::bottleneck` evens out the claims of connections that probably share a link.
//!
//! A connection is *share-limited* if its share, not its client or its congestion window, keeps it from sending more.

use alloc::vec;
use alloc::vec::Vec;

use ackpace_core::limits::TARGET_US_MAX;
use ackpace_core::units::bytes_in;

use super::law::{Loss, WINDOW_BYTES_MAX};
use super::{Claim, Control, Demand, NEED_BYTES_MAX, SHARE_SEGMENTS_START, needs, order_by_need};

/// A connection claims at least so many segments: with fewer in flight, each waits for a delayed ACK. With more, floors
/// alone would fill a small pool, and all would have the same. Where an equal part of the pool is less, it gets that.
pub const SHARE_SEGMENTS_MIN: u64 = 2;
/// A round trip longer than the shortest one by less than this shows no queue: clocks and interrupts scatter by as much.
const RTT_SCATTER_US: u64 = 1_000;
/// A share that holds its connection up in less of the time than this, in hundredths, does not have to grow.
const SHARE_LIMITED_PERCENT_MIN: u64 = 10;

/// By which law a need is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Need {
    /// The least of three: the law of its congestion control (PFTK for reno), the bandwidth-delay product, the client's
    /// window.
    #[default]
    Law,
    /// SSBT's eq. 1 (PFTK). Nothing is claimed for the second round; the surplus is still divided by need.
    Paper,
}

/// What a connection can have in flight, at least [`SHARE_SEGMENTS_MIN`] segments. A connection of which too little is known
/// claims a first flight, [`SHARE_SEGMENTS_START`] segments.
pub(super) fn need_bytes(demand: &Demand, need: Need) -> u64 {
    let segments = |count: u64| demand.path.mss_bytes.max(1).saturating_mul(count);
    let bytes = match need {
        _ if !demand.is_known => segments(SHARE_SEGMENTS_START),
        Need::Law => product_bytes(demand).min(in_flight_max_bytes(demand)),
        Need::Paper => {
            let window = demand.path.pftk(demand.rto_us, demand.peer_window_bytes);
            window.bytes()
        }
    };
    bytes.max(floor_bytes(demand)).min(NEED_BYTES_MAX)
}

/// The least that a connection claims in flight.
pub(super) fn floor_bytes(demand: &Demand) -> u64 {
    let segment_bytes = demand.path.mss_bytes.max(1);
    segment_bytes.saturating_mul(SHARE_SEGMENTS_MIN)
}

/// B_n T: what a socket should hold unsent, beside what is in flight. T is [`TARGET_US_MAX`].
pub(super) fn margin_bytes(demand: &Demand) -> u64 {
    if !demand.is_known {
        return 0;
    }
    bytes_in(TARGET_US_MAX, demand.rate_bytes_per_s).min(NEED_BYTES_MAX)
}

/// Upper limit on the bytes in flight of a connection, by its loss law and its client's window. Its share does not count.
pub(super) fn in_flight_max_bytes(demand: &Demand) -> u64 {
    let max_bytes = by_loss_bytes(demand).min(demand.peer_window_bytes);
    max_bytes.max(floor_bytes(demand)).min(NEED_BYTES_MAX)
}

/// What a connection can have in flight by its loss alone. Each law costs several square roots, and each change of a demand
/// asks again. So a law is computed only where its result can count.
fn by_loss_bytes(demand: &Demand) -> u64 {
    let path = &demand.path;
    let pftk_bytes = || path.pftk(demand.rto_us, u64::MAX).bytes();
    match demand.control {
        Control::Model => u64::MAX, // loss does not limit it
        // No loss was seen: the largest window that TCP can announce is the limit (RFC 7323, section 2.3).
        Control::Reno | Control::Cubic if path.loss == Loss::NONE => WINDOW_BYTES_MAX,
        Control::Reno => pftk_bytes(),
        // On short or lossy paths cubic is as reno, and there timeouts count.
        Control::Cubic => match path.cubic().bytes() {
            bytes if bytes > path.square_root().bytes() => bytes,
            _ => pftk_bytes(),
        },
    }
}

/// The bandwidth-delay product: what a connection delivers in a round trip, with some slack.
///
/// | what sets its pace | rate | round trip | slack |
/// |---|---|---|---|
/// | the client | its estimate, [`Demand::rate_bytes_per_s`] | smoothed | a quarter, and two segments |
/// | the path | the fastest lately, [`Demand::delivered_max_bytes_per_s`] | shortest | a quarter, and two segments |
/// | the path, and the connection is share-limited | since the last reading, [`Demand::rate_bytes_per_s`] | shortest | half |
///
/// The two segments are for ACKs that come in pairs. A client that sets its own pace stands in no queue of its own making, so
/// its smoothed round trip is taken.
///
/// A share-limited connection delivers no more than its share in a round trip. Its claim is half as much again as it delivers
/// in the shortest one. So the claim grows while the path has little queue, and shrinks once the queue is longer than half the
/// path. Its fastest rate and the two segments are left out: behind one link the claims of many would add up to the queue that
/// they stand in. A drain ([`super::drain`]) shows them the round trip without that queue.
fn product_bytes(demand: &Demand) -> u64 {
    let of = |rate_bytes_per_s, rtt_us| {
        let bytes = bytes_in(rtt_us, rate_bytes_per_s);
        let two_segments_bytes = demand.path.mss_bytes.saturating_mul(2);
        bytes
            .saturating_add(bytes / 4)
            .saturating_add(two_segments_bytes)
    };
    if demand.is_own_pace {
        of(demand.rate_bytes_per_s, demand.path.rtt_us)
    } else if is_share_limited(demand) {
        let bytes = bytes_in(demand.rtt_min_us, demand.rate_bytes_per_s);
        bytes.saturating_add(bytes / 2)
    } else {
        of(demand.delivered_max_bytes_per_s, demand.rtt_min_us)
    }
}

/// Whether a connection is share-limited: its share alone kept it from sending for [`SHARE_LIMITED_PERCENT_MIN`] percent of the
/// time since the last reading, and its path, not its client, sets its pace.
pub(super) fn is_share_limited(demand: &Demand) -> bool {
    !demand.is_own_pace
        && demand.is_known
        && demand.share_use.limited_percent >= SHARE_LIMITED_PERCENT_MIN
}

/// Whether the round trips of a connection show a queue: less [`RTT_SCATTER_US`], the smoothed one is at least 30 % longer than
/// the shortest one.
pub(super) fn is_queued(demand: &Demand) -> bool {
    let rtt_us = demand.path.rtt_us.saturating_sub(RTT_SCATTER_US);
    rtt_us / 13 >= demand.rtt_min_us / 10
}

/// The three rounds.
pub(super) fn divide(claims: &[Claim], pool_bytes: u64) -> Vec<u64> {
    let needed_bytes: u64 = claims.iter().map(|claim| claim.need_bytes).sum();
    let Some(left_bytes) = pool_bytes.checked_sub(needed_bytes) else {
        return max_min(&needs(claims), pool_bytes);
    };
    let mut shares = needs(claims);
    let margins = claims.iter().map(|claim| claim.margin_bytes);
    let all_margins_bytes: u64 = margins.clone().sum();
    add_by_weight(&mut shares, margins, left_bytes.min(all_margins_bytes));
    let both = claims
        .iter()
        .map(|claim| claim.need_bytes + claim.margin_bytes);
    let surplus_bytes = left_bytes.saturating_sub(all_margins_bytes);
    add_by_weight(&mut shares, both, surplus_bytes);
    shares
}

/// Adds to each share its part of `left_bytes`, in proportion to its weight.
fn add_by_weight(shares: &mut [u64], weights: impl Iterator<Item = u64> + Clone, left_bytes: u64) {
    let all: u128 = weights.clone().map(u128::from).sum();
    for (share, weight) in shares.iter_mut().zip(weights) {
        let part = (u128::from(left_bytes) * u128::from(weight)).checked_div(all);
        *share += part.unwrap_or(0) as u64; // at most `left_bytes`
    }
}

/// Max-min with proportional re-assignment (SSBT 2 and 3.1). Each connection has an equal part of the pool. What some do not
/// need of theirs goes to those who need more, in proportion to need. If one of those gets more than it needs by that, it
/// leaves that, too, until nothing changes.
///
/// In the end each share is `min(need, pool / n + x * need)`, with one x for all. Small needs are met first, so one walk by
/// increasing need finds x. All is counted in n-ths of a byte, since a rounded equal part could make a share smaller when the
/// pool grows.
fn max_min(needs: &[u64], pool_bytes: u64) -> Vec<u64> {
    let mut shares = vec![0; needs.len()];
    let (count, pool) = (needs.len() as u128, u128::from(pool_bytes));
    let mut open = count;
    let mut open_needs: u128 = needs.iter().map(|&need| u128::from(need)).sum();
    let mut left = count * pool;
    for at in order_by_need(needs) {
        let need = u128::from(needs[at]);
        // What remains if all who are open have an equal part. No need is granted that would make it negative.
        let excess = left - open * pool;
        let beyond = (need * count).saturating_sub(pool); // what it needs above its equal part
        // The need is met if `beyond / count <= x * need`, where `x = excess / (count * open_needs)`.
        if beyond * open_needs <= excess * need {
            shares[at] = needs[at];
            left -= need * count;
            open_needs -= need;
            open -= 1;
        } else {
            shares[at] = ((pool * open_needs + excess * need) / (count * open_needs)) as u64;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rest_goes_in_proportion_to_need() {
        // SSBT 2: 20, 200 and 800 KB of 300; 100 each, then 80 * 200 / 1,000 and 80 * 800 / 1,000 more.
        let needs = [20_000, 200_000, 800_000];
        assert_eq!(max_min(&needs, 300_000), [20_000, 116_000, 164_000]);
        assert_eq!(max_min(&needs, 0), [0, 0, 0]);
        assert_eq!(max_min(&needs, 1_020_000), needs);
        assert_eq!(max_min(&[], 7), []);
    }

    #[test]
    fn who_would_get_too_much_leaves_it() {
        // 100 each; 90 are left over. In proportion, 110 would get 100 + 90 * 110 / 910 = 110.9: it leaves .9.
        assert_eq!(max_min(&[10, 110, 800], 300), [10, 110, 180]);
    }

    /// The paper's procedure, step by step.
    fn by_steps(needs: &[f64], pool: f64) -> Vec<f64> {
        let equal = pool / needs.len() as f64;
        let mut shares: Vec<f64> = needs.iter().map(|need| need.min(equal)).collect();
        loop {
            let excess = pool - shares.iter().sum::<f64>();
            let open = |at: usize, shares: &[f64]| needs[at] - shares[at] > 1e-9 * needs[at];
            let all: f64 = (0..needs.len())
                .filter(|&at| open(at, &shares))
                .map(|at| needs[at])
                .sum();
            if excess < 1e-3 || all == 0.0 {
                return shares;
            }
            for at in 0..needs.len() {
                if open(at, &shares) {
                    shares[at] = needs[at].min(shares[at] + excess * needs[at] / all);
                }
            }
        }
    }

    fn some_needs() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(
            (0..33u32, any::<u64>()).prop_map(|(bits, n)| n >> 31 >> bits),
            1..60,
        )
    }

    proptest! {
        #[test]
        fn one_walk_finds_what_the_papers_steps_end_in(needs in some_needs(), part in 0.0..1.2f64) {
            let all: u64 = needs.iter().sum();
            let pool_bytes = (all as f64 * part) as u64;
            let steps = by_steps(&needs.iter().map(|&need| need as f64).collect::<Vec<_>>(), pool_bytes as f64);
            for (share, step) in max_min(&needs, pool_bytes).iter().zip(steps) {
                prop_assert!((*share as f64 - step).abs() <= 1.0 + step * 1e-6, "{share}, by steps {step}");
            }
        }

        #[test]
        fn small_needs_are_granted_and_the_pool_is_used(needs in some_needs(), pool_bytes in 0..1u64 << 36) {
            let shares = max_min(&needs, pool_bytes);
            let (all, sum): (u64, u64) = (needs.iter().sum(), shares.iter().sum());
            prop_assert!(sum <= pool_bytes);
            prop_assert!(sum + needs.len() as u64 > all.min(pool_bytes), "memory lies idle");
            for (share, need) in shares.iter().zip(&needs) {
                let equal = pool_bytes / needs.len() as u64;
                prop_assert!(((*need).min(equal)..=*need).contains(share), "{share} of {need}");
            }
        }
    }
}
