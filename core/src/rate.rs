//! How fast a connection takes its bytes: TPF's B_n.
//!
//! What leaves the socket tells, within milliseconds, as long as a client's path holds it up. Of a client that reads at a pace of its own it
//! says nothing: a burst into an empty receive buffer leaves the socket at once. TCP's counters tell one from the other, and how fast the
//! latter is ([`flow`]).

pub mod flow;

use self::flow::Evidence;
use crate::limits::{
    FIRST_SAMPLE_BYTES_MIN, RATE_BYTES_PER_S_MAX, RATE_SAMPLE_US_MIN, STRETCH_US_MIN,
};
use crate::units::US_PER_S;

/// The rate of one connection. 0 means: not known yet. It is never above [`RATE_BYTES_PER_S_MAX`]: this file is the only
/// door by which rates come in, so whoever adds them up can't overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    send_bytes_per_s: u64,
    mean_bytes_per_s: u64,
    congested: Congested,
    source: Source,
}

/// Where a rate comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    /// From what left the socket; TCP's counters have not contradicted that.
    #[default]
    Socket,
    /// The same, and TCP's counters have confirmed that its path holds the client up.
    Path,
    /// From TCP's counters: the client reads at a pace of its own.
    Itself,
}

/// What signs of congestion mean for the next samples. A path that loses segments all the time has signs all the time,
/// and shall not be measured by its worst moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Congested {
    #[default]
    No,
    /// What was measured before the sign says little: the next sample comes soon and counts whole.
    Now,
    /// That one is made; the following one is an ordinary one whatever comes.
    Lately,
}

impl Rate {
    /// B_n for the send margin, bytes per second: up fast, since an empty send buffer idles the
    /// client's link; down slowly, since a margin that is too large costs only memory.
    pub fn send_bytes_per_s(&self) -> u64 {
        self.send_bytes_per_s
    }

    /// B_n for prefetch, bytes per second: the mean over seconds. What is read too early takes memory from others, so
    /// it rises slowly and falls fast; and a client's own buffer, which takes some at once, does not count for much.
    pub fn prefetch_bytes_per_s(&self) -> u64 {
        self.mean_bytes_per_s
    }

    /// Whether TCP's counters have not said yet what holds the client up.
    pub fn is_guess(&self) -> bool {
        self.source == Source::Socket
    }

    /// Whether the client reads at a pace of its own, as TCP's counters have shown.
    pub fn is_own_pace(&self) -> bool {
        self.source == Source::Itself
    }

    /// Whether the client's path holds it up, so that what leaves the socket says all.
    pub fn is_of_path(&self) -> bool {
        self.source == Source::Path
    }

    /// Evidence over less than this says nothing, microseconds: the first piece is the shorter one.
    pub fn least_us(&self) -> u64 {
        match self.is_guess() {
            true => STRETCH_US_MIN / 2,
            false => STRETCH_US_MIN,
        }
    }

    /// TCP's counters say something.
    pub fn learn(&mut self, evidence: Evidence) {
        match evidence {
            Evidence::Sample {
                bytes_per_s,
                by_itself,
            } => {
                let bytes_per_s = bytes_per_s.clamp(1, RATE_BYTES_PER_S_MAX);
                let source = match by_itself {
                    true => Source::Itself,
                    false => Source::Path,
                };
                self.source = source;
                if by_itself {
                    (self.send_bytes_per_s, self.mean_bytes_per_s) = (bytes_per_s, bytes_per_s);
                }
            }
            Evidence::AtMost { .. } if self.send_bytes_per_s == 0 => {} // a bound is no rate
            Evidence::AtMost { bytes_per_s } => {
                let most = bytes_per_s.clamp(1, RATE_BYTES_PER_S_MAX);
                self.source = Source::Itself;
                self.send_bytes_per_s = self.send_bytes_per_s.min(most);
                self.mean_bytes_per_s = match self.mean_bytes_per_s {
                    0 => self.send_bytes_per_s,
                    mean => mean.min(most),
                };
            }
            // What leaves the socket says that, too.
            Evidence::AtLeast { .. } if self.source != Source::Itself => {}
            Evidence::AtLeast { bytes_per_s: least } => {
                let (send, mean) = (self.send_bytes_per_s, self.mean_bytes_per_s);
                let least = least.min(RATE_BYTES_PER_S_MAX);
                // It had less than it could take, and took all that was believed: whether it takes more is to be tried.
                let more = match least >= mean / 10 * 9 {
                    true => mean + mean / 4 + 1,
                    false => mean,
                };
                self.mean_bytes_per_s = more.max(middle(mean, least)).min(RATE_BYTES_PER_S_MAX);
                self.send_bytes_per_s = send.max(self.mean_bytes_per_s);
            }
        }
    }

    /// It is faster than that, nobody knows how much; for prefetch a quarter is enough to find out. A client that
    /// reads at a pace of its own has taken it into its buffer.
    pub fn raise(&mut self) {
        if self.source == Source::Itself {
            return;
        }
        let (send, mean) = (self.send_bytes_per_s, self.mean_bytes_per_s);
        self.send_bytes_per_s = (send * 2).min(RATE_BYTES_PER_S_MAX);
        self.mean_bytes_per_s = (mean + mean / 4).min(RATE_BYTES_PER_S_MAX);
    }

    /// Its path is congested, and carries no more than this, if that is known. For prefetch that holds at once, and the next
    /// stretch says whether it is less. `true`: that one begins now. Of a client that reads at a pace of its own it says nothing.
    pub fn congest(&mut self, most_bytes_per_s: Option<u64>) -> bool {
        if self.mean_bytes_per_s == 0 || self.source == Source::Itself {
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

    /// The same as [`Rate::sample`] over a longer time, for prefetch.
    pub fn stretch(&mut self, taken_bytes: u64, us: u64, dry: bool) -> bool {
        if self.source == Source::Itself {
            return true;
        }
        let mean = self.mean_bytes_per_s;
        let least_us = if mean == 0 || self.congested == Congested::Now {
            STRETCH_US_MIN / 2
        } else {
            STRETCH_US_MIN
        };
        if us < least_us {
            return false;
        }
        let sample = per_s(taken_bytes, us);
        self.mean_bytes_per_s = match mean {
            0 => sample,
            _ if sample >= mean => mean + (sample - mean) / 4,
            _ if dry => mean,
            _ if self.congested == Congested::Now => sample,
            _ => mean - (mean - sample) / 2,
        };
        self.congested = match self.congested {
            Congested::Now => Congested::Lately,
            Congested::Lately | Congested::No => Congested::No,
        };
        true
    }

    /// The connection took `taken_bytes` in `us`. `dry`: it had nothing to take at some time, so that
    /// it may be faster than this, but is not slower. A sample of a moment says nothing: `false`, and it is to be
    /// made longer.
    pub fn sample(&mut self, taken_bytes: u64, us: u64, dry: bool) -> bool {
        if us < RATE_SAMPLE_US_MIN {
            return false;
        }
        if self.source == Source::Itself {
            return true;
        }
        if dry && self.send_bytes_per_s == 0 && taken_bytes < FIRST_SAMPLE_BYTES_MIN {
            return true; // nothing to go by; the next sample begins here
        }
        let sample = per_s(taken_bytes, us);
        let now = self.send_bytes_per_s;
        self.send_bytes_per_s = match now {
            0 => sample,
            _ if sample >= now => now + (sample - now) / 2,
            _ if dry => now,
            _ => now - (now - sample) / 4,
        };
        true
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
        assert!(!rate.stretch(500_000, 100 * MS, false), "a moment");
        rate.stretch(100_000, 1_000 * MS, false);
        assert_eq!(rate.prefetch_bytes_per_s(), 100_000);
        rate.stretch(500_000, 1_000 * MS, false);
        assert_eq!(rate.prefetch_bytes_per_s(), 200_000);
        rate.stretch(100_000, 1_000 * MS, false);
        assert_eq!(rate.prefetch_bytes_per_s(), 150_000);
        rate.stretch(100, 1_000 * MS, true);
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
        rate.stretch(1_000_000, 1_000 * MS, false);
        assert!(rate.congest(Some(600_000)));
        assert_eq!(rate.prefetch_bytes_per_s(), 600_000);
        assert!(!rate.stretch(100_000, 400 * MS, false), "a moment");
        assert!(rate.stretch(250_000, 500 * MS, false));
        assert_eq!(rate.prefetch_bytes_per_s(), 500_000);
        assert!(!rate.congest(None), "bbr; and an ordinary sample is next");
        rate.stretch(300_000, 1_000 * MS, false);
        assert_eq!(rate.prefetch_bytes_per_s(), 400_000);
        assert!(rate.congest(None));
    }

    #[test]
    fn congestion_says_nothing_of_a_client_that_reads_at_a_pace_of_its_own() {
        let mut rate = Rate::default();
        rate.learn(Evidence::AtMost { bytes_per_s: 5 });
        assert_eq!(rate, Rate::default(), "a bound is no rate");
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
        rate.stretch(1 << 20, 1_000 * MS, false);
        (0..200).for_each(|_| rate.raise());
        assert_eq!(rate.send_bytes_per_s(), RATE_BYTES_PER_S_MAX);
        assert_eq!(rate.prefetch_bytes_per_s(), RATE_BYTES_PER_S_MAX);
        rate.sample(u64::MAX, 2 * MS, false);
        rate.stretch(u64::MAX, 1_000 * MS, false);
        assert_eq!(rate.send_bytes_per_s(), RATE_BYTES_PER_S_MAX);
        assert_eq!(rate.prefetch_bytes_per_s(), RATE_BYTES_PER_S_MAX);
    }

    proptest! {
        #[test]
        fn a_steady_rate_is_found(taken in 1u64..1 << 40, us in RATE_SAMPLE_US_MIN..10_000_000, before in 0..=RATE_BYTES_PER_S_MAX) {
            let mut rate = Rate { send_bytes_per_s: before, mean_bytes_per_s: before, congested: Congested::No, source: Source::Socket };
            prop_assert!((0..200).all(|_| rate.sample(taken, us, false)));
            let steady = (u128::from(taken) * 1_000_000 / u128::from(us)).min(RATE_BYTES_PER_S_MAX.into()) as u64;
            prop_assert!(rate.send_bytes_per_s().abs_diff(steady) <= 4, "{rate:?} for {steady}");

        }
    }
}
