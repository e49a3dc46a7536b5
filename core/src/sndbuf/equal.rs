//! EQ, the same share for all (SSBT 4), and equal parts of what others leave, the max-min rule of ATBT (SSBT 2).

use alloc::vec::Vec;

/// EQ: each of `count` has the same part of the pool, whether it needs that or not.
pub(super) fn whole(count: usize, pool_bytes: u64, shares: &mut Vec<u64>) {
    shares.clear();
    let each = pool_bytes.checked_div(count as u64).unwrap_or(0);
    shares.resize(count, each);
}

/// Max-min with equal re-assignment: what somebody leaves of an equal share is divided equally among those who need
/// more, until all of the pool is used or nobody needs more. `order` has the needs' indices, smallest first.
pub(super) fn max_min(needs: &[u64], order: &[u32], pool_bytes: u64, shares: &mut Vec<u64>) {
    shares.clear();
    shares.resize(needs.len(), 0);
    let mut left_bytes = u128::from(pool_bytes);
    let mut open = order.len() as u128;
    for &at in order {
        let need_bytes = u128::from(needs[at as usize]);
        // Once somebody needs more than an equal part, all who follow do, and have that part.
        if need_bytes * open <= left_bytes {
            shares[at as usize] = need_bytes as u64;
            left_bytes -= need_bytes;
            open -= 1;
        } else {
            shares[at as usize] = (left_bytes / open) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::order_by_need;
    use super::*;
    use proptest::prelude::*;

    fn shared(needs: &[u64], pool_bytes: u64) -> Vec<u64> {
        let (mut order, mut shares) = (Vec::new(), Vec::new());
        order_by_need(needs, &mut order);
        max_min(needs, &order, pool_bytes, &mut shares);
        shares
    }

    #[test]
    fn the_rest_goes_in_equal_parts() {
        // SSBT 2: 20, 200 and 800 KB of 300; 100 each, then 80 / 2 more for two of them.
        let needs = [20_000, 200_000, 800_000];
        assert_eq!(shared(&needs, 300_000), [20_000, 140_000, 140_000]);
        assert_eq!(shared(&needs, 0), [0, 0, 0]);
        assert_eq!(shared(&needs, u64::MAX), needs);
        assert_eq!(shared(&[], 7), []);
    }

    #[test]
    fn equal_is_equal() {
        let mut shares = Vec::new();
        whole(3, 300_001, &mut shares);
        assert_eq!(shares, [100_000; 3]);
        whole(0, 300_001, &mut shares);
        assert_eq!(shares, []);
    }

    proptest! {
        #[test]
        fn nobody_can_have_more_but_from_one_who_has_less(needs in prop::collection::vec(prop_oneof![0..1_000u64, any::<u64>()], 1..50), pool_bytes in prop_oneof![0..20_000u64, any::<u64>()]) {
            let shares = shared(&needs, pool_bytes);
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
