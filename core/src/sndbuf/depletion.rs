//! How long the bytes in a socket last, so that a timer can say when it is filled again, and no EPOLLOUT is needed.
//!
//! A socket holds its share of the send memory at most, unsent and in flight. What it holds before and after it is
//! filled shows how fast its client acknowledges. That rate tells when the socket will hold only what must be in
//! flight: then it has to be filled again. If that is long enough from now, the worker's own timer says when, and
//! several sockets are filled together. EPOLLOUT would wake the worker for each socket by itself. For a small share it
//! would also come late, when the socket is nearly empty, since the kernel counts buffers with their overhead.
//!
//! A rate that is believed too low must not confirm itself. A socket that is filled too late runs dry, so its client
//! acknowledges less than it could, and a low rate is measured. So the rate of a socket that is found empty is taken
//! to be twice what was measured, and that of one with too little in flight a quarter more.

use crate::limits::{
    DEPLETION_SAMPLE_US_MIN, DEPLETION_STEADY_US_MIN, REFILL_US_MAX, REFILL_US_MIN,
};
use crate::prefetch::us_for;
use crate::units::{Instant, US_PER_S, bytes_in};

/// What determines, together with the rate, how much must be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The path's shortest round trip; 0: not known, and EPOLLOUT says when the socket is filled.
    pub rtt_us: u64,
    /// The length of a segment.
    pub segment_bytes: u64,
}

/// How long a socket whose share is full can wait until it is filled again, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillDelay {
    /// From now on, with what it holds now.
    pub us: u64,
    /// If it had just been given a whole share: at least as long.
    pub whole_us: u64,
}

/// How fast a socket is depleted: the rate at which its client acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depletion {
    /// When the current sample began, and what the socket held then plus what it was given since.
    from: Option<(Instant, u64)>,
    /// What it held when it was looked at last, plus what it was given since.
    held_bytes: u64,
    /// The rate at which its client acknowledges; 0: not known yet.
    rate_bytes_per_s: u64,
}

impl Depletion {
    /// The socket holds `held_bytes` now (SIOCOUTQ), before it is given more. A sample that is too short goes on.
    ///
    /// If the socket is found (nearly) empty, its client may be faster than the sample says, so the rate rises at once. Any
    /// other sample lets it rise or fall: a rate that could only rise would prove itself right, since with it more has to be
    /// in flight, and a socket always seems to hold too little.
    pub fn seen(&mut self, held_bytes: u64, in_flight: InFlight, now: Instant) {
        self.held_bytes = held_bytes;
        let Some((from, supplied_bytes)) = self.from else {
            self.from = Some((now, held_bytes));
            return;
        };
        let (us, before) = (now.since_us(from), self.rate_bytes_per_s);
        let is_low = before > 0 && held_bytes < self.refill_level_bytes(in_flight) / 2;
        let is_short = us < DEPLETION_STEADY_US_MIN && before > 0 && !is_low;
        if us < DEPLETION_SAMPLE_US_MIN || is_short {
            return;
        }
        let taken_bytes = u128::from(supplied_bytes.saturating_sub(held_bytes));
        let sample = taken_bytes * u128::from(US_PER_S) / u128::from(us);
        let sample = sample as u64;
        self.rate_bytes_per_s = match held_bytes {
            _ if before == 0 => sample,
            0 => sample.saturating_mul(2),
            _ if is_low => (before - before / 4).max(sample.saturating_add(sample / 4)),
            _ if sample < before => before - (before - sample) / 4,
            _ => before / 2 + sample / 2,
        };
        self.from = Some((now, held_bytes));
    }

    /// The socket took bytes. To be told of each send, or the rate comes out too low.
    pub fn given(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        if let Some((_, supplied_bytes)) = &mut self.from {
            *supplied_bytes = supplied_bytes.saturating_add(bytes);
        }
    }

    /// What the socket must still hold when it is filled again, since that has to be in flight: five quarters of the
    /// bandwidth-delay product, and one segment, since only whole segments leave.
    fn refill_level_bytes(&self, in_flight: InFlight) -> u64 {
        let bytes = bytes_in(in_flight.rtt_us, self.rate_bytes_per_s);
        bytes
            .saturating_add(bytes / 4)
            .saturating_add(in_flight.segment_bytes)
    }

    /// How long until the socket holds only what must be in flight. To be asked when its share has just become full.
    /// `None`: EPOLLOUT says when it is filled, since too little is known, or a whole share lasts too short or too
    /// long for a timer. `is_timed`: a timer filled it the last time; then the lower limit is half, so that it seldom
    /// changes.
    pub fn refill_delay(
        &self,
        share_bytes: u64,
        in_flight: InFlight,
        is_timed: bool,
    ) -> Option<RefillDelay> {
        if in_flight.rtt_us == 0 || self.rate_bytes_per_s == 0 {
            return None;
        }
        let us_of = |held_bytes: u64| {
            let left_bytes = held_bytes.saturating_sub(self.refill_level_bytes(in_flight));
            us_for(left_bytes, self.rate_bytes_per_s)
        };
        let us_min = if is_timed {
            REFILL_US_MIN / 2
        } else {
            REFILL_US_MIN
        };
        let whole_us = us_of(share_bytes);
        (us_min..=REFILL_US_MAX)
            .contains(&whole_us)
            .then(|| RefillDelay {
                us: us_of(self.held_bytes).clamp(REFILL_US_MIN / 2, whole_us), // `whole_us` is not less
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

    /// A client behind a link that is busy while at least its bandwidth-delay product is in flight. Returns, for the
    /// last 20 s of 30, the fraction of the link's capacity that was used, and how often the socket was filled.
    fn filled(share_bytes: u64, rate_bytes_per_s: u64, late_us: u64) -> (f64, u64) {
        let mut depletion = Depletion::default();
        let (mut at, mut held_bytes) = (Instant { us: 0 }, share_bytes);
        let (mut sent_bytes, mut times) = (0, 0);
        depletion.seen(0, IN_FLIGHT, at);
        depletion.given(share_bytes);
        let mut lasts_us = 5_000;
        while at.us < 30_000_000 {
            // While it holds less than the product, the link carries less, in proportion.
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
            // EPOLLOUT, until a rate is known.
            let lasts = depletion.refill_delay(share_bytes, IN_FLIGHT, true);
            lasts_us = lasts.map_or(lasts_us, |lasts| lasts.us);
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
            held_bytes: 20_000,
            rate_bytes_per_s: 10_000,
        };
        let mut at = Instant { us: 0 };
        for _ in 0..60 {
            // Its client takes 400 KB/s. EPOLLOUT, where it is used, comes when a third is gone.
            let lasts = depletion.refill_delay(20_000, IN_FLIGHT, true);
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
    fn a_socket_without_a_round_trip_or_with_too_small_a_share_waits_for_epollout() {
        let depletion = Depletion {
            from: None,
            held_bytes: 0,
            rate_bytes_per_s: 1_000_000,
        };
        let unknown = InFlight {
            rtt_us: 0,
            ..IN_FLIGHT
        };
        // 26,448 bytes must be in flight.
        assert_eq!(depletion.refill_delay(36_400, IN_FLIGHT, false), None);
        assert!(depletion.refill_delay(36_500, IN_FLIGHT, false).is_some());
        assert!(
            depletion.refill_delay(31_500, IN_FLIGHT, true).is_some(),
            "it was so before"
        );
        assert_eq!(depletion.refill_delay(36_500, unknown, true), None);
        assert_eq!(
            depletion.refill_delay(1_000_000, IN_FLIGHT, true),
            None,
            "for a second"
        );
        assert_eq!(
            Depletion::default().refill_delay(36_500, IN_FLIGHT, true),
            None
        );
    }

    proptest! {
        #[test]
        fn whatever_is_seen_it_lasts_some_time_and_not_too_long(samples in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..20), share_bytes in any::<u64>(), rtt_us in any::<u64>(), segment_bytes in any::<u64>()) {
            let in_flight = InFlight { rtt_us, segment_bytes };
            let mut depletion = Depletion::default();
            for (held_bytes, given_bytes, us) in samples {
                depletion.seen(held_bytes, in_flight, Instant { us });
                depletion.given(given_bytes);
                if let Some(lasts) = depletion.refill_delay(share_bytes, in_flight, true) {
                    prop_assert!((REFILL_US_MIN / 2..=lasts.whole_us).contains(&lasts.us));
                    prop_assert!(lasts.whole_us <= REFILL_US_MAX);
                }
            }
        }
    }
}
