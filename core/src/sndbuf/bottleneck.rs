//! Connections that probably share a bottleneck claim the same part of the send memory.
//!
//! A claim is what a connection can use: its need in flight, and its margin, unsent (`sndbuf/eatbt.rs`). Where its share
//! of the memory holds a connection up, the share sets its rate, and its rate sets what it claims next. So behind one full
//! link a difference between two shares, however it began, proves itself right: nothing draws them together, and chance
//! drives them apart. Here those that are probably behind one link each claim the mean of what they claim. Together they
//! claim no more than before, but for floors of a few segments, so nobody else gets less.
//!
//! Who shares a link is told by two signs. They are of one network, and they stand in a queue of the same length. RFC 8382
//! groups flows by statistics of their delay, too. Without a queue there is no sign of one link: a fast line and a slow or lossy
//! one of the same network look alike then, so each keeps its claim. A mistake shows: whoever gets more than its path carries
//! stands in a longer queue, or is no longer held up.

use super::Demand;
use super::eatbt::{floor_bytes, in_flight_max_bytes, is_queued, is_share_limited};
use crate::addresses::Network;
use crate::limits::{NEED_BYTES_MAX, RTT_SCATTER_US};

/// Two queues are of the same length if they differ by no more than the shorter one divided by this, or by no more than
/// [`RTT_SCATTER_US`].
const ALIKE_PART: u64 = 4;

/// A share-limited connection ([`is_share_limited`]) that stands in a queue, with the signs of where its bottleneck is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ShareLimited {
    /// The network of its client.
    network: Network,
    /// The delay of the queue that it stands in: its round trip less its shortest one.
    queue_us: u64,
    /// The least and the most that it claims in flight, whatever its share: [`floor_bytes`] and [`in_flight_max_bytes`].
    within_bytes: (u64, u64),
}

impl ShareLimited {
    /// From its demand; `None`: it is not share-limited, or its round trips show no queue.
    pub fn of(demand: &Demand) -> Option<ShareLimited> {
        (is_share_limited(demand) && is_queued(demand)).then(|| ShareLimited {
            network: demand.network,
            queue_us: demand.path.rtt_us.saturating_sub(demand.rtt_min_us),
            within_bytes: (
                floor_bytes(demand).min(NEED_BYTES_MAX),
                in_flight_max_bytes(demand),
            ),
        })
    }

    /// Whether this one, which does not come before `first` in their order, probably has the same bottleneck.
    fn is_beside(&self, first: &ShareLimited) -> bool {
        let apart_us = RTT_SCATTER_US.max(first.queue_us / ALIKE_PART);
        self.network == first.network && self.queue_us <= first.queue_us.saturating_add(apart_us)
    }
}

/// Evens out the claims of connections that probably share a bottleneck. `share_limited` has these and their indices in `needs` and
/// `margins`, in any order. Each group begins with the shortest queue that no group has yet. Nobody claims more in flight than
/// the law of its congestion control and its client's window allow, nor less than a few segments. O(n log n) in their number.
pub(super) fn even_out(
    share_limited: &mut [(ShareLimited, u32)],
    needs: &mut [u64],
    margins: &mut [u64],
) {
    share_limited.sort_unstable();
    let mut rest = &share_limited[..];
    while let Some((first, _)) = rest.first() {
        let len = rest.partition_point(|(one, _)| one.is_beside(first));
        let (beside, others) = rest.split_at(len);
        let (need_bytes, margin_bytes) = (mean(beside, needs), mean(beside, margins));
        for (one, at) in beside {
            let (least_bytes, max_bytes) = one.within_bytes;
            needs[*at as usize] = need_bytes.min(max_bytes).max(least_bytes);
            margins[*at as usize] = margin_bytes;
        }
        rest = others;
    }
}

/// The mean of what these claim; there is at least one.
fn mean(of: &[(ShareLimited, u32)], claimed: &[u64]) -> u64 {
    let claimed = of.iter().map(|(_, at)| u128::from(claimed[*at as usize]));
    let sum: u128 = claimed.sum();
    (sum / of.len().max(1) as u128) as u64 // not above the largest
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::super::tests::share_limited;
    use super::*;
    use crate::addresses::Address;

    fn evened(share_limited: &[Demand], claims: &[u64]) -> Vec<u64> {
        let signs = share_limited.iter().map(ShareLimited::of).zip(0..);
        let mut signs: Vec<_> = signs
            .filter_map(|(sign, at)| sign.map(|sign| (sign, at)))
            .collect();
        let (mut needs, mut margins) = (claims.to_vec(), claims.to_vec());
        even_out(&mut signs, &mut needs, &mut margins);
        let all = needs.iter().zip(&margins).zip(share_limited);
        for ((need, margin), demand) in all.filter(|(_, demand)| ShareLimited::of(demand).is_some())
        {
            let within = floor_bytes(demand)..=in_flight_max_bytes(demand);
            assert_eq!(*need, (*margin).clamp(*within.start(), *within.end()));
        }
        margins
    }

    /// One whose share holds it up, of this client and in a queue of this length.
    fn queued(address: u64, queue_us: u64) -> Demand {
        let mut demand = share_limited(40_000);
        demand.network = Address(address).network();
        demand.path.rtt_us = demand.rtt_min_us + queue_us;
        demand
    }

    #[test]
    fn those_of_one_network_in_one_queue_claim_the_same() {
        let demands = [
            queued(0x0a00_0001, 30_000),
            queued(0x0a00_00fe, 37_000),
            queued(0x0a00_0102, 30_000), // another network
            queued(0x0a00_0003, 50_000), // another queue
            queued(0x0a00_0004, 0),      // none: another line, perhaps
            queued(0x0a00_0005, RTT_SCATTER_US),
        ];
        let claims = [10_000, 30_000, 7_000, 9_000, 100_000, 300_000];
        assert_eq!(
            evened(&demands, &claims),
            [20_000, 20_000, 7_000, 9_000, 100_000, 300_000]
        );
        let mut free = demands;
        free[1].share_use.limited_percent = 0;
        assert_eq!(
            evened(&free, &claims)[..2],
            [10_000, 30_000],
            "its share does not hold it up"
        );
    }

    proptest! {
        #[test]
        fn nobody_else_gets_less(
            each in prop::collection::vec((0..3u64, 0..100_000u64, any::<u64>()), 0..40),
        ) {
            let demands: Vec<_> = each.iter().map(|&(network, queue_us, _)| queued(network << 8, queue_us)).collect();
            let claims: Vec<u64> = each.iter().map(|&(.., claim)| claim >> 8).collect();
            let evened = evened(&demands, &claims);
            for network in 0..3 {
                let sum = |claims: &[u64]| -> u64 {
                    let of = claims.iter().zip(&each).filter(|(_, (one, ..))| *one == network);
                    of.map(|(claim, _)| *claim).sum()
                };
                let (before, after) = (sum(&claims), sum(&evened));
                prop_assert!(after <= before && before - after < 40, "rounded down");
            }
            let spread = |claims: &[u64]| (claims.iter().min().copied(), claims.iter().max().copied());
            prop_assert!(spread(&claims).0 <= spread(&evened).0 && spread(&evened).1 <= spread(&claims).1);
        }
    }
}
