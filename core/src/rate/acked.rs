//! How fast a client acknowledges what its socket holds, where a share of the send memory bounds that.
//!
//! There what leaves the unsent queue is no rate: a share goes in flight in the moment in which it is given, however slow
//! the client is. What its socket holds, unsent and in flight, tells what was acknowledged. That is the client's rate
//! only if the path was full. If the socket was found with less in flight than its path holds, its share or we were
//! late, and the client may be faster: then the sample is a bound from below.

use super::Rate;
use crate::units::{Instant, US_PER_S, bytes_in};

/// What was acknowledged between two looks at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckedSample {
    /// Bytes.
    pub bytes: u64,
    /// Time between the looks, microseconds.
    pub us: u64,
    /// The client may be faster, but not slower.
    pub at_least: bool,
}

/// A sample under way.
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Instant,
    /// All that was acknowledged until then.
    acked_bytes: u64,
    /// The least that the socket held when it was looked at since.
    lowest_bytes: u64,
    /// It was found without unsent bytes.
    underrun: bool,
}

/// Counts what is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acked {
    /// All that the socket was given. It wraps, as all that was acknowledged does.
    given_bytes: u64,
    /// The last look: when, and all that was acknowledged.
    looked: Option<(Instant, u64)>,
    /// What the socket held then, before it was offered more, if no sample has counted that yet.
    held_bytes: Option<u64>,
    /// For the send margin, and for prefetch.
    samples: [Option<Begun>; 2],
}

/// Which sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckedFor {
    /// B_n for the send margin.
    Margin,
    /// B_n for prefetch.
    Prefetch,
}

impl Acked {
    /// The socket took bytes.
    pub fn given(&mut self, bytes: u64) {
        self.given_bytes = self.given_bytes.wrapping_add(bytes);
    }

    /// The socket holds so much, before it is offered more.
    pub fn socket_level(&mut self, held_bytes: u64, now: Instant) {
        let acked_bytes = self.given_bytes.wrapping_sub(held_bytes);
        self.looked = Some((now, acked_bytes));
        self.held_bytes = Some(held_bytes);
    }

    /// What the socket holds now, by the last look and what it was given since; `None`: it was never looked at.
    pub fn held_bytes(&self) -> Option<u64> {
        let (_, acked_bytes) = self.looked?;
        Some(self.given_bytes.wrapping_sub(acked_bytes))
    }

    /// The last look counts. `underrun`: nothing was unsent then. On a path of this shortest round trip (0: it is not known)
    /// it may complete samples of the rate.
    pub fn looked(&mut self, underrun: bool, rtt_us: u64, rate: &mut Rate) {
        if !self.look(underrun) {
            return;
        }
        if let Some(sample) = self.sample(AckedFor::Prefetch, rtt_us) {
            if rate.interval(sample.bytes, sample.us, sample.at_least) {
                self.turn(AckedFor::Prefetch);
            }
        }
        if let Some(sample) = self.sample(AckedFor::Margin, rtt_us) {
            if rate.acked(sample) {
                self.turn(AckedFor::Margin);
            }
        }
    }

    /// `false`: there was none that no sample has counted yet.
    fn look(&mut self, underrun: bool) -> bool {
        let (Some((at, acked_bytes)), Some(held_bytes)) = (self.looked, self.held_bytes.take())
        else {
            return false;
        };
        for sample in &mut self.samples {
            let begun = sample.get_or_insert(Begun {
                at,
                acked_bytes,
                lowest_bytes: u64::MAX,
                underrun: false,
            });
            if at > begun.at {
                begun.lowest_bytes = begun.lowest_bytes.min(held_bytes);
                begun.underrun |= underrun;
            }
        }
        true
    }

    /// What was acknowledged since the sample of this kind began, on a path of this shortest round trip; 0: that is not known.
    /// `None`: it was looked at once at most.
    fn sample(&self, kind: AckedFor, rtt_us: u64) -> Option<AckedSample> {
        let begun = self.samples[kind as usize]?;
        let (at, acked_bytes) = self.looked?;
        let us = at.since_us(begun.at);
        let bytes = acked_bytes.wrapping_sub(begun.acked_bytes);
        let bytes = i64::try_from(bytes).map_or(0, i64::unsigned_abs); // less than before: bytes that nobody told of
        let rate_bytes_per_s = u128::from(bytes) * u128::from(US_PER_S) / u128::from(us.max(1));
        let rate_bytes_per_s = u64::try_from(rate_bytes_per_s).unwrap_or(u64::MAX);
        let product_bytes = bytes_in(rtt_us, rate_bytes_per_s);
        let full_bytes = product_bytes.saturating_add(product_bytes / 4);
        let is_full = rtt_us > 0 && begun.lowest_bytes >= full_bytes;
        Some(AckedSample {
            bytes,
            us,
            at_least: begun.underrun && !is_full,
        })
    }

    /// The next sample of this kind begins with the last look.
    pub fn turn(&mut self, kind: AckedFor) {
        self.samples[kind as usize] = self.looked.map(|(at, acked_bytes)| Begun {
            at,
            acked_bytes,
            lowest_bytes: u64::MAX,
            underrun: false,
        });
    }

    /// Time until the next look says nothing: there was nothing to send.
    pub fn begin_anew(&mut self) {
        self.samples = [None; 2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_US: u64 = 20_000;

    fn at(ms: u64) -> Instant {
        Instant { us: ms * 1_000 }
    }

    /// A share of 60 KB, given anew each 10 ms to a socket that held so much before. The first look is at 0.
    fn looked(held_bytes: u64, underrun: bool) -> Acked {
        let mut acked = Acked::default();
        acked.given(held_bytes);
        for nth in 0..=10 {
            acked.socket_level(held_bytes, at(10 * nth));
            assert!(acked.look(underrun));
            acked.given(60_000 - held_bytes);
            assert_eq!(acked.held_bytes(), Some(60_000));
        }
        acked
    }

    fn sample(acked: &Acked) -> AckedSample {
        acked.sample(AckedFor::Margin, RTT_US).expect("two looks")
    }

    #[test]
    fn what_is_given_is_no_rate_and_what_is_acknowledged_is_one() {
        let full = sample(&looked(20_000, true));
        assert_eq!((full.bytes, full.us), (400_000, 100_000));
    }

    #[test]
    fn a_socket_that_was_found_with_less_than_its_path_holds_bounds_the_rate_from_below() {
        // 4 MB/s for 20 ms are 80 KB, with a quarter more 100.
        assert!(sample(&looked(20_000, true)).at_least);
        assert!(!sample(&looked(20_000, false)).at_least, "some was unsent");
        // 1 MB/s are 20, and 25 KB.
        assert!(!sample(&looked(50_000, true)).at_least);
        let unknown = looked(50_000, true).sample(AckedFor::Margin, 0);
        assert!(
            unknown.is_some_and(|sample| sample.at_least),
            "no round trip"
        );
    }

    #[test]
    fn a_sample_begins_with_the_last_look_and_each_look_counts_once() {
        let mut acked = looked(20_000, true);
        assert!(!acked.look(true), "nobody has looked since");
        acked.turn(AckedFor::Margin);
        assert_eq!(sample(&acked).bytes, 0);
        let prefetch = acked.sample(AckedFor::Prefetch, RTT_US);
        assert_eq!(prefetch.map(|sample| sample.bytes), Some(400_000));
        acked.socket_level(30_000, at(200));
        assert!(acked.look(false));
        let after = sample(&acked);
        assert_eq!(
            (after.bytes, after.us, after.at_least),
            (30_000, 100_000, false)
        );
        acked.begin_anew();
        assert_eq!(acked.sample(AckedFor::Margin, RTT_US), None);
    }

    #[test]
    fn bytes_that_nobody_told_of_are_no_rate() {
        let mut acked = Acked::default();
        acked.socket_level(0, at(0));
        assert!(acked.look(true));
        acked.socket_level(900, at(100));
        assert!(acked.look(true));
        assert_eq!(sample(&acked).bytes, 0);
    }
}
