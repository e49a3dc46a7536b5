//! What E-ATBT believes of a connection's path: its loss, and the fastest that it delivered.
//!
//! All of that fades, by 7 % in a second, so the estimate is of some fourteen seconds of sending. Time in which nothing was sent
//! says nothing and fades nothing: an estimate survives between two requests.

use ackpace_core::limits::RATE_BYTES_PER_S_MAX;
use ackpace_core::units::{Instant, US_PER_S};
use libm::pow;

use super::law::Loss;

/// Round trips in which a connection sent, until its estimates count.
pub const ROUNDS_KNOWN_MIN: u64 = 10;
/// Segments, lately, without which a connection's loss counts as none: one event in fewer says little.
const LOSS_SEGMENTS_MIN: f64 = 50.0;
/// What a second leaves of the weight of all before it.
const FADE_PER_S: f64 = 0.93;

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

/// What is believed of a path. It is kept for the next connection of the same client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Belief {
    /// Loss events and segments, faded.
    lost: f64,
    sent: f64,
    /// The fastest that it delivered lately.
    delivered_max_bytes_per_s: u64,
}

/// The estimate of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    belief: Belief,
    /// When its counters were last sampled, and what they said.
    last: Option<(Instant, PathSample)>,
    /// Round trips in which it sent.
    rounds: u64,
}

impl Estimate {
    /// That of a connection whose client had another one lately. It counts at once, and gives way to what this
    /// connection shows.
    pub fn seeded(belief: Belief) -> Estimate {
        Estimate {
            belief,
            rounds: ROUNDS_KNOWN_MIN,
            ..Estimate::default()
        }
    }

    /// A sample of its counters, one a second.
    pub fn sampled(&mut self, sample: PathSample, now: Instant) {
        let last = self.last.replace((now, sample));
        let (at, before) = last.unwrap_or((now, PathSample::default()));
        let segments = sample.sent_segments.wrapping_sub(before.sent_segments);
        if segments == 0 {
            return;
        }
        let us = now.since_us(at);
        let fade = pow(FADE_PER_S, us as f64 / US_PER_S as f64);
        let events = sample.loss_events.wrapping_sub(before.loss_events);
        let belief = &mut self.belief;
        belief.sent = belief.sent * fade + f64::from(segments);
        belief.lost = belief.lost * fade + f64::from(events);
        let faded = (belief.delivered_max_bytes_per_s as f64 * fade) as u64;
        let delivered = sample.delivered_bytes_per_s.max(faded);
        belief.delivered_max_bytes_per_s = delivered.min(RATE_BYTES_PER_S_MAX);
        self.rounds = self.rounds.saturating_add(us / sample.rtt_us.max(1));
    }

    /// Whether it counts.
    pub fn is_known(&self) -> bool {
        self.rounds >= ROUNDS_KNOWN_MIN
    }

    /// p, loss events for each segment.
    pub fn loss(&self) -> Loss {
        let Belief { lost, sent, .. } = self.belief;
        if sent < LOSS_SEGMENTS_MIN {
            return Loss::NONE;
        }
        Loss::new(lost / sent)
    }

    /// The fastest that its path delivered lately.
    pub fn delivered_max_bytes_per_s(&self) -> u64 {
        self.belief.delivered_max_bytes_per_s
    }

    /// What the client's next connection may start from; `None` if this one says nothing.
    pub fn belief(&self) -> Option<Belief> {
        self.is_known().then_some(self.belief)
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

    /// A thousand segments in each second, and so many loss events.
    fn sample(second: u32, events: u32, delivered_bytes_per_s: u64) -> PathSample {
        PathSample {
            sent_segments: second * 1_000,
            loss_events: second * events,
            delivered_bytes_per_s,
            rtt_us: 50_000,
        }
    }

    fn watched(seconds: u32, events: u32) -> Estimate {
        let mut estimate = Estimate::default();
        for n in 0..=seconds {
            estimate.sampled(sample(n, events, 1_000_000), at(n.into()));
        }
        estimate
    }

    #[test]
    fn a_steady_loss_is_found_and_the_next_connection_starts_with_it() {
        let estimate = watched(20, 10);
        let next = Estimate::seeded(estimate.belief().expect("known"));
        for estimate in [estimate, next] {
            assert!((estimate.loss().probability() - 0.01).abs() < 1e-12);
            assert!(estimate.is_known());
            assert_eq!(estimate.delivered_max_bytes_per_s(), 1_000_000);
        }
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
        assert_eq!(estimate.loss(), Loss::NONE, "one event in 40 segments");
        assert_eq!(estimate.belief(), None);
    }

    #[test]
    fn a_pause_changes_nothing_and_what_was_fades() {
        let mut estimate = watched(20, 10);
        let before = estimate.belief;
        let last = sample(20, 10, 1_000_000);
        estimate.sampled(last, at(5_000));
        assert_eq!(estimate.belief, before);
        for n in 1..=30 {
            let sample = PathSample {
                sent_segments: last.sent_segments + n * 1_000,
                delivered_bytes_per_s: 10,
                ..last
            };
            estimate.sampled(sample, at(5_000 + u64::from(n)));
        }
        // .93^30 = .113 of the old weight is left.
        let p = estimate.loss().probability();
        assert!((0.0005..0.002).contains(&p), "{p}");
        let delivered = estimate.delivered_max_bytes_per_s();
        assert!((100_000..130_000).contains(&delivered), "{delivered}");
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
