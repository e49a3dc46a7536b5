//! ATBT: by the present congestion window (Semke, Mahdavi and Mathis, SIGCOMM 1998; SSBT 2).
//!
//! What E-ATBT is compared with. Its shares swing with the windows, and a connection whose window a timeout cut to one
//! segment has no memory to grow it again (SSBT 5.2).

use alloc::vec::Vec;

use super::eatbt::floor_bytes;
use super::{Demand, equal};
use crate::limits::NEED_BYTES_MAX;

/// How many congestion windows a connection needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Windows {
    /// What is in flight (SSBT 2).
    #[default]
    One,
    /// And as much again, so that a window can double, and a loss can be repaired while bytes wait (Semke et al.).
    Two,
}

/// The need of a connection, and never less than what each claims ([`floor_bytes`]).
pub(super) fn need_bytes(demand: &Demand, windows: Windows) -> u64 {
    let cwnd_bytes = match windows {
        Windows::One => demand.cwnd_bytes,
        Windows::Two => demand.cwnd_bytes.saturating_mul(2),
    };
    cwnd_bytes.max(floor_bytes(demand)).min(NEED_BYTES_MAX)
}

/// Max-min by needs with equal re-assignment; what nobody needs goes to all in equal parts, so that windows can grow.
pub(super) fn divide(needs: &[u64], order: &[u32], pool_bytes: u64, shares: &mut Vec<u64>) {
    equal::max_min(needs, order, pool_bytes, shares);
    let needed_bytes: u64 = needs.iter().sum();
    let surplus_bytes = pool_bytes.saturating_sub(needed_bytes);
    let each = surplus_bytes.checked_div(needs.len() as u64).unwrap_or(0);
    shares.iter_mut().for_each(|share| *share += each);
}
