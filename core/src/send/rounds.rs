//! When a worker tops up all of its connections in one go, and how far.

use super::SendQueue;
use crate::limits::{
    DEMAND_US_MAX, EPOLLOUT_US, OWN_BYTES_MAX, REACH_US_MAX, SEND_QUEUE_BYTES, SEND_QUEUE_PERCENT,
    SLOW_TOP_UPS_PER_S, STEADY_BYTES_MAX, STEADY_QUEUE_BYTES, STEADY_US_MAX, TARGET_US_MAX,
    TARGET_US_MIN, TOP_UP_BYTES_MAX, TOP_UP_BYTES_MIN,
};
use crate::prefetch::us_for;
use crate::units::{Instant, bytes_in};

/// The earliest next round, in tenths of the current round's reach. If all clients are steady, no socket becomes
/// writable before nine tenths. After losses some do earlier; then all are topped up together instead of each by its
/// own wake-up (`sim/tests/sending.txt`).
const ROUND_AFTER_TENTHS: u64 = 2;

/// How far sockets are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// T: a full socket holds what its client takes in this time plus [`EPOLLOUT_US`].
    pub us: u64,
    /// The least top-up above the level at which a socket becomes writable. A client that takes less in T is topped up
    /// more rarely than others.
    pub least_bytes: u64,
    /// A client that reads at its own pace is filled with this times the root of its rate. Of all ways to divide a
    /// queue this one needs the fewest top-ups: per second they are the sum of each rate over its fill.
    pub steady_per_root: u64,
}

impl Target {
    /// The fill for a client that reads at its own pace, at this rate.
    pub fn steady_bytes(&self, rate_bytes_per_s: u64) -> u64 {
        let bytes = self
            .steady_per_root
            .saturating_mul(rate_bytes_per_s.isqrt());
        bytes
            .min(bytes_in(STEADY_US_MAX, rate_bytes_per_s))
            .min(STEADY_BYTES_MAX)
    }
}

impl Default for Target {
    fn default() -> Target {
        Target {
            us: TARGET_US_MAX,
            least_bytes: TOP_UP_BYTES_MIN,
            steady_per_root: 0,
        }
    }
}

/// What all sending connections take, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalDemand {
    /// The number of connections whose rate is known.
    pub known: u64,
    /// The sum of these rates.
    pub rates_bytes_per_s: u64,
    /// The sum for those of them that take less than [`TOP_UP_BYTES_MIN`] in T.
    pub slow_bytes_per_s: u64,
    /// The sum of the roots of the rates of clients that read at their own pace.
    pub steady_roots: u64,
    /// The shortest time after which a full socket of one of them becomes writable again.
    pub shortest_us: Option<u64>,
}

impl TotalDemand {
    /// Counts one more connection.
    pub fn add(&mut self, queue: &SendQueue, target: Target) {
        let Some(us) = queue.lasts_us(target) else {
            return;
        };
        let rate = queue.rate_bytes_per_s();
        self.known += 1;
        self.rates_bytes_per_s = self.rates_bytes_per_s.saturating_add(rate);
        if queue.is_steady() {
            self.steady_roots = self.steady_roots.saturating_add(rate.isqrt());
        } else if bytes_in(target.us, rate) < TOP_UP_BYTES_MIN {
            self.slow_bytes_per_s = self.slow_bytes_per_s.saturating_add(rate);
        }
        self.shortest_us = Some(self.shortest_us.map_or(us, |before| before.min(us)));
    }
}

/// When a worker tops up all of its connections, and how far.
#[derive(Clone, Copy, Debug)]
pub struct TopUps {
    budget_bytes: u64,
    steady_bytes: u64,
    target: Target,
    /// The earliest time of the next round.
    next_at: Instant,
    due: bool,
    /// When the last round was, and the demand that it found.
    measured: Option<(Instant, TotalDemand)>,
}

impl TopUps {
    /// `budget_bytes` bounds two groups of the worker's sockets separately: those of clients that a path limits (at most
    /// [`SEND_QUEUE_BYTES`] together), and those of clients that read at their own pace (at most [`STEADY_QUEUE_BYTES`]).
    pub fn new(budget_bytes: u64) -> TopUps {
        TopUps {
            budget_bytes: budget_bytes.min(SEND_QUEUE_BYTES),
            steady_bytes: budget_bytes.min(STEADY_QUEUE_BYTES),
            target: Target::default(),
            next_at: Instant { us: 0 },
            due: false,
            measured: None,
        }
    }

    /// The target of the last round.
    pub fn target(&self) -> Target {
        self.target
    }

    /// How many bytes a socket may hold that were read for its connection alone, with this many connections. They take
    /// the same memory in the socket as before it, and the fewer calls move them there the better. All sockets together
    /// hold the budget at most.
    pub fn own_bytes(&self, connections: u32) -> u64 {
        (self.budget_bytes / u64::from(connections.max(1))).min(OWN_BYTES_MAX)
    }

    /// What a socket may hold while its rate is a guess, with this many connections.
    pub fn guess_bytes(&self, connections: u32) -> u64 {
        (self.steady_bytes / u64::from(connections.max(1))).min(OWN_BYTES_MAX / 2)
    }

    /// One connection became writable. If the last round is long enough ago, all connections have their turn.
    pub fn writable(&mut self, now: Instant) {
        self.due |= now >= self.next_at;
    }

    /// Whether a round is due. Returns `true` once per round.
    pub fn take_due(&mut self) -> bool {
        core::mem::take(&mut self.due)
    }

    /// The sum of the known rates of all connections, bytes per second; 0 if the last round is too long ago to tell.
    pub fn rates_bytes_per_s(&self, now: Instant) -> u64 {
        let fresh = |(at, _): &(Instant, TotalDemand)| now.since_us(*at) <= DEMAND_US_MAX;
        let measured = self.measured.filter(fresh);
        measured.map_or(0, |(_, demand)| demand.rates_bytes_per_s)
    }

    /// A round begins: the target follows the demand. Returns when the next round should have come; connections that
    /// would become writable before then are topped up now.
    pub fn round(&mut self, demand: TotalDemand, now: Instant) -> Instant {
        self.measured = Some((now, demand));
        let bytes = self.budget_bytes / 100 * SEND_QUEUE_PERCENT;
        let us = us_for(bytes, demand.rates_bytes_per_s);
        self.target = Target {
            us: us
                .saturating_sub(EPOLLOUT_US)
                .clamp(TARGET_US_MIN, TARGET_US_MAX),
            least_bytes: (demand.slow_bytes_per_s / SLOW_TOP_UPS_PER_S)
                .clamp(TOP_UP_BYTES_MIN, TOP_UP_BYTES_MAX),
            steady_per_root: self.steady_bytes / demand.steady_roots.max(1),
        };
        let reach_us = demand.shortest_us.unwrap_or(self.target.us);
        let reach_us = reach_us.clamp(TARGET_US_MIN, REACH_US_MAX.max(reach_us / 2));
        self.next_at = now.plus_us(reach_us * ROUND_AFTER_TENTHS / 10);
        now.plus_us(reach_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;
    use proptest::prelude::*;

    const AT: fn(u64) -> Instant = |ms| Instant { us: ms * 1000 };

    fn demand(rates_bytes_per_s: u64, slow_bytes_per_s: u64, shortest_ms: u64) -> TotalDemand {
        TotalDemand {
            known: 1,
            rates_bytes_per_s,
            slow_bytes_per_s,
            shortest_us: Some(shortest_ms * 1000),
            ..TotalDemand::default()
        }
    }

    #[test]
    fn t_comes_from_the_budget_within_bounds() {
        let mut top_ups = TopUps::new(52 << 20);
        for (rates, target_ms) in [(0, 200), (240_000_000, 149), (10_000_000_000, 100)] {
            top_ups.round(demand(rates, 0, 0), AT(0));
            assert_eq!(top_ups.target().us / 1000, target_ms);
        }
    }

    #[test]
    fn many_slow_clients_are_given_more_at_once() {
        let mut top_ups = TopUps::new(52 << 20);
        for (slow, least_bytes) in [
            (0, TOP_UP_BYTES_MIN),
            (120_000_000, TOP_UP_BYTES_MIN),
            (225_000_000, 100_000),
            (1_000_000_000, TOP_UP_BYTES_MAX),
        ] {
            top_ups.round(demand(slow, slow, 0), AT(0));
            assert_eq!(top_ups.target().least_bytes, least_bytes);
        }
    }

    #[test]
    fn demand_is_the_sum_of_what_is_known() {
        let target = Target {
            us: 100_000,
            ..Target::default()
        };
        let mut demand = TotalDemand::default();
        for rate in [0, 65_536, 10_000_000] {
            demand.add(&SendQueue::at_rate(rate), target);
        }
        assert_eq!((demand.known, demand.rates_bytes_per_s), (2, 10_065_536));
        assert_eq!(demand.slow_bytes_per_s, 65_536);
        assert_eq!(demand.shortest_us, Some(100_000));
        let mut slow = TotalDemand::default();
        slow.add(&SendQueue::at_rate(65_536), target);
        assert_eq!(slow.shortest_us, Some(1_000_000), "64 KiB last a second");
    }

    #[test]
    fn a_round_reaches_to_where_the_first_calls_and_the_next_is_a_fifth_of_that_later() {
        for (shortest_ms, reach_ms) in [(1, 100), (150, 150), (700, 400), (4_000, 2_000)] {
            let mut top_ups = TopUps::new(52 << 20);
            let until = top_ups.round(demand(10_000_000_000, 0, shortest_ms), AT(0));
            assert_eq!(until, AT(reach_ms));
            top_ups.writable(AT(reach_ms / 5 - 1));
            assert!(!top_ups.take_due());
            top_ups.writable(AT(reach_ms / 5));
            assert!(top_ups.take_due());
            assert!(!top_ups.take_due(), "it is said once");
        }
    }

    #[test]
    fn what_was_measured_is_forgotten_when_nobody_calls() {
        let mut top_ups = TopUps::new(52 << 20);
        assert_eq!(top_ups.rates_bytes_per_s(AT(0)), 0);
        top_ups.round(demand(10_000_000, 0, 0), AT(0));
        assert_eq!(top_ups.rates_bytes_per_s(AT(8_000)), 10_000_000);
        assert_eq!(
            top_ups.rates_bytes_per_s(AT(8_001)),
            0,
            "they may all be gone"
        );
    }

    #[test]
    fn what_is_read_for_one_alone_goes_into_sockets_within_the_budget() {
        let top_ups = TopUps::new(52 << 20);
        assert_eq!(top_ups.own_bytes(0), OWN_BYTES_MAX);
        for connections in 1..=16_384 {
            let all_bytes = top_ups.own_bytes(connections) * u64::from(connections);
            assert!(all_bytes <= 52 << 20, "{connections}");
        }
    }

    /// The fills of clients of these rates that read at their own pace.
    fn steady(rates: &[u64]) -> Vec<u64> {
        let mut top_ups = TopUps::new(1 << 40);
        let steady_roots = rates.iter().map(|rate| rate.isqrt()).sum();
        let demand = TotalDemand {
            steady_roots,
            ..TotalDemand::default()
        };
        top_ups.round(demand, AT(0));
        let target = top_ups.target();
        rates
            .iter()
            .map(|&rate| target.steady_bytes(rate))
            .collect()
    }

    #[test]
    fn who_reads_at_its_own_pace_is_filled_for_seconds() {
        let filled = |count: usize, rate| steady(&vec![rate; count])[0] * 1_000 / rate;
        assert_eq!(filled(100, 1_000_000), 2_097, "ms: as much as one may hold");
        assert_eq!(filled(1_000, 100_000), 4_000);
        assert_eq!(filled(10_000, 100_000), 401, "many share");
    }

    proptest! {
        #[test]
        fn steady_clients_share_a_queue_so_that_they_are_topped_up_as_rarely_as_can_be(
            rates in proptest::collection::vec(1_000u64..20_000_000, 1..2_000),
        ) {
            let filled = steady(&rates);
            let sum: u64 = filled.iter().sum();
            prop_assert!(sum <= STEADY_QUEUE_BYTES, "{}", sum / MIB);
            prop_assume!(rates.iter().zip(&filled).all(|(&rate, &bytes)| {
                bytes > 0 && bytes < STEADY_BYTES_MAX && bytes < bytes_in(STEADY_US_MAX, rate)
            }));
            let per_s = |bytes: &dyn Fn(usize) -> f64| -> f64 {
                rates.iter().enumerate().map(|(n, &rate)| rate as f64 / bytes(n)).sum()
            };
            let ours = per_s(&|n| filled[n] as f64);
            let all: u64 = rates.iter().sum();
            let same_time = per_s(&|n| sum as f64 * rates[n] as f64 / all as f64);
            let same_bytes = per_s(&|_| sum as f64 / rates.len() as f64);
            prop_assert!(ours <= same_time.min(same_bytes) * 1.01, "{ours} {same_time} {same_bytes}");
        }
    }
}
