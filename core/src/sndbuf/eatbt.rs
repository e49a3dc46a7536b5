//! E-ATBT (SSBT 3.1): divides the pool by what each connection can use, in three rounds.
//!
//! 1. What it can have in flight, B_i: the least of rate times round trip, the law of its congestion control, and the client's
//!    window (`need_bytes`). Where the pool is short of these, each gets its need or an equal share, whichever is less. What
//!    small needs leave of that goes to the others on top, in proportion to need (`fill`).
//! 2. What its socket holds unsent, B_n T (`margin_bytes`). Where the pool is short of these, each connection gets
//!    bytes for the same time. The paper has no such round: its sockets need nothing unsent.
//! 3. What is left, in proportion to both together, so that those who need much can grow.

use crate::units::bytes_in;
use alloc::vec::Vec;

use super::{Control, Demand, EstimateState, Pace, add_by_weight};
use crate::law::Loss;
use crate::limits::{
    CREDIT_LIMITED_PERCENT_MIN, NEED_BYTES_MAX, RTT_SCATTER_US, SHARE_SEGMENTS_MIN,
    SHARE_SEGMENTS_START, WINDOW_BYTES_MAX,
};

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

/// What a connection can have in flight, at least [`SHARE_SEGMENTS_MIN`] segments. One of which too little is known
/// claims a first flight.
pub(super) fn need_bytes(demand: &Demand, need: Need) -> u64 {
    let segments = |count: u64| demand.path.mss_bytes.max(1).saturating_mul(count);
    let bytes = match (demand.estimate, need) {
        (EstimateState::New, _) => segments(SHARE_SEGMENTS_START),
        (EstimateState::Known, Need::Law) => product_bytes(demand).min(most_bytes(demand)),
        (EstimateState::Known, Need::Paper) => {
            let window = demand.path.pftk(demand.rto_us, demand.peer_window_bytes);
            window.bytes()
        }
    };
    bytes.max(floor_bytes(demand)).min(NEED_BYTES_MAX)
}

/// What it claims at least.
pub(super) fn floor_bytes(demand: &Demand) -> u64 {
    let segment_bytes = demand.path.mss_bytes.max(1);
    segment_bytes.saturating_mul(SHARE_SEGMENTS_MIN)
}

/// B_n T, what a socket holds beside what is in flight.
pub(super) fn margin_bytes(demand: &Demand, need: Need, margin_us: u64) -> u64 {
    match (demand.estimate, need) {
        (EstimateState::Known, Need::Law) => {
            bytes_in(margin_us, demand.rate_bytes_per_s).min(NEED_BYTES_MAX)
        }
        (EstimateState::New, _) | (_, Need::Paper) => 0,
    }
}

/// What it can have in flight whatever its share: the least of law and window.
pub(super) fn most_bytes(demand: &Demand) -> u64 {
    let most_bytes = by_loss_bytes(demand).min(demand.peer_window_bytes);
    most_bytes.max(floor_bytes(demand)).min(NEED_BYTES_MAX)
}

/// By its loss alone. Each law costs several square roots, and each division of the pool asks for every connection. So a law
/// is computed only where its result can count.
fn by_loss_bytes(demand: &Demand) -> u64 {
    let path = &demand.path;
    let pftk_bytes = || path.pftk(demand.rto_us, u64::MAX).bytes();
    match demand.control {
        Control::Model => u64::MAX,
        Control::Reno | Control::Cubic if path.loss == Loss::NONE => WINDOW_BYTES_MAX,
        Control::Reno => pftk_bytes(),
        // On short or lossy paths cubic is as reno, and there timeouts count.
        Control::Cubic => match path.cubic().bytes() {
            bytes if bytes > path.square_root().bytes() => bytes,
            _ => pftk_bytes(),
        },
    }
}

/// The bandwidth-delay product with a quarter more, and two segments for ACKs that come in pairs.
///
/// A connection that its share holds up delivers no more than the share in a round trip. Its claim is half as much again as it
/// delivers in the shortest round trip, by its rate since the last reading ([`Demand::rate_bytes_per_s`]). So the claim grows
/// while the path has little queue, and shrinks once the queue is longer than half the path. Its fastest second and the two
/// segments are left out: behind one link the claims of many would add up to the queue that they stand in. A drain shows
/// them the round trip without it.
fn product_bytes(demand: &Demand) -> u64 {
    let of = |rate_bytes_per_s, rtt_us| {
        let bytes = bytes_in(rtt_us, rate_bytes_per_s);
        let beside = demand.path.mss_bytes.saturating_mul(2);
        bytes.saturating_add(bytes / 4).saturating_add(beside)
    };
    match demand.pace {
        Pace::Itself => of(demand.rate_bytes_per_s, demand.path.rtt_us),
        Pace::Path if is_held_up(demand) => {
            let bytes = bytes_in(demand.rtt_min_us, demand.rate_bytes_per_s);
            bytes.saturating_add(bytes / 2)
        }
        Pace::Path => of(demand.delivered_bytes_per_s, demand.rtt_min_us),
    }
}

/// Whether its share held a connection up for [`CREDIT_LIMITED_PERCENT_MIN`] percent of the time since the last reading, and its
/// path, not its client, sets its pace.
pub(super) fn is_held_up(demand: &Demand) -> bool {
    demand.pace == Pace::Path
        && demand.estimate == EstimateState::Known
        && demand.credit.limited_percent >= CREDIT_LIMITED_PERCENT_MIN
}

/// Whether its round trips show a queue: after [`RTT_SCATTER_US`] is taken off, they are 30 % longer than the shortest one.
pub(super) fn is_queued(demand: &Demand) -> bool {
    let rtt_us = demand.path.rtt_us.saturating_sub(RTT_SCATTER_US);
    rtt_us / 13 >= demand.rtt_min_us / 10
}

/// What is claimed: in flight (first round) and unsent (second round), each at most [`NEED_BYTES_MAX`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Claims<'a> {
    /// `need_bytes` of each.
    pub needs: &'a [u64],
    /// `margin_bytes` of each, likewise.
    pub margins: &'a [u64],
}

/// The three rounds. `order` has the needs' indices, smallest first; it is read only if the pool is short of the needs, and
/// may be old otherwise.
pub(super) fn divide(claims: Claims, order: &[u32], pool_bytes: u64, shares: &mut Vec<u64>) {
    let Claims { needs, margins } = claims;
    let needed_bytes: u64 = needs.iter().sum();
    let Some(left_bytes) = pool_bytes.checked_sub(needed_bytes) else {
        return fill(needs, order, pool_bytes, shares);
    };
    shares.clear();
    shares.extend_from_slice(needs);
    let all_margins_bytes: u64 = margins.iter().sum();
    let margins = margins.iter().copied();
    let Some(surplus_bytes) = left_bytes.checked_sub(all_margins_bytes) else {
        return add_by_weight(shares, margins, left_bytes);
    };
    let both = needs
        .iter()
        .zip(margins.clone())
        .map(|(need, margin)| need + margin);
    add_by_weight(shares, margins, all_margins_bytes);
    add_by_weight(shares, both, surplus_bytes);
}

/// Max-min with proportional re-assignment (SSBT 2 and 3.1): each has an equal share, and what some leave of theirs
/// goes to those who need more, in proportion to need. Whoever would get more than it needs leaves that, too, until
/// nothing changes.
///
/// In the end each share is `min(need, pool / n + x * need)`, with one x for all. Small needs reach theirs first, so one walk
/// by increasing need finds it. All is counted in n-ths of a byte, since a rounded equal share could make a share
/// smaller when the pool grows. `order` has the needs' indices, smallest first.
fn fill(needs: &[u64], order: &[u32], pool_bytes: u64, shares: &mut Vec<u64>) {
    shares.clear();
    shares.resize(needs.len(), 0);
    let (count, pool) = (needs.len() as u128, u128::from(pool_bytes));
    let mut open = count;
    let mut open_needs: u128 = needs.iter().map(|&need| u128::from(need)).sum();
    let mut left = count * pool;
    for &at in order {
        let need = u128::from(needs[at as usize]);
        // What remains if all who are open have an equal share. No need is granted that would make it negative.
        let excess = left - open * pool;
        let beyond = (need * count).saturating_sub(pool); // what it needs above that share
        if beyond * open_needs <= excess * need {
            shares[at as usize] = need as u64;
            left -= need * count;
            open_needs -= need;
            open -= 1;
        } else {
            shares[at as usize] =
                ((pool * open_needs + excess * need) / (count * open_needs)) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::order_by_need;
    use super::*;
    use proptest::prelude::*;

    fn filled(needs: &[u64], pool_bytes: u64) -> Vec<u64> {
        let (mut order, mut shares) = (Vec::new(), Vec::new());
        order_by_need(needs, &mut order);
        fill(needs, &order, pool_bytes, &mut shares);
        shares
    }

    #[test]
    fn the_rest_goes_in_proportion_to_need() {
        // SSBT 2: 20, 200 and 800 KB of 300; 100 each, then 80 * 200 / 1,000 and 80 * 800 / 1,000 more.
        let needs = [20_000, 200_000, 800_000];
        assert_eq!(filled(&needs, 300_000), [20_000, 116_000, 164_000]);
        assert_eq!(filled(&needs, 0), [0, 0, 0]);
        assert_eq!(filled(&needs, 1_020_000), needs);
        assert_eq!(filled(&[], 7), []);
    }

    #[test]
    fn who_would_get_too_much_leaves_it() {
        // 100 each; 90 are left over. In proportion, 110 would get 100 + 90 * 110 / 910 = 110.9: it leaves .9.
        assert_eq!(filled(&[10, 110, 800], 300), [10, 110, 180]);
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
            for (share, step) in filled(&needs, pool_bytes).iter().zip(steps) {
                prop_assert!((*share as f64 - step).abs() <= 1.0 + step * 1e-6, "{share}, by steps {step}");
            }
        }

        #[test]
        fn small_needs_are_granted_and_the_pool_is_used(needs in some_needs(), pool_bytes in 0..1u64 << 36) {
            let shares = filled(&needs, pool_bytes);
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
