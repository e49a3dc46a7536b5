//! How long the share of a socket lasts, so that it is filled again in time without a call of the kernel.
//!
//! What a socket holds before and after it is filled shows how fast its client acknowledges, and so when only that is
//! left which must be in flight. Where this takes long enough, the worker's own timer says when it is filled, together
//! with others. The kernel would call each socket by itself, and small ones when they are nearly empty: it counts
//! buffers with their overhead.
//!
//! A rate that is believed too low must not prove itself right, since whoever is filled late takes less. So one that is
//! found empty is believed to be twice as fast as it was, and one with too little in flight a quarter faster.

use crate::limits::{DEPLETION_SAMPLE_US_MIN, REFILL_US_MAX, REFILL_US_MIN};
use crate::prefetch::us_for;
use crate::send::bytes_in;
use crate::units::{Instant, US_PER_S};

/// What must be in flight, beside the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The path's shortest round trip; 0: not known, and the kernel calls.
    pub rtt_us: u64,
    /// A segment.
    pub segment_bytes: u64,
}

/// How long a socket that takes no more lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lasts {
    /// What it holds.
    pub us: u64,
    /// A whole share.
    pub whole_us: u64,
}

/// How fast a socket is depleted: what its client acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depletion {
    /// From when on it is measured, and what the socket held then, with what it was given since.
    from: Option<(Instant, u64)>,
    /// What its client acknowledges; 0: not known yet.
    rate_bytes_per_s: u64,
}

impl Depletion {
    /// The socket holds so much now, before it is given more.
    pub fn seen(&mut self, held_bytes: u64, in_flight: InFlight, now: Instant) {
        let Some((from, had_bytes)) = self.from else {
            self.from = Some((now, held_bytes));
            return;
        };
        let us = now.since_us(from);
        if us < DEPLETION_SAMPLE_US_MIN {
            return;
        }
        let taken_bytes = u128::from(had_bytes.saturating_sub(held_bytes));
        let sample = taken_bytes * u128::from(US_PER_S) / u128::from(us);
        let (sample, before) = (sample as u64, self.rate_bytes_per_s);
        let low_bytes = self.in_flight_bytes(in_flight) / 2;
        self.rate_bytes_per_s = match held_bytes {
            _ if before == 0 => sample,
            0 => before.max(sample.saturating_mul(2)),
            held_bytes if held_bytes < low_bytes => before.max(sample.saturating_add(sample / 4)),
            _ => before / 2 + sample / 2,
        };
        self.from = Some((now, held_bytes));
    }

    /// The socket took bytes.
    pub fn given(&mut self, bytes: u64) {
        if let Some((_, had_bytes)) = &mut self.from {
            *had_bytes = had_bytes.saturating_add(bytes);
        }
    }

    /// What has to be left when it is filled again: the bandwidth-delay product with a quarter more, and a segment, since
    /// whole ones leave.
    fn in_flight_bytes(&self, in_flight: InFlight) -> u64 {
        let bytes = bytes_in(in_flight.rtt_us, self.rate_bytes_per_s);
        bytes
            .saturating_add(bytes / 4)
            .saturating_add(in_flight.segment_bytes)
    }

    /// How long a share lasts, until only that is left which must be in flight, if that is a time for a timer; `None`: the
    /// kernel calls. `is_timed`: it was filled by a timer the last time.
    pub fn lasts(&self, share_bytes: u64, in_flight: InFlight, is_timed: bool) -> Option<Lasts> {
        if in_flight.rtt_us == 0 || self.rate_bytes_per_s == 0 {
            return None;
        }
        let us_of = |held_bytes: u64| {
            let left_bytes = held_bytes.saturating_sub(self.in_flight_bytes(in_flight));
            us_for(left_bytes, self.rate_bytes_per_s)
        };
        let us_min = if is_timed {
            REFILL_US_MIN / 2
        } else {
            REFILL_US_MIN
        };
        let whole_us = us_of(share_bytes);
        let held_bytes = self.from.map_or(0, |(_, held_bytes)| held_bytes);
        (us_min..=REFILL_US_MAX).contains(&whole_us).then(|| Lasts {
            us: us_of(held_bytes).clamp(REFILL_US_MIN / 2, whole_us),
            whole_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IN_FLIGHT: InFlight = InFlight {
        rtt_us: 20_000,
        segment_bytes: 1_448,
    };

    /// A client of a link that is busy while more than its product is in flight. Returns the part of the time in which
    /// it was, and how often the socket was filled, in its last 20 s of 30.
    fn filled(share_bytes: u64, rate_bytes_per_s: u64, late_us: u64) -> (f64, u64) {
        let mut depletion = Depletion::default();
        let (mut at, mut held_bytes) = (Instant { us: 0 }, share_bytes);
        let (mut sent_bytes, mut times) = (0, 0);
        depletion.seen(0, IN_FLIGHT, at);
        depletion.given(share_bytes);
        let mut lasts_us = 5_000;
        while at.us < 30_000_000 {
            // The last round trip of what it holds leaves more slowly, down to nothing.
            let us = lasts_us + late_us;
            let mut left_bytes = 0;
            for _ in 0..us {
                let product_bytes = bytes_in(IN_FLIGHT.rtt_us, rate_bytes_per_s).max(1);
                left_bytes += (held_bytes * US_PER_S / product_bytes).min(US_PER_S)
                    * rate_bytes_per_s
                    / US_PER_S;
                let gone_bytes = left_bytes / US_PER_S;
                left_bytes %= US_PER_S;
                held_bytes -= gone_bytes.min(held_bytes);
            }
            at = at.plus_us(us);
            depletion.seen(held_bytes, IN_FLIGHT, at);
            let given_bytes = share_bytes - held_bytes;
            if at.us > 10_000_000 {
                (sent_bytes, times) = (sent_bytes + given_bytes, times + 1);
            }
            depletion.given(given_bytes);
            held_bytes = share_bytes;
            let lasts = depletion.lasts(share_bytes, IN_FLIGHT, true);
            lasts_us = lasts.expect("it lasts some time").us;
        }
        let all_bytes = bytes_in(20_000_000, rate_bytes_per_s);
        (sent_bytes as f64 / all_bytes as f64, times)
    }

    #[test]
    fn a_link_stays_busy_and_sockets_are_filled_when_little_is_left() {
        for (share_bytes, rate_bytes_per_s, times_most) in
            [(20_000, 250_000, 480), (900_000, 12_500_000, 500)]
        {
            let (busy, times) = filled(share_bytes, rate_bytes_per_s, 1_000);
            assert!(busy > 0.98, "{busy}");
            assert!(times < times_most, "{times}");
        }
    }

    #[test]
    fn a_rate_that_was_believed_too_low_does_not_prove_itself_right() {
        let mut depletion = Depletion {
            from: Some((Instant { us: 0 }, 20_000)),
            rate_bytes_per_s: 10_000,
        };
        let mut at = Instant { us: 0 };
        for _ in 0..12 {
            // Its client takes 400 KB/s. Where the kernel calls, it does when a third is gone.
            let lasts = depletion.lasts(20_000, IN_FLIGHT, true);
            let us = lasts.map_or(17_000, |lasts| lasts.us);
            at = at.plus_us(us);
            let held_bytes = 20_000u64.saturating_sub(us * 4 / 10);
            depletion.seen(held_bytes, IN_FLIGHT, at);
            depletion.given(20_000 - held_bytes);
        }
        assert!(
            (300_000..=500_000).contains(&depletion.rate_bytes_per_s),
            "{}",
            depletion.rate_bytes_per_s
        );
    }

    #[test]
    fn the_kernel_calls_who_has_no_round_trip_or_too_small_a_share() {
        let depletion = Depletion {
            from: None,
            rate_bytes_per_s: 1_000_000,
        };
        let unknown = InFlight {
            rtt_us: 0,
            ..IN_FLIGHT
        };
        // 26,448 bytes are in flight.
        assert_eq!(depletion.lasts(36_400, IN_FLIGHT, false), None);
        assert!(depletion.lasts(36_500, IN_FLIGHT, false).is_some());
        assert!(
            depletion.lasts(31_500, IN_FLIGHT, true).is_some(),
            "it was so before"
        );
        assert_eq!(depletion.lasts(36_500, unknown, true), None);
        assert_eq!(
            depletion.lasts(1_000_000, IN_FLIGHT, true),
            None,
            "for a second"
        );
        assert_eq!(Depletion::default().lasts(36_500, IN_FLIGHT, true), None);
    }

    proptest! {
        #[test]
        fn whatever_is_seen_it_lasts_some_time_and_not_too_long(samples in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..20), share_bytes in any::<u64>(), rtt_us in any::<u64>(), segment_bytes in any::<u64>()) {
            let in_flight = InFlight { rtt_us, segment_bytes };
            let mut depletion = Depletion::default();
            for (held_bytes, given_bytes, us) in samples {
                depletion.seen(held_bytes, in_flight, Instant { us });
                depletion.given(given_bytes);
                if let Some(lasts) = depletion.lasts(share_bytes, in_flight, true) {
                    prop_assert!((REFILL_US_MIN / 2..=lasts.whole_us).contains(&lasts.us));
                    prop_assert!(lasts.whole_us <= REFILL_US_MAX);
                }
            }
        }
    }
}
