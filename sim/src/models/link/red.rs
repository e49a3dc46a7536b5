//! Random early detection (Floyd and Jacobson 1993): drops or marks packets before the queue is full, by its average
//! length.

use super::unit;
use rand_pcg::rand_core::RngCore;

/// Parameters of a RED queue; `min_bytes < max_bytes <= limit_bytes`.
#[derive(Clone, Debug, PartialEq)]
pub struct Red {
    /// Average length from which packets are picked (min_th).
    pub min_bytes: u64,
    /// Average length from which every packet is dropped (max_th).
    pub max_bytes: u64,
    /// Probability just below `max_bytes` (max_p), above 0 to 1.
    pub p_max: f64,
    /// Weight of a new sample in the average (w_q), above 0 to 1.
    pub weight: f64,
    /// Most bytes that the queue holds, whatever the average.
    pub limit_bytes: u64,
    /// Marks ECN-capable packets instead of dropping them, up to `max_bytes` (RFC 3168, section 7).
    pub ecn: bool,
    /// From `max_bytes` to twice that, the probability rises from `p_max` to 1 instead of jumping
    /// (Floyd 2000, "gentle").
    pub gentle: bool,
}

/// An empty queue ages the average once for each packet of this length that could have been sent.
const TYPICAL_PACKET_BYTES: f64 = 1500.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Pass,
    /// Picked: mark it if possible, else drop it.
    Congested,
    /// Too much congestion to mark: drop it.
    Overloaded,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RedState {
    average_bytes: f64,
    /// Packets since the last one that was picked; `None` while the average is below the minimum.
    since_picked: Option<u32>,
}

impl RedState {
    pub(super) fn average_bytes(&self) -> f64 {
        self.average_bytes
    }

    /// Judges one arrival. `idle_bytes`: bytes that could have been sent since the queue became empty.
    pub(super) fn judge(
        &mut self,
        red: &Red,
        queue_bytes: u64,
        idle_bytes: f64,
        rng: &mut impl RngCore,
    ) -> Judgement {
        if queue_bytes == 0 {
            let missed_packets = (idle_bytes / TYPICAL_PACKET_BYTES).min(1e6);
            self.average_bytes *= (1.0 - red.weight).powi(missed_packets as i32);
        }
        self.average_bytes += red.weight * (queue_bytes as f64 - self.average_bytes);
        let (min, max) = (red.min_bytes as f64, red.max_bytes as f64);
        let over = self.average_bytes;
        if over < min {
            self.since_picked = None;
            return Judgement::Pass;
        }
        let (p, picked) = if over < max {
            let p = red.p_max * (over - min) / (max - min);
            (p, Judgement::Congested)
        } else if red.gentle && over < 2.0 * max {
            let p = red.p_max + (1.0 - red.p_max) * (over - max) / max;
            (p, Judgement::Overloaded)
        } else {
            self.since_picked = Some(0);
            return Judgement::Overloaded;
        };
        // Spreads the picks evenly: p / (1 - count p) makes the gap between them uniform.
        let count = self.since_picked.map_or(0, |count| count.saturating_add(1));
        let rest = 1.0 - f64::from(count) * p;
        let spread = if rest > p { p / rest } else { 1.0 };
        if unit(rng) < spread {
            self.since_picked = Some(0);
            return picked;
        }
        self.since_picked = Some(count);
        Judgement::Pass
    }
}
