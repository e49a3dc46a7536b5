//! How the memory for sending is divided among connections: SSBT's E-ATBT, and what it is compared with.
//!
//! [`pool`] is the machine: it asks workers what TCP says of the connections that send ([`reading`]), divides each second and
//! when somebody joins, and tells shares. A share is the most that a connection may have in flight and unsent together.
//! [`bound`] holds a socket to its share, and [`outside`] one of another program.
//!
//! What a connection asks for is a [`Demand`], computed from its counters by [`estimate`], and for its client's next connection
//! kept by [`remembered`]. By the operator's [`Policy`] the demand becomes a [`Claim`]: [`eatbt`] (by need, with the laws of
//! [`law`]) or [`atbt`] (by window, or equal). [`divide`] turns claims into shares. In between, `bottleneck` has those claim the
//! same that probably share a link, and [`drain`] looks for round trips without a queue.
//!
//! What holds of every division:
//! - the shares never exceed the pool;
//! - each is at least the smaller of its claim in flight and an equal part of the pool;
//! - a larger pool makes no share smaller, and the order of the claims does not matter.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod atbt;
mod bottleneck;
pub mod bound;
pub mod drain;
pub mod eatbt;
pub mod estimate;
pub mod law;
pub mod outside;
pub mod pool;
pub mod reading;
pub mod remembered;

use alloc::vec::Vec;

use ackpace_core::addresses::Network;
use ackpace_core::limits::CONNECTIONS_MAX;

use self::bottleneck::Queued;
use self::eatbt::Need;
use self::law::Conditions;

/// The largest pool of send memory. Above: it counts as this, more than a machine has.
pub const SEND_POOL_BYTES_MAX: u64 = 1 << 40;
/// The most that one connection claims of it in flight, and again unsent: the fastest rate believed, for T. Above: it
/// counts as this.
pub const NEED_BYTES_MAX: u64 = 1 << 36;
/// What a connection claims of which nothing is known, in segments: the first flight (RFC 6928).
pub const SHARE_SEGMENTS_START: u64 = 10;
/// The payload of an Ethernet's segment with timestamps: what a segment counts as where TCP does not say.
pub const ETHERNET_SEGMENT_BYTES: u64 = 1_448;

const _: () = {
    // A share is computed from products of a need, the number of connections and the sum of all needs.
    let connections = CONNECTIONS_MAX as u128 * 4096;
    let needs = NEED_BYTES_MAX as u128 * connections;
    assert!(
        needs <= u128::MAX / needs,
        "send memory is divided without overflow"
    );
    assert!(needs < u64::MAX as u128 / 2, "and its claims add up");
};

/// How send memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// SSBT's E-ATBT: by what each connection can use.
    ByNeed(Need),
    /// ATBT, with one window for each connection: by the present congestion window (SSBT 2).
    Window,
    /// SSBT's EQ: the same for all.
    Equal,
}

/// What a connection that sends asks for, and by which evidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The network of its client.
    pub network: Network,
    /// Segment, smoothed round trip, loss; the segment bounds the claim from below.
    pub path: Conditions,
    /// `tcpi_rto`, T_0 of PFTK.
    pub rto_us: u64,
    /// `tcpi_min_rtt`.
    pub rtt_min_us: u64,
    /// `tcpi_snd_cwnd` in bytes.
    pub cwnd_bytes: u64,
    /// `tcpi_snd_wnd`, W_max of PFTK.
    pub peer_window_bytes: u64,
    /// The fastest that its path delivered lately ([`estimate::Estimate::delivered_max_bytes_per_s`]).
    pub delivered_max_bytes_per_s: u64,
    /// B_n: what its path delivered since the last reading, or the estimate for a client with a pace of its own.
    pub rate_bytes_per_s: u64,
    /// Its congestion control.
    pub control: Control,
    /// Its client reads more slowly than its path delivers, and needs what it takes.
    pub is_own_pace: bool,
    /// Its estimates hold. If not, it claims a share to start with, whatever its counters say (SSBT 3.3).
    pub is_known: bool,
    /// How it used its last share.
    pub share_use: ShareUse,
}

/// A congestion control, by the law that it follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// Reno and what halves its window like it.
    Reno,
    /// Cubic.
    #[default]
    Cubic,
    /// One that models its path, as bbr does: no law of loss holds for it.
    Model,
}

impl Control {
    /// The one of this name (TCP_CONGESTION, tcp(7)). An unknown one counts as cubic, which claims most.
    pub fn named(name: &str) -> Control {
        match name {
            "reno" | "illinois" | "vegas" | "veno" | "westwood" | "yeah" | "lp" => Control::Reno,
            _ if name.starts_with("bbr") => Control::Model,
            _ => Control::Cubic,
        }
    }
}

/// How a connection used its last share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareUse {
    /// The share.
    pub share_bytes: u64,
    /// For how much of the time the share limited the connection, in hundredths: all of it was in flight, nothing unsent.
    pub limited_percent: u64,
}

/// What a demand comes to, by a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// In flight, by the policy; the first round.
    pub need_bytes: u64,
    /// Unsent, B_n T; the second round.
    pub margin_bytes: u64,
    /// What it keeps in a drain; `None`: all.
    kept_bytes: Option<u64>,
    /// A drain may show it a shorter round trip.
    pub learns: bool,
    /// By need, for a share-limited connection in a queue: where its bottleneck probably is.
    queued: Option<Queued>,
}

impl Claim {
    /// What this demand comes to.
    pub fn of(demand: &Demand, policy: Policy) -> Claim {
        match policy {
            Policy::Equal => Claim::default(),
            Policy::Window => Claim {
                need_bytes: atbt::need_bytes(demand),
                ..Claim::default()
            },
            Policy::ByNeed(Need::Paper) => Claim {
                need_bytes: eatbt::need_bytes(demand, Need::Paper),
                ..Claim::default()
            },
            Policy::ByNeed(Need::Law) => Claim {
                need_bytes: eatbt::need_bytes(demand, Need::Law),
                margin_bytes: eatbt::margin_bytes(demand),
                kept_bytes: drain::kept_bytes(demand),
                learns: drain::would_learn(demand),
                queued: Queued::of(demand),
            },
        }
    }
}

/// The share of each claim, in their order, bytes. A pool above [`SEND_POOL_BYTES_MAX`] counts as that. O(n log n).
pub fn divide(claims: &[Claim], policy: Policy, pool_bytes: u64) -> Vec<u64> {
    let pool_bytes = pool_bytes.min(SEND_POOL_BYTES_MAX);
    match policy {
        Policy::Equal => atbt::equal(claims.len(), pool_bytes),
        Policy::Window => atbt::divide(&needs(claims), pool_bytes),
        Policy::ByNeed(_) => {
            let mut claims = claims.to_vec();
            bottleneck::even_out(&mut claims);
            eatbt::divide(&claims, pool_bytes)
        }
    }
}

fn needs(claims: &[Claim]) -> Vec<u64> {
    claims.iter().map(|claim| claim.need_bytes).collect()
}

/// The indices of `needs`, smallest need first. Equal needs get equal shares, so their order does not matter.
fn order_by_need(needs: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_unstable_by_key(|&at| needs[at]);
    order
}

#[cfg(test)]
mod tests;
