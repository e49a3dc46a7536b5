//! What E-ATBT believes of a connection's path: its loss, and the fastest that it delivered.
//!
//! Losses and segments fade, by 7 % in a second, so the estimate is of some fourteen seconds of sending. Time in which
//! nothing was sent says nothing and fades nothing: an estimate survives between two requests.

use libm::pow;

use super::EstimateState;
use crate::law::Loss;
use crate::limits::{
    DELIVERY_RATES_MAX, LOSS_SEGMENTS_MIN, RATE_BYTES_PER_S_MAX, ROUNDS_KNOWN_MIN,
};
use crate::units::{Instant, US_PER_S};

/// What a second leaves of the weight of all before it.
const FADE_PER_S: f64 = 0.93;

/// What is left of a weight after some time. A look samples thousands of connections after the same time as the last one did, so the
/// last answer is kept.
#[derive(Clone, Copy, Debug)]
pub struct Fade {
    /// The time, and what it leaves of a weight.
    us: u64,
    left: f64,
}

/// After no time.
impl Default for Fade {
    fn default() -> Fade {
        Fade { us: 0, left: 1.0 }
    }
}

impl Fade {
    /// What is left of a weight after this time.
    fn after(&mut self, us: u64) -> f64 {
        if self.us != us {
            let left = pow(FADE_PER_S, us as f64 / US_PER_S as f64);
            *self = Fade { us, left };
        }
        self.left
    }
}

/// What TCP has counted of a connection, in all (tcp(7), `struct tcp_info`). Counters may wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSample {
    /// `tcpi_data_segs_out`.
    pub sent_segments: u32,
    /// Loss events: how often it entered Recovery or Loss.
    pub loss_events: u32,
    /// What its path delivered since the last sample; 0: not known.
    pub delivered_bytes_per_s: u64,
    /// Smoothed round trip.
    pub rtt_us: u64,
}

/// What the next sample is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counters {
    /// When the sample was taken, and what it had counted.
    at: Instant,
    sent_segments: u32,
    loss_events: u32,
}

/// The estimate of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The last sample of its counters.
    last: Option<Counters>,
    /// Loss events and segments, faded.
    lost: f64,
    sent: f64,
    /// What its path delivered, by the last samples in which it sent: a ring.
    rates: [u64; DELIVERY_RATES_MAX],
    /// Where the next one goes in `rates`.
    next: usize,
    /// Round trips in which it sent.
    rounds: u64,
}

/// What is kept of an estimate for the next connection of its client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Belief {
    /// Loss events and segments, faded, as in [`Estimate`].
    lost: f64,
    sent: f64,
    /// The fastest that its path delivered lately.
    delivered_max_bytes_per_s: u64,
}

impl Estimate {
    /// That of a connection whose client had another one lately. It counts at once, and gives way to what this
    /// connection shows.
    pub fn seeded(belief: Belief) -> Estimate {
        Estimate {
            lost: belief.lost,
            sent: belief.sent,
            rates: [belief.delivered_max_bytes_per_s; DELIVERY_RATES_MAX],
            rounds: ROUNDS_KNOWN_MIN,
            ..Estimate::default()
        }
    }

    /// A sample of its counters, one a second.
    pub fn sampled(&mut self, sample: PathSample, now: Instant) {
        self.sampled_among(sample, now, &mut Fade::default());
    }

    /// Likewise, after samples of others by the same `fade`.
    pub fn sampled_among(&mut self, sample: PathSample, now: Instant, fade: &mut Fade) {
        let counters = |at, sample: PathSample| Counters {
            at,
            sent_segments: sample.sent_segments,
            loss_events: sample.loss_events,
        };
        let last = self.last.replace(counters(now, sample));
        let before = last.unwrap_or(counters(now, PathSample::default()));
        let segments = sample.sent_segments.wrapping_sub(before.sent_segments);
        if segments == 0 {
            return;
        }
        let us = now.since_us(before.at);
        let faded = fade.after(us);
        let events = sample.loss_events.wrapping_sub(before.loss_events);
        self.sent = self.sent * faded + f64::from(segments);
        self.lost = self.lost * faded + f64::from(events);
        self.rates[self.next] = sample.delivered_bytes_per_s.min(RATE_BYTES_PER_S_MAX);
        self.next = (self.next + 1) % DELIVERY_RATES_MAX;
        self.rounds = self.rounds.saturating_add(us / sample.rtt_us.max(1));
    }

    /// Whether it counts.
    pub fn state(&self) -> EstimateState {
        match self.rounds >= ROUNDS_KNOWN_MIN {
            true => EstimateState::Known,
            false => EstimateState::New,
        }
    }

    /// p, loss events for each segment.
    pub fn loss(&self) -> Loss {
        match self.sent >= LOSS_SEGMENTS_MIN as f64 {
            true => Loss::new(self.lost / self.sent),
            false => Loss::NONE,
        }
    }

    /// The fastest of the last [`DELIVERY_RATES_MAX`] samples.
    pub fn delivered_max_bytes_per_s(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// What the client's next connection may start from; `None` if this one says nothing.
    pub fn belief(&self) -> Option<Belief> {
        (self.state() == EstimateState::Known).then(|| Belief {
            lost: self.lost,
            sent: self.sent,
            delivered_max_bytes_per_s: self.delivered_max_bytes_per_s(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Instant {
        Instant {
            us: seconds * US_PER_S,
        }
    }

    /// Looks each second at a connection with a thousand segments and `events` in each.
    fn watched(seconds: u64, events: u32) -> Estimate {
        let mut estimate = Estimate::default();
        for n in 0..=seconds {
            let sample = PathSample {
                sent_segments: n as u32 * 1_000,
                loss_events: n as u32 * events,
                delivered_bytes_per_s: 1_000_000,
                rtt_us: 50_000,
            };
            estimate.sampled(sample, at(n));
        }
        estimate
    }

    #[test]
    fn a_steady_loss_is_found() {
        let estimate = watched(20, 10);
        assert!((estimate.loss().probability() - 0.01).abs() < 1e-12);
        assert_eq!(estimate.state(), EstimateState::Known);
        assert_eq!(estimate.delivered_max_bytes_per_s(), 1_000_000);
    }

    #[test]
    fn few_round_trips_and_few_segments_say_nothing() {
        let mut estimate = Estimate::default();
        for (us, sent_segments) in [(0, 10), (400_000, 40)] {
            let sample = PathSample {
                sent_segments,
                loss_events: 1,
                delivered_bytes_per_s: 5,
                rtt_us: 100_000,
            };
            estimate.sampled(sample, Instant { us });
        }
        assert_eq!(estimate.state(), EstimateState::New);
        assert_eq!(estimate.loss(), Loss::NONE, "one event in 40 segments");
        assert_eq!(estimate.belief(), None);
    }

    #[test]
    fn a_pause_changes_nothing_and_a_loss_fades() {
        let mut estimate = watched(20, 10);
        let before = estimate;
        let last = before.last.unwrap();
        let sample = PathSample {
            sent_segments: last.sent_segments,
            loss_events: last.loss_events,
            delivered_bytes_per_s: 1_000_000,
            rtt_us: 50_000,
        };
        estimate.sampled(sample, at(5_000));
        assert_eq!(estimate.loss(), before.loss());
        assert_eq!(estimate.delivered_max_bytes_per_s(), 1_000_000);
        for n in 1..=30 {
            let sample = PathSample {
                sent_segments: sample.sent_segments + n * 1_000,
                delivered_bytes_per_s: 10,
                ..sample
            };
            estimate.sampled(sample, at(5_000 + u64::from(n)));
        }
        // .93^30 = .113 of the old weight is left.
        let p = estimate.loss().probability();
        assert!((0.0005..0.002).contains(&p), "{p}");
        assert_eq!(
            estimate.delivered_max_bytes_per_s(),
            10,
            "the old rates are gone"
        );
    }

    #[test]
    fn the_next_connection_starts_where_the_last_ended() {
        let belief = watched(20, 10).belief().expect("known");
        let next = Estimate::seeded(belief);
        assert_eq!(next.state(), EstimateState::Known);
        assert_eq!(next.delivered_max_bytes_per_s(), 1_000_000);
        assert!((next.loss().probability() - 0.01).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn any_counters_give_a_probability(samples in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>()), 1..30)) {
            let mut estimate = Estimate::default();
            for (sent_segments, loss_events, delivered_bytes_per_s, rtt_us, us) in samples {
                estimate.sampled(PathSample { sent_segments, loss_events, delivered_bytes_per_s, rtt_us }, Instant { us });
                prop_assert!((0.0..=1.0).contains(&estimate.loss().probability()));
                prop_assert!(estimate.delivered_max_bytes_per_s() <= RATE_BYTES_PER_S_MAX);
            }
        }
    }
}
