//! How the memory for sending is divided among connections: SSBT's E-ATBT, and what it is compared with.
//!
//! A [`Divider`] gets a [`Demand`] of each connection that sends, and answers with a share of the pool for each: the
//! most that it may have in flight and unsent together. How is the operator's choice ([`Policy`]), a file each:
//! [`equal`] (EQ), [`atbt`] (by window) and [`eatbt`] (by need). Before that, [`estimate`] turns what TCP counts into
//! what the laws of [`crate::law`] ask for, and [`remembered`] keeps that for the next connection of a client, and
//! [`drain`] says when round trips without a queue are looked for. `bottleneck` has those claim the same that probably
//! share a link. [`pool`] is the machine around all this: it asks workers
//! what TCP says, divides, and tells shares. [`bound`] holds a socket to its share, [`depletion`] says when it is
//! filled again, and [`outside`] bounds one of another program.
//!
//! A division is computed each second, and when somebody joins. What holds of every one:
//! - the shares never exceed the pool;
//! - each is at least the smaller of its claim in flight and an equal part of the pool;
//! - a larger pool makes no share smaller, and the order of the demands does not matter.

pub mod atbt;
mod bottleneck;
pub mod bound;
pub mod depletion;
pub mod drain;
pub mod eatbt;
pub mod equal;
pub mod estimate;
pub mod outside;
pub mod pool;
pub mod reading;
pub mod remembered;

use alloc::vec::Vec;

use self::atbt::Windows;
use self::bottleneck::ShareLimited;
use self::drain::Phase;
use self::eatbt::Need;
use crate::addresses::Network;
use crate::law::Conditions;
use crate::limits::SEND_POOL_BYTES_MAX;

/// How send memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// SSBT's E-ATBT: by what each connection can use.
    ByNeed(Need),
    /// ATBT (Semke, Mahdavi and Mathis, SIGCOMM 1998): by the present congestion window.
    Window(Windows),
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
    /// What sets its pace.
    pub pace: Pace,
    /// Whether its numbers say anything yet.
    pub estimate: EstimateState,
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

/// What sets the pace at which a client takes bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Its path: it takes all that arrives.
    #[default]
    Path,
    /// The client itself: it reads more slowly than its path delivers, and needs what it takes.
    Client,
}

/// Whether a connection takes part with its estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EstimateState {
    /// Too few round trips: it claims a share to start with, whatever its counters say (SSBT 3.3).
    #[default]
    New,
    /// Its estimates hold.
    Known,
}

/// How a connection used its last share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareUse {
    /// The share.
    pub share_bytes: u64,
    /// For how much of the time the share limited the connection, in hundredths: all of it was in flight, nothing unsent.
    pub limited_percent: u64,
}

/// What a demand comes to, by a policy. It follows from the demand alone, so it is computed once for all divisions until the
/// demand changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// In flight, by the policy; the first round.
    need_bytes: u64,
    /// Unsent, B_n T; the second round.
    margin_bytes: u64,
    /// What it keeps in a drain; `None`: all.
    kept_bytes: Option<u64>,
    /// By need, for a share-limited connection in a queue: where its bottleneck probably is.
    share_limited: Option<ShareLimited>,
    /// Whether a drain may show it a shorter round trip.
    pub learns: bool,
}

/// Divides a pool. It keeps its buffers, so a division allocates only when there are more connections than ever.
#[derive(Clone, Debug)]
pub struct Divider {
    policy: Policy,
    /// In flight, by the policy; the first round.
    needs: Vec<u64>,
    /// Unsent, B_n T; the second round.
    margins: Vec<u64>,
    /// What each keeps in a drain; `None`: all.
    kept: Vec<Option<u64>>,
    /// The share-limited connections in a queue, and their indices in `needs`.
    share_limited: Vec<(ShareLimited, u32)>,
    /// The indices of `needs`, smallest need first.
    order: Vec<u32>,
    /// The shares of the last division.
    shares: Vec<u64>,
}

impl Divider {
    /// One that divides by `policy`.
    pub fn new(policy: Policy) -> Divider {
        Divider {
            policy,
            needs: Vec::new(),
            margins: Vec::new(),
            kept: Vec::new(),
            share_limited: Vec::new(),
            order: Vec::new(),
            shares: Vec::new(),
        }
    }

    /// The share of each demand, in their order, bytes. `margin_us` is T, the time for which a socket holds unsent
    /// bytes. A pool above [`SEND_POOL_BYTES_MAX`] counts as that. O(n log n).
    pub fn divide(&mut self, demands: &[Demand], pool_bytes: u64, margin_us: u64) -> &[u64] {
        self.clear();
        for demand in demands {
            let claim = self.claim(demand, margin_us);
            self.add(&claim);
        }
        self.divide_added(pool_bytes)
    }

    /// What a demand comes to; `margin_us` as in [`Divider::divide`].
    pub fn claim(&self, demand: &Demand, margin_us: u64) -> Claim {
        let (need_bytes, margin_bytes) = match self.policy {
            Policy::Equal => (0, 0),
            Policy::Window(windows) => (atbt::need_bytes(demand, windows), 0),
            Policy::ByNeed(need) => (
                eatbt::need_bytes(demand, need),
                eatbt::margin_bytes(demand, need, margin_us),
            ),
        };
        Claim {
            need_bytes,
            margin_bytes,
            kept_bytes: drain::kept_bytes(self.policy, demand),
            share_limited: match self.policy {
                Policy::ByNeed(Need::Law) => ShareLimited::of(demand),
                Policy::ByNeed(Need::Paper) | Policy::Window(_) | Policy::Equal => None,
            },
            learns: drain::would_learn(demand),
        }
    }

    /// Nobody takes part, until [`Divider::add`].
    pub fn clear(&mut self) {
        self.needs.clear();
        self.margins.clear();
        self.kept.clear();
        self.share_limited.clear();
    }

    /// One more takes part, with this claim.
    pub fn add(&mut self, claim: &Claim) {
        let at = self.needs.len() as u32;
        self.share_limited
            .extend(claim.share_limited.map(|limited| (limited, at)));
        self.needs.push(claim.need_bytes);
        self.margins.push(claim.margin_bytes);
        self.kept.push(claim.kept_bytes);
    }

    /// As [`Divider::divide`], for those who were added.
    pub fn divide_added(&mut self, pool_bytes: u64) -> &[u64] {
        let pool_bytes = pool_bytes.min(SEND_POOL_BYTES_MAX);
        match self.policy {
            Policy::Equal => equal::whole(self.needs.len(), pool_bytes, &mut self.shares),
            Policy::Window(_) => {
                self.sort();
                atbt::divide(&self.needs, &self.order, pool_bytes, &mut self.shares);
            }
            Policy::ByNeed(_) => {
                let (needs, margins) = (&mut self.needs, &mut self.margins);
                bottleneck::even_out(&mut self.share_limited, needs, margins);
                // Where all needs fit, their order does not matter.
                if self.needs.iter().sum::<u64>() > pool_bytes {
                    self.sort();
                }
                let claims = eatbt::Claims {
                    needs: &self.needs,
                    margins: &self.margins,
                };
                eatbt::divide(claims, &self.order, pool_bytes, &mut self.shares);
            }
        }
        &self.shares
    }

    /// The shares of the last division, as they are in this phase.
    pub fn in_phase(&mut self, phase: Phase) -> &[u64] {
        if phase == Phase::Drain {
            drain::lessen(&self.kept, &mut self.shares);
        }
        &self.shares
    }

    fn sort(&mut self) {
        order_by_need(&self.needs, &mut self.order);
    }
}

/// The indices of `needs`, smallest need first. Equal needs get equal shares, so their order does not matter.
fn order_by_need(needs: &[u64], order: &mut Vec<u32>) {
    order.clear();
    order.extend((0..).take(needs.len()));
    order.sort_unstable_by_key(|&at| needs[at as usize]);
}

/// Adds to each share its part of `left_bytes`, in proportion to its weight.
fn add_by_weight(shares: &mut [u64], weights: impl Iterator<Item = u64> + Clone, left_bytes: u64) {
    let all: u128 = weights.clone().map(u128::from).sum();
    for (share, weight) in shares.iter_mut().zip(weights) {
        let part = (u128::from(left_bytes) * u128::from(weight)).checked_div(all);
        *share += part.unwrap_or(0) as u64; // at most `left_bytes`
    }
}

#[cfg(test)]
mod tests;
