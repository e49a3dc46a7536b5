//! How fast a connection takes its bytes: TPF's B_n.
//!
//! As long as a client's path holds it up, what leaves the socket tells its rate within milliseconds. For a client that
//! reads at its own pace it tells nothing: a burst into an empty receive buffer leaves the socket at once. TCP's
//! counters distinguish the two, and tell how fast the latter is ([`flow`]).

pub mod acked;
pub mod flow;

use self::acked::AckedSample;
use self::flow::Evidence;
use crate::limits::{
    ACKED_SAMPLE_BYTES_MIN, ACKED_SAMPLE_US_MIN, FIRST_SAMPLE_BYTES_MIN, INTERVAL_US_MIN,
    RATE_BYTES_PER_S_MAX, RATE_SAMPLE_US_MIN,
};
use crate::units::US_PER_S;

/// The rate of one connection. 0 means: not known yet. It never exceeds [`RATE_BYTES_PER_S_MAX`]: all rates enter
/// through this file, so sums of them can't overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    send_bytes_per_s: u64,
    mean_bytes_per_s: u64,
    congested: Congested,
    source: RateSource,
}

/// What is believed of a client's rate, for the machine that takes its connection over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BelievedRate {
    /// B_n for the send margin; 0: not known yet.
    pub send_bytes_per_s: u64,
    /// B_n for prefetch; 0: not known yet.
    pub prefetch_bytes_per_s: u64,
    /// Where they come from.
    pub source: RateSource,
}

/// Where a rate comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateSource {
    /// From what left the socket; TCP's counters have not contradicted it.
    #[default]
    Socket,
    /// From what left the socket; TCP's counters have confirmed that its path holds the client up.
    Path,
    /// The client's window is closed, so it reads at its own pace. TCP's counters have told how fast at most, which may be
    /// far too much: the rest is what its receive buffer took at once.
    Bounded,
    /// From TCP's counters: the client reads at its own pace.
    Itself,
    /// The same at first. Since then it had nothing to read most of the time, so it may be faster.
    AtLeast,
}

/// What congestion signals mean for the next samples. A path that loses segments all the time signals all the time, and
/// must not be measured by its worst moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Congested {
    #[default]
    No,
    /// What was measured before the signal says little: the next sample comes soon and counts in full.
    Now,
    /// That sample is taken; the following one is ordinary, whatever comes.
    Lately,
}

impl Rate {
    /// The rate that another machine believed. It may come from another node, so it is bounded here, too.
    pub fn believed(rate: BelievedRate) -> Rate {
        Rate {
            send_bytes_per_s: rate.send_bytes_per_s.min(RATE_BYTES_PER_S_MAX),
            mean_bytes_per_s: rate.prefetch_bytes_per_s.min(RATE_BYTES_PER_S_MAX),
            congested: Congested::No,
            source: rate.source,
        }
    }

    /// What is believed, for another machine.
    pub fn belief(&self) -> BelievedRate {
        BelievedRate {
            send_bytes_per_s: self.send_bytes_per_s,
            prefetch_bytes_per_s: self.mean_bytes_per_s,
            source: self.source,
        }
    }

    /// B_n for the send margin, bytes per second. It rises fast, since an empty send buffer idles the client's link,
    /// and falls slowly, since a margin that is too large costs only memory.
    pub fn send_bytes_per_s(&self) -> u64 {
        self.send_bytes_per_s
    }

    /// B_n for prefetch, bytes per second: the mean over seconds. It rises slowly and falls fast, since what is read
    /// too early takes memory from others. So a client's own buffer, which takes some at once, does not count for much.
    pub fn prefetch_bytes_per_s(&self) -> u64 {
        self.mean_bytes_per_s
    }

    /// Whether TCP's counters have not told yet what holds the client up.
    pub fn is_guess(&self) -> bool {
        self.source == RateSource::Socket
    }

    /// Whether the client reads at its own pace, as TCP's counters have shown.
    pub fn is_own_pace(&self) -> bool {
        match self.source {
            RateSource::Itself | RateSource::AtLeast | RateSource::Bounded => true,
            RateSource::Socket | RateSource::Path => false,
        }
    }

    /// How fast the client may read for all that is known, bytes per second: one whom the disk starves may be faster than it seems.
    pub fn most_bytes_per_s(&self) -> u64 {
        match self.source {
            RateSource::Itself | RateSource::Bounded => self.mean_bytes_per_s,
            RateSource::AtLeast | RateSource::Socket | RateSource::Path => {
                2 * self.mean_bytes_per_s
            }
        }
    }

    /// Whether TCP's counters have told how fast it is.
    pub fn is_counted(&self) -> bool {
        match self.source {
            RateSource::Itself | RateSource::AtLeast | RateSource::Path => true,
            RateSource::Socket | RateSource::Bounded => false,
        }
    }

    /// Whether the client's path holds it up, so that what leaves the socket tells its rate.
    pub fn is_of_path(&self) -> bool {
        self.source == RateSource::Path
    }

    /// Evidence over less time than this says nothing, microseconds. The first piece may be shorter.
    pub fn least_us(&self) -> u64 {
        match self.is_guess() {
            true => INTERVAL_US_MIN / 2,
            false => INTERVAL_US_MIN,
        }
    }

    /// Evidence from TCP's counters.
    pub fn learn(&mut self, evidence: Evidence) {
        match evidence {
            Evidence::Sample {
                bytes_per_s,
                by_itself,
            } => {
                let bytes_per_s = bytes_per_s.clamp(1, RATE_BYTES_PER_S_MAX);
                let source = match by_itself {
                    true => RateSource::Itself,
                    false => RateSource::Path,
                };
                self.source = source;
                if by_itself {
                    (self.send_bytes_per_s, self.mean_bytes_per_s) = (bytes_per_s, bytes_per_s);
                }
            }
            Evidence::AtMost { bytes_per_s } => {
                let most = bytes_per_s.clamp(1, RATE_BYTES_PER_S_MAX);
                if !self.is_own_pace() {
                    self.source = RateSource::Bounded;
                }
                // A bound is better than none: what leaves the socket next may be a burst.
                let bounded = |rate: u64, unknown: u64| match rate {
                    0 => unknown,
                    rate => rate.min(most),
                };
                self.send_bytes_per_s = bounded(self.send_bytes_per_s, most);
                self.mean_bytes_per_s = bounded(self.mean_bytes_per_s, self.send_bytes_per_s);
            }
            // What leaves the socket says as much.
            Evidence::AtLeast { .. } if !self.is_own_pace() => {}
            Evidence::AtLeast { bytes_per_s: least } => {
                let (send, mean) = (self.send_bytes_per_s, self.mean_bytes_per_s);
                let least = least.min(RATE_BYTES_PER_S_MAX);
                // It could have taken more, and took all that the estimate allowed: try whether it takes more.
                let more = match least >= mean / 10 * 9 {
                    true => mean + mean / 4 + 1,
                    false => mean,
                };
                self.mean_bytes_per_s = more.max(middle(mean, least)).min(RATE_BYTES_PER_S_MAX);
                self.send_bytes_per_s = send.max(self.mean_bytes_per_s);
                if self.source == RateSource::Itself {
                    self.source = RateSource::AtLeast;
                }
            }
        }
    }

    /// The client is faster than estimated, by an unknown amount; for prefetch, a quarter more is enough to find out. A
    /// client that reads at its own pace has only taken more into its buffer.
    pub fn raise(&mut self) {
        if self.is_own_pace() {
            return;
        }
        let (send, mean) = (self.send_bytes_per_s, self.mean_bytes_per_s);
        self.send_bytes_per_s = (send * 2).min(RATE_BYTES_PER_S_MAX);
        self.mean_bytes_per_s = (mean + mean / 4).min(RATE_BYTES_PER_S_MAX);
    }

    /// The path is congested, and carries at most this much if that is known. For prefetch that bound holds at once,
    /// and the next interval tells whether the rate is less. `true`: that interval begins now. About a client that reads
    /// at its own pace, congestion says nothing.
    pub fn congest(&mut self, most_bytes_per_s: Option<u64>) -> bool {
        if self.mean_bytes_per_s == 0 || self.is_own_pace() {
            return false;
        }
        let most_bytes_per_s = most_bytes_per_s.unwrap_or(u64::MAX).max(1);
        self.mean_bytes_per_s = self.mean_bytes_per_s.min(most_bytes_per_s);
        let anew = self.congested == Congested::No;
        if anew {
            self.congested = Congested::Now;
        }
        anew
    }

    /// Like [`Rate::sample`], over a longer time, for prefetch.
    pub fn interval(&mut self, taken_bytes: u64, us: u64, underrun: bool) -> bool {
        if self.is_own_pace() {
            return true;
        }
        let mean = self.mean_bytes_per_s;
        let least_us = if mean == 0 || self.congested == Congested::Now {
            INTERVAL_US_MIN / 2
        } else {
            INTERVAL_US_MIN
        };
        if us < least_us {
            return false;
        }
        let sample = per_s(taken_bytes, us);
        self.mean_bytes_per_s = match mean {
            0 => sample,
            _ if sample >= mean => mean + (sample - mean) / 4,
            _ if underrun => mean,
            _ if self.congested == Congested::Now => sample,
            _ => mean - (mean - sample) / 2,
        };
        self.congested = match self.congested {
            Congested::Now => Congested::Lately,
            Congested::Lately | Congested::No => Congested::No,
        };
        true
    }

    /// The connection took `taken_bytes` in `us`. `underrun`: it had nothing to take at some time, so it may be faster than
    /// this, but not slower. `false`: the time was too short to say anything, and the sample is to be made longer.
    pub fn sample(&mut self, taken_bytes: u64, us: u64, underrun: bool) -> bool {
        if us < RATE_SAMPLE_US_MIN {
            return false;
        }
        if self.is_own_pace() {
            return true;
        }
        if underrun && self.send_bytes_per_s == 0 && taken_bytes < FIRST_SAMPLE_BYTES_MIN {
            return true; // nothing to go by; the next sample begins here
        }
        self.send(per_s(taken_bytes, us), underrun);
        true
    }

    /// The same, by what its client acknowledged. `false`: the time was too short.
    pub fn acked(&mut self, sample: AckedSample) -> bool {
        let AckedSample {
            bytes,
            us,
            at_least,
        } = sample;
        let is_little = bytes < ACKED_SAMPLE_BYTES_MIN && us < INTERVAL_US_MIN;
        if us < ACKED_SAMPLE_US_MIN || is_little {
            return false;
        }
        if !self.is_own_pace() {
            self.send(per_s(bytes, us), at_least);
        }
        true
    }

    fn send(&mut self, sample: u64, at_least: bool) {
        let now = self.send_bytes_per_s;
        self.send_bytes_per_s = match now {
            0 => sample,
            _ if sample >= now => now + (sample - now) / 2,
            _ if at_least => now,
            _ => now - (now - sample) / 4,
        };
    }
}

fn middle(a: u64, b: u64) -> u64 {
    a / 2 + b / 2 + (a & b & 1)
}

fn per_s(bytes: u64, us: u64) -> u64 {
    let rate = u128::from(bytes) * u128::from(US_PER_S) / u128::from(us.max(1));
    u64::try_from(rate).map_or(RATE_BYTES_PER_S_MAX, |rate| rate.min(RATE_BYTES_PER_S_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1000;

    #[test]
    fn it_rises_fast_and_falls_slowly() {
        let mut rate = Rate::default();
        rate.sample(100_000, 100 * MS, false);
        assert_eq!(rate.send_bytes_per_s(), 1_000_000);
        rate.sample(300_000, 100 * MS, false);
        assert_eq!(rate.send_bytes_per_s(), 2_000_000);
        rate.sample(100_000, 100 * MS, false);
        assert_eq!(rate.send_bytes_per_s(), 1_750_000);
    }

    #[test]
    fn who_had_nothing_to_take_is_not_called_slow() {
        let mut rate = Rate::default();
        rate.sample(100_000, 100 * MS, true);
        rate.sample(100, 100 * MS, true);
        assert_eq!(rate.send_bytes_per_s(), 1_000_000);
    }

    #[test]
    fn for_prefetch_moments_do_not_count_and_it_falls_fast() {
        let mut rate = Rate::default();
        assert!(!rate.interval(500_000, 100 * MS, false), "a moment");
        rate.interval(100_000, 1_000 * MS, false);
        assert_eq!(rate.prefetch_bytes_per_s(), 100_000);
        rate.interval(500_000, 1_000 * MS, false);
        assert_eq!(rate.prefetch_bytes_per_s(), 200_000);
        rate.interval(100_000, 1_000 * MS, false);
        assert_eq!(rate.prefetch_bytes_per_s(), 150_000);
        rate.interval(100, 1_000 * MS, true);
        assert_eq!(
            rate.prefetch_bytes_per_s(),
            150_000,
            "it had nothing to take"
        );
    }

    #[test]
    fn after_a_sign_of_congestion_the_window_bounds_it_and_the_next_sample_counts_whole() {
        let mut rate = Rate::default();
        assert!(!rate.congest(Some(1)), "still unknown");
        rate.interval(1_000_000, 1_000 * MS, false);
        assert!(rate.congest(Some(600_000)));
        assert_eq!(rate.prefetch_bytes_per_s(), 600_000);
        assert!(!rate.interval(100_000, 400 * MS, false), "a moment");
        assert!(rate.interval(250_000, 500 * MS, false));
        assert_eq!(rate.prefetch_bytes_per_s(), 500_000);
        assert!(!rate.congest(None), "bbr; and an ordinary sample is next");
        rate.interval(300_000, 1_000 * MS, false);
        assert_eq!(rate.prefetch_bytes_per_s(), 400_000);
        assert!(rate.congest(None));
    }

    #[test]
    fn congestion_says_nothing_of_a_client_that_reads_at_a_pace_of_its_own() {
        let mut rate = Rate::default();
        let mut bounded = Rate::default();
        bounded.learn(Evidence::AtMost { bytes_per_s: 5 });
        bounded.sample(1_000_000, 100 * MS, false);
        assert_eq!(bounded.send_bytes_per_s(), 5, "a burst is no rate");
        let mut guessed = Rate::default();
        guessed.sample(1_000_000, 100 * MS, false);
        guessed.learn(Evidence::AtMost { bytes_per_s: 5 });
        assert!(guessed.is_own_pace() && !guessed.is_counted());
        assert_eq!(guessed.send_bytes_per_s(), 5);
        rate.learn(Evidence::Sample {
            bytes_per_s: 300_000,
            by_itself: true,
        });
        assert!(!rate.congest(Some(1)));
        assert_eq!(rate.prefetch_bytes_per_s(), 300_000);
        rate.learn(Evidence::AtMost {
            bytes_per_s: 200_000,
        });
        assert_eq!(rate.prefetch_bytes_per_s(), 200_000);
        rate.learn(Evidence::AtMost {
            bytes_per_s: 250_000,
        });
        assert_eq!(rate.send_bytes_per_s(), 200_000);
    }

    #[test]
    fn a_client_that_is_always_faster_than_believed_stays_below_the_fastest_path() {
        let mut rate = Rate::default();
        rate.sample(1 << 20, 10 * MS, false);
        rate.interval(1 << 20, 1_000 * MS, false);
        (0..200).for_each(|_| rate.raise());
        assert_eq!(rate.send_bytes_per_s(), RATE_BYTES_PER_S_MAX);
        assert_eq!(rate.prefetch_bytes_per_s(), RATE_BYTES_PER_S_MAX);
        rate.sample(u64::MAX, 2 * MS, false);
        rate.interval(u64::MAX, 1_000 * MS, false);
        assert_eq!(rate.send_bytes_per_s(), RATE_BYTES_PER_S_MAX);
        assert_eq!(rate.prefetch_bytes_per_s(), RATE_BYTES_PER_S_MAX);
    }

    proptest! {
        #[test]
        fn a_steady_rate_is_found(taken in 1u64..1 << 40, us in RATE_SAMPLE_US_MIN..10_000_000, before in 0..=RATE_BYTES_PER_S_MAX) {
            let mut rate = Rate { send_bytes_per_s: before, mean_bytes_per_s: before, congested: Congested::No, source: RateSource::Socket };
            prop_assert!((0..200).all(|_| rate.sample(taken, us, false)));
            let steady = (u128::from(taken) * 1_000_000 / u128::from(us)).min(RATE_BYTES_PER_S_MAX.into()) as u64;
            prop_assert!(rate.send_bytes_per_s().abs_diff(steady) <= 4, "{rate:?} for {steady}");

        }
    }
}
