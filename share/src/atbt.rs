//! What E-ATBT is compared with: EQ, the same share for all (SSBT 4), and ATBT, shares by the present congestion window (Semke,
//! Mahdavi and Mathis, SIGCOMM 1998; SSBT 2).
//!
//! ATBT's shares swing with the windows, and a connection whose window a timeout cut to one segment has no memory to grow it
//! again (SSBT 5.2).

use alloc::vec;
use alloc::vec::Vec;

use super::eatbt::floor_bytes;
use super::{Demand, NEED_BYTES_MAX, order_by_need};

/// EQ: each of `count` has the same part of the pool, whether it needs that or not.
pub(super) fn equal(count: usize, pool_bytes: u64) -> Vec<u64> {
    vec![pool_bytes.checked_div(count as u64).unwrap_or(0); count]
}

/// ATBT's need: what is in flight, and never less than what each claims ([`floor_bytes`]).
pub(super) fn need_bytes(demand: &Demand) -> u64 {
    demand
        .cwnd_bytes
        .max(floor_bytes(demand))
        .min(NEED_BYTES_MAX)
}

/// ATBT: max-min by needs with equal re-assignment. What nobody needs goes to all in equal parts, so that windows can grow.
pub(super) fn divide(needs: &[u64], pool_bytes: u64) -> Vec<u64> {
    let mut shares = max_min(needs, pool_bytes);
    let needed_bytes: u64 = needs.iter().sum();
    let surplus_bytes = pool_bytes.saturating_sub(needed_bytes);
    let each = surplus_bytes.checked_div(needs.len() as u64).unwrap_or(0);
    shares.iter_mut().for_each(|share| *share += each);
    shares
}

/// Max-min with equal re-assignment: what somebody leaves of an equal share is divided equally among those who need
/// more, until all of the pool is used or nobody needs more.
fn max_min(needs: &[u64], pool_bytes: u64) -> Vec<u64> {
    let mut shares = vec![0; needs.len()];
    let mut left_bytes = u128::from(pool_bytes);
    let mut open = needs.len() as u128;
    for at in order_by_need(needs) {
        let need_bytes = u128::from(needs[at]);
        // Once somebody needs more than an equal part, all who follow do, and have that part.
        if need_bytes * open <= left_bytes {
            shares[at] = needs[at];
            left_bytes -= need_bytes;
            open -= 1;
        } else {
            shares[at] = (left_bytes / open) as u64;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rest_goes_in_equal_parts() {
        // SSBT 2: 20, 200 and 800 KB of 300; 100 each, then 80 / 2 more for two of them.
        let needs = [20_000, 200_000, 800_000];
        assert_eq!(max_min(&needs, 300_000), [20_000, 140_000, 140_000]);
        assert_eq!(max_min(&needs, u64::MAX), needs);
        assert_eq!(equal(3, 300_001), [100_000; 3]);
        assert_eq!(equal(0, 300_001), []);
    }

    proptest! {
        #[test]
        fn nobody_can_have_more_but_from_one_who_has_less(needs in prop::collection::vec(prop_oneof![0..1_000u64, any::<u64>()], 1..50), pool_bytes in prop_oneof![0..20_000u64, any::<u64>()]) {
            let shares = max_min(&needs, pool_bytes);
            let sum: u128 = shares.iter().map(|&share| u128::from(share)).sum();
            prop_assert!(sum <= pool_bytes.into());
            let most = shares.iter().max().unwrap();
            for (share, need) in shares.iter().zip(&needs) {
                prop_assert!(share == need || share < need && share == most, "{shares:?}");
            }
            let wanted: u128 = needs.iter().map(|&need| u128::from(need)).sum();
            let rounding = needs.len() as u128;
            prop_assert!(sum + rounding > wanted.min(pool_bytes.into()), "memory lies idle");
        }
    }
}
