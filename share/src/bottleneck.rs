//! Connections that probably share a bottleneck claim the same part of the send memory.
//!
//! Where its share holds a connection up, the share sets its rate, and its rate sets what it claims next. So behind one full
//! link a difference between two shares, however it began, proves itself right, and chance drives them apart. Here those that
//! are probably behind one link each claim the mean of what they claim: together no more than before, but for floors of a few
//! segments.
//!
//! Those are of one network and stand in a queue. Without a queue a fast line and a slow or lossy one of the same network look
//! alike, so each keeps its claim. A mistake shows: whoever gets more than its path carries is no longer held up.

use alloc::vec::Vec;

use ackpace_core::addresses::Network;

use super::eatbt::{floor_bytes, in_flight_max_bytes, is_queued, is_share_limited};
use super::{Claim, Demand, NEED_BYTES_MAX};

/// A share-limited connection ([`is_share_limited`]) that stands in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queued {
    /// The network of its client.
    network: Network,
    /// The least and the most that it claims in flight, whatever its share.
    least_bytes: u64,
    most_bytes: u64,
}

impl Queued {
    /// From its demand; `None`: it is not share-limited, or its round trips show no queue.
    pub fn of(demand: &Demand) -> Option<Queued> {
        (is_share_limited(demand) && is_queued(demand)).then(|| Queued {
            network: demand.network,
            least_bytes: floor_bytes(demand).min(NEED_BYTES_MAX),
            most_bytes: in_flight_max_bytes(demand),
        })
    }
}

/// Evens out the claims of connections that probably share a bottleneck.
pub(super) fn even_out(claims: &mut [Claim]) {
    let queued = claims.iter().zip(0..);
    let mut queued: Vec<(Queued, usize)> = queued
        .filter_map(|(claim, at)| Some((claim.queued?, at)))
        .collect();
    queued.sort_unstable_by_key(|(one, at)| (one.network, *at));
    for beside in queued.chunk_by(|(one, _), (other, _)| one.network == other.network) {
        let mean = |of: fn(&Claim) -> u64| {
            let sum: u128 = (beside.iter().map(|(_, at)| u128::from(of(&claims[*at])))).sum();
            (sum / beside.len() as u128) as u64 // not above the largest
        };
        let need_bytes = mean(|claim| claim.need_bytes);
        let margin_bytes = mean(|claim| claim.margin_bytes);
        for (one, at) in beside {
            let claim = &mut claims[*at];
            claim.need_bytes = need_bytes.min(one.most_bytes).max(one.least_bytes);
            claim.margin_bytes = margin_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::share_limited;
    use super::*;
    use ackpace_core::addresses::Address;

    #[test]
    fn those_of_one_network_that_stand_in_a_queue_claim_the_same() {
        let claim = |address: u64, queue_us: u64, bytes: u64| {
            let mut demand = share_limited(40_000);
            demand.network = Address(address).network();
            demand.path.rtt_us += queue_us;
            Claim {
                need_bytes: bytes,
                margin_bytes: bytes,
                queued: Queued::of(&demand),
                ..Claim::default()
            }
        };
        let mut claims = [
            claim(0x0a00_0001, 30_000, 10_000),
            claim(0x0a00_00fe, 37_000, 30_000),
            claim(0x0a00_0102, 30_000, 7_000), // another network
            claim(0x0a00_0004, 0, 100_000),    // no queue: another line, perhaps
            claim(0x0a00_0003, 50_000, 20_000),
        ];
        even_out(&mut claims);
        let evened = [20_000, 20_000, 7_000, 100_000, 20_000];
        assert_eq!(claims.map(|claim| claim.margin_bytes), evened);
        assert_eq!(claims.map(|claim| claim.need_bytes), evened);
        let mut free = share_limited(40_000);
        (free.path.rtt_us, free.share_use.limited_percent) = (90_000, 0);
        assert_eq!(Queued::of(&free), None, "its share does not hold it up");
    }
}
